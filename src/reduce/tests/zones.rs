//! Day keys of users in zones of their own.

use super::*;

/// 09:00 on 30 November 2026 in UTC, in Kathmandu and on Kiritimati.
const UTC: &str = "1796029200";
const KATHMANDU: &str = "1796008500";
const KIRITIMATI: &str = "1795978800";

fn stands(score: &str, friend: &str) -> [String; 2] {
    [
        format!("ZADD birthdays:{{t}}:2026-11-30 {score}=42:{friend}"),
        "EXPIREAT birthdays:{t}:2026-11-30 1796216400".to_owned(),
    ]
}

/// The commands on day keys.
fn days(commit: &Commit) -> Vec<String> {
    commit.ops.iter().map(text).filter(|line| line.contains(" birthdays:{t}:2026")).collect()
}

#[test]
fn a_date_is_due_in_the_users_zone() {
    let add = ["type=add user=42 friend=7 birthday=--11-30"];
    assert_eq!(days(&story().commit(&add)), stands(UTC, "7"));
    assert_eq!(days(&story().with("profile", "tz", "Asia/Kathmandu").commit(&add)), stands(KATHMANDU, "7"));
    assert_eq!(days(&story().with("profile", "tz", "GMT+2").commit(&add)), stands(UTC, "7"), "no zone counts as none");
}

#[test]
fn a_change_of_zone_moves_all_friends_in_the_same_commit() {
    let told = story()
        .with("profile", "tz", "Asia/Kathmandu")
        .with("birthdays", "7", "1990-11-30")
        .with("birthdays", "8", "1990-06-30")
        .with("birthdays", "9", "");
    let moved = told.commit(&["type=profile user=42 profile.tz=Pacific/Kiritimati"]);
    assert_eq!(days(&moved), stands(KIRITIMATI, "7"));
    assert_eq!(days(&told.commit(&["type=profile user=42 profile.tz="])), stands(UTC, "7"));
    assert_eq!(days(&told.commit(&["type=profile user=42 profile.tz=Asia/Kathmandu"])), [""; 0]);
    assert_eq!(days(&told.commit(&["type=profile user=42 profile.city=Pokhara"])), [""; 0]);
}

#[test]
fn what_a_batch_does_before_and_after_a_change_of_zone_ends_in_the_new_one() {
    let told = story().with("birthdays", "7", "1990-11-30").with("birthdays", "8", "1990-11-30");
    let commit = told.commit(&[
        "type=add user=42 friend=6 birthday=--11-30",
        "type=profile user=42 profile.tz=Asia/Kathmandu",
        "type=add user=42 friend=9 birthday=--11-30",
        "type=remove user=42 friend=7",
        "type=update user=42 friend=8 birthday=1991-11-30",
    ]);
    let (removed, added) = ("ZREM birthdays:{t}:2026-11-30 42:7", format!("{KATHMANDU}=42:"));
    let expected = format!("ZADD birthdays:{{t}}:2026-11-30 {added}6 {added}9 {added}8");
    assert_eq!(days(&commit), [removed, &expected, "EXPIREAT birthdays:{t}:2026-11-30 1796216400"]);
}

#[test]
fn a_zone_is_read_only_where_somebody_may_stand_on_a_day() {
    let told = story();
    let plan = |entry: &str| Plan::of(&told.batch(&[entry]), &told.state, &told.jobs, (&told.rules, NOW));
    let zone = |entry: &str| plan(entry).users[0].zone;
    assert!(zone("type=add user=42 friend=7 birthday=--12-01"));
    assert!(zone("type=update user=42 friend=7 birthday=1990-11-28"));
    assert!(zone("type=profile user=42 profile.tz=UTC"));
    for entry in [
        "type=add user=42 friend=7 birthday=--06-01",
        "type=add user=42 friend=7",
        "type=remove user=42 friend=7",
        "type=birthday user=42 birthday=--12-01",
        "type=profile user=42 profile.city=Pokhara",
    ] {
        assert!(!zone(entry), "{entry}");
    }
}

#[test]
fn a_plan_made_for_other_days_does_not_suffice() {
    let told = story();
    let batch = told.batch(&["type=add user=42 friend=7 birthday=--12-20"]);
    let plan = Plan::of(&batch, &told.state, &told.jobs, (&told.rules, NOW));
    let at = |milliseconds| Loaded { milliseconds, ..told.load(&plan) };
    assert!(plan.suffices(&told.state, &told.rules.calendar, &at(NOW)));
    assert!(!plan.suffices(&told.state, &told.rules.calendar, &at(NOW + 24 * 3_600_000)), "a day was opened meanwhile");
    assert!(Plan::default().suffices(&told.state, &told.rules.calendar, &at(NOW)));
}

#[test]
fn an_open_day_stays_open_when_the_clock_goes_back() {
    let ahead = story().commit(&["type=add user=42 friend=7 birthday=--12-10"]);
    assert_eq!(ahead.state.open, Some(jiff::civil::date(2026, 12, 8)));
    assert_eq!(days(&ahead), [""; 0], "it is not open yet");
    let mut behind = story();
    behind.state.open = Some(jiff::civil::date(2026, 12, 10));
    let commit = behind.commit(&["type=add user=42 friend=7 birthday=--12-10"]);
    assert_eq!(days(&commit)[0], "ZADD birthdays:{t}:2026-12-10 1796893200=42:7");
    assert_eq!(commit.state.open, Some(jiff::civil::date(2026, 12, 10)));
}

#[test]
fn what_is_filled_is_open_although_the_clock_is_a_little_behind() {
    let mut story = story();
    story.state.open = Some(jiff::civil::date(2026, 12, 8));
    let layout = Layout::new(4).unwrap();
    let place = Place { rules: &story.rules, layout: &layout, keys: &story.keys };
    let roll: Roll = "2026-12-09 2026-12-09".parse().unwrap();
    let step = RollStep { roll: &roll, asked: false, survey: &Surveyed::default() };
    let state = step.reduce(place, &story.state, &Loaded { milliseconds: NOW, ..Loaded::default() }).state;
    assert_eq!((state.open, state.rolled), (Some(roll.to), Some(roll.to)));
}
