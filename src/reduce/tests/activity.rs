//! Activity: sums by day, the last moment, and the heaviest categories.

use super::*;
use crate::signal::Views;

const DAY: u64 = 24 * 3600 * 1000;
const LIFE: &str = "PEXPIRE user:{t}:42:activity 2678400000";

/// One whose last activity is of now.
fn known() -> Story {
    story().with("profile", "schema", "2").with("profile", "version", "4").with(
        "profile",
        "last_activity",
        "1795978800000",
    )
}

fn views(commit: &Commit) -> Vec<&'static str> {
    commit.signal.users[0].1.names()
}

#[test]
fn a_first_activity_makes_a_profile() {
    let told = story();
    told.check(
        &["type=activity user=42", "type=activity user=42 category=music weight=5"],
        &[Applied, Applied],
        &[
            &format!("HSET user:{{t}}:42:profile schema=2 version=0 updated_at={NOW} last_activity={NOW}"),
            "HSET user:{t}:42:activity 2026-11-29=6",
            LIFE,
            "ZADD user:{t}:42:top 5=music",
            "ZADD users:{t} 0=42",
        ],
    );
    assert_eq!(views(&told.commit(&["type=activity user=42"])), ["profile", "activity"]);
    // It counts no change of the profile, and a change is no activity.
    told.check(
        &["type=activity user=42 at=7", "type=profile user=42 profile.a=1 at=9", "type=activity user=42 at=8"],
        &[Applied, Applied, Applied],
        &["HSET user:{t}:42:profile schema=2 version=1 updated_at=9 a=1 last_activity=8", "ZADD users:{t} 0=42"],
    );
}

#[test]
fn weights_add_up_by_day_and_the_newest_moment_is_the_last() {
    let told = known().with("activity", "2026-11-29", "3").with("activity", "2026-11-28", "1");
    let before = NOW - DAY;
    told.check(
        &[
            &format!("type=activity user=42 at={before} weight=10"),
            &format!("type=activity user=42 at={} weight=1000000", NOW + DAY),
            "type=activity user=42",
        ],
        &[Applied, Applied, Applied],
        &["HSET user:{t}:42:activity 2026-11-28=11 2026-11-29=1000004", LIFE],
    );
    assert_eq!(views(&told.commit(&["type=activity user=42"])), ["activity"], "the profile stays as it is");
    let later = story().with("profile", "version", "0").with("profile", "last_activity", "1795978799999");
    assert_eq!(views(&later.commit(&["type=activity user=42"])), ["profile", "activity"]);
}

#[test]
fn sums_stop_at_the_largest_number() {
    let told = known().with("activity", "2026-11-29", "18446744073709551614").with("top", "a", "9007199254740990");
    told.check(
        &["type=activity user=42 category=a weight=7"],
        &[Applied],
        &["HSET user:{t}:42:activity 2026-11-29=18446744073709551615", LIFE, "ZADD user:{t}:42:top 9007199254740992=a"],
    );
    let full = known().with("activity", "2026-11-29", "18446744073709551615").with("top", "a", "9007199254740992");
    full.check(&["type=activity user=42 category=a"], &[Unchanged], &[LIFE]);
}

#[test]
fn days_are_those_of_the_user_s_zone_at_the_time() {
    // 19:00 UTC: the 30th in the far east already, the 29th in the far west still.
    let east = known().with("profile", "tz", "Pacific/Kiritimati");
    east.check(&["type=activity user=42"], &[Applied], &["HSET user:{t}:42:activity 2026-11-30=1", LIFE]);
    let morning = NOW - 10 * 3600 * 1000;
    east.check(
        &[
            &format!("type=activity user=42 at={morning}"),
            "type=profile user=42 profile.tz=Etc/GMT+12",
            &format!("type=activity user=42 at={morning} weight=5"),
            "type=profile user=42 profile.tz=",
            "type=activity user=42 weight=7",
        ],
        &[Applied; 5],
        &[
            "HDEL user:{t}:42:profile tz",
            &format!("HSET user:{{t}}:42:profile schema=2 version=6 updated_at={NOW}"),
            "HSET user:{t}:42:activity 2026-11-28=5 2026-11-29=8",
            LIFE,
        ],
    );
    // What is no zone counts as none.
    let odd = known().with("profile", "tz", "Mars");
    odd.check(&["type=activity user=42"], &[Applied], &["HSET user:{t}:42:activity 2026-11-29=1", LIFE]);
}

