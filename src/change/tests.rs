//! Each rule of the wire format as one line.

use bytes::Bytes;
use proptest::prelude::*;

use crate::change::{Action, Change, Fields, KINDS, Limits, Problem, Producer, Rejection};
use crate::change::{Listed, Mirror, Relayed, Snapshot, UserId};
use crate::position::EntryId;

/// 2026-11-29T19:00:00Z
const NOW: u64 = 1_795_978_800_000;

fn fields(text: &str) -> Fields {
    text.split_whitespace()
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value.as_bytes())))
        .collect()
}

fn decode(text: &str) -> Result<Change, String> {
    Change::decode(&fields(text), &Limits::default(), NOW).map_err(|rejection| rejection.to_string())
}

#[test]
fn good_entries_become_changes() {
    for text in [
        "type=add user=42 friend=77 birthday=1990-05-01",
        "type=add user=42 friend=77",
        "type=add user=42 friend=77 birthday=",
        "type=add user=42 friend=77 birthday=--05-01 mutual=0",
        "type=add user=42 friend=77 birthday=2026-11-30",
        "type=remove user=42 friend=77 version=18446744073709551615",
        "type=update user=42 friend=77 birthday= at=0",
        "type=birthday user=ölaf birthday=2000-02-29 id=e-1",
        "type=profile user=42 profile.role=admin profile.tz= producer=app:1 seq=0",
        "type=add user=42 friend=77 colour=blue",
        "type=add user=42 friend=77 mutual=1",
        "type=remove user=42 friend=77 mutual=1",
        "type=activity user=42",
        "type=activity user=42 category=music weight=1000000 at=5 id=e",
        "type=forget user=42",
        "type=mirror.add user=42 friend=77 birthday=1990-05-01 ask=1 order=5-0-3 producer=shard:3 seq=7-1",
        "type=mirror.birthday user=42 friend=77 birthday= producer=shard:3 seq=7-1",
        "type=mirror.forget user=42 friend=77 order=5-0-3",
        "type=snapshot user=42 at=5",
        "type=snapshot user=42 at=5 friends=77=1990-05-01",
        "type=snapshot user=42 at=5 friends=7=7@=--05-01@9 from=7 to=8 whole=1 producer=rebuild:x seq=1",
        "type=snapshot user=42 at=5 birthday=1990-05-01 profile.city= versions=city=7 whole=1",
    ] {
        assert!(decode(text).is_ok(), "{text}: {:?}", decode(text));
    }
}

