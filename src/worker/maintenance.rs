//! Maintenance: what this worker knows of the lock that keeps all workers from committing, and how its shards hear of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics::{Metrics, Presence};
use crate::store::{Error, Maintenance as Seen, MaintenanceLock};

/// The supervision's side.
pub(super) struct Maintenance {
    known: Known,
    told: watch::Sender<bool>,
    paused: Arc<AtomicUsize>,
}

enum Known {
    /// The lock was not read since this worker began. It may be on, so nothing is committed before that moment.
    Nothing {
        until: Instant,
    },
    Off,
    /// By this process's own measure it has run out at that moment, whoever can be asked then.
    On {
        lock: MaintenanceLock,
        until: Instant,
    },
}

/// What there is to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Also where another holder or reason took the place of the one before.
    Begun(MaintenanceLock),
    GivenUp(MaintenanceLock),
    /// Whoever took it has not ended it.
    Expired(MaintenanceLock),
    /// It could not be read for so long that this worker goes on without.
    Unknown,
}

impl Maintenance {
    /// A lock that cannot be read holds a worker that begins up for `patience` at most.
    pub fn new(patience: Duration) -> Maintenance {
        let known = Known::Nothing { until: Instant::now() + patience };
        Maintenance { known, told: watch::Sender::new(true), paused: Arc::default() }
    }

    /// What a shard's task needs of it.
    pub fn pause(&self) -> Pause {
        Pause { on: self.told.subscribe(), paused: self.paused.clone() }
    }

    /// How many shards have paused.
    pub fn shards_paused(&self) -> usize {
        self.paused.load(Ordering::Relaxed)
    }

    pub fn is_on(&self) -> bool {
        *self.told.borrow()
    }

    /// Why the worker has paused, for a person.
    pub fn reason(&self) -> Option<String> {
        match &self.known {
            Known::On { lock, .. } => Some(format!("{}: {}", lock.holder, lock.reason)),
            Known::Nothing { .. } | Known::Off => None,
        }
    }

    /// Takes in what a look at the lock gave that began at `asked`.
    pub fn learn(&mut self, seen: Result<Seen, Error>, asked: Instant) -> Option<News> {
        let now = Instant::now();
        let before = std::mem::replace(&mut self.known, Known::Off);
        let (known, news) = match (seen, before) {
            (Ok(Seen::On(lock)), before) => {
                let same = matches!(&before, Known::On { lock: known, .. } if alike(known, &lock));
                let news = (!same).then(|| News::Begun(lock.clone()));
                // The answer was given after it was asked for, so the lock lasts at least as long.
                (Known::On { until: asked + lock.left, lock }, news)
            }
            (Ok(Seen::GivenUp), Known::On { lock, .. }) => (Known::Off, Some(News::GivenUp(lock))),
            (Ok(Seen::None), Known::On { lock, .. }) => (Known::Off, Some(News::Expired(lock))),
            (Ok(Seen::GivenUp | Seen::None), Known::Nothing { .. } | Known::Off) => (Known::Off, None),
            (Err(_), Known::On { lock, until }) if now >= until => (Known::Off, Some(News::Expired(lock))),
            (Err(_), Known::Nothing { until }) if now >= until => (Known::Off, Some(News::Unknown)),
            (Err(_), kept) => (kept, None),
        };
        self.known = known;
        let on = !matches!(self.known, Known::Off);
        self.told.send_if_modified(|told| std::mem::replace(told, on) != on);
        news
    }
}

fn alike(one: &MaintenanceLock, other: &MaintenanceLock) -> bool {
    (&one.holder, &one.reason) == (&other.holder, &other.reason)
}

/// A shard's side.
#[derive(Clone)]
pub(super) struct Pause {
    on: watch::Receiver<bool>,
    paused: Arc<AtomicUsize>,
}

impl Pause {
    pub fn is_on(&self) -> bool {
        *self.on.borrow()
    }

