//! A user of the file as entries: one, or several where there are very many friends.

use super::record::{self, Record};
use crate::change::{
    Action, Change, Fields, Limits, Listed, Producer, SNAPSHOT_ITEM_BYTES_MAX, SNAPSHOT_LIST_BYTES_MAX, Snapshot,
    UserId,
};
use crate::cli::write::{LINE_BYTES_MAX, Line};

/// A line's number leaves room for so many bits of its parts' numbers.
const PART_BITS: u32 = 20;

/// What all entries of a rebuild have in common.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// The moment they stand for.
    pub at: u64,
    /// Whether what a line does not name goes.
    pub whole: bool,
    /// Who writes them, by another name in each run: a second copy of an entry is dropped by this name and the entry's number.
    pub producer: String,
    /// What workers take.
    pub limits: Limits,
    /// Unix milliseconds: dates after it are refused.
    pub now: u64,
}

/// A line as it is sent.
pub(super) struct User {
    /// One at least.
    pub entries: Vec<Change>,
    pub friends: u64,
    pub bytes: usize,
}

impl User {
    pub fn id(&self) -> &str {
        self.entries[0].user.as_str()
    }
}

impl Form {
    pub fn new(at: u64, whole: bool, limits: Limits) -> Form {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
        Form { at, whole, producer: "rebuild".to_owned(), limits, now }
    }

    /// The user of a line; none for an empty one. What a worker would refuse is refused here, before any of it is sent.
    pub fn read(&self, line: &Line<'_>) -> Result<Option<User>, String> {
        let text = line.text.ok_or_else(|| format!("longer than {LINE_BYTES_MAX} bytes"))?;
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        let mut record = record::record(text)?;
        let Some(user) = record.user.take() else { return Ok(None) };
        let friends = record.friends.len() as u64;
        let entries = self.entries(user, record, line.number);
        entries.iter().try_for_each(|entry| self.check(entry))?;
        Ok(Some(User { entries, friends, bytes: text.len() }))
    }

    fn check(&self, entry: &Change) -> Result<(), String> {
        let fields = entry.encode().into_iter();
        let fields: Fields =
            fields.map(|(name, value)| (name.into_owned().into(), value.into_owned().into())).collect();
        let read = Change::decode(&fields, &self.limits, self.now);
        read.map(drop).map_err(|rejection| format!("field {rejection}"))
    }

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
        let form = Form::new(7, true, Limits::default());
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

    #[test]
    fn what_a_worker_would_refuse_is_a_bad_line() {
        let form = Form::new(7, false, Limits { field_bytes_max: 100, ..Limits::default() });
        let read =
            |text: String| form.read(&Line { number: 1, text: Some(text.as_bytes()) }).map(|user| user.is_some());
        let many: Vec<String> = (0..1100).map(|field| format!("\"f{field}\":\"\"")).collect();
        // The last friend of many, who are several entries.
        let friends: Vec<String> = (1000..6000).map(|friend| format!("\"{friend}\":\"\"")).collect();
        for (text, expected) in [
            (format!(r#"{{"user":"1","profile":{{"about":"{}"}}}}"#, "x".repeat(101)), "field profile.about"),
            (format!(r#"{{"user":"1","profile":{{"{}":"x"}}}}"#, "n".repeat(200)), "field profile.nnn"),
            (format!(r#"{{"user":"1","profile":{{{}}}}}"#, many.join(",")), "field entry"),
            (r#"{"user":"1","birthday":"2999-01-01"}"#.to_owned(), "field birthday"),
            (format!(r#"{{"user":"1","friends":{{{},"9":"2999-01-01"}}}}"#, friends.join(",")), r#"field friends "9""#),
        ] {
            let reason = read(text).unwrap_err();
            assert!(reason.starts_with(expected), "{reason}, expected {expected}");
        }
        for text in [r#"{"user":"1","birthday":"","profile":{"a":null},"friends":{"2":""}}"#, r#"{"user":"1"}"#] {
            assert_eq!(read(text.to_owned()), Ok(true));
        }
        assert_eq!(read(" ".to_owned()), Ok(false));
    }
}