#[test]
fn bad_entries_say_field_value_and_expectation() {
    let long = "x".repeat(65);
    let cases = [
        ("user=42", "type: missing"),
        ("type=addd user=42", r#"type "addd": expected add, remove, update, birthday, profile, activity or forget"#),
        ("type=activity user=42 weight=0", r#"weight "0": expected a whole number from 1 to 1000000"#),
        ("type=activity user=42 weight=1000001", r#"weight "1000001": expected a whole number from 1 to 1000000"#),
        ("type=activity user=42 weight=1.5", r#"weight "1.5": expected a whole number from 1 to 1000000"#),
        ("type=activity user=42 weight=+1", r#"weight "+1": expected a whole number from 1 to 1000000"#),
        ("type=activity user=42 weight=", r#"weight "": expected a whole number from 1 to 1000000"#),
        ("type=activity user=42 category=", r#"category "": empty"#),
        (
            "type=activity user=42 category=a:b",
            r#"category "a:b": contains ':'; control characters, spaces, braces and colons are not allowed"#,
        ),
        ("type=profile user=42 profile.expires_at=1", r#"profile.expires_at "1": kept by heyday itself"#),
        ("type=add friend=77", "user: missing"),
        ("type=add user= friend=77", r#"user "": empty"#),
        ("type=add user=42", "friend: missing"),
        (
            "type=add user=4:2 friend=77",
            r#"user "4:2": contains ':'; control characters, spaces, braces and colons are not allowed"#,
        ),
        (
            "type=add user=42 friend={7}",
            r#"friend "{7}": contains '{'; control characters, spaces, braces and colons are not allowed"#,
        ),
        ("type=add user=42 friend=42", r#"friend "42": the same as user"#),
        ("type=add user=42 friend=77 birthday=1990-02-30", r#"birthday "1990-02-30": no such day"#),
        ("type=add user=42 friend=77 birthday=2026-12-01", r#"birthday "2026-12-01": in the future"#),
        (
            "type=add user=42 friend=77 birthday=1.5.1990",
            r#"birthday "1.5.1990": expected YYYY-MM-DD, --MM-DD or nothing"#,
        ),
        ("type=add user=42 friend=77 producer=shard:3 seq=1", r#"producer "shard:3": kept by heyday itself"#),
        ("type=mirror.add user=42 friend=77", "order: missing"),
        ("type=mirror.add user=42 friend=77 order=5", r#"order "5": expected two or three numbers joined by hyphens"#),
        (
            "type=mirror.remove user=42 friend=77 order=5-0-1 producer=me seq=1-1",
            r#"producer "me": expected shard: and a number"#,
        ),
        ("type=mirror.remove user=42 friend=77 order=5-0-1 producer=shard:3", "seq: missing"),
        ("type=snapshot user=42 friends=77=", "at: missing"),
        ("type=snapshot user=42 at=5 friends=42=", r#"friends "42": the same as user"#),
        ("type=snapshot user=42 at=5 friends=77=1990-02-30", r#"friends "77=1990-02-30": no such day"#),
        ("type=snapshot user=42 at=5 friends=77=2999-01-01", r#"friends "77": in the future"#),
        (
            "type=snapshot user=42 at=5 friends=77",
            r#"friends "77": expected items such as 77=1990-05-01 or 77=1990-05-01@7, parted by spaces"#,
        ),
        (
            "type=snapshot user=42 at=5 friends=77= from=78",
            r#"friends "77": expected in the order of bytes, each once and within from and to"#,
        ),
        (
            "type=snapshot user=42 at=5 friends=77=@x",
            r#"friends "77=@x": expected a number from 0 to 18446744073709551615"#,
        ),
        (
            "type=mirror.steal user=42 friend=77",
            r#"type "mirror.steal": expected add, remove, update, birthday, profile, activity or forget"#,
        ),
        ("type=add user=42 friend=77 mutual=yes", r#"mutual "yes": expected 0 or 1"#),
        ("type=update user=42 friend=77", "birthday: missing"),
        ("type=birthday user=42", "birthday: missing"),
        ("type=profile user=42", "profile.NAME: missing"),
        ("type=profile user=42 profile.=x", r#"profile. "x": empty"#),
        ("type=profile user=42 profile.schema=2", r#"profile.schema "2": kept by heyday itself"#),
        (
            "type=profile user=42 profile.tz=GMT+2",
            r#"profile.tz "GMT+2": expected the IANA name of a time zone, such as Europe/Berlin"#,
        ),
        ("type=profile user=42 profile.a=1 profile.a=2", r#"profile.a "2": given more than once"#),
        ("type=add user=42 user=43 friend=77", r#"user "43": given more than once"#),
        ("type=add user=42 friend=77 version=-1", r#"version "-1": expected a number from 0 to 18446744073709551615"#),
        ("type=add user=42 friend=77 version=", r#"version "": expected a number from 0 to 18446744073709551615"#),
        (
            "type=add user=42 friend=77 version=18446744073709551616",
            r#"version "18446744073709551616": expected a number from 0 to 18446744073709551615"#,
        ),
        ("type=add user=42 friend=77 seq=5", r#"seq "5": given without producer"#),
        ("type=add user=42 friend=77 producer=p", r#"producer "p": given without seq"#),
        ("type=add user=42 friend=77 id=", r#"id "": empty"#),
    ];
    for (text, expected) in cases {
        assert_eq!(decode(text).unwrap_err(), expected, "{text}");
    }
    let text = format!("type=add user={long} friend=77");
    let expected = format!("user \"{}…\": 65 bytes long, at most 64 are allowed", "x".repeat(64));
    assert_eq!(decode(&text).unwrap_err(), expected);
}

#[test]
fn hostile_bytes_are_named_and_bounded() {
    let mut entry = fields("type=add user=42");
    entry.push((Bytes::from_static(b"friend"), Bytes::from_static(b"\xff\xfe")));
    let reason = Change::decode(&entry, &Limits::default(), NOW).unwrap_err().to_string();
    assert_eq!(reason, "friend \"\u{fffd}\u{fffd}\": not valid UTF-8");

    let mut entry = fields("type=profile user=42");
    entry.push((Bytes::from_static(b"profile.bio"), Bytes::from(vec![b'x'; 1 << 20])));
    let reason = Change::decode(&entry, &Limits::default(), NOW).unwrap_err().to_string();
    assert!(reason.ends_with("1048576 bytes long, at most 4096 are allowed") && reason.len() < 200, "{reason}");

    let entry = (0..65).map(|n| (Bytes::from(format!("f{n}")), Bytes::new())).collect();
    let reason = Change::decode(&entry, &Limits::default(), NOW).unwrap_err().to_string();
    assert_eq!(reason, "entry: 65 fields, at most 64 are allowed");
}

#[test]
fn strict_refuses_what_nobody_knows() {
    let strict = Limits { strict: true, ..Limits::default() };
    for (text, expected) in [
        ("type=add user=42 friend=77 colour=blue", "colour: no such field for this type"),
        ("type=profile user=42 profile.a=1 friend=77", "friend: no such field for this type"),
        ("type=remove user=42 friend=77 birthday=", "birthday: no such field for this type"),
        ("type=activity user=42 version=7", "version: no such field for this type"),
        ("type=add user=42 friend=77 category=x", "category: no such field for this type"),
        ("type=add user=42 friend=77 profile.a=1", "profile.a: no such field for this type"),
    ] {
        let reason = Change::decode(&fields(text), &strict, NOW).unwrap_err().to_string();
        assert_eq!(reason, expected, "{text}");
        assert!(decode(text).is_ok(), "{text} is kept out where not strict");
    }
    // A field that is missing was most likely misspelt: what was written says more than what was not.
    for (text, expected) in [
        (
            "type=profile user=42 role=admin",
            "role: no such field for this type; profile fields are written profile.NAME",
        ),
        ("type=add usr=42 friend=77", "usr: no such field for this type"),
        ("type=update user=42 friend=77 date=1990-05-01", "date: no such field for this type"),
        ("type=add user=42 id=e-1", "friend: missing"),
    ] {
        let reason = Change::decode(&fields(text), &strict, NOW).unwrap_err().to_string();
        assert_eq!(reason, expected, "{text}");
    }
}

#[test]
fn every_kind_of_problem_is_listed_and_found() {
    use crate::shard::Shard;
    let problems = [
        Problem::Missing,
        Problem::TooLong { bytes: 1, bytes_max: 0 },
        Problem::Control('\n'),
        Problem::NotUtf8,
        Problem::Repeated,
        Problem::SameAsUser,
        Problem::NoSuchDay,
        Problem::NoSuchZone,
        Problem::NotAFlag,
        Problem::Without("seq"),
        Problem::UnknownType,
        Problem::Unprefixed,
        Problem::WrongShard { belongs: Shard(0), found: Shard(1) },
        Problem::ProfileFull { fields: 2, fields_max: 1 },
        Problem::Trimmed,
        Problem::Undeliverable(1),
        Problem::Refused(String::new()),
    ];
    let kinds = problems.map(|problem| Rejection::new("field", None, problem).kind());
    assert_eq!(kinds, KINDS);
}

fn any_change() -> impl Strategy<Value = Change> {
    let name = "[a-z0-9ö_.-]{1,12}";
    let birthday = prop_oneof![Just(""), Just("--02-29"), Just("1990-05-01"), Just("2026-11-29")]
        .prop_map(|text| crate::birthday::Birthday::parse(text).unwrap());
    let friend = "f[a-z0-9]{1,12}".prop_map(|text| text.parse().unwrap());
    let action = prop_oneof![
        (friend.clone(), proptest::option::of(birthday.clone()), any::<bool>())
            .prop_map(|(friend, birthday, mutual)| Action::Add { friend, birthday, mutual }),
        (friend.clone(), any::<bool>()).prop_map(|(friend, mutual)| Action::Remove { friend, mutual }),
        Just(Action::Forget),
        (proptest::option::of(name), 1..=1_000_000u32)
            .prop_map(|(category, weight)| Action::Activity { category, weight }),
        (friend, birthday.clone()).prop_map(|(friend, birthday)| Action::Update { friend, birthday }),
        birthday.prop_map(|birthday| Action::Birthday { birthday }),
        proptest::collection::btree_map("own_[a-z]{1,8}", proptest::option::of("[^\u{0}]{1,20}"), 1..5)
            .prop_map(|fields| Action::Profile { fields: fields.into_iter().collect() }),
    ];
    let producer = (name, any::<u64>()).prop_map(|(name, sequence)| Producer { name, sequence });
    (
        "u[a-z0-9]{1,12}",
        action,
        any::<Option<u64>>(),
        proptest::option::of(name),
        proptest::option::of(producer),
        any::<Option<u64>>(),
    )
        .prop_map(|(user, action, version, event, producer, at)| Change {
            version: version.filter(|_| !matches!(action, Action::Activity { .. })),
            event,
            producer,
            at,
            ..Change::new(user.parse().unwrap(), action)
        })
}

fn any_snapshot() -> impl Strategy<Value = Change> {
    let dates = prop_oneof![Just(""), Just("--02-29"), Just("1990-05-01")];
    let version = any::<Option<u64>>();
    let friends = proptest::collection::btree_map("f[a-z0-9=@]{1,12}", (dates.clone(), version), 0..20);
    let profile = proptest::collection::btree_map("own_[a-z]{1,8}", proptest::option::of("[^\u{0}]{1,20}"), 0..5);
    let versions = proptest::collection::btree_map("own_[a-z=]{1,8}", any::<u64>(), 0..3);
    let birthday = |text| crate::birthday::Birthday::parse(text).unwrap();
    let listed = move |(friend, (date, version)): (String, _)| Listed {
        friend: friend.parse().unwrap(),
        birthday: birthday(date),
        version,
    };
    (friends, profile, versions, proptest::option::of(dates), any::<[bool; 4]>(), any::<u64>()).prop_map(
        move |(friends, profile, versions, date, [whole, gone, from, to], at)| {
            let snapshot = Snapshot {
                friends: friends.into_iter().map(listed).collect(),
                from: from.then(|| "f".parse().unwrap()),
                to: to.then(|| "g".parse().unwrap()),
                whole,
                gone,
                birthday: date.map(birthday),
                profile: profile.into_iter().collect(),
                versions: versions.into_iter().collect(),
            };
            let producer = Some(Producer { name: "rebuild:x".to_owned(), sequence: at });
            let action = Action::Snapshot(Box::new(snapshot));
            Change { at: Some(at), producer, ..Change::new("u".parse().unwrap(), action) }
        },
    )
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(change in prop_oneof![any_change(), any_snapshot()]) {
        let entry: Fields = change.encode().into_iter()
            .map(|(name, value)| (Bytes::from(name.into_owned()), Bytes::from(value.into_owned())))
            .collect();
        let strict = Limits { strict: true, ..Limits::default() };
        prop_assert_eq!(Change::decode(&entry, &strict, NOW), Ok(change));
    }

    #[test]
    fn no_bytes_panic(entry in proptest::collection::vec((
        prop_oneof![
            proptest::sample::select(vec!["type", "user", "friend", "birthday", "profile.x", "category", "weight", "version", "seq", "at", "friends", "from", "to", "whole", "versions"])
                .prop_map(|name| name.as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..12),
        ],
        prop_oneof![
            proptest::sample::select(vec!["add", "remove", "profile", "activity", "snapshot", "42", "1990-05-01", "7=1990-05-01@8"])
                .prop_map(|value| value.as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..80),
        ],
    ), 0..12)) {
        let entry: Fields = entry.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let _ = Change::decode(&entry, &Limits { strict: true, ..Limits::default() }, NOW);
    }
}

#[test]
fn what_shards_tell_each_other_decodes_to_the_same() {
    let order = "1795978800000-4-9".parse().unwrap();
    let (user, friend): (UserId, UserId) = ("42".parse().unwrap(), "77".parse().unwrap());
    let birthday = crate::birthday::Birthday::parse("1990-05-01").unwrap();
    let relayed = Some(Relayed { source: crate::shard::Shard(9), id: EntryId::new(7, 1) });
    let others = vec!["43".parse().unwrap(), "ölaf".parse().unwrap()];
    for (mirror, others) in [
        (Mirror::Add { friend: friend.clone(), birthday: Some(birthday), ask: true, order }, vec![]),
        (Mirror::Add { friend: friend.clone(), birthday: None, ask: false, order }, vec![]),
        (Mirror::Remove { friend: friend.clone(), order }, vec![]),
        (Mirror::Birthday { friend: friend.clone(), birthday }, others.clone()),
        (Mirror::Forget { friend: friend.clone(), order }, others),
    ] {
        for relayed in [relayed, None] {
            let action = Action::Mirror(mirror.clone());
            let change = Change { others: others.clone(), relayed, ..Change::new(user.clone(), action) };
            let entry: Fields = change
                .encode()
                .into_iter()
                .map(|(name, value)| (name.into_owned().into(), value.into_owned().into()))
                .collect();
            let strict = Limits { strict: true, ..Limits::default() };
            assert_eq!(Change::decode(&entry, &strict, NOW), Ok(change));
        }
    }
    let crowd = vec!["1"; 256].join(" ");
    let mut entry = fields("type=mirror.birthday user=42 friend=77 birthday=");
    entry.push(("others".into(), crowd.into()));
    let reason = Change::decode(&entry, &Limits::default(), NOW).unwrap_err().to_string();
    assert!(reason.ends_with("257 users, at most 256 are allowed"), "{reason}");
}
