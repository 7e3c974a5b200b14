//! Whether the process lives and is ready. The worker reports; the admin server answers from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// A handle that the worker's supervision beats and that anyone may ask.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    started: Instant,
    silence_max: Duration,
    /// Milliseconds from `started` to the last beat.
    beaten_ms: AtomicU64,
    readiness: Mutex<Readiness>,
}

/// How far the worker is on its way to doing its share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// The cluster was looked at and found safe, or unsafe and accepted.
    pub preflight_passed: bool,
    /// The other workers know of this one.
    pub registered: bool,
    pub shards_owned: usize,
    /// The fair share.
    pub shards_aimed: usize,
    /// Who keeps the workers from committing, and why; none where nobody does.
    pub maintenance: Option<String>,
}

impl Health {
    /// Alive until it has not beaten for longer than `silence_max`; the start counts as a beat.
    #[must_use]
    pub fn new(silence_max: Duration) -> Self {
        Self(Arc::new(Inner {
            started: Instant::now(),
            silence_max,
            beaten_ms: AtomicU64::new(0),
            readiness: Mutex::default(),
        }))
    }

    /// The worker's supervision has done a round.
    pub fn beat(&self) {
        let since_start = u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX);
        self.0.beaten_ms.store(since_start, Ordering::Relaxed);
    }

    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.0.started.elapsed()
    }

    #[must_use]
    pub fn heartbeat_age(&self) -> Duration {
        self.uptime().saturating_sub(Duration::from_millis(self.0.beaten_ms.load(Ordering::Relaxed)))
    }

    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.0.silence_max
    }

    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.heartbeat_age() <= self.0.silence_max
    }

    /// The worker tells how far it is.
    pub fn report(&self, readiness: Readiness) {
        *self.0.readiness.lock().unwrap_or_else(PoisonError::into_inner) = readiness;
    }

    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.0.readiness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Readiness {
    /// Why the worker is not ready yet; none where it is.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        if !self.preflight_passed {
            Some("the cluster has not been looked at yet, or was refused".to_owned())
        } else if !self.registered {
            Some("not registered among the workers".to_owned())
        } else if self.shards_owned < self.shards_aimed {
            Some(format!("owns {} of {} shards", self.shards_owned, self.shards_aimed))
        } else {
            self.maintenance.as_ref().map(|why| format!("paused for maintenance by {why}"))
        }
    }
}
