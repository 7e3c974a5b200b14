//! A user of the file as entries: one, or several where there are very many friends.

use super::record::Record;
use crate::change::{
    Action, Change, Listed, Producer, SNAPSHOT_ITEM_BYTES_MAX, SNAPSHOT_LIST_BYTES_MAX, Snapshot, UserId,
};

/// A line's number leaves room for so many bits of its parts' numbers.
const PART_BITS: u32 = 20;

/// What all entries of a rebuild have in common.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// The moment they stand for.
    pub at: u64,
    /// Whether what a line does not name goes.
    pub whole: bool,
    /// Who writes them: a second copy of an entry is dropped by this name and the entry's number.
    pub producer: String,
}

impl Form {
    /// The entries of a line.
    pub fn entries(&self, user: UserId, record: Record, line: u64) -> Vec<Change> {
        let Record { birthday, profile, versions, mut friends, .. } = record;
        let mut parts: Vec<Vec<Listed>> = Vec::new();
        while !friends.is_empty() {
            let rest = friends.split_off(fitting(&friends));
            parts.push(std::mem::replace(&mut friends, rest));
        }
        let begins: Vec<UserId> = parts.iter().skip(1).map(|part| part[0].friend.clone()).collect();
        let mut first = Snapshot { whole: self.whole, birthday, profile, versions, ..Snapshot::default() };
        let mut entries = Vec::with_capacity(parts.len().max(1));
        for (at, friends) in parts.into_iter().enumerate() {
            let from = at.checked_sub(1).map(|before| begins[before].clone());
            let to = begins.get(at).cloned();
            let rest = Snapshot { whole: self.whole, ..Snapshot::default() };
            let snapshot = std::mem::replace(&mut first, rest);
            entries.push(self.entry(user.clone(), Snapshot { friends, from, to, ..snapshot }, (line, at)));
        }
        if entries.is_empty() {
            entries.push(self.entry(user, first, (line, 0)));
        }
        entries
    }

    /// Of a user whom the file does not have.
    pub fn nobody(&self, user: UserId, number: u64) -> Change {
        self.entry(user, Snapshot::of_nobody(), (number, 0))
    }

    fn entry(&self, user: UserId, snapshot: Snapshot, (line, part): (u64, usize)) -> Change {
        let producer = Producer { name: self.producer.clone(), sequence: (line << PART_BITS) | part as u64 };
        let action = Action::Snapshot(Box::new(snapshot));
        Change { at: Some(self.at), producer: Some(producer), ..Change::new(user, action) }
    }
}

/// How many of the friends are sure to fit into one entry.
fn fitting(friends: &[Listed]) -> usize {
    let mut bytes = 0;
    // A friend whose id is as long as may be is rare: its own length is what counts.
    let items = friends.iter().map(|listed| SNAPSHOT_ITEM_BYTES_MAX - 64 + listed.friend.as_str().len());
    let fits = |item: &usize| {
        bytes += item;
        bytes <= SNAPSHOT_LIST_BYTES_MAX
    };
    items.take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Fields, Limits};

    fn record(friends: usize) -> Record {
        let listed = |at: usize| Listed {
            friend: format!("{at:064}").parse().unwrap(),
            birthday: Default::default(),
            version: Some(u64::MAX),
        };
        Record { friends: (0..friends).map(listed).collect(), ..Record::default() }
    }

    #[test]
    fn the_parts_of_a_user_speak_of_everything_once() {
        let form = Form { at: 7, whole: true, producer: "rebuild:x".to_owned() };
        for (friends, parts) in [(0, 1), (1, 1), (300, 1), (400, 2), (5000, 15)] {
            let entries = form.entries("42".parse().unwrap(), record(friends), 3);
            assert_eq!(entries.len(), parts, "{friends} friends");
            let mut listed = 0;
            let mut from = None;
            for entry in &entries {
                let fields: Fields = entry
                    .encode()
                    .into_iter()
                    .map(|(name, value)| (name.into_owned().into(), value.into_owned().into()))
                    .collect();
                assert_eq!(Change::decode(&fields, &Limits::default(), 0).as_ref(), Ok(entry));
                let Action::Snapshot(snapshot) = &entry.action else { panic!("a snapshot") };
                assert_eq!(snapshot.from, from, "no id is left out between two parts");
                from.clone_from(&snapshot.to);
                listed += snapshot.friends.len();
            }
            assert_eq!((listed, from), (friends, None));
            let numbers: Vec<u64> =
                entries.iter().filter_map(|entry| Some(entry.producer.as_ref()?.sequence)).collect();
            assert!(numbers.is_sorted_by(|left, right| left < right), "{numbers:?}");
        }
    }
}
