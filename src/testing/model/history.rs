//! What happened to a shard of the model, beside what its keys say: for the checks at the end of a simulation.

use crate::change::Fields;
use crate::position::{CommitId, EntryId};
use crate::signal::Signal;

/// Since the model began.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every entry that was accepted, also where it was trimmed since.
    pub entries: Vec<(EntryId, Fields)>,
    /// Every commit that was executed, in that order.
    pub commits: Vec<Record>,
    /// Every signal that was sent, in that order.
    pub signals: Vec<Signal>,
    /// Entries whose body a fault trimmed while they were pending.
    pub trimmed: Vec<EntryId>,
    /// Settled entries that a fault made the server deliver again.
    pub rewound: Vec<EntryId>,
    /// How often the lease was taken.
    pub takes: usize,
}

/// One executed commit.
#[derive(Clone, Debug)]
pub struct Record {
    pub id: CommitId,
    pub previous: CommitId,
    /// The generation that was stored when it was executed.
    pub generation_stored: u64,
    /// Server time, Unix milliseconds.
    pub at_milliseconds: u64,
    /// What it acknowledged.
    pub entries: Vec<EntryId>,
    /// Whether a failover lost it.
    pub lost: bool,
}

impl Record {
    /// Whether its owner had been fenced: this must never be.
    pub fn is_fenced(&self) -> bool {
        self.id.generation != self.generation_stored
    }
}

impl History {
    /// The last `count` commits that were not lost before are lost now.
    pub(super) fn lose(&mut self, count: usize) {
        let kept = self.commits.iter_mut().rev().filter(|record| !record.lost);
        kept.take(count).for_each(|record| record.lost = true);
    }
}
