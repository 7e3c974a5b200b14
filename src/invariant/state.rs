//! A shard's state fits its stream, its group and its log.

use std::collections::BTreeMap;
use std::str::FromStr;

use jiff::civil::Date;

use super::{Kind, Violation, shown};
use crate::key::{CONSUMER, GROUP, ShardKeys};
use crate::position::{CommitId, EntryId};
use crate::reduce::Roll;

/// Foreign consumers that are named.
const NAMED_MAX: usize = 5;

/// What there is of a shard besides its users, seen in one moment. What could not be read, being of another type, is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardFacts {
    /// Fields of `state`; none where there is no such key.
    pub state: Option<BTreeMap<String, String>>,
    /// The workers' group on the stream.
    pub group: Option<Group>,
    /// The last commit in the log.
    pub tip: Option<CommitId>,
    /// Keys of another type: nothing is said about what stands there.
    pub unreadable: Unreadable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    pub state: bool,
    pub changes: bool,
    pub log: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub delivered: EntryId,
    /// The oldest entry that is delivered and not acknowledged.
    pub pending_first: Option<EntryId>,
    pub consumers: Vec<String>,
}

impl ShardFacts {
    pub fn judge(&self, keys: &ShardKeys) -> Vec<Violation> {
        let mut violations = Vec::new();
        if self.unreadable.state {
            return violations;
        }
        let Some(fields) = &self.state else {
            if let Some(tip) = self.tip {
                let found = format!("none, and a log that ends with {tip}");
                violations.push(Violation::new(Kind::State, &keys.state, "a state", found));
            }
            self.consumers(keys, &mut violations);
            return violations;
        };
        let mut fields = Fields { keys, fields, violations: &mut violations };
        let generation: Option<u64> = fields.read("generation", "a number", true);
        // A shard that was taken and has not committed yet has the generation only.
        let committed = fields.fields.contains_key("last");
        let last: Option<CommitId> = fields.read("last", "a commit id", false);
        let applied: Option<EntryId> = fields.read("applied", "an entry id", committed);
        fields.read::<u64>("applied_at", "a number", committed);
        let counts = ["entries", "dead", "skipped"].map(|name| fields.read::<u64>(name, "a number", committed));
        if let [Some(entries), Some(dead), Some(skipped)] = counts
            && dead.saturating_add(skipped) > entries
        {
            fields.wrong(format!("at most {entries} dead and skipped"), format!("{dead} dead and {skipped} skipped"));
        }
        if let (Some(generation), Some(last)) = (generation, last)
            && last.generation > generation
        {
            fields.wrong(format!("last of generation {generation} or before"), last.to_string());
        }
        fields.read::<Date>("first", "a date", false);
        let open: Option<Date> = fields.read("open", "a date", false);
        let rolled: Option<Date> = fields.read("rolled", "a date", false);
        fields.read::<Roll>("roll", "a roll under way", false);
        fields.read::<u64>("rolled_at", "a number", false);
        fields.read::<u64>("roll_asked", "a number", false);
        fields.read::<u64>("rebuild", "a number", false);
        if let (Some(open), Some(rolled)) = (open, rolled)
            && rolled > open
        {
            fields.wrong(format!("rolled up to {open} at most, the last open day"), rolled.to_string());
        }
        if !committed || last.is_some() {
            self.log(keys, last.unwrap_or(CommitId::ZERO), &mut violations);
        }
        if !committed || applied.is_some() {
            self.group(keys, applied.unwrap_or(EntryId::ZERO), &mut violations);
        }
        self.consumers(keys, &mut violations);
        violations
    }

    fn log(&self, keys: &ShardKeys, last: CommitId, violations: &mut Vec<Violation>) {
        let tip = self.tip.unwrap_or(CommitId::ZERO);
        if tip != last && !self.unreadable.log {
            let told = |id: CommitId| if id == CommitId::ZERO { "no commit".to_owned() } else { id.to_string() };
            let expected = format!("{} at its end, as the state says", told(last));
            violations.push(Violation::new(Kind::Log, &keys.log, expected, told(tip)));
        }
    }

    fn group(&self, keys: &ShardKeys, applied: EntryId, violations: &mut Vec<Violation>) {
        let mut wrong = |expected: String, found: String| {
            violations.push(Violation::new(Kind::Group, &keys.changes, expected, found));
        };
        match &self.group {
            _ if self.unreadable.changes => {}
            None => wrong(format!("the group {GROUP}"), "no such group".to_owned()),
            Some(group) => {
                if group.delivered < applied {
                    wrong(format!("delivered up to {applied}, which is applied"), group.delivered.to_string());
                }
                if let Some(first) = group.pending_first.filter(|first| *first <= applied) {
                    wrong(format!("nothing pending up to {applied}, which is applied"), first.to_string());
                }
            }
        }
    }

    fn consumers(&self, keys: &ShardKeys, violations: &mut Vec<Violation>) {
        let consumers = self.group.iter().flat_map(|group| &group.consumers);
        let foreign: Vec<_> = consumers.filter(|name| *name != CONSUMER).map(|name| shown(name.as_bytes())).collect();
        if !foreign.is_empty() {
            let named = foreign[..foreign.len().min(NAMED_MAX)].join(", ");
            let expected = format!("no consumer but {CONSUMER}");
            violations.push(Violation::new(Kind::Group, &keys.changes, expected, named));
        }
    }
}

