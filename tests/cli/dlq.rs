//! `heyday dlq`: a change that cannot be applied is found, understood, mended and applied after all.

use std::time::Duration;

use serde_json::json;

use super::stage::Stage;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(20);
const UNVERSIONED: &str = "1 replayed, 0 kept\n\
    1 without a version: applied as if it happened now, also over later changes of the same user\n";

/// Puts a letter there as a worker would; gives its id.
async fn letter(stage: &Stage, user: &str, fields: &[&str]) -> String {
    let key = stage.json(&["shard", user, "--json"])["keys"]["dead_letters"].as_str().unwrap().to_owned();
    stage.redis(&[&["XADD", &key, "*"], fields].concat()).await
}

async fn dead(stage: &Stage, count: u64) {
    let counted = async || Some(()).filter(|()| stage.json(&["status", "--json"])["totals"]["dead"] == count);
    eventually(PATIENCE, &format!("there were {count} dead letters"), counted).await;
}

#[tokio::test]
async fn letter_is_found_understood_mended_and_applied() {
    let stage = Stage::with_shards(4).await;
    let keys = stage.json(&["shard", "foo", "--json"])["keys"].clone();
    let (changes, birthdays) = (keys["changes"].as_str().unwrap(), keys["birthdays"].as_str().unwrap());
    let _worker = stage.worker().await;
    stage.redis(&["XADD", changes, "*", "type", "add", "user", "foo", "friend", "bar", "birthday", "1990-02-30"]).await;
    dead(&stage, 1).await;

    let listed = stage.json(&["dlq", "list", "--json"]);
    let id = listed["id"].as_str().unwrap().to_owned();
    assert_eq!((&listed["shard"], &listed["kind"]), (&json!(2), &json!("birthday")));
    assert_eq!(listed["reason"], "birthday \"1990-02-30\": no such day");
    let pairs = json!([["type", "add"], ["user", "foo"], ["friend", "bar"], ["birthday", "1990-02-30"]]);
    assert_eq!(listed["fields"], pairs);
    assert_eq!(stage.json(&["dlq", "show", "2", &id, "--json"]), listed);
    let shown = stage.heyday(&["dlq", "show", "2", &id]);
    assert!(shown.stdout.contains("reason    birthday \"1990-02-30\": no such day"), "{}", shown.stdout);

    let kept = stage.heyday(&["dlq", "replay", "2", &id, "--yes"]);
    assert_eq!((kept.code, kept.stdout.as_str()), (1, "0 replayed, 1 kept\n"));
    assert!(kept.stderr.contains("kept: birthday \"1990-02-30\": no such day"), "{}", kept.stderr);

    let mended = stage.heyday(&["dlq", "replay", "--user", "foo", "--set", "birthday=1990-02-28", "--yes"]);
    assert_eq!((mended.code, mended.stdout.as_str()), (0, UNVERSIONED), "{}", mended.stderr);
    let applied = async || Some(()).filter(|()| stage.json(&["status", "--json"])["totals"]["unread"] == 0);
    eventually(PATIENCE, "the mended change was applied", applied).await;
    assert_eq!(stage.redis(&["HGET", birthdays, "bar"]).await, "1990-02-28");
    dead(&stage, 0).await;
}

#[tokio::test]
async fn filters_choose_and_limits_bound() {
    let stage = Stage::with_shards(4).await;
    for (user, kind, date) in [("foo", "birthday", "x"), ("foo", "unknown_type", "y"), ("bar", "birthday", "z")] {
        letter(&stage, user, &["reason", "r", "kind", kind, "entry", "1-0", "f.user", user, "f.date", date]).await;
    }
    let count = |arguments: &[&str]| {
        let listed = stage.heyday(&[&["dlq", "list", "--json"], arguments].concat());
        assert_eq!(listed.code, 0, "{}", listed.stderr);
        listed.stdout.lines().count()
    };
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&["--shard", "2"]), 2);
    assert_eq!(count(&["--user", "foo", "--reason", "birthday"]), 1);
    assert_eq!(count(&["--user", "not an id"]), 0);
    assert_eq!(count(&["--limit", "2"]), 2);
    let table = stage.heyday(&["dlq", "list", "--limit", "1"]);
    assert_eq!(table.stdout.lines().count(), 2, "{}", table.stdout);
    assert!(table.stderr.contains("there are more"), "{}", table.stderr);

    let dropped = stage.heyday(&["dlq", "drop", "--reason", "birthday", "--yes"]);
    assert_eq!((dropped.code, dropped.stdout.as_str()), (0, "2 dropped\n"), "{}", dropped.stderr);
    assert_eq!(count(&[]), 1);
    assert_eq!(stage.json(&["dlq", "drop", "--all", "--yes", "--json"]), json!({"dropped": 1, "finished": true}));
    let empty = stage.heyday(&["dlq", "list"]);
    assert_eq!((empty.code, empty.stdout.as_str(), empty.stderr.as_str()), (0, "", "heyday: no dead letters\n"));
}

