//! A stream with consumer groups, as far as heyday uses them.

use std::collections::BTreeMap;

use crate::change::Fields;
use crate::key::GROUP;
use crate::position::EntryId;
use crate::reduce::Entry;

/// A stream; each of its groups has one consumer.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub entries: BTreeMap<EntryId, Fields>,
    /// The last id given, also where its entry is gone.
    pub last: EntryId,
    pub groups: BTreeMap<String, Group>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The last entry handed out.
    pub delivered: EntryId,
    /// What was handed out and not acknowledged, with the number of times.
    pub pending: BTreeMap<EntryId, u64>,
}

impl Stream {
    /// XADD with an id of the server's choice.
    pub fn append(&mut self, now: u64, fields: Fields) -> EntryId {
        let id = if now > self.last.milliseconds {
            EntryId::new(now, 0)
        } else {
            EntryId::new(self.last.milliseconds, self.last.sequence + 1)
        };
        self.entries.insert(id, fields);
        self.last = id;
        id
    }

    /// XADD with an id of the caller's choice.
    pub fn append_at(&mut self, id: EntryId, fields: Fields) -> Result<(), String> {
        if id <= self.last {
            return Err("ERR The ID specified in XADD is equal or smaller than the target stream top item".to_owned());
        }
        self.entries.insert(id, fields);
        self.last = id;
        Ok(())
    }

    /// XTRIM MAXLEN
    pub fn trim_length(&mut self, length_max: u64) {
        while self.entries.len() as u64 > length_max {
            self.entries.pop_first();
        }
    }

    /// XTRIM MINID, of so many at most; answers how many went.
    pub fn trim_below(&mut self, id: EntryId, entries_max: usize) -> u64 {
        let beyond = self.entries.range(..id).nth(entries_max).map(|(beyond, _)| *beyond);
        let kept = self.entries.split_off(&beyond.unwrap_or(id));
        std::mem::replace(&mut self.entries, kept).len() as u64
    }

    /// Below this id no group needs an entry. A lost group has read nothing as far as anybody knows.
    pub fn needed_from(&self) -> EntryId {
        let needed = |group: &Group| {
            let unread = after(group.delivered);
            group.pending.keys().next().map_or(unread, |pending| unread.min(*pending))
        };
        let known = self.groups.contains_key(GROUP);
        self.groups.values().map(needed).min().filter(|_| known).unwrap_or(EntryId::ZERO)
    }

    /// How many entries the workers' group has not read.
    pub fn unread(&self, group: &Group) -> u64 {
        self.entries.keys().rev().take_while(|id| **id > group.delivered).count() as u64
    }

    /// The workers' group, where it exists.
    pub fn group(&mut self) -> Option<&mut Group> {
        self.groups.get_mut(GROUP)
    }

    /// XREADGROUP of one with `>`; which it was, where there was one.
    pub fn deliver(&mut self) -> Option<Option<EntryId>> {
        let group = self.groups.get_mut(GROUP)?;
        let next = self.entries.range(after(group.delivered)..).next().map(|(id, _)| *id);
        if let Some(id) = next {
            group.delivered = id;
            group.pending.insert(id, 1);
        }
        Some(next)
    }

    /// XRANGE behind `applied`.
    pub fn following(&self, applied: EntryId, count: usize) -> Vec<Entry> {
        let following = self.entries.range(after(applied)..).take(count);
        following.map(|(id, fields)| Entry { id: *id, fields: Some(fields.clone()), deliveries: 1 }).collect()
    }

    /// XREADGROUP with `0`, and what follows `applied` where anything is pending. As in Redis, an entry whose body was trimmed
    /// is not counted as handed out again.
    pub fn deliver_again(&mut self, applied: EntryId, count: usize) -> Option<Vec<Entry>> {
        let following = self.following(applied, count);
        let group = self.groups.get_mut(GROUP)?;
        if group.pending.is_empty() {
            return Some(Vec::new());
        }
        let end = following.last().filter(|_| following.len() == count).map(|entry| entry.id);
        let mut entries: BTreeMap<EntryId, Entry> = following.into_iter().map(|entry| (entry.id, entry)).collect();
        for (id, deliveries) in group.pending.iter_mut().take(count) {
            let fields = self.entries.get(id).cloned();
            *deliveries += u64::from(fields.is_some());
            let before_end = end.is_none_or(|end| *id <= end);
            if *id <= applied || before_end {
                entries.insert(*id, Entry { id: *id, fields, deliveries: *deliveries });
            }
        }
        Some(entries.into_values().take(count).collect())
    }

    /// Entries that the workers' group has not settled: unread or pending.
    pub fn unsettled(&self) -> Vec<EntryId> {
        let Some(group) = self.groups.get(GROUP) else {
            return self.entries.keys().copied().collect();
        };
        let unread = self.entries.keys().filter(|id| **id > group.delivered);
        group.pending.keys().chain(unread).copied().collect()
    }
}

/// The least id above `id`.
pub(super) fn after(id: EntryId) -> EntryId {
    match id.sequence.checked_add(1) {
        Some(sequence) => EntryId::new(id.milliseconds, sequence),
        None => EntryId::new(id.milliseconds + 1, 0),
    }
}
