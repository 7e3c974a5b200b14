//! `heyday check`: what is sound passes, what is planted is named, and what is derived is mended.

use std::time::Duration;

use jiff::ToSpan;
use serde_json::{Value, json};

use super::stage::Stage;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

/// A used layout of four shards at rest, on which nobody works any more. `foo` lives in shard 2.
struct Used {
    stage: Stage,
    keys: Value,
    /// The day key of tomorrow, the birthday of bar, and when it is due.
    day: String,
    due: String,
}

impl Used {
    async fn new() -> Used {
        let stage = Stage::foreign_with_shards(4).await;
        let tomorrow = jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now()).date().saturating_add(1.day());
        let date = format!("--{}", tomorrow.strftime("%m-%d"));
        let worker = stage.worker().await;
        for change in [
            &["add", "user=foo", "friend=bar", &format!("birthday={date}"), "version=5"][..],
            &["add", "user=foo", "friend=baz", "birthday=1990-05-01", "producer=p", "seq=1"],
            &["profile", "user=foo", "profile.city=Kyiv", "id=once"],
            &["add", "user=bar", "friend=foo"],
            &["remove", "user=bar", "friend=foo"],
            &["birthday", "user=123456789", "birthday=--02-29"],
            &["activity", "user=foo", "category=music", "weight=3"],
        ] {
            let written = stage.heyday(&[&["write"], change].concat());
            assert_eq!(written.code, 0, "{}", written.stderr);
        }
        let settled = async || Some(()).filter(|()| stage.json(&["status", "--json"])["totals"]["unread"] == 0);
        eventually(PATIENCE, "all changes were applied", settled).await;
        worker.signal(nix::sys::signal::Signal::SIGTERM);
        let mut worker = worker;
        assert_eq!(worker.ends().await.code(), Some(0));
        let keys = stage.json(&["shard", "foo", "--json"])["keys"].clone();
        let state = keys["state"].as_str().unwrap();
        let tag = &state[state.find('{').unwrap()..];
        let day = format!("{}birthdays:{tag}:{tomorrow}", stage.prefix);
        let due = stage.redis(&["ZSCORE", &day, "foo:bar"]).await;
        assert!(!due.is_empty(), "the worker filled the day");
        Used { stage, day, due, keys }
    }

    fn key(&self, name: &str) -> &str {
        self.keys[name].as_str().unwrap()
    }

    /// A name under the prefix.
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.stage.prefix)
    }

    /// What a check names, and its exit code.
    fn check(&self, arguments: &[&str]) -> (i32, Vec<String>) {
        let done = self.stage.heyday(&[&["check"], arguments].concat());
        let lines = done.stdout.lines().take_while(|line| !line.is_empty() && !line.starts_with("CHECKED"));
        (done.code, lines.map(str::to_owned).collect())
    }

    async fn redis(&self, words: &[&str]) -> String {
        self.stage.redis(words).await
    }

    /// Exactly this is named once `planted` is there, and nothing any more once it was taken back.
    async fn names(&self, planted: &[&str], taken_back: &[&str], expected: &[String]) {
        self.redis(planted).await;
        let found = self.check(&[]);
        assert_eq!(found, (1, expected.to_vec()), "{planted:?}");
        self.redis(taken_back).await;
        assert_eq!(self.check(&[]), (0, vec![]), "{taken_back:?}");
    }
}

#[tokio::test]
async fn used_layout_passes_and_is_counted() {
    let used = Used::new().await;
    let answer = used.stage.json(&["check", "--json"]);
    let checked = answer["checked"].clone();
    assert_eq!((&answer["complete"], &answer["violations_total"]), (&json!(true), &json!(0)), "{answer}");
    assert_eq!((&answer["undecided"], &answer["repaired"], &answer["not_rolled"]), (&json!([]), &json!([]), &json!(0)));
    assert_eq!((&checked["shards"], &checked["users"], &checked["friends"]), (&json!(4), &json!(2), &json!(2)));
    assert_eq!(
        (&checked["versions"], &checked["activity"], &checked["producers"], &checked["day_members"]),
        (&json!(1), &json!(2), &json!(1), &json!(1))
    );
    let text = used.stage.heyday(&["check"]);
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    assert!(text.stdout.starts_with("CHECKED") && text.stdout.ends_with("\n0 violations\n"), "{}", text.stdout);
    let one = used.stage.json(&["check", "--json", "--shard", "2"]);
    assert_eq!((&one["checked"]["shards"], &one["checked"]["users"]), (&json!(1), &json!(1)), "{one}");
    let none = used.stage.heyday(&["check", "--shard", "4"]);
    assert_eq!((none.code, none.stderr.as_str()), (64, "heyday: shard 4: this layout has shards 0 to 3\n"));
}

