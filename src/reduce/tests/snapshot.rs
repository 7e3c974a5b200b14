//! Snapshots: what of them is taken, and what they leave alone.

use std::collections::BTreeMap;

use super::*;

/// When the rebuild that is on began; the snapshots stand for this moment too.
const AT: u64 = NOW - 10_000;

/// A shard with a rebuild on and what is stored of user a.
fn rebuilding(stored: &[(&'static str, &'static str, &'static str)]) -> Story {
    let mut story = story();
    story.state.rebuild = Some(AT);
    stored.iter().for_each(|row| story.stored.push(*row));
    let friends = story.part("birthdays").count() as u64;
    let has_profile = story.part("profile").count() > 0;
    story.extent = (friends, has_profile);
    story
}

/// The fields of one of a's keys after a commit.
fn after(story: &Story, commit: &Commit, part: &str) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = story.part(part).collect();
    let user = "a".parse().unwrap();
    let key = match part {
        "birthdays" => story.keys.birthdays(&user),
        "versions" => story.keys.versions(&user),
        _ => story.keys.profile(&user),
    };
    for op in &commit.ops {
        match op {
            Op::HashSet { key: set, fields: new } if *set == key => fields.extend(new.iter().cloned()),
            Op::HashDelete { key: from, fields: gone } if *from == key => {
                gone.iter().for_each(|field| drop(fields.remove(field)));
            }
            Op::Delete { keys } if keys.contains(&key) => fields.clear(),
            _ => {}
        }
    }
    fields
}

fn text_of(fields: &BTreeMap<String, String>) -> String {
    fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_friendship_is_decided_by_version_and_then_by_time() {
    let (before, at, later) = (AT - 1, AT, AT + 1);
    // The date before and what is known of its version and its last change; the record, `-` where a whole snapshot has none;
    // the date after, `-` for no friend, and what is known then.
    let cases: &[(&str, &str, &str, &str, &str)] = &[
        // Nothing known.
        ("-", "", "b=1990-05-01", "1990-05-01", ""),
        ("1980-01-01", "", "b=1990-05-01", "1990-05-01", ""),
        ("1980-01-01", "", "b=", "", ""),
        ("-", "", "b=1990-05-01@7", "1990-05-01", "b=7"),
        ("1980-01-01", "", "-", "-", ""),
        ("-", "", "-", "-", ""),
        // Versions on both sides.
        ("1980-01-01", "b=6", "b=1990-05-01@7", "1990-05-01", "b=7"),
        ("1980-01-01", "b=7", "b=1990-05-01@7", "1980-01-01", "b=7"),
        ("1980-01-01", "b=8", "b=1990-05-01@7", "1980-01-01", "b=8"),
        ("-", "b=6:17", "b=1990-05-01@7", "1990-05-01", "b=7"),
        ("-", "b=8:17", "b=1990-05-01@7", "-", "b=8:17"),
        // A version beats time.
        ("1980-01-01", "b=6 b:@=LATER", "b=1990-05-01@7", "1990-05-01", "b=7 b:@=LATER"),
        // A version that is stored only.
        ("1980-01-01", "b=7", "b=1990-05-01", "1980-01-01", "b=7"),
        ("-", "b=7:17", "b=1990-05-01", "-", "b=7:17"),
        // No version stored: time.
        ("1980-01-01", "b:@=BEFORE", "b=1990-05-01", "1990-05-01", "b:@=BEFORE"),
        ("1980-01-01", "b:@=SAME", "b=1990-05-01", "1990-05-01", "b:@=SAME"),
        ("1980-01-01", "b:@=LATER", "b=1990-05-01", "1980-01-01", "b:@=LATER"),
        ("1980-01-01", "b:@=LATER", "b=1990-05-01@7", "1980-01-01", "b:@=LATER"),
        ("-", "b:@=LATER", "b=1990-05-01", "-", "b:@=LATER"),
        ("-", "b:@=BEFORE", "b=1990-05-01", "1990-05-01", "b:@=BEFORE"),
        // A friendship that was told again without a date takes the record's.
        ("", "b:@=LATER?", "b=1990-05-01", "1990-05-01", "b:@=LATER?"),
        // A date that was told before there was a friendship.
        ("-", "b:@=LATER=1970-01-01", "b=1990-05-01", "1970-01-01", "b:@=LATER=1970-01-01"),
        ("-", "b:@=BEFORE=1970-01-01", "b=1990-05-01", "1990-05-01", "b:@=BEFORE=1970-01-01"),
        ("-", "b:@=LATER=1970-01-01", "b=1990-05-01@7", "1970-01-01", "b=7 b:@=LATER=1970-01-01"),
        ("-", "b:@=LATER=1970-01-01@8", "b=1990-05-01@7", "1970-01-01", "b=8 b:@=LATER=1970-01-01@8"),
        ("-", "b:@=LATER=1970-01-01@7", "b=1990-05-01@7", "1990-05-01", "b=7 b:@=LATER=1970-01-01@7"),
        ("1970-01-01", "b:@=LATER=1970-01-01", "b=1990-05-01", "1970-01-01", "b:@=LATER=1970-01-01"),
        ("1970-01-01", "b:@=LATER=1970-01-01", "-", "-", "b:@=LATER=1970-01-01"),
        // Both, one after the other.
        ("", "b:@=LATER?=1970-01-01", "b=1990-05-01", "1970-01-01", "b:@=LATER?=1970-01-01"),
        ("", "b:@=LATER?=1970-01-01@7", "b=1990-05-01@7", "1990-05-01", "b=7 b:@=LATER?=1970-01-01@7"),
        ("1970-01-01", "b:@=LATER?=1970-01-01", "-", "", "b:@=LATER?=1970-01-01"),
        // Not named by a whole snapshot: time alone, and the version stays as a tombstone.
        ("1980-01-01", "b:@=LATER", "-", "1980-01-01", "b:@=LATER"),
        ("1980-01-01", "b:@=LATER?", "-", "", "b:@=LATER?"),
        ("1980-01-01", "b:@=BEFORE", "-", "-", "b:@=BEFORE"),
        ("1980-01-01", "b=7", "-", "-", "b=7:NOW"),
        ("1980-01-01", "b=7 b:@=LATER", "-", "1980-01-01", "b=7 b:@=LATER"),
        // Forgotten since: nothing comes back.
        ("-", "::=LATER-0-0", "b=1990-05-01", "-", "::=LATER-0-0"),
        ("-", "::=BEFORE-0-0", "b=1990-05-01", "1990-05-01", "::=BEFORE-0-0"),
    ];
    let times = |text: &str| {
        let text = text.replace("BEFORE", &before.to_string()).replace("SAME", &at.to_string());
        text.replace("LATER", &later.to_string()).replace("NOW", &NOW.to_string())
    };
    for (case, (date, known, record, expected, known_after)) in cases.iter().enumerate() {
        let mut stored: Vec<(&'static str, &'static str, &'static str)> = Vec::new();
        if *date != "-" {
            stored.push(("birthdays", "b", date));
        }
        for pair in times(known).split_whitespace() {
            let pair: &'static str = pair.to_owned().leak();
            // The name ends where the value begins; the values of dates have an equals sign of their own.
            let (name, value) = pair.split_once('=').unwrap();
            stored.push(("versions", name, value));
        }
        let entry = match *record {
            "-" => format!("type=snapshot user=a at={AT} whole=1 from=a"),
            record => format!("type=snapshot user=a at={AT} friends={record}"),
        };
        let story = rebuilding(&stored);
        let commit = story.commit(&[&entry]);
        let friends = after(&story, &commit, "birthdays");
        assert_eq!(friends.get("b").map_or("-", String::as_str), *expected, "case {case}: {date} {known} {record}");
        let versions = text_of(&after(&story, &commit, "versions"));
        assert_eq!(versions, times(known_after), "case {case}: {date} {known} {record}");
    }
}

#[test]
fn a_profile_field_is_decided_like_a_friendship() {
    // What is stored of the field city and its version; the snapshot; what the profile holds then.
    let later = format!(":city:@={}", AT + 1).leak();
    let cases: &[(&str, &str, &str, &str)] = &[
        ("", "", "profile.city=Kyiv", "Kyiv"),
        ("Lviv", "", "profile.city=Kyiv", "Kyiv"),
        ("Lviv", "", "profile.city=", ""),
        ("Lviv", "", "whole=1", ""),
        ("Lviv", "", "whole=1 from=b", "Lviv"),
        ("Lviv", "", "birthday=1990-05-01", "Lviv"),
        ("Lviv", later, "profile.city=Kyiv", "Lviv"),
        ("Lviv", later, "whole=1", "Lviv"),
        ("", later, "profile.city=Kyiv", ""),
        ("Lviv", ":city=7", "profile.city=Kyiv", "Lviv"),
        ("Lviv", ":city=7", "profile.city=Kyiv versions=city=7", "Lviv"),
        ("Lviv", ":city=7", "profile.city=Kyiv versions=city=8", "Kyiv"),
        ("Lviv", ":city=7", "whole=1", ""),
    ];
    for (city, known, snapshot, expected) in cases {
        let mut stored = vec![("profile", "schema", "2"), ("profile", "version", "3"), ("profile", "updated_at", "9")];
        if !city.is_empty() {
            stored.push(("profile", "city", city));
        }
        stored.extend(known.split_once('=').map(|(name, value)| ("versions", name, value)));
        let story = rebuilding(&stored);
        let commit = story.commit(&[&format!("type=snapshot user=a at={AT} {snapshot}")]);
        let profile = after(&story, &commit, "profile");
        assert_eq!(profile.get("city").map_or("", String::as_str), *expected, "{city} {known} {snapshot}");
    }
}

#[test]
fn only_what_differs_is_written() {
    let story = rebuilding(&[
        ("birthdays", "b", "1990-05-01"),
        ("birthdays", "c", "--02-29"),
        ("profile", "schema", "2"),
        ("profile", "version", "3"),
        ("profile", "updated_at", "9"),
        ("profile", "birthday", "1980-01-01"),
        ("profile", "city", "Kyiv"),
    ]);
    let same = format!(
        "type=snapshot user=a at={AT} whole=1 friends=b=1990-05-01,c=--02-29 birthday=1980-01-01 profile.city=Kyiv"
    );
    story.check(&[&same], &[Outcome::Unchanged], &[]);
    let other =
        format!("type=snapshot user=a at={AT} whole=1 friends=b=1990-05-02,d= birthday=1980-01-01 profile.city=Lviv");
    story.check(
        &[&other],
        &[Outcome::Applied],
        &[
            "HDEL user:{t}:a:birthdays c",
            "HSET user:{t}:a:birthdays b=1990-05-02 d=",
            &format!("HSET user:{{t}}:a:profile schema=2 version=4 updated_at={AT} city=Lviv"),
        ],
    );
}

#[test]
fn a_new_user_is_listed_and_one_who_was_not_there_goes() {
    let story = rebuilding(&[]);
    let entry = format!("type=snapshot user=a at={AT} friends=b=1990-12-01");
    story.check(
        &[&entry],
        &[Outcome::Applied],
        &[
            "HSET user:{t}:a:birthdays b=1990-12-01",
            "ZADD users:{t} 0=a",
            "ZADD birthdays:{t}:2026-12-01 1796115600=a:b",
            "EXPIREAT birthdays:{t}:2026-12-01 1796302800",
        ],
    );
    let nobody = format!("type=snapshot user=a at={AT} whole=1 gone=1");
    let story = rebuilding(&[
        ("birthdays", "b", "1990-12-01"),
        ("profile", "schema", "2"),
        ("profile", "version", "3"),
        ("profile", "updated_at", "9"),
        ("profile", "last_activity", "17"),
    ]);
    story.check(
        &[&nobody],
        &[Outcome::Applied],
        &[
            "HDEL user:{t}:a:birthdays b",
            "UNLINK user:{t}:a:profile user:{t}:a:activity user:{t}:a:top",
            "PEXPIRE user:{t}:a:versions 2592000000",
            "ZREM users:{t} a",
            "ZREM birthdays:{t}:2026-12-01 a:b",
        ],
    );
    // Whom the file names keeps what no file tells.
    let named = format!("type=snapshot user=a at={AT} whole=1");
    let gone = ["HDEL user:{t}:a:birthdays b", "ZREM birthdays:{t}:2026-12-01 a:b"];
    story.check(&[&named], &[Outcome::Applied], &gone);
    rebuilding(&[]).check(&[&nobody], &[Outcome::Unchanged], &[]);
}

#[test]
fn a_user_who_was_active_since_stays() {
    let at: &'static str = (AT + 1).to_string().leak();
    let story = rebuilding(&[
        ("birthdays", "b", "1990-05-01"),
        ("profile", "schema", "2"),
        ("profile", "version", "3"),
        ("profile", "updated_at", "9"),
        ("profile", "city", "Kyiv"),
        ("profile", "last_activity", at),
    ]);
    let commit = story.commit(&[&format!("type=snapshot user=a at={AT} whole=1 gone=1")]);
    assert!(after(&story, &commit, "birthdays").is_empty());
    let profile = format!("last_activity={at} schema=2 updated_at={AT} version=4");
    assert_eq!(text_of(&after(&story, &commit, "profile")), profile);
}

#[test]
fn a_whole_part_speaks_of_its_range_only() {
    let story = rebuilding(&[
        ("birthdays", "b", "1990-05-01"),
        ("birthdays", "c", "1990-05-01"),
        ("birthdays", "d", "1990-05-01"),
        ("birthdays", "e", "1990-05-01"),
    ]);
    let entry = format!("type=snapshot user=a at={AT} whole=1 from=c to=e friends=d=1990-05-02");
    story.check(
        &[&entry],
        &[Outcome::Applied],
        &["HDEL user:{t}:a:birthdays c", "HSET user:{t}:a:birthdays d=1990-05-02"],
    );
}

#[test]
fn without_its_rebuild_a_snapshot_changes_nothing() {
    let entry = format!("type=snapshot user=a at={AT} friends=b=1990-05-01");
    story().check(&[&entry], &[Outcome::Outdated], &[]);
    let mut story = rebuilding(&[]);
    story.state.rebuild = Some(AT + 1);
    story.check(&[&entry], &[Outcome::Outdated], &[]);
}

#[test]
fn changes_leave_a_mark_while_a_rebuild_is_on() {
    let mark = |what: &str| format!("HSET user:{{t}}:a:versions b:@={NOW}{what}");
    let cases = [
        ("type=add user=a friend=b birthday=1990-05-01", "", vec!["HSET user:{t}:a:birthdays b=1990-05-01"]),
        ("type=add user=a friend=b", "?", vec!["HSET user:{t}:a:birthdays b="]),
        ("type=remove user=a friend=b", "", vec![]),
        ("type=update user=a friend=b birthday=1990-05-01", "=1990-05-01", vec![]),
    ];
    for (entry, what, _) in &cases {
        let found: Vec<String> = rebuilding(&[]).commit(&[entry]).ops.iter().map(text).collect();
        assert!(found.contains(&mark(what)), "{entry}: {found:?}");
        let found: Vec<String> = story().commit(&[entry]).ops.iter().map(text).collect();
        assert!(!found.iter().any(|line| line.contains("versions")), "{entry}: {found:?}");
    }
    let found: Vec<String> = rebuilding(&[])
        .commit(&["type=profile user=a profile.city=Kyiv", "type=birthday user=a birthday=1990-05-01"])
        .ops
        .iter()
        .map(text)
        .collect();
    assert!(found.contains(&format!("HSET user:{{t}}:a:versions :city:@={NOW} :birthday:@={NOW}")), "{found:?}");
}

#[test]
fn a_new_date_does_not_decide_whether_there_is_a_friendship() {
    let update = "type=update user=a friend=b birthday=1970-01-01";
    let told = |stored: &[(&'static str, &'static str, &'static str)]| {
        let story = rebuilding(stored);
        let commit = story.commit(&[update]);
        text_of(&after(&story, &commit, "versions"))
    };
    let friend = ("birthdays", "b", "1980-01-01");
    let later: &'static str = (AT + 1).to_string().leak();
    let dateless: &'static str = format!("{later}?").leak();
    assert_eq!(told(&[]), format!("b:@={NOW}=1970-01-01"));
    assert_eq!(told(&[friend]), format!("b:@={NOW}=1970-01-01"));
    assert_eq!(told(&[friend, ("versions", "b:@", later)]), format!("b:@={NOW}"));
    assert_eq!(told(&[friend, ("versions", "b:@", dateless)]), format!("b:@={NOW}"));
    let add = |mark: &'static str| {
        let story = rebuilding(&[("versions", "b:@", mark)]);
        let commit = story.commit(&["type=add user=a friend=b"]);
        (text_of(&after(&story, &commit, "birthdays")), text_of(&after(&story, &commit, "versions")))
    };
    let early: &'static str = format!("{later}=1970-01-01").leak();
    let unknown = "b=".to_owned();
    assert_eq!(add(early), (unknown.clone(), format!("b:@={NOW}?=1970-01-01")), "nobody knows whether it was a friend");
    assert_eq!(add(dateless), (unknown.clone(), format!("b:@={NOW}?")));
    assert_eq!(add(later), (unknown, format!("b:@={NOW}")));
    assert_eq!(told(&[("versions", "b:@", later)]), format!("b:@={later}"), "it was removed since");
}

#[test]
fn what_is_changed_in_the_same_batch_counts_by_its_own_time() {
    let story = rebuilding(&[("birthdays", "b", "1980-01-01"), ("birthdays", "c", "1980-01-01")]);
    let commit = story.commit(&[
        "type=remove user=a friend=b",
        "type=update user=a friend=d birthday=1970-01-01",
        &format!("type=snapshot user=a at={AT} whole=1 friends=b=1990-05-01,d=1990-05-01,e=1990-05-01"),
        "type=remove user=a friend=e",
    ]);
    assert_eq!(text_of(&after(&story, &commit, "birthdays")), "d=1970-01-01");
}

#[test]
fn what_one_snapshot_names_another_of_the_same_batch_may_not() {
    let story = rebuilding(&[("birthdays", "b", "1980-01-01")]);
    let commit = story.commit(&[
        &format!("type=snapshot user=a at={AT} friends=b=1990-05-01"),
        &format!("type=snapshot user=a at={AT} whole=1 from=a"),
    ]);
    assert_eq!(text_of(&after(&story, &commit, "birthdays")), "");
}

#[test]
fn friends_of_the_snapshot_hear_of_a_date_that_was_told_since() {
    let told: &'static str = (AT + 1).to_string().leak();
    let story = rebuilding(&[("versions", ":birthday:@", told)]);
    let commit = story.commit(&[&format!("type=snapshot user=a at={AT} friends=b=1990-05-01")]);
    assert_eq!(commit.jobs.len(), 1, "{:?}", commit.jobs);
    let commit =
        rebuilding(&[]).commit(&[&format!("type=snapshot user=a at={AT} friends=b=1990-05-01 birthday=1990-05-01")]);
    assert!(commit.jobs.is_empty() && commit.relays == 0, "a snapshot holds all sides");
}

#[test]
fn a_zone_of_the_snapshot_holds_for_all_friends() {
    let story = rebuilding(&[("birthdays", "b", "--12-01")]);
    let commit = story.commit(&[&format!("type=snapshot user=a at={AT} friends=c=--12-01 profile.tz=Europe/Kyiv")]);
    let found: Vec<String> = commit.ops.iter().map(text).collect();
    // 09:00 in Kyiv.
    let days = "ZADD birthdays:{t}:2026-12-01 1796108400=a:c 1796108400=a:b";
    assert!(found.iter().any(|line| line == days), "{found:?}");
}

#[test]
fn a_plan_made_without_the_rebuild_is_made_again() {
    let story = story();
    let batch = story.batch(&["type=add user=a friend=b"]);
    let plan = Plan::of(&batch, &story.state, &story.jobs, (&story.rules, NOW));
    let loaded = |rebuild| Loaded { milliseconds: NOW, rebuild, ..Loaded::default() };
    assert!(plan.suffices(&story.state, &story.rules.calendar, &loaded(None)));
    assert!(!plan.suffices(&story.state, &story.rules.calendar, &loaded(Some(AT))));
}