#[tokio::test]
async fn letters_that_cannot_be_replayed_say_why_and_stay() {
    let stage = Stage::with_shards(4).await;
    // Trimmed under the group's feet: nothing is left to append. And one that its writer put into a foreign shard.
    letter(&stage, "foo", &["reason", "entry: trimmed", "kind", "trimmed", "entry", "1-0"]).await;
    let astray = ["reason", "r", "kind", "k", "entry", "1-0", "f.type", "remove", "f.user", "bar", "f.friend", "foo"];
    letter(&stage, "foo", &astray).await;
    let kept = stage.heyday(&["dlq", "replay", "--all", "--yes"]);
    assert_eq!((kept.code, kept.stdout.as_str()), (1, "0 replayed, 2 kept\n"));
    assert!(kept.stderr.contains("its entry was trimmed"), "{}", kept.stderr);
    assert!(kept.stderr.contains("user bar belongs to shard 1"), "{}", kept.stderr);
    assert_eq!(stage.json(&["status", "--json"])["totals"]["dead"], 2);
}

#[tokio::test]
async fn letter_of_a_producer_that_has_gone_on_is_applied() {
    let stage = Stage::with_shards(4).await;
    let keys = stage.json(&["shard", "foo", "--json"])["keys"].clone();
    let (changes, birthdays) = (keys["changes"].as_str().unwrap(), keys["birthdays"].as_str().unwrap());
    let _worker = stage.worker().await;
    for (seq, friend) in [("1", "not an id"), ("2", "bar")] {
        let change = ["type", "add", "user", "foo", "friend", friend, "producer", "p", "seq", seq];
        stage.redis(&[&["XADD", changes, "*"], &change[..]].concat()).await;
    }
    dead(&stage, 1).await;
    let applied = async |friend: &str| {
        let known = async || (stage.redis(&["HEXISTS", birthdays, friend]).await == "1").then_some(());
        eventually(PATIENCE, &format!("{friend} was added"), known).await;
    };
    applied("bar").await;
    let replayed = stage.heyday(&["dlq", "replay", "--all", "--set", "friend=mended", "--yes"]);
    assert_eq!((replayed.code, replayed.stdout.as_str()), (0, UNVERSIONED), "{}", replayed.stderr);
    applied("mended").await;
}

/// A shard with so many letters that can be replayed; gives the keys of its dead letters and changes.
async fn many(count: usize) -> (Stage, String, String) {
    let stage = Stage::with_shards(1).await;
    let keys = stage.json(&["shard", "foo", "--json"])["keys"].clone();
    let key = |name: &str| keys[name].as_str().unwrap().to_owned();
    let script = "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'reason', 'r', 'kind', 'k', 'entry', \
                  '1-' .. i, 'f.type', 'remove', 'f.user', 'u' .. i, 'f.friend', 'x') end";
    stage.redis(&["EVAL", script, "1", &key("dead_letters"), &count.to_string()]).await;
    (stage, key("dead_letters"), key("changes"))
}

#[tokio::test]
async fn letters_are_replayed_once_however_many_try() {
    const COUNT: usize = 1000;
    let (stage, dead_letters, changes) = many(COUNT).await;
    let mut replays: Vec<_> = (0..3).map(|_| stage.start(&["dlq", "replay", "--all", "--yes", "--json"])).collect();
    let mut replayed = 0;
    for replay in &mut replays {
        assert_eq!(replay.ends().await.code(), Some(0), "{:?}", replay.stderr());
        let answer: serde_json::Value = serde_json::from_str(&replay.prints(1).await[0]).unwrap();
        replayed += answer["replayed"].as_u64().unwrap();
    }
    assert_eq!(replayed, COUNT as u64);
    assert_eq!(stage.redis(&["XLEN", &changes]).await, COUNT.to_string());
    assert_eq!(stage.redis(&["XLEN", &dead_letters]).await, "0");
}

#[tokio::test]
async fn many_letters_are_walked_in_pages() {
    const COUNT: usize = 1001;
    let (stage, dead_letters, changes) = many(COUNT).await;
    let listed = stage.heyday(&["dlq", "list", "--json", "--limit", "0"]);
    assert_eq!(listed.stdout.lines().count(), COUNT);
    let table = stage.heyday(&["dlq", "list", "--limit", "0"]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), COUNT + 1, "one heading, though the rows are printed some at a time");
    assert_eq!(lines[COUNT].find("remove"), lines[1].find("remove"), "{table}");
    let answer = stage.json(&["dlq", "replay", "--all", "--yes", "--limit", "600", "--json"]);
    assert_eq!(
        answer,
        json!({"replayed": 600, "kept": 0, "gone": 0, "with_version": 0, "without_version": 600, "finished": true})
    );
    assert_eq!(stage.redis(&["XLEN", &changes]).await, "600");
    assert_eq!(stage.redis(&["XLEN", &dead_letters]).await, "401");
}

#[tokio::test]
async fn nothing_is_replayed_or_dropped_by_accident() {
    let stage = Stage::with_shards(4).await;
    for action in ["replay", "drop"] {
        let vague = stage.heyday(&["dlq", action]);
        assert_eq!(vague.code, 64);
        assert!(vague.stderr.starts_with("heyday: which letters? "), "{}", vague.stderr);
        let unsure = stage.heyday(&["dlq", action, "--all"]);
        assert_eq!(unsure.code, 64);
        assert!(unsure.stderr.contains(&format!("give --yes to {action}")), "{}", unsure.stderr);
        let absent = stage.heyday(&["dlq", action, "3", "1-1", "--yes"]);
        assert_eq!((absent.code, absent.stderr.as_str()), (1, "heyday: no dead letter 1-1 in shard 3\n"));
    }
    let absent = stage.heyday(&["dlq", "show", "3", "1-1"]);
    assert_eq!((absent.code, absent.stderr.as_str()), (1, "heyday: no dead letter 1-1 in shard 3\n"));
}