    /// Returns once it is off. Whoever waits is told to stop where nobody tells of maintenance any more.
    pub async fn over(&mut self) {
        if self.on.wait_for(|on| !*on).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The shard has paused as long as the answer lives: nothing of it is on its way to its node.
    pub fn begin(&self, metrics: &Metrics) -> Paused {
        self.paused.fetch_add(1, Ordering::Relaxed);
        Paused { shards: self.paused.clone(), _shown: metrics.maintenance_paused() }
    }
}

pub(super) struct Paused {
    shards: Arc<AtomicUsize>,
    _shown: Presence,
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.shards.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Disposition;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn lock(reason: &str, seconds: u64) -> MaintenanceLock {
        let left = Duration::from_secs(seconds);
        MaintenanceLock { holder: "somebody".to_owned(), reason: reason.to_owned(), held_for: Duration::ZERO, left }
    }

    fn silent() -> Result<Seen, Error> {
        Err(Error { disposition: Disposition::Retry, reason: "timeout", message: String::new() })
    }

    /// What is learnt now, and whether shards pause then.
    fn learn(maintenance: &mut Maintenance, seen: Result<Seen, Error>) -> (Option<News>, bool) {
        let news = maintenance.learn(seen, Instant::now());
        (news, maintenance.pause().is_on())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_told_once_when_it_begins_and_once_how_it_ended() {
        let mut maintenance = Maintenance::new(PATIENCE);
        assert!(maintenance.pause().is_on(), "nobody has looked yet");
        assert_eq!(learn(&mut maintenance, Ok(Seen::None)), (None, false));
        for (end, ended) in [(Seen::GivenUp, News::GivenUp(lock("b", 3))), (Seen::None, News::Expired(lock("b", 3)))] {
            assert_eq!(learn(&mut maintenance, Ok(Seen::On(lock("a", 5)))), (Some(News::Begun(lock("a", 5))), true));
            assert_eq!(learn(&mut maintenance, Ok(Seen::On(lock("a", 4)))), (None, true));
            assert_eq!(maintenance.reason().as_deref(), Some("somebody: a"));
            assert_eq!(learn(&mut maintenance, Ok(Seen::On(lock("b", 3)))), (Some(News::Begun(lock("b", 3))), true));
            assert_eq!(learn(&mut maintenance, Ok(end.clone())), (Some(ended), false));
            assert_eq!(learn(&mut maintenance, Ok(end)), (None, false));
        }
        assert_eq!(maintenance.reason(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_cannot_be_read_lasts_no_longer_than_it_would_have() {
        let mut maintenance = Maintenance::new(PATIENCE);
        learn(&mut maintenance, Ok(Seen::On(lock("a", 5))));
        tokio::time::advance(Duration::from_millis(4999)).await;
        assert_eq!(learn(&mut maintenance, silent()), (None, true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(learn(&mut maintenance, silent()), (Some(News::Expired(lock("a", 5))), false));
        assert_eq!(learn(&mut maintenance, silent()), (None, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_never_read_the_lock_waits_for_it_a_while() {
        let mut maintenance = Maintenance::new(PATIENCE);
        tokio::time::advance(PATIENCE - Duration::from_millis(1)).await;
        assert_eq!(learn(&mut maintenance, silent()), (None, true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(learn(&mut maintenance, silent()), (Some(News::Unknown), false));
    }

    #[tokio::test(start_paused = true)]
    async fn shards_count_as_paused_as_long_as_they_wait() {
        let mut maintenance = Maintenance::new(PATIENCE);
        let metrics = Metrics::new(crate::metrics::Health::new(PATIENCE));
        let mut pause = maintenance.pause();
        let paused = pause.begin(&metrics);
        assert_eq!(maintenance.shards_paused(), 1);
        learn(&mut maintenance, Ok(Seen::None));
        pause.over().await;
        drop(paused);
        assert_eq!(maintenance.shards_paused(), 0);
    }
}