#[test]
fn days_of_more_than_a_month_ago_go_when_one_is_counted() {
    let stored = || {
        let told = known().with("activity", "2026-10-29", "1").with("activity", "2026-10-30", "2");
        told.with("activity", "2026-12-01", "3").with("activity", "spoilt", "4").with("activity", "2026-11-20", "many")
    };
    stored().check(
        &["type=activity user=42"],
        &[Applied],
        &["HDEL user:{t}:42:activity 2026-10-29 spoilt 2026-11-20", "HSET user:{t}:42:activity 2026-11-29=1", LIFE],
    );
    let days = |days: u64| format!("type=activity user=42 at={}", NOW - days * DAY);
    stored().check(
        &[&days(30)],
        &[Applied],
        &["HDEL user:{t}:42:activity 2026-10-29 spoilt 2026-11-20", "HSET user:{t}:42:activity 2026-10-30=3", LIFE],
    );
    // One of longer ago counts for its category alone, and for the last moment where nothing newer is known.
    stored().check(&[&days(31)], &[Unchanged], &[]);
    stored().check(&[&format!("{} category=a", days(31))], &[Applied], &["ZADD user:{t}:42:top 1=a"]);
    story().check(
        &[&days(31)],
        &[Applied],
        &[
            &format!("HSET user:{{t}}:42:profile schema=2 version=0 updated_at={0} last_activity={0}", NOW - 31 * DAY),
            "ZADD users:{t} 0=42",
        ],
    );
}

#[test]
fn a_newer_schema_keeps_its_own_and_an_older_one_waits_for_a_change() {
    for schema in ["1", "9"] {
        let told =
            story().with("profile", "schema", schema).with("profile", "version", "4").with("profile", "tz", "Mars");
        told.check(&["type=activity user=42 at=5"], &[Applied], &["HSET user:{t}:42:profile last_activity=5"]);
    }
}

#[test]
fn the_lightest_categories_are_pushed_out() {
    let mut told = known().with("top", "a", "5").with("top", "b", "2").with("top", "c", "2");
    told.rules.top_max = 3;
    let old = |category: &str, weight: u32| format!("type=activity user=42 at=1 category={category} weight={weight}");
    // Of two that weigh the same the first in byte order goes.
    told.check(&[&old("d", 3)], &[Applied], &["ZREM user:{t}:42:top b", "ZADD user:{t}:42:top 3=d"]);
    told.check(&[&old("d", 2)], &[Applied], &["ZREM user:{t}:42:top b", "ZADD user:{t}:42:top 2=d"]);
    told.check(&[&old("a0", 2)], &[Unchanged], &[]);
    // What was pushed out begins anew, in one batch as in several.
    told.check(
        &[&old("d", 3), &old("b", 3), &old("c", 7), &old("c", 7)],
        &[Applied, Applied, Applied, Applied],
        &["ZREM user:{t}:42:top b", "ZADD user:{t}:42:top 14=c 3=d"],
    );
}

#[test]
fn too_many_categories_become_fewer_once_the_bound_is_lowered() {
    let mut told = known();
    for (name, weight) in [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5"), ("f", "6")] {
        told = told.with("top", name, weight);
    }
    told.rules.top_max = 2;
    let old = "type=activity user=42 at=1 category=new weight=9";
    told.check(&[old], &[Applied], &["ZREM user:{t}:42:top a b", "ZADD user:{t}:42:top 9=new"]);
    told.check(
        &["type=activity user=42 at=1 category=f"],
        &[Applied],
        &["ZREM user:{t}:42:top a b", "ZADD user:{t}:42:top 7=f"],
    );
}

#[test]
fn nothing_of_a_user_s_activity_is_loaded_beyond_what_it_names() {
    let story = story();
    let plan = |entries: &[&str]| {
        Plan::of(&story.batch(entries), &story.state, &story.jobs, (&story.rules, NOW)).users[0].clone()
    };
    let user = plan(&["type=activity user=42"]);
    assert_eq!((user.activity, user.lightest(), user.extent, user.fields.len()), (true, 0, false, 0));
    let user = plan(&[
        "type=activity user=42 category=a",
        "type=activity user=42 category=b",
        "type=activity user=42 category=a",
    ]);
    assert_eq!((&user.categories[..], user.lightest()), (&["a".to_owned(), "b".to_owned()][..], 4));
    assert!(!plan(&["type=profile user=42 profile.a=1"]).activity);
}

#[test]
fn who_is_forgotten_has_no_activity_left() {
    let mut told = known().with("activity", "2026-11-29", "3");
    told.extent = (0, true);
    let commit = told.commit(&["type=forget user=42"]);
    assert_eq!(commit.signal.users[0].1, Views::PROFILE.with(Views::ACTIVITY));
}