#[tokio::test]
async fn empty_layout_passes_and_none_is_a_matter_of_configuration() {
    let stage = Stage::with_shards(4).await;
    let empty = stage.json(&["check", "--json"]);
    assert_eq!((&empty["violations_total"], &empty["checked"]["keys"]), (&json!(0), &json!(1)), "{empty}");
    let bare = Stage::bare().await.heyday(&["check"]);
    assert_eq!(bare.code, 78);
    assert!(bare.stderr.contains("run `heyday init` first"), "{}", bare.stderr);
}

#[tokio::test]
async fn keys_that_should_not_be_there_are_named() {
    let used = Used::new().await;
    for (name, command) in [("whatever", "SET"), ("push:{2.1}", "SET")] {
        let key = used.name(name);
        let line = format!("unknown_key {key}: expected a key of the registry, found a string");
        used.names(&[command, &key, "x"], &["DEL", &key], &[line]).await;
    }
    let foreign = used.name("changes:{9.9}");
    let line = format!("foreign_slot {foreign}: expected the tag of one of 4 shards, found \"9.9\"");
    used.names(&["XADD", &foreign, "*", "a", "b"], &["DEL", &foreign], &[line]).await;
    let spoilt = used.key("producers");
    let kept = used.redis(&["HGET", spoilt, "p"]).await;
    used.redis(&["DEL", spoilt]).await;
    let line = format!("wrong_type {spoilt}: expected a hash, found a string");
    used.names(&["SET", spoilt, "x"], &["DEL", spoilt], &[line]).await;
    used.redis(&["HSET", spoilt, "p", &kept]).await;
    let astray = used.key("birthdays").replace(":foo:", ":bar:");
    let line = format!("wrong_shard {astray}: expected a user of shard 2, found \"bar\" of shard 1");
    used.names(&["HSET", &astray, "x", ""], &["DEL", &astray], &[line]).await;
    // With a choice of shards, what belongs to no shard is nobody's business.
    used.redis(&["SET", &used.name("whatever"), "x"]).await;
    assert_eq!(used.check(&["--shard", "2"]), (0, vec![]));
    used.redis(&["DEL", &used.name("whatever")]).await;
}

#[tokio::test]
async fn lives_that_are_too_long_or_too_short_are_named() {
    let used = Used::new().await;
    let activity = used.key("activity");
    let line = format!("expiry {activity}: expected to expire, found no time to live");
    used.names(&["PERSIST", activity], &["EXPIRE", activity, "1000"], &[line]).await;
    let users = used.key("users");
    let line = format!("expiry {users}: expected to live for ever, found that it expires at 33000000000000");
    used.names(&["PEXPIREAT", users, "33000000000000"], &["PERSIST", users], &[line]).await;
    let lease = used.key("lease");
    let line = format!("expiry {lease}: expected to expire, found no time to live");
    used.names(&["SET", lease, "w"], &["DEL", lease], &[line]).await;
    let dedup = used.key("state").replace("state:", "dedup:") + ":x";
    let line = format!("expiry {dedup}: expected to expire, found no time to live");
    used.names(&["SET", &dedup, ""], &["DEL", &dedup], &[line]).await;
}

