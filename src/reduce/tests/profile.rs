//! Profiles: fields with versions of their own, schemas, and how many fields there may be.

use super::*;
use crate::signal::Views;

#[test]
fn a_profile_counts_its_changes() {
    story().with("profile", "version", "4").check(
        &["type=profile user=42 profile.role=admin profile.tz=", "type=birthday user=42 birthday=1990-05-01 at=17"],
        &[Applied, Applied],
        &[
            "HDEL user:{t}:42:profile tz",
            "HSET user:{t}:42:profile schema=2 version=6 updated_at=17 role=admin birthday=1990-05-01",
        ],
    );
    story().check(
        &["type=birthday user=42 birthday="],
        &[Applied],
        &[&format!("HSET user:{{t}}:42:profile schema=2 version=1 updated_at={NOW} birthday="), "ZADD users:{t} 0=42"],
    );
}

#[test]
fn each_profile_field_has_its_own_version() {
    let mut versioned = story().with("versions", ":role", "5").with("profile", "version", "1");
    versioned.extent = (0, true);
    versioned.check(
        &["type=profile user=42 profile.role=admin profile.city=Ulm version=5"],
        &[Applied],
        &[
            &format!("HSET user:{{t}}:42:profile schema=2 version=2 updated_at={NOW} city=Ulm"),
            "HSET user:{t}:42:versions :city=5",
            "PERSIST user:{t}:42:versions",
        ],
    );
    versioned.check(&["type=profile user=42 profile.role=admin version=5"], &[Outdated], &[]);
}

#[test]
fn one_change_may_be_newer_in_one_field_and_older_in_another() {
    let mut told = story().with("versions", ":a", "5").with("versions", ":b", "9:1").with("versions", ":c", "7");
    told = told.with("profile", "version", "3").with("profile", "schema", "2").with("profile", "a", "old");
    told.extent = (0, true);
    told.check(
        &[
            "type=profile user=42 profile.a=new profile.b=back profile.c=late profile.d=first version=7",
            "type=profile user=42 profile.b=again version=10",
        ],
        &[Applied, Applied],
        &[
            &format!("HSET user:{{t}}:42:profile schema=2 version=5 updated_at={NOW} a=new d=first b=again"),
            "HSET user:{t}:42:versions :a=7 :b=10 :d=7",
            "PERSIST user:{t}:42:versions",
        ],
    );
}

#[test]
fn a_deleted_field_leaves_a_tombstone_that_an_older_value_cannot_pass() {
    let mut told = story().with("profile", "version", "3").with("profile", "schema", "2").with("profile", "a", "x");
    told.extent = (0, true);
    told.check(
        &["type=profile user=42 profile.a= version=5", "type=profile user=42 profile.a=late version=4"],
        &[Applied, Outdated],
        &[
            "HDEL user:{t}:42:profile a",
            &format!("HSET user:{{t}}:42:profile schema=2 version=4 updated_at={NOW}"),
            &format!("HSET user:{{t}}:42:versions :a=5:{NOW}"),
            "PERSIST user:{t}:42:versions",
        ],
    );
    // Without a version it is deleted all the same, and nothing is remembered.
    told.check(
        &["type=profile user=42 profile.a=", "type=profile user=42 profile.b="],
        &[Applied, Applied],
        &["HDEL user:{t}:42:profile a b", &format!("HSET user:{{t}}:42:profile schema=2 version=5 updated_at={NOW}")],
    );
}

#[test]
fn a_profile_of_an_older_schema_is_rewritten_with_its_next_change() {
    let written = |rest: &str| format!("HSET user:{{t}}:42:profile schema=2 version=5 updated_at={NOW}{rest}");
    let old = || story().with("profile", "version", "4");
    let (city, birthday) = ("type=profile user=42 profile.city=Ulm", "type=birthday user=42 birthday=--02-29");
    // A zone stays, whether the schema is told or not.
    old().with("profile", "tz", "Europe/Berlin").check(&[city], &[Applied], &[&written(" city=Ulm")]);
    let zoned = old().with("profile", "schema", "1").with("profile", "tz", "Mars");
    let moved = ["HDEL user:{t}:42:profile tz".to_owned(), written(" tz_text=Mars city=Ulm")];
    zoned.check(&[city], &[Applied], &[&moved[0], &moved[1]]);
    zoned.check(&[birthday], &[Applied], &[&moved[0], &written(" tz_text=Mars birthday=--02-29")]);
    let known = old().with("profile", "tz", "Mars").with("profile", "tz_text", "mine");
    known.check(&[city], &[Applied], &[&moved[0], &written(" city=Ulm")]);
    // What the change itself says comes last.
    let change = "type=profile user=42 profile.tz=Asia/Kathmandu";
    zoned.check(&[change], &[Applied], &[&written(" tz=Asia/Kathmandu tz_text=Mars")]);
    zoned.check(
        &["type=profile user=42 profile.tz_text="],
        &[Applied],
        &["HDEL user:{t}:42:profile tz tz_text", &written("")],
    );
    old().with("profile", "expires_at", "soon").check(
        &[city],
        &[Applied],
        &["HDEL user:{t}:42:profile expires_at", &written(" expires_at_text=soon city=Ulm")],
    );
}

