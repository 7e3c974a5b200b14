//! What a near cache counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a near cache has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads answered from memory as current.
    pub hits: u64,
    /// Reads that asked Redis.
    pub misses: u64,
    /// Kept answers that a change made outdated.
    pub outdated: u64,
    /// Kept answers that made room for others, or found none.
    pub evicted: u64,
    /// How often a whole shard became outdated: by a reset, or because another node has it now.
    pub resets: u64,
    /// Answers read again because a change came in between.
    pub overtaken: u64,
    /// Answers marked stale, because Redis did not answer in time or changes kept coming.
    pub stale: u64,
    /// What is kept now.
    pub entries: u64,
    /// What that takes in memory, about.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub outdated: AtomicU64,
    pub evicted: AtomicU64,
    pub resets: AtomicU64,
    pub overtaken: AtomicU64,
    pub stale: AtomicU64,
    pub bytes: AtomicU64,
}

impl Counters {
    pub fn counts(&self, entries: usize) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            hits: read(&self.hits),
            misses: read(&self.misses),
            outdated: read(&self.outdated),
            evicted: read(&self.evicted),
            resets: read(&self.resets),
            overtaken: read(&self.overtaken),
            stale: read(&self.stale),
            entries: entries as u64,
            bytes: read(&self.bytes),
        }
    }
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
