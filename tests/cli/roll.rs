//! `heyday roll`: asked for, done by the owner between its batches, and seen in `status`.

use std::time::Duration;

use serde_json::Value;

use super::stage::Stage;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

fn roll(stage: &Stage, code: i32, arguments: &[&str]) -> Value {
    let done = stage.heyday(&[&["roll"], arguments, &["--json"]].concat());
    assert_eq!(done.code, code, "{arguments:?}: {}{}", done.stdout, done.stderr);
    serde_json::from_str(&done.stdout).expect("one line of JSON")
}

#[tokio::test]
async fn a_day_that_lost_somebody_is_filled_again() {
    let stage = Stage::with_shards(4).await;
    let worker = stage.worker().await;
    worker.says("registered").await;
    let today = jiff::Timestamp::now().strftime("%m-%d").to_string();
    let birthday = format!("birthday=--{today}");
    for user in 0..20 {
        let user = format!("user=u{user}");
        assert_eq!(stage.heyday(&["write", "add", &user, "friend=f", &birthday]).code, 0);
    }
    let rolled = roll(&stage, 0, &["--all"]);
    assert_eq!((&rolled["done"], rolled["shards"].as_array().unwrap().len()), (&Value::from(4), 4), "{rolled}");
    let last = rolled["shards"][0]["rolled"].as_str().expect("a date").to_owned();
    let status = stage.json(&["status", "--all", "--json"]);
    assert_eq!((&status["shards"][0]["rolled"], &status["shards"][0]["roll_asked"]), (&last.into(), &false.into()));

    let shard = stage.json(&["shard", "u3", "--json"]);
    let tag = shard["tag"].as_str().unwrap();
    let day = format!("{}birthdays:{{{tag}}}:{}", stage.prefix, jiff::Timestamp::now().strftime("%Y-%m-%d"));
    assert_eq!(stage.redis(&["DEL", &day]).await, "1");
    assert_eq!(stage.heyday(&["check"]).code, 1, "somebody is missing");
    let number = shard["shard"].to_string();
    let done = stage.heyday(&["roll", "--shard", &number]);
    assert!(done.stdout.starts_with("1 of 1 shard rolled in "), "{}{}", done.stdout, done.stderr);
    assert_eq!(stage.heyday(&["check"]).code, 0);
}

#[tokio::test]
async fn what_was_asked_for_waits_for_an_owner() {
    let stage = Stage::with_shards(2).await;
    let nobody = roll(&stage, 1, &["--all", "--wait", "300ms"]);
    assert_eq!((&nobody["done"], &nobody["shards"][0]["asked_at"]), (&0.into(), &Value::Null), "{nobody}");
    let told = stage.heyday(&["roll", "--all", "--wait", "0s"]);
    assert!(told.code == 0 && told.stdout.contains("no worker has ever owned it"), "{}", told.stdout);

    let mut worker = stage.worker().await;
    worker.says("registered").await;
    let owned = async || Some(()).filter(|()| stage.json(&["status", "--json"])["totals"]["owned"] == 2);
    eventually(PATIENCE, "both shards had an owner", owned).await;
    assert_eq!(roll(&stage, 0, &["--all"])["done"], 2);
    worker.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(worker.ends().await.code(), Some(0));
    let asked = roll(&stage, 1, &["--shard", "1", "--wait", "300ms"]);
    assert!(asked["shards"][0]["asked_at"].as_u64().is_some_and(|at| at > 0), "{asked}");
    assert_eq!(stage.json(&["status", "--all", "--json"])["shards"][1]["roll_asked"], true);
    let _worker = stage.worker().await;
    let done = async || {
        let shard = stage.json(&["status", "--all", "--json"])["shards"][1].clone();
        Some(()).filter(|()| shard["roll_asked"] == false && shard["roll"].is_null())
    };
    eventually(PATIENCE, "the next owner had rolled it", done).await;
}

#[tokio::test]
async fn a_command_line_that_makes_no_sense_is_told() {
    let stage = Stage::with_shards(2).await;
    for (arguments, words) in [
        (&["roll"][..], "--shard <NUMBER>"),
        (&["roll", "--shard", "2"], "shard 2"),
        (&["roll", "--shard", "1", "--all"], "cannot be used with"),
        (&["roll", "--all", "--wait", "soon"], "--wait"),
    ] {
        let done = stage.heyday(arguments);
        assert!(done.code == 64 && done.stderr.contains(words), "{arguments:?}: {} {}", done.code, done.stderr);
    }
}