struct Fields<'a> {
    keys: &'a ShardKeys,
    fields: &'a BTreeMap<String, String>,
    violations: &'a mut Vec<Violation>,
}

impl Fields<'_> {
    fn read<T: FromStr>(&mut self, name: &str, expected: &str, needed: bool) -> Option<T> {
        let text = self.fields.get(name);
        let value = text.and_then(|text| text.parse().ok());
        if value.is_none() && (needed || text.is_some()) {
            let found = text.map_or_else(|| "no such field".to_owned(), |text| shown(text.as_bytes()));
            self.wrong(format!("{expected} as {name}"), found);
        }
        value
    }

    fn wrong(&mut self, expected: String, found: String) {
        self.violations.push(Violation::new(Kind::State, &self.keys.state, expected, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Keys;
    use crate::shard::{Layout, Shard};

    const GOOD: [(&str, &str); 7] = [
        ("generation", "9"),
        ("last", "8-2"),
        ("applied", "5-0"),
        ("applied_at", "7"),
        ("entries", "10"),
        ("dead", "4"),
        ("skipped", "6"),
    ];

    fn good() -> ShardFacts {
        let state = GOOD.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let group = Group { delivered: EntryId::new(5, 0), pending_first: None, consumers: vec!["owner".to_owned()] };
        ShardFacts { state: Some(state), group: Some(group), tip: Some(CommitId::new(8, 2)), ..ShardFacts::default() }
    }

    fn check(facts: &ShardFacts, expected: &[&str]) {
        let keys = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0));
        let found = facts.judge(&keys).into_iter();
        let found: Vec<_> =
            found.map(|found| format!("{}: expected {}, found {}", found.kind, found.expected, found.found)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_shard_that_nobody_took_or_that_has_not_committed_is_sound() {
        check(&good(), &[]);
        check(&ShardFacts::default(), &[]);
        let taken = [("generation".to_owned(), "9".to_owned())].into();
        check(&ShardFacts { state: Some(taken), group: Some(Group::default()), ..ShardFacts::default() }, &[]);
    }

    #[test]
    fn fields_are_what_they_are() {
        let with = |name: &str, value: Option<&str>, expected: &[&str]| {
            let mut facts = good();
            let state = facts.state.as_mut().unwrap();
            match value {
                Some(value) => drop(state.insert(name.to_owned(), value.to_owned())),
                None => drop(state.remove(name)),
            }
            check(&facts, expected);
        };
        with("generation", Some("x"), &["state: expected a number as generation, found \"x\""]);
        with("generation", None, &["state: expected a number as generation, found no such field"]);
        with("generation", Some("7"), &["state: expected last of generation 7 or before, found 8-2"]);
        with("last", Some("8"), &["state: expected a commit id as last, found \"8\""]);
        with("last", Some("8-1"), &["log: expected 8-1 at its end, as the state says, found 8-2"]);
        with("applied", None, &["state: expected an entry id as applied, found no such field"]);
        with("dead", Some("5"), &["state: expected at most 10 dead and skipped, found 5 dead and 6 skipped"]);
        with("rolled", Some("2026-12-08"), &[]);
        with("rolled", Some("soon"), &["state: expected a date as rolled, found \"soon\""]);
        with("roll", Some("2026-12-08 2026-12-08 42"), &[]);
        with("roll", Some("42"), &["state: expected a roll under way as roll, found \"42\""]);
        with("fanout", Some("anything"), &[]);
    }

    #[test]
    fn the_group_has_delivered_what_is_applied_and_holds_none_of_it() {
        let with = |group: Option<Group>, expected: &[&str]| check(&ShardFacts { group, ..good() }, expected);
        let group = good().group.unwrap();
        let pending = |at| Some(Group { pending_first: Some(EntryId::new(at, 0)), ..group.clone() });
        with(pending(6), &[]);
        with(pending(5), &["group: expected nothing pending up to 5-0, which is applied, found 5-0"]);
        let behind = Group { delivered: EntryId::new(4, 0), ..group.clone() };
        with(Some(behind), &["group: expected delivered up to 5-0, which is applied, found 4-0"]);
        with(None, &["group: expected the group heyday, found no such group"]);
        let stranger = Group { consumers: vec!["owner".to_owned(), "x".to_owned()], ..group };
        with(Some(stranger), &["group: expected no consumer but owner, found \"x\""]);
    }

    #[test]
    fn the_log_ends_where_the_state_says() {
        let with = |tip, expected: &[&str]| check(&ShardFacts { tip, ..good() }, expected);
        with(Some(CommitId::new(8, 3)), &["log: expected 8-2 at its end, as the state says, found 8-3"]);
        with(None, &["log: expected 8-2 at its end, as the state says, found no commit"]);
        let lost = ShardFacts { state: None, group: None, ..good() };
        check(&lost, &["state: expected a state, found none, and a log that ends with 8-2"]);
        let spoilt = ShardFacts { tip: None, unreadable: Unreadable { log: true, ..Unreadable::default() }, ..good() };
        check(&spoilt, &[]);
    }
}
