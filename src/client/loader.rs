//! Loading cold users: what a database knows of somebody nobody has told of yet becomes ordinary changes.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::Writer;
use crate::change::{Change, UserId};
use crate::task;

/// Why nothing was loaded.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What is known of a user, on its way.
pub type Loading<'a> = Pin<Box<dyn Future<Output = Result<Vec<Change>, BoxError>> + Send + 'a>>;

/// Whoever knows more of users than heyday has been told: mostly a database.
pub trait Loader: Send + Sync + 'static {
    /// All that makes up this user's view, as changes of this user; none where the user is not known.
    ///
    /// They are appended behind what others append meanwhile, so an older date may come after a newer one. Where that matters, give
    /// the changes the `version` that the database has of them, as other writers do: then the newest wins.
    fn load<'a>(&'a self, user: &'a UserId) -> Loading<'a>;
}

/// How users are loaded.
#[derive(Clone, Debug)]
pub struct Options {
    /// Users loaded at the same time. Beyond that a cold user stays cold until a later read.
    pub concurrency_max: usize,
    /// How long loading one user may take.
    pub timeout: Duration,
    /// A user who was loaded, is not known or could not be loaded is not asked for again so soon.
    pub retry_after: Duration,
    /// So many users are remembered for that.
    pub remembered_max: usize,
    /// Whether a cold read waits for what is loaded, and for a worker to apply it, as long as its own timeout allows.
    pub wait: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            concurrency_max: 16,
            timeout: Duration::from_secs(5),
            retry_after: Duration::from_secs(60),
            remembered_max: 100_000,
            wait: false,
        }
    }
}

/// What became of the users that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Users whose changes were appended.
    pub loaded: u64,
    /// Users of whom the loader knows nothing.
    pub unknown: u64,
    /// Users who could not be loaded, or not be appended.
    pub failed: u64,
    /// Cold reads that found no room among [`Options::concurrency_max`].
    pub full: u64,
}

/// Loads cold users in the background, one flight a user. Give it to [`super::Reader::loading`] or [`super::near::Options::loads`];
/// clones share flights and memory.
#[derive(Clone)]
pub struct Loads(Arc<Inner>);

struct Inner {
    loader: Box<dyn Loader>,
    writer: Writer,
    options: Options,
    slots: Arc<Semaphore>,
    /// Users on their way: at most as many as there are slots.
    flights: Mutex<HashMap<UserId, Flight>>,
    /// Until when a user is left alone.
    asked: Cache<UserId, Instant>,
    failing: AtomicBool,
    counters: Counters,
}

/// True once changes are appended; closed where there were none.
pub(super) type Flight = watch::Receiver<bool>;

#[derive(Default)]
struct Counters {
    loaded: AtomicU64,
    unknown: AtomicU64,
    failed: AtomicU64,
    full: AtomicU64,
}

/// A user on the way, taken off the list and left alone for a while however the flight ends.
struct Boarded {
    inner: Arc<Inner>,
    user: UserId,
    /// Whether it is counted what became of it; a flight that panicked has failed.
    counted: bool,
    _slot: OwnedSemaphorePermit,
}

impl Loads {
    /// What `loader` knows is appended by `writer`.
    pub fn new(loader: impl Loader, writer: Writer, options: Options) -> Loads {
        Loads(Arc::new(Inner {
            loader: Box::new(loader),
            writer,
            slots: Arc::new(Semaphore::new(options.concurrency_max)),
            flights: Mutex::default(),
            asked: Cache::new(options.remembered_max.max(1)),
            options,
            failing: AtomicBool::new(false),
            counters: Counters::default(),
        }))
    }

    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { loaded, unknown, failed, full } = &self.0.counters;
        Counts { loaded: read(loaded), unknown: read(unknown), failed: read(failed), full: read(full) }
    }

    pub(super) fn waits(&self) -> bool {
        self.0.options.wait
    }

    /// Begins to load a user, unless that was done lately; the flight under way where there is one.
    pub(super) fn begin(&self, user: &UserId) -> Option<Flight> {
        let inner = &self.0;
        let mut flights = inner.flights();
        if let Some(flight) = flights.get(user) {
            return Some(flight.clone());
        }
        if inner.asked.get(user).is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let Ok(slot) = inner.slots.clone().try_acquire_owned() else {
            inner.counters.full.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let (appended, flight) = watch::channel(false);
        flights.insert(user.clone(), flight.clone());
        drop(flights);
        let boarded = Boarded { inner: inner.clone(), user: user.clone(), counted: false, _slot: slot };
        task::spawn("loader", async move { boarded.fly(appended).await });
        Some(flight)
    }
}

impl Boarded {
    async fn fly(mut self, appended: watch::Sender<bool>) {
        let inner = self.inner.clone();
        let Inner { options, counters, .. } = &*inner;
        let loaded = match tokio::time::timeout(options.timeout, self.load()).await {
            Ok(loaded) => loaded,
            Err(_) => Err(format!("nothing within {:?}", options.timeout).into()),
        };
        let counter = match &loaded {
            Ok(0) => &counters.unknown,
            Ok(_) => &counters.loaded,
            Err(_) => &counters.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.counted = true;
        inner.log(&self.user, loaded.as_ref().err());
        appended.send_replace(loaded.is_ok_and(|changes| changes > 0));
    }

    async fn load(&self) -> Result<usize, BoxError> {
        let Inner { loader, writer, .. } = &*self.inner;
        let changes = loader.load(&self.user).await?;
        if let Some(other) = changes.iter().find(|change| change.user != self.user) {
            return Err(format!("the loader gave a change of user {}", other.user).into());
        }
        let mut receipts = Vec::with_capacity(changes.len());
        for change in &changes {
            receipts.push(writer.enqueue(change).await?);
        }
        for receipt in receipts {
            receipt.await?;
        }
        Ok(changes.len())
    }
}

impl Drop for Boarded {
    fn drop(&mut self) {
        let Inner { asked, counters, options, .. } = &*self.inner;
        if !self.counted {
            counters.failed.fetch_add(1, Ordering::Relaxed);
        }
        // From here on it is not asked again; only then the flight is over.
        asked.insert(self.user.clone(), Instant::now() + options.retry_after);
        self.inner.flights().remove(&self.user);
    }
}

impl Inner {
    fn flights(&self) -> MutexGuard<'_, HashMap<UserId, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One line when loading begins to fail, and one when it works again.
    fn log(&self, user: &UserId, error: Option<&BoxError>) {
        let failed_before = self.failing.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !failed_before => tracing::warn!(%user, %error, "cold users cannot be loaded"),
            None if failed_before => tracing::info!("cold users are loaded again"),
            _ => {}
        }
    }
}

impl std::fmt::Debug for Loads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loads").field("options", &self.0.options).field("counts", &self.counts()).finish()
    }
}
