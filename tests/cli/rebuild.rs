//! `heyday rebuild`: what it says, refuses and promises.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::Stage;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

fn file(lines: &[&str]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.ndjson");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

async fn settled(stage: &Stage) {
    let done = async || {
        let totals = stage.json(&["status", "--json"])["totals"].clone();
        Some(()).filter(|()| totals["unread"] == 0 && totals["pending"] == 0)
    };
    eventually(PATIENCE, "everything was applied", done).await;
}

/// Some views that were there before.
async fn views(stage: &Stage) {
    for change in [
        &["add", "user=1", "friend=2", "birthday=1990-05-01"][..],
        &["add", "user=1", "friend=3", "birthday=1990-05-01"],
        &["add", "user=1", "friend=4", "birthday=1990-05-01", "version=7"],
        &["profile", "user=1", "profile.city=Lviv", "profile.old=x"],
        &["add", "user=9", "friend=2", "birthday=1990-05-01"],
    ] {
        assert_eq!(stage.heyday(&[&["write"], change].concat()).code, 0);
    }
    settled(stage).await;
}

const LINES: [&str; 2] = [
    r#"{"user":1,"birthday":"1980-01-01","profile":{"city":"Kyiv"},"friends":{"2":"1990-05-02","4":{"birthday":"","version":6},"5":""}}"#,
    r#"{"user":"7","friends":{"1":"--02-29"}}"#,
];

#[tokio::test]
async fn a_dry_run_says_what_the_run_then_does() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    views(&stage).await;
    let (_folder, path) = file(&LINES);
    let begun = stage.json(&["rebuild", "--begin", "--json"]);
    assert!(begun["moment"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(stage.json(&["rebuild", "--begin", "--json"]), begun, "the moment is that of the first time");

    let mut dry = stage.json(&["rebuild", "--file", &path, "--dry-run", "--authoritative", "--json"]);
    dry["moment"] = Value::Null;
    let first = dry["first"].take();
    let expected = json!({"moment": null, "lines": 2, "bad": 0, "repeated": 0,
        "users": {"named": 2, "changed": 3, "new": 1, "gone": 1},
        "friends": {"added": 2, "changed": 1, "removed": 2},
        "fields": {"added": 1, "changed": 1, "removed": 1},
        "dead_letters": 0, "first": null});
    assert_eq!(dry, expected);
    let mut first: Vec<&str> = first.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    first.sort_unstable();
    let told = [
        r#"user 1: friend 2: "1990-05-01" -> "1990-05-02""#,
        r#"user 1: friend 3: "1990-05-01" -> none"#,
        r#"user 1: friend 5: none -> """#,
        r#"user 1: profile birthday: none -> "1980-01-01""#,
        r#"user 1: profile city: "Lviv" -> "Kyiv""#,
        r#"user 1: profile old: "x" -> none"#,
        r#"user 7: friend 1: none -> "--02-29""#,
        r#"user 9: friend 2: "1990-05-01" -> none"#,
    ];
    assert_eq!(first, told);
    assert_eq!(stage.json(&["read", "1", "--json"])["friends"].as_array().unwrap().len(), 3, "nothing was changed");

    let run = ["rebuild", "--file", &path, "--authoritative", "--yes", "--json"];
    let mut done = stage.json(&run);
    (done["moment"], done["seconds"]) = (Value::Null, Value::Null);
    let expected = json!({"moment": null, "lines": 2, "users": 2, "friends": 4, "bad": 0, "repeated": 0, "unnamed": 1,
        "dead_letters": 0, "finished": true, "seconds": null});
    assert_eq!(done, expected);
    let again = stage.json(&["rebuild", "--file", &path, "--dry-run", "--authoritative", "--json"]);
    for part in ["friends", "fields"] {
        assert_eq!(again[part], json!({"added": 0, "changed": 0, "removed": 0}), "all of it was done");
    }
    assert_eq!(again["users"], json!({"named": 2, "changed": 0, "new": 0, "gone": 0}));
    assert_eq!(stage.heyday(&["check"]).code, 0);
}

#[tokio::test]
async fn bad_lines_stop_or_are_passed_over() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    let bad = r#"{"user":"8","friends":{"1":"1990-02-30"}}"#;
    let (_folder, path) = file(&[LINES[1], bad, LINES[0]]);
    let stopped = stage.heyday(&["rebuild", "--begin", "--file", &path]);
    assert_eq!(stopped.code, 1, "{}", stopped.stderr);
    let reason = "heyday: line 2: field friends.1 \"1990-02-30\": no such day\n";
    assert!(stopped.stderr.contains(reason) && stopped.stderr.contains("stopped at line 2"), "{}", stopped.stderr);
    settled(&stage).await;
    let friends = |user: &str| stage.json(&["read", user, "--json"])["friends"].as_array().unwrap().len();
    assert_eq!((friends("7"), friends("1")), (1, 0));

    // However often it is run: the second one goes on behind the bad line.
    assert_eq!(stage.heyday(&["write", "add", "user=8", "friend=1", "birthday=1990-02-28"]).code, 0);
    settled(&stage).await;
    for _ in 0..2 {
        let gone = stage.heyday(&["rebuild", "--file", &path, "--keep-going", "--authoritative", "--yes", "--json"]);
        assert_eq!(gone.code, 1, "{}", gone.stderr);
        assert!(gone.stderr.contains("no users are removed: a bad line may be about one of them"), "{}", gone.stderr);
        let told: Value = serde_json::from_str(&gone.stdout).unwrap();
        let parts = ["lines", "bad", "unnamed", "finished"].map(|part| &told[part]);
        assert_eq!(parts, [&json!(3), &json!(1), &json!(0), &json!(false)]);
        assert_eq!(friends("8"), 1, "nothing of the bad line's user goes");
    }
    let passed = stage.heyday(&["rebuild", "--file", &path, "--keep-going"]);
    assert_eq!(passed.code, 1, "{}", passed.stderr);
    assert!(passed.stderr.contains(reason) && passed.stderr.contains("1 bad line"), "{}", passed.stderr);
    assert_eq!((friends("7"), friends("1"), friends("8")), (1, 3, 1));
}

#[tokio::test]
async fn users_who_are_not_surely_gone_stay() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    views(&stage).await;
    let (_folder, path) = file(&[LINES[0], LINES[1], r#"{"user":7}"#]);
    stage.json(&["rebuild", "--begin", "--json"]);
    let run = ["rebuild", "--file", &path, "--authoritative", "--yes", "--json"];
    for (arguments, counts) in [(&run[..], "finished"), (&[&run[..], &["--dry-run"]].concat(), "users")] {
        let told = stage.heyday(arguments);
        assert_eq!(told.code, 1, "{}", told.stderr);
        let counted: Value = serde_json::from_str(&told.stdout).unwrap();
        assert_eq!(counted["repeated"], 1);
        assert!(counted[counts] == false || counted[counts]["gone"] == 0, "{counted}");
        assert!(told.stderr.contains("a user is in several lines"), "{}", told.stderr);
    }
    // Cut off behind the last line's last sign.
    let text = [LINES[0], LINES[1]].join("\n");
    std::fs::write(&path, &text).unwrap();
    let cut = stage.heyday(&run);
    assert_eq!(cut.code, 1, "{}", cut.stderr);
    assert!(cut.stderr.contains("does not end with the end of a line"), "{}", cut.stderr);
    let friends = |user: &str| stage.json(&["read", user, "--json"])["friends"].as_array().unwrap().len();
    assert_eq!(friends("9"), 1);
    std::fs::write(&path, text + "\n").unwrap();
    assert_eq!(stage.json(&run)["unnamed"], 1);
    assert_eq!((friends("9"), friends("1"), friends("7")), (0, 3, 1));
}

#[tokio::test]
async fn a_file_wants_a_moment_that_was_set_before_it() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    let (_folder, path) = file(&LINES);
    let run = ["rebuild", "--file", &path];
    let refused = stage.heyday(&run);
    assert_eq!(refused.code, 64, "{}", refused.stderr);
    assert!(refused.stderr.contains("take the snapshot after heyday rebuild --begin"), "{}", refused.stderr);
    assert_eq!(stage.heyday(&["rebuild", "--file", &path, "--dry-run"]).code, 0, "that one changes nothing");
    assert_eq!(stage.heyday(&["rebuild", "--begin", "--file", &path]).code, 0);
    assert_eq!(stage.heyday(&run).code, 64, "it has ended");

    // Another moment's place in the same file.
    let (_other, bad) = file(&["{", LINES[0]]);
    assert_eq!(stage.heyday(&["rebuild", "--begin", "--file", &bad]).code, 1);
    assert!(stage.heyday(&["rebuild", "--abort"]).stdout.contains("rebuild ended"));
    for (arguments, expected) in [
        (&["rebuild", "--file", &bad][..], "no rebuild is on"),
        (&["rebuild", "--begin", "--file", &bad], "and none is on: remove it"),
    ] {
        let refused = stage.heyday(arguments);
        assert_eq!(refused.code, 64, "{}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    stage.json(&["rebuild", "--begin", "--json"]);
    let refused = stage.heyday(&["rebuild", "--file", &bad]);
    assert_eq!(refused.code, 64, "{}", refused.stderr);
    assert!(refused.stderr.contains("finish or abort the other one first"), "{}", refused.stderr);
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let stage = Stage::with_shards(4).await;
    let (folder, path) = file(&LINES);
    for (arguments, code, expected) in [
        (&["rebuild"][..], 64, "required"),
        (&["rebuild", "--file", "/nowhere.ndjson"], 64, "/nowhere.ndjson: No such file"),
        (&["rebuild", "--file", folder.path().to_str().unwrap()], 64, "expected a regular file"),
        (&["rebuild", "--file", &path, "--authoritative"], 64, "no terminal to ask on: give --yes"),
        (&["rebuild", "--file", &path, "--abort"], 64, "cannot be used with"),
        (&["rebuild", "--file", &path, "--begin", "--dry-run"], 64, "cannot be used with"),
    ] {
        let refused = stage.heyday(arguments);
        assert_eq!(refused.code, code, "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{arguments:?}: {}", refused.stderr);
    }
    // Somebody took a shard's mark away, as a failover may.
    stage.json(&["rebuild", "--begin", "--json"]);
    let state = stage.json(&["shard", "1", "--json"])["keys"]["state"].as_str().unwrap().to_owned();
    stage.redis(&["HDEL", &state, "rebuild"]).await;
    let torn = stage.heyday(&["rebuild", "--file", &path]);
    assert_eq!(torn.code, 64, "{}", torn.stderr);
    assert!(torn.stderr.contains("the moment of the rebuild was lost on shards"), "{}", torn.stderr);
    assert!(stage.heyday(&["rebuild", "--abort"]).stdout.contains("rebuild ended"));
    assert!(stage.heyday(&["rebuild", "--abort"]).stdout.contains("no rebuild was on"));
}

#[tokio::test]
async fn what_a_node_has_lost_is_sent_again_and_taken() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    let (_folder, path) = file(&[LINES[1], "{"]);
    let run = ["rebuild", "--begin", "--file", &path];
    let friends = || stage.json(&["read", "7", "--json"])["friends"].as_array().unwrap().len();
    assert_eq!(stage.heyday(&run).code, 1);
    settled(&stage).await;
    assert_eq!(friends(), 1);
    // As where the view was lost, and the streams say that all is applied.
    let tag = stage.json(&["shard", "7", "--json"])["tag"].as_str().unwrap().to_owned();
    assert_eq!(stage.redis(&["DEL", &format!("{}user:{{{tag}}}:7:birthdays", stage.prefix)]).await, "1");
    assert_eq!(friends(), 0);
    std::fs::remove_file(format!("{path}.progress")).unwrap();
    assert_eq!(stage.heyday(&run).code, 1);
    settled(&stage).await;
    assert_eq!(friends(), 1);
}

#[tokio::test]
async fn a_rebuild_that_waits_for_workers_can_be_stopped_and_goes_on() {
    let stage = Stage::with_shards(4).await;
    let (_folder, path) = file(&LINES);
    let run = ["rebuild", "--begin", "--file", &path, "--json"];
    let mut waiting = stage.start(&run);
    let sent = async || (stage.json(&["status", "--json"])["totals"]["unread"] == 2).then_some(());
    eventually(PATIENCE, "both users are in the streams", sent).await;
    waiting.signal(Signal::SIGINT);
    assert_eq!(waiting.ends().await.code(), Some(1));
    waiting.says("stays on: run again to go on").await;
    let _worker = stage.worker().await;
    let done = stage.json(&run);
    assert_eq!(
        (&done["users"], &done["finished"]),
        (&json!(2), &json!(true)),
        "from the beginning: nothing was applied"
    );
    assert_eq!(stage.json(&["read", "1", "--json"])["friends"].as_array().unwrap().len(), 3);
}