#[test]
fn a_newer_schema_is_not_written_down_and_its_fields_stay() {
    let newer = story().with("profile", "schema", "9").with("profile", "version", "4").with("profile", "tz", "later");
    newer.check(
        &["type=profile user=42 profile.city=Ulm"],
        &[Applied],
        &[&format!("HSET user:{{t}}:42:profile version=5 updated_at={NOW} city=Ulm")],
    );
}

#[test]
fn a_profile_that_is_full_takes_no_further_field() {
    let mut full = story().with("profile", "schema", "2").with("profile", "version", "4");
    full = full.with("profile", "tz", "UTC").with("profile", "a", "1").with("profile", "b", "2");
    full.rules.profile_fields_max = 2;
    full.events = vec!["seen"];
    full.check(
        &[
            "type=profile user=42 profile.c=3 profile.a=9 id=e version=8",
            "type=profile user=42 profile.a=9 profile.tz=Europe/Berlin",
            "type=add user=42 friend=77",
            "type=profile user=42 profile.c=4 profile.b=",
            "type=profile user=42 profile.b=5 id=f",
        ],
        &[Dead, Applied, Applied, Applied, Dead],
        &[
            &format!(
                "XADD dlq:{{t}} reason=profile.NAME: the profile would have 3 own fields, at most 2 are allowed \
                 kind=profile_full entry={NOW}-1 f.type=profile f.user=42 f.profile.c=3 f.profile.a=9 f.id=e f.version=8"
            ),
            &format!(
                "XADD dlq:{{t}} reason=profile.NAME: the profile would have 3 own fields, at most 2 are allowed \
                 kind=profile_full entry={NOW}-5 f.type=profile f.user=42 f.profile.b=5 f.id=f"
            ),
            "HSET user:{t}:42:birthdays 77=",
            "HDEL user:{t}:42:profile b",
            &format!("HSET user:{{t}}:42:profile schema=2 version=6 updated_at={NOW} a=9 tz=Europe/Berlin c=4"),
        ],
    );
    let commit = full.commit(&["type=profile user=42 profile.c=3"]);
    assert_eq!(
        (commit.dead_kinds, commit.state.counts),
        (vec!["profile_full"], Counts { entries: 1, dead: 1, skipped: 0 })
    );
    assert!(commit.signal.users.is_empty());
    // A bound that was lowered: what is there may be changed and become less.
    full.rules.profile_fields_max = 1;
    full.check(
        &[
            "type=profile user=42 profile.a=9",
            "type=profile user=42 profile.a= profile.c=1",
            "type=profile user=42 profile.b=",
        ],
        &[Applied, Applied, Applied],
        &[
            "HDEL user:{t}:42:profile a b",
            &format!("HSET user:{{t}}:42:profile schema=2 version=7 updated_at={NOW} c=1"),
        ],
    );
}

#[test]
fn an_outdated_field_takes_no_room() {
    let mut full = story().with("profile", "schema", "2").with("profile", "version", "4").with("profile", "a", "1");
    full = full.with("versions", ":b", "9:1");
    full.rules.profile_fields_max = 1;
    full.extent = (0, true);
    full.check(
        &["type=profile user=42 profile.a=2 profile.b=2 version=5"],
        &[Applied],
        &[
            &format!("HSET user:{{t}}:42:profile schema=2 version=5 updated_at={NOW} a=2"),
            "HSET user:{t}:42:versions :a=5",
            "PERSIST user:{t}:42:versions",
        ],
    );
}

#[test]
fn what_has_nothing_to_do_with_profiles_loads_nothing_of_them() {
    let story = story();
    let batch = story.batch(&[
        "type=add user=42 friend=77 version=1",
        "type=add user=42 friend=1 mutual=1",
        "type=remove user=42 friend=3",
        "type=update user=42 friend=4 birthday=",
    ]);
    let plan = Plan::of(&batch, &story.state, &story.jobs, (&story.rules, NOW));
    let user = &plan.users[0];
    assert_eq!((user.profile, user.profile_fields().count(), user.activity, user.lightest()), (false, 0, false, 0));
    assert_eq!(story.commit(&["type=add user=42 friend=77"]).signal.users[0].1, Views::BIRTHDAYS);
}

const DAY: u64 = 24 * 3_600_000;

/// Own fields end a day after the last change, all but the role.
fn mortal() -> Story {
    let mut mortal = story().with("profile", "schema", "2").with("profile", "version", "3");
    mortal.rules.profile_ttl = Some(Duration::from_millis(DAY));
    mortal.rules.profile_keep = ["role".to_owned()].into();
    mortal
}