#[tokio::test]
async fn views_that_are_not_well_formed_are_named() {
    let used = Used::new().await;
    let (birthdays, profile, versions) = (used.key("birthdays"), used.key("profile"), used.key("versions"));
    let line = format!("view {birthdays}: expected a date for \"qux\", found \"1990-02-30\"");
    used.names(&["HSET", birthdays, "qux", "1990-02-30"], &["HDEL", birthdays, "qux"], &[line]).await;
    let line = format!("view {birthdays}: expected the id of a friend, found \"a:b\"");
    used.names(&["HSET", birthdays, "a:b", ""], &["HDEL", birthdays, "a:b"], &[line]).await;
    let line = format!("view {profile}: expected a number as version, found \"x\"");
    used.names(&["HSET", profile, "version", "x"], &["HSET", profile, "version", "1"], &[line]).await;
    let line = format!("view {profile}: expected a number as schema, found \"x\"");
    used.names(&["HSET", profile, "schema", "x"], &["HDEL", profile, "schema"], &[line]).await;
    assert_eq!(used.check(&[]).0, 0, "a profile from before there were schemas has none");
    let line = format!("view {versions}: expected version or version:removed_at for \"qux\", found \"x\"");
    used.names(&["HSET", versions, "qux", "x"], &["HDEL", versions, "qux"], &[line]).await;
    let (activity, top) = (used.key("activity"), used.key("top"));
    let line = format!("view {activity}: expected a day, found \"today\"");
    used.names(&["HSET", activity, "today", "1"], &["HDEL", activity, "today"], &[line]).await;
    let line = format!("view {top}: expected a sum of weights for \"music\", found \"1.5\"");
    used.names(&["ZADD", top, "1.5", "music"], &["ZADD", top, "3", "music"], &[line]).await;
    let line = format!("view {profile}: expected a time zone as tz, found \"Mars\"");
    used.redis(&["HSET", profile, "schema", "2"]).await;
    used.names(&["HSET", profile, "tz", "Mars"], &["HDEL", profile, "tz"], &[line]).await;
    let bar = used.stage.json(&["shard", "bar", "--json"])["keys"].clone();
    let (top, profile) = (bar["top"].as_str().unwrap(), bar["profile"].as_str().unwrap());
    let line = format!("view {profile}: expected a profile of somebody with activity, found no such key");
    used.names(&["ZADD", top, "1", "music"], &["DEL", top], &[line]).await;
    let producers = used.key("producers");
    let line = format!("producer {producers}: expected seq:last_seen for \"q\", found \"7\"");
    used.names(&["HSET", producers, "q", "7"], &["HDEL", producers, "q"], &[line]).await;
}

#[tokio::test]
async fn state_and_group_that_do_not_fit_are_named() {
    let used = Used::new().await;
    let (state, changes) = (used.key("state"), used.key("changes"));
    let field = async |name: &str| used.redis(&["HGET", state, name]).await;
    let (applied, generation, last) = (field("applied").await, field("generation").await, field("last").await);
    let line = format!("state {state}: expected a number as generation, found \"x\"");
    used.names(&["HSET", state, "generation", "x"], &["HSET", state, "generation", &generation], &[line]).await;
    let line = format!("state {state}: expected at most 4 dead and skipped, found 5 dead and 0 skipped");
    used.names(&["HSET", state, "dead", "5"], &["HSET", state, "dead", "0"], &[line]).await;
    let line = format!("group {changes}: expected delivered up to {applied}, which is applied, found 0-0");
    used.names(
        &["XGROUP", "SETID", changes, "heyday", "0"],
        &["XGROUP", "SETID", changes, "heyday", &applied],
        &[line],
    )
    .await;
    let line = format!("group {changes}: expected no consumer but owner, found \"stranger\"");
    let consumer = |action| ["XGROUP", action, changes, "heyday", "stranger"];
    used.names(&consumer("CREATECONSUMER"), &consumer("DELCONSUMER"), &[line]).await;
    // Delivered and not acknowledged is as it should be, until the state says that it is applied.
    let entry = used.redis(&["XADD", changes, "*", "type", "remove", "user", "foo", "friend", "x"]).await;
    used.redis(&["XREADGROUP", "GROUP", "heyday", "owner", "COUNT", "1", "STREAMS", changes, ">"]).await;
    assert_eq!(used.check(&[]), (0, vec![]));
    let line = format!("group {changes}: expected nothing pending up to {entry}, which is applied, found {entry}");
    used.names(&["HSET", state, "applied", &entry], &["HSET", state, "applied", &applied], &[line]).await;
    let line = format!("group {changes}: expected the group heyday, found no such group");
    used.names(&["XGROUP", "DESTROY", changes, "heyday"], &["XGROUP", "CREATE", changes, "heyday", &entry], &[line])
        .await;
    let log = used.key("log");
    let line = format!("log {log}: expected 1-1 at its end, as the state says, found {last}");
    used.names(&["HSET", state, "last", "1-1"], &["HSET", state, "last", &last], &[line]).await;
}

