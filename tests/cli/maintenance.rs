//! `heyday maintenance`: begun, seen by everybody, ended or forgotten.

use std::time::Duration;

use serde_json::{Value, json};

use super::stage::Stage;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

/// What the command answers in JSON, with the exit code that it must have.
fn answer(stage: &Stage, code: i32, arguments: &[&str]) -> (Value, String) {
    let done = stage.heyday(&[&["maintenance"], arguments, &["--json"]].concat());
    assert_eq!(done.code, code, "{arguments:?}: {}", done.stderr);
    (serde_json::from_str(&done.stdout).expect("one line of JSON"), done.stderr)
}

async fn unread(stage: &Stage, count: u64) {
    let counted = async || Some(()).filter(|()| stage.json(&["status", "--json"])["totals"]["unread"] == count);
    eventually(PATIENCE, &format!("{count} changes were unread"), counted).await;
}

#[tokio::test]
async fn maintenance_has_one_holder_and_everybody_can_read_why() {
    let stage = Stage::with_shards(4).await;
    let (off, _) = answer(&stage, 0, &["status"]);
    assert_eq!(
        off,
        json!({"on": false, "holder": null, "reason": null, "held_ms": null, "left_ms": null, "workers": []})
    );
    let (on, _) = answer(&stage, 0, &["on", "--reason", "moving nodes", "--holder", "ann", "--for", "5m"]);
    assert_eq!((&on["on"], &on["holder"], &on["reason"]), (&json!(true), &json!("ann"), &json!("moving nodes")));
    let left = on["left_ms"].as_u64().unwrap();
    assert!((290_000..=300_000).contains(&left), "{on}");

    let (seen, complaint) = answer(&stage, 1, &["on", "--reason", "mine", "--holder", "bob"]);
    assert_eq!(seen["holder"], "ann");
    assert!(
        complaint.contains("by ann") && complaint.contains("moving nodes") && complaint.contains("left"),
        "{complaint}"
    );
    let (changed, _) = answer(&stage, 0, &["on", "--reason", "still at it", "--holder", "ann", "--for", "1h"]);
    assert_eq!(changed["reason"], "still at it");
    assert!(changed["left_ms"].as_u64().unwrap() > 3_500_000, "{changed}");
    assert!(stage.heyday(&["status"]).stdout.contains("maintenance is on, by ann for "));
    assert_eq!(stage.json(&["status", "--json"])["maintenance"]["holder"], "ann");

    let (kept, complaint) = answer(&stage, 1, &["off", "--holder", "bob"]);
    assert_eq!(kept["on"], true);
    assert!(complaint.contains("--force ends another's"), "{complaint}");
    let (ended, _) = answer(&stage, 0, &["off", "--holder", "bob", "--force"]);
    assert_eq!(ended["on"], false);
    assert_eq!(answer(&stage, 0, &["off"]).0["on"], false, "it is off already");
    let (again, _) = answer(&stage, 0, &["on", "--reason", "mine", "--holder", "bob"]);
    assert_eq!(again["holder"], "bob", "it is free again");
    assert_eq!(stage.heyday(&["maintenance", "off", "--holder", "bob"]).stdout, "maintenance is off\n");
}

#[tokio::test]
async fn workers_pause_until_it_is_ended_and_say_so_once() {
    let stage = Stage::with_shards(4).await;
    let worker = stage.worker().await;
    worker.says("registered").await;
    let (on, _) = answer(&stage, 0, &["on", "--reason", "moving nodes", "--holder", "ann"]);
    assert_eq!((on["workers"].as_array().unwrap().len(), &on["workers"][0]["paused"]), (1, &json!(true)), "{on}");
    assert_eq!(stage.heyday(&["write", "add", "user=42", "friend=77"]).code, 0, "writers go on");
    unread(&stage, 1).await;
    assert_eq!(stage.json(&["status", "--json"])["workers"][0]["paused"], true);
    assert_eq!(stage.json(&["status", "--json"])["totals"]["owned"], 4, "shards stay with their owner");

    answer(&stage, 0, &["off", "--holder", "ann"]);
    unread(&stage, 0).await;
    let said = worker.says("maintenance is over").await;
    assert!(!said.contains("ran out"), "{said}");
    let lines = worker.stderr().into_iter().filter(|line| line.contains("maintenance")).count();
    assert_eq!(lines, 2, "one when it began and one when it ended: {:?}", worker.stderr());
}

#[tokio::test]
async fn forgotten_maintenance_ends_by_itself_and_every_worker_warns_of_it() {
    let stage = Stage::with_shards(4).await;
    let workers = [stage.worker().await, stage.worker().await];
    for worker in &workers {
        worker.says("registered").await;
    }
    answer(&stage, 0, &["on", "--reason", "forgotten", "--holder", "ann", "--for", "2s", "--wait", "1s"]);
    for worker in &workers {
        let said = worker.says("nobody had ended it").await;
        assert!(said.contains("ann") && said.contains("forgotten") && said.contains("WARN"), "{said}");
    }
    assert_eq!(stage.heyday(&["write", "add", "user=42", "friend=77"]).code, 0);
    unread(&stage, 0).await;
}

#[tokio::test]
async fn a_worker_that_cannot_pause_in_time_is_named() {
    let stage = Stage::with_shards(4).await;
    let worker = stage.worker().await;
    worker.says("registered").await;
    worker.signal(nix::sys::signal::Signal::SIGSTOP);
    let (on, complaint) = answer(&stage, 1, &["on", "--reason", "moving nodes", "--holder", "ann", "--wait", "300ms"]);
    let name = on["workers"][0]["worker"].as_str().unwrap();
    assert!(complaint.contains("not paused within 300ms") && complaint.contains(name), "{complaint}");
    worker.signal(nix::sys::signal::Signal::SIGCONT);
    let (on, _) = answer(&stage, 0, &["on", "--reason", "moving nodes", "--holder", "ann"]);
    assert_eq!(on["workers"][0]["paused"], true);
    answer(&stage, 0, &["off", "--force"]);
}

#[tokio::test]
async fn values_that_make_no_sense_are_refused_by_name() {
    let stage = Stage::bare().await;
    for (arguments, expected) in [
        (&["--reason", ""][..], "expected 1 to 256 bytes in one line"),
        (&["--reason", "a", "--for", "0s"], "expected 1s to 24h"),
        (&["--reason", "a", "--for", "2days"], "expected 1s to 24h"),
        (&["--reason", "a", "--wait", "2h"], "expected 0s to 1h"),
        (&["--reason", "a", "--holder", ""], "expected 1 to 128 bytes without control characters"),
        (&[], "--reason"),
    ] {
        let refused = stage.heyday(&[&["maintenance", "on"], arguments].concat());
        assert_eq!(refused.code, 64, "{arguments:?}");
        assert!(refused.stderr.contains(expected), "{arguments:?}: {}", refused.stderr);
    }
}