#[test]
fn a_change_lets_a_profile_live_on() {
    let end = NOW + DAY;
    mortal().with("profile", "expires_at", "1795978800001").with("profile", "city", "Ulm").check(
        &["type=profile user=42 profile.lang=de"],
        &[Applied],
        &[&format!("HSET user:{{t}}:42:profile schema=2 version=4 updated_at={NOW} lang=de expires_at={end}")],
    );
    let mut forever = mortal().with("profile", "expires_at", "1795978800001");
    forever.rules.profile_ttl = None;
    forever.check(
        &["type=profile user=42 profile.lang=de"],
        &[Applied],
        &[
            "HDEL user:{t}:42:profile expires_at",
            &format!("HSET user:{{t}}:42:profile schema=2 version=4 updated_at={NOW} lang=de"),
        ],
    );
}

#[test]
fn what_has_expired_does_not_live_on_with_the_next_change() {
    let mut over = mortal().with("profile", "expires_at", "1795978800000").with("profile", "city", "Ulm");
    over = over.with("profile", "role", "admin").with("profile", "tz", "UTC").with("profile", "birthday", "--02-29");
    let end = NOW + DAY;
    over.check(
        &["type=profile user=42 profile.lang=de"],
        &[Applied],
        &[
            "HDEL user:{t}:42:profile city",
            &format!("HSET user:{{t}}:42:profile schema=2 version=4 updated_at={NOW} lang=de expires_at={end}"),
        ],
    );
    over.rules.profile_ttl = None;
    over.check(
        &["type=profile user=42 profile.lang=de"],
        &[Applied],
        &[
            "HDEL user:{t}:42:profile city expires_at",
            &format!("HSET user:{{t}}:42:profile schema=2 version=4 updated_at={NOW} lang=de"),
        ],
    );
    // An activity is no change of the profile's own fields.
    let active = over.commit(&["type=activity user=42"]);
    let lines: Vec<String> = active.ops.iter().map(text).collect();
    assert!(lines.iter().all(|line| !line.contains("city") && !line.contains("expires_at")), "{lines:?}");
}

#[test]
fn a_newer_builds_profile_has_no_end_of_this_ones_making() {
    let newer = mortal().with("profile", "expires_at", "later").with("profile", "city", "Ulm");
    let newer = Story {
        stored: newer.stored.into_iter().map(|row| if row.1 == "schema" { (row.0, row.1, "9") } else { row }).collect(),
        ..newer
    };
    newer.check(
        &["type=profile user=42 profile.lang=de"],
        &[Applied],
        &[&format!("HSET user:{{t}}:42:profile version=4 updated_at={NOW} lang=de")],
    );
}

#[test]
fn a_roll_takes_away_what_has_expired() {
    let story = mortal();
    let layout = Layout::new(4).unwrap();
    let place = Place { rules: &story.rules, layout: &layout, keys: &story.keys };
    let roll: Roll = "2026-12-08 2026-12-08".parse().unwrap();
    let user = |name: &str, friends_count, fields: &str| RolledUser {
        user: name.parse().unwrap(),
        zone: None,
        friends: Vec::new(),
        expired: Some(
            fields
                .split(' ')
                .map(|field| field.split_once('=').unwrap())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        ),
        friends_count,
    };
    let head = "schema=2 version=3 updated_at=1 expires_at=7";
    let survey = Surveyed {
        users: vec![
            user("kept", 0, &format!("{head} city=Ulm lang=de role=admin")),
            user("nothing", 0, &format!("{head} city=Ulm")),
            user("friends", 2, &format!("{head} city=Ulm")),
            user("born", 0, &format!("{head} birthday=--02-29")),
            user("alive", 0, &format!("schema=2 version=3 updated_at=1 expires_at={} city=Ulm", NOW + 1)),
        ],
        next: None,
    };
    let step = RollStep { roll: &roll, asked: false, survey: &survey };
    let commit = step.reduce(place, &story.state, &Loaded { milliseconds: NOW, ..Loaded::default() });
    let lines: Vec<String> = commit.ops.iter().map(text).collect();
    assert_eq!(
        lines,
        [
            "HDEL user:{t}:kept:profile city lang expires_at",
            "HSET user:{t}:kept:profile version=4",
            "UNLINK user:{t}:nothing:profile",
            "PEXPIRE user:{t}:nothing:versions 2592000000",
            "ZREM users:{t} nothing",
            "UNLINK user:{t}:friends:profile",
            "HDEL user:{t}:born:profile expires_at",
            "HSET user:{t}:born:profile version=4",
            "HDEL state:{t} roll",
            &format!("HSET state:{{t}} rolled_at={NOW}"),
        ]
    );
    let told: Vec<_> = commit.signal.users.iter().map(|(user, views)| (user.as_str(), *views)).collect();
    assert_eq!(told, ["kept", "nothing", "friends", "born"].map(|user| (user, Views::PROFILE)));
}
