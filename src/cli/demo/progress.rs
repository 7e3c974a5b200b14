//! What the parts of the demo tell each other while it runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::change::UserId;

/// Latencies from a microsecond to a minute, two digits.
const LATENCY_MAX: Duration = Duration::from_secs(60);

pub struct Progress {
    written: AtomicU64,
    signals: AtomicU64,
    lag: AtomicU64,
    workers: AtomicU64,
    owned: AtomicU64,
    probes: Mutex<HashMap<UserId, Instant>>,
    latency: Mutex<Latency>,
}

struct Latency {
    all: Histogram<u64>,
    /// Since the last look at them.
    lately: Histogram<u64>,
}

/// The figures of a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub written: u64,
    pub applied: u64,
    pub signals: u64,
    pub lag: u64,
    pub workers: u64,
    pub owned: u64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Progress {
    pub fn new() -> Progress {
        let histogram = || {
            let micros = LATENCY_MAX.as_micros() as u64;
            Histogram::new_with_bounds(1, micros, 2).expect("bounds that the type allows")
        };
        Progress {
            written: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            lag: AtomicU64::new(0),
            workers: AtomicU64::new(0),
            owned: AtomicU64::new(0),
            probes: Mutex::default(),
            latency: Mutex::new(Latency { all: histogram(), lately: histogram() }),
        }
    }

    /// A change was acknowledged.
    pub fn written(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    pub fn lag(&self, changes: u64) {
        self.lag.store(changes, Ordering::Relaxed);
    }

    pub fn workers(&self, workers: usize) {
        self.workers.store(workers as u64, Ordering::Relaxed);
    }

    pub fn owned(&self, shards: usize) {
        self.owned.store(shards as u64, Ordering::Relaxed);
    }

    /// A change of this user is about to be appended, and nobody else changes the user: the next signal of it is this
    /// change's. False where the last one's has not come yet.
    pub fn probe(&self, user: &UserId) -> bool {
        let mut probes = self.lock(&self.probes);
        if probes.contains_key(user) {
            return false;
        }
        probes.insert(user.clone(), Instant::now());
        true
    }

    /// A signal named this user.
    pub fn heard(&self, user: &UserId) {
        self.signals.fetch_add(1, Ordering::Relaxed);
        let Some(started) = self.lock(&self.probes).remove(user) else { return };
        let micros = started.elapsed().as_micros().max(1) as u64;
        let mut latency = self.lock(&self.latency);
        latency.all.saturating_record(micros);
        latency.lately.saturating_record(micros);
    }

    pub fn figures(&self) -> Figures {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let (written, lag) = (load(&self.written), load(&self.lag));
        let latency = self.lock(&self.latency);
        let quantile = |quantile| Duration::from_micros(latency.all.value_at_quantile(quantile));
        Figures {
            written,
            applied: written.saturating_sub(lag),
            signals: load(&self.signals),
            lag,
            workers: load(&self.workers),
            owned: load(&self.owned),
            p50: quantile(0.50),
            p99: quantile(0.99),
        }
    }

    /// The highest latency since this was asked last.
    pub fn worst_lately(&self) -> Duration {
        let mut latency = self.lock(&self.latency);
        let worst = latency.lately.max();
        latency.lately.reset();
        Duration::from_micros(worst)
    }

    fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
