//! The oracle on a few entries whose outcome is plain, and on keys that are not as they must be.

use super::*;

/// 2026-11-29T19:00:00Z
const NOW: u64 = 1_795_978_800_000;

fn fields(text: &str) -> Fields {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (Bytes::from(name.to_owned()), Bytes::from(value.to_owned()))).collect()
}

fn oracle(entries: &[&str]) -> Oracle {
    let mut oracle = Oracle::new(Rules::default(), Keys::new("").unwrap(), Layout::new(1).unwrap());
    for (at, text) in entries.iter().enumerate() {
        oracle.entry(Shard(0), EntryId::new(NOW, at as u64), Some(&fields(text)));
    }
    oracle
}

fn window() -> Window {
    Rules::default().calendar.window(NOW)
}

/// A key of the one shard: what stands before and behind its tag.
fn key(space: &str, rest: &str) -> String {
    format!("{space}:{{{}}}{rest}", Layout::new(1).unwrap().tag(Shard(0)))
}

fn hash<const N: usize>(fields: [(&str, &str); N]) -> Content {
    Content::Hash(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
}

#[test]
fn entries_become_keys() {
    let oracle = oracle(&[
        "type=add user=42 friend=1 birthday=1990-11-30 version=5",
        "type=add user=42 friend=1 birthday=1991-11-30 version=5",
        "type=add user=42 friend=2 birthday=2000-02-29 id=e",
        "type=add user=42 friend=3 id=e",
        "type=remove user=42 friend=9 version=2",
        "type=update user=42 friend=7 birthday=--01-01 version=3",
        "type=add user=42 friend=42",
        "type=profile user=42 profile.role=admin at=7",
        "type=birthday user=42 birthday=1980-01-01 producer=p seq=4 at=9",
        "type=birthday user=42 birthday=1980-01-02 producer=p seq=4",
    ]);
    let contents = oracle.contents(window());
    assert_eq!(contents[&key("user", ":42:birthdays")], hash([("1", "1990-11-30"), ("2", "2000-02-29")]));
    assert_eq!(contents[&key("user", ":42:versions")], hash([("1", "5"), ("9", "2:")]));
    let profile =
        [("schema", "2"), ("version", "2"), ("updated_at", "9"), ("role", "admin"), ("birthday", "1980-01-01")];
    assert_eq!(contents[&key("user", ":42:profile")], hash(profile));
    assert_eq!(contents[&key("producers", "")], hash([("p", "4")]));
    let state = [("applied", "1795978800000-9"), ("entries", "10"), ("dead", "1"), ("skipped", "5")];
    assert_eq!(contents[&key("state", "")], hash(state));
    let due = Content::Sorted([("42:1".to_owned(), 1_796_029_200)].into());
    assert_eq!(contents[&key("birthdays", ":2026-11-30")], due);
    assert_eq!(contents.keys().filter(|name| name.starts_with("birthdays")).count(), 1);
}

#[test]
fn a_difference_names_the_key_and_the_field() {
    let oracle = oracle(&["type=add user=42 friend=1 birthday=1990-11-30", "type=add user=43 friend=2"]);
    let sound = oracle.contents(window());
    assert_eq!(oracle.differences(window(), &sound), [""; 0]);

    let mut spoilt = sound.clone();
    spoilt.insert(key("user", ":42:birthdays"), hash([("1", "1990-11-29")]));
    spoilt.remove(&key("user", ":43:birthdays"));
    spoilt.insert("unknown".to_owned(), hash([("a", "b")]));
    let differences = oracle.differences(window(), &spoilt).join("\n");
    for words in [
        "42:birthdays: \"1\": expected \"1990-11-30\", found \"1990-11-29\" (0 more)",
        "43:birthdays: expected Hash({\"2\": \"\"}), found no such key",
        "unknown: expected no such key",
    ] {
        assert!(differences.contains(words), "{words:?} is not in\n{differences}");
    }
}

#[test]
fn what_depends_on_the_moment_is_not_compared() {
    let oracle = oracle(&["type=remove user=42 friend=1 version=3 producer=p seq=1 id=e"]);
    let mut found = oracle.contents(window());
    found.insert(key("user", ":42:versions"), hash([("1", "3:1795978800555")]));
    found.insert(key("producers", ""), hash([("p", "1:1795978800555")]));
    found.insert(key("dedup", ":e"), Content::Text("seen".to_owned()));
    found.insert(key("lease", ""), Content::Text("worker".to_owned()));
    found.insert(key("birthdays", ":2020-01-01"), Content::Sorted([("42:1".to_owned(), 1)].into()));
    assert_eq!(oracle.differences(window(), &found), [""; 0]);
}

#[test]
fn activity_counts_by_the_zone_of_the_time_and_by_category() {
    let mut rules = Rules::default();
    (rules.top_max, rules.profile_fields_max) = (2, 1);
    let mut oracle = Oracle::new(rules, Keys::new("").unwrap(), Layout::new(1).unwrap());
    let entries = [
        "type=activity user=42 category=a weight=3 version=7",
        "type=profile user=42 profile.tz=Pacific/Kiritimati profile.city=Ulm at=5",
        "type=activity user=42 category=b weight=3",
        "type=profile user=42 profile.bio=x",
        "type=profile user=42 profile.tz=Mars",
        "type=profile user=42 profile.bio=x profile.city= at=6",
        "type=activity user=42 category=c weight=2",
        "type=activity user=42 category=c weight=4 at=1795892400000",
        "type=activity user=42 at=1700000000000",
        "type=activity user=43 weight=0",
    ];
    for (at, text) in entries.iter().enumerate() {
        oracle.entry(Shard(0), EntryId::new(NOW, at as u64), Some(&fields(text)));
    }
    let contents = oracle.contents(window());
    // 19:00 UTC is the next day already on Kiritimati, and so a day earlier is this one.
    assert_eq!(contents[&key("user", ":42:activity")], hash([("2026-11-29", "7"), ("2026-11-30", "5")]));
    assert_eq!(contents[&key("user", ":42:top")], Content::Sorted([("b".to_owned(), 3), ("c".to_owned(), 4)].into()));
    let profile = [
        ("schema", "2"),
        ("version", "2"),
        ("updated_at", "6"),
        ("last_activity", "1795978800000"),
        ("tz", "Pacific/Kiritimati"),
        ("bio", "x"),
    ];
    assert_eq!(contents[&key("user", ":42:profile")], hash(profile));
    let Content::Stream(dead) = &contents[&key("dlq", "")] else { panic!("no letters") };
    let kinds: Vec<_> = dead.iter().map(|(_, fields)| fields[1].1.clone()).collect();
    assert_eq!(kinds, ["profile_full", "no_such_zone", "not_a_number"]);
    assert_eq!(oracle.counts(Shard(0)), Counts { entries: 10, dead: 3, skipped: 1 });
}