#[tokio::test]
async fn broken_log_is_named() {
    let used = Used::new().await;
    let log = used.key("log");
    let range = used.redis(&["XRANGE", log, "-", "+"]).await;
    let ids: Vec<&str> =
        range.lines().filter(|line| line.len() > 14 && line.contains('-') && line.starts_with('1')).collect();
    let [first, .., before, last] = ids[..] else { panic!("{range}: a log of three commits at least") };
    assert_ne!(first, before, "{range}");
    used.redis(&["XDEL", log, before]).await;
    let left = ids[ids.len() - 3];
    let line = format!("log {log}: expected {last} to follow {left}, found that it follows {before}");
    assert_eq!(used.check(&[]), (1, vec![line.clone()]));
    let forged = used.redis(&["XADD", log, "*", "x", "y"]).await;
    let state = format!("log {log}: expected {last} at its end, as the state says, found {forged}");
    let signal = format!("log {log}: expected a signal of {forged}, found {forged} without one");
    let mut expected = vec![line, state, signal];
    expected.sort();
    assert_eq!(used.check(&[]), (1, expected));
}

#[tokio::test]
async fn derived_keys_are_named_and_mended() {
    let used = Used::new().await;
    let (users, day, due) = (used.key("users"), used.day.as_str(), used.due.as_str());
    let ends = used.redis(&["PEXPIRETIME", day]).await;
    for (planted, expected) in [
        (&["ZREM", users, "foo"][..], format!("index {users}: expected \"foo\", who has a view, found no such user")),
        (&["ZADD", users, "7", "foo"], format!("index {users}: expected \"foo\" at 0, found \"foo\" at 7")),
        (
            &["ZADD", users, "0", "hugo"],
            format!("index {users}: expected only users with a view, found \"hugo\", who has none"),
        ),
        (&["ZREM", day, "foo:bar"], format!("day {day}: expected foo:bar at {due}, found no foo:bar")),
        (&["ZADD", day, "7", "foo:bar"], format!("day {day}: expected foo:bar at {due}, found foo:bar at 7")),
        (&["ZADD", day, "7", "foo:baz"], format!("day {day}: expected no foo:baz, found foo:baz at 7")),
        (&["ZADD", day, "7", "nonsense"], format!("day {day}: expected no nonsense, found nonsense at 7")),
        (
            &["PEXPIREAT", day, "33000000000000"],
            format!("expiry {day}: expected to expire at {ends}, found that it expires at 33000000000000"),
        ),
        (&["PERSIST", day], format!("expiry {day}: expected to expire at {ends}, found no time to live")),
    ] {
        used.redis(planted).await;
        assert_eq!(used.check(&[]), (1, vec![expected.clone()]), "{planted:?}");
        assert_eq!(used.check(&["--repair", "--yes"]), (0, vec![format!("repaired {expected}")]), "{planted:?}");
        assert_eq!(used.check(&["--repair", "--yes"]), (0, vec![]), "{planted:?}");
        assert_eq!(used.redis(&["PEXPIRETIME", day]).await, ends, "{planted:?}");
    }
    let view = used.stage.json(&["read", "foo", "--json"]);
    assert_eq!(view["friends"].as_array().unwrap().len(), 2, "{view}");
}

#[tokio::test]
async fn what_is_not_derived_is_left_alone_and_nothing_is_repaired_by_accident() {
    let used = Used::new().await;
    let birthdays = used.key("birthdays");
    used.redis(&["HSET", birthdays, "qux", "x"]).await;
    let line = format!("view {birthdays}: expected a date for \"qux\", found \"x\"");
    let kept = used.stage.heyday(&["check", "--repair", "--yes"]);
    assert_eq!((kept.code, kept.stdout.lines().next()), (1, Some(line.as_str())));
    assert!(kept.stderr.contains("the next change of the same friend or field overwrites it"), "{}", kept.stderr);
    assert_eq!(used.redis(&["HGET", birthdays, "qux"]).await, "x");
    let unsure = used.stage.heyday(&["check", "--repair"]);
    assert_eq!(unsure.code, 64);
    assert!(unsure.stderr.contains("give --yes to repair"), "{}", unsure.stderr);
    assert_eq!(used.stage.heyday(&["check", "--yes"]).code, 64);
}
