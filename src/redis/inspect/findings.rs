//! What a check has found so far, within bounds.

use std::collections::BTreeSet;

use crate::invariant::Violation;

/// Violations, repairs and undecided things that are named, of each; of more only the number is known.
pub const NAMED_MAX: usize = 1000;

/// All that a check has found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub counts: Counts,
    pub violations: Named<Violation>,
    pub repaired: Named<Violation>,
    pub undecided: Named<Undecided>,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub shards: u64,
    pub keys: u64,
    pub users: u64,
    pub friends: u64,
    pub versions: u64,
    /// Days and categories.
    pub activity: u64,
    pub producers: u64,
    pub day_members: u64,
    pub log_entries: u64,
    /// Friends who are missing on a day that opened before the change of their date, as is allowed.
    pub not_rolled: u64,
}

/// Something that would not hold still.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undecided {
    pub key: String,
    pub why: &'static str,
}

/// So many of a thing, each once.
#[derive(Clone, Debug)]
pub struct Named<T> {
    pub list: BTreeSet<T>,
    /// Beyond those that are named.
    pub more: u64,
}

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named { list: BTreeSet::new(), more: 0 }
    }
}

impl<T: Ord> Named<T> {
    pub fn note(&mut self, item: T) {
        if self.list.len() < NAMED_MAX {
            self.list.insert(item);
        } else if !self.list.contains(&item) {
            self.more += 1;
        }
    }

    pub fn count(&self) -> u64 {
        self.list.len() as u64 + self.more
    }
}

impl Findings {
    pub(super) fn note_all(&mut self, violations: impl IntoIterator<Item = Violation>) {
        violations.into_iter().for_each(|violation| self.violations.note(violation));
    }

    pub(super) fn undecided(&mut self, key: impl ToString, why: &'static str) {
        self.undecided.note(Undecided { key: key.to_string(), why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_bounded_and_named_once() {
        let mut named = Named::default();
        (0..NAMED_MAX + 5).for_each(|item| named.note(item));
        named.note(0);
        assert_eq!((named.list.len(), named.more, named.count()), (NAMED_MAX, 5, NAMED_MAX as u64 + 5));
    }
}
