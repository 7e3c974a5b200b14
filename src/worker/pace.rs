//! How many entries the next read asks for: few at first, more as batches go through, never more than fit.
//!
//! A read that is too large for the time of an answer or for this process's memory ends the link or the process, and the
//! next one would be as large: so every link begins with one entry. It also asks for no more than is tried: each read of a
//! pending entry counts as a delivery, and an entry must not be set aside for what its neighbours did.

use super::Options;
use super::batch::Settled;
use crate::reduce::Entry;

pub(super) struct Pace {
    entries: usize,
    /// A running average of an entry's size.
    entry_bytes: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { entries: 1, entry_bytes: 1 }
    }
}

impl Pace {
    pub fn entries(&self, options: &Options) -> usize {
        let fitting = options.batch_bytes_max / self.entry_bytes.max(1);
        self.entries.min(fitting).clamp(1, options.batch_changes_max)
    }

    pub fn read(&mut self, entries: &[Entry]) {
        let fields = entries.iter().flat_map(|entry| entry.fields.iter().flatten());
        let total: usize = fields.map(|(name, value)| name.len() + value.len()).sum();
        let now = total / entries.len().max(1);
        // Rises at once, so that a run of huge entries is not read in a whole batch twice; falls slowly.
        self.entry_bytes = now.max((self.entry_bytes * 7 + now) / 8);
    }

    pub fn settled(&mut self, settled: Settled) {
        self.entries = match settled {
            Settled::All => self.entries.saturating_mul(2),
            Settled::Behind => 1,
        };
    }
}
