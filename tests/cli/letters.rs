//! `heyday dlq` on what age, version and number make of dead letters.

use std::time::{Duration, Instant};

use heyday::change::UserId;
use heyday::shard::{Layout, Shard};
use nix::sys::signal::Signal;
use serde_json::json;

use super::stage::Stage;
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::proxy::Proxy;

const PATIENCE: Duration = Duration::from_secs(20);

/// A change of user `foo` as a letter has it.
fn change<'a>(friend: &'a str, birthday: &'a str) -> Vec<&'a str> {
    let envelope = ["reason", "r", "kind", "birthday", "entry", "1-0"];
    [&envelope[..], &["f.type", "add", "f.user", "foo", "f.friend", friend, "f.birthday", birthday]].concat()
}

async fn settled(stage: &Stage) {
    let done = async || {
        let totals = stage.json(&["status", "--json"])["totals"].clone();
        Some(()).filter(|()| totals["unread"] == 0 && totals["pending"] == 0)
    };
    eventually(PATIENCE, "everything was applied", done).await;
}

#[tokio::test]
async fn newest_wins_with_versions_and_the_replayed_wins_without() {
    let stage = Stage::with_shards(4).await;
    let keys = stage.json(&["shard", "foo", "--json"])["keys"].clone();
    let key = |name: &str| keys[name].as_str().unwrap().to_owned();
    let _worker = stage.worker().await;
    let letters = key("dead_letters");
    let add = async |fields: Vec<&str>| stage.redis(&[vec!["XADD", &letters, "*"], fields].concat()).await;
    let versioned = add([change("bar", "1980-01-01"), vec!["f.version", "3"]].concat()).await;
    let unversioned = add(change("baz", "1980-01-01")).await;
    add([change("new", "1980-01-01"), vec!["f.version", "3"]].concat()).await;
    // What their user said since.
    for (friend, version) in [("bar", Some("version=5")), ("baz", None)] {
        let friend = format!("friend={friend}");
        let words = ["write", "add", "user=foo", &friend, "birthday=1999-09-09"];
        assert_eq!(stage.heyday(&[&words[..], version.as_slice()].concat()).code, 0);
    }
    settled(&stage).await;

    let show = |id: &str| stage.heyday(&["dlq", "show", "2", id]).stdout;
    let said = show(&versioned);
    assert!(said.contains("replayed  with version 3: applied where nothing newer is known"), "{said}");
    let said = show(&unversioned);
    assert!(said.contains("without a version: applied as if it happened now, also over later changes"), "{said}");
    assert_eq!(stage.json(&["dlq", "show", "2", &versioned, "--json"])["version"], "3");
    assert!(stage.json(&["dlq", "show", "2", &unversioned, "--json"])["version"].is_null());

    let replayed = stage.heyday(&["dlq", "replay", "--all", "--yes"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    insta::assert_snapshot!(replayed.stdout, @r"
    3 replayed, 0 kept
    2 with a version: applied where nothing newer is known
    1 without a version: applied as if it happened now, also over later changes of the same user
    ");
    settled(&stage).await;
    let birthday = async |friend: &str| stage.redis(&["HGET", &key("birthdays"), friend]).await;
    assert_eq!(birthday("bar").await, "1999-09-09", "the newer version stays");
    assert_eq!(birthday("baz").await, "1980-01-01", "nothing says which of the two is newer");
    assert_eq!(birthday("new").await, "1980-01-01");
}

#[tokio::test]
async fn letters_are_chosen_by_their_age_by_the_servers_time() {
    let stage = Stage::with_shards(4).await;
    let letters = stage.json(&["shard", "foo", "--json"])["keys"]["dead_letters"].as_str().unwrap().to_owned();
    let seconds: u64 = stage.redis(&["TIME"]).await.lines().next().unwrap().parse().unwrap();
    for minutes in [180, 119, 30, 1] {
        let id = format!("{}-0", (seconds - 60 * minutes) * 1000);
        stage.redis(&[vec!["XADD", &letters, &id], change("bar", "1980-01-01")].concat()).await;
    }
    let listed = |ages: &[&str]| {
        let listed = stage.heyday(&[&["dlq", "list", "--json"], ages].concat());
        assert_eq!(listed.code, 0, "{}", listed.stderr);
        listed.stdout.lines().count()
    };
    assert_eq!(listed(&["--older-than", "2h"]), 1);
    assert_eq!(listed(&["--older-than", "1h 30m"]), 2);
    assert_eq!(listed(&["--newer-than", "2h"]), 3);
    assert_eq!(listed(&["--older-than", "10m", "--newer-than", "2h"]), 2);
    assert_eq!(listed(&["--older-than", "2h", "--newer-than", "10m"]), 0);
    assert_eq!(listed(&["--newer-than", "100000d", "--user", "foo"]), 4);
    let wrong = stage.heyday(&["dlq", "list", "--older-than", "yesterday"]);
    assert_eq!(wrong.code, 64);
    assert!(wrong.stderr.contains("--older-than") && wrong.stderr.contains("expected a duration"), "{}", wrong.stderr);

    let replayed = stage.json(&["dlq", "replay", "--newer-than", "10m", "--yes", "--json"]);
    assert_eq!(replayed["replayed"], 1);
    let dropped = stage.json(&["dlq", "drop", "--older-than", "2h", "--yes", "--json"]);
    assert_eq!(dropped, json!({"dropped": 1, "finished": true}));
    assert_eq!(listed(&[]), 2);
}

/// Letters in each shard, half of them of each kind, of users of that shard.
async fn fill(stage: &Stage, layout: &Layout, count: usize) {
    // So many at once that no node is silent for long, however slow the machine is.
    const PART: usize = 2500;
    let script = "for i = tonumber(ARGV[2]) + 1, tonumber(ARGV[3]) do local kind = 'birthday'; if i % 2 == 0 then kind = 'unknown_type' end; \
                  redis.call('XADD', KEYS[1], '*', 'reason', 'birthday \"x\": no such day', 'kind', kind, 'entry', '1-' .. i, \
                  'f.type', 'add', 'f.user', ARGV[1], 'f.friend', 'f' .. i, 'f.birthday', '1990-05-01', 'f.version', i) end";
    for shard in layout.shards() {
        let user = user_of(layout, shard);
        let keys = stage.json(&["shard", &user, "--json"])["keys"].clone();
        let letters = keys["dead_letters"].as_str().unwrap();
        for first in (0..count).step_by(PART) {
            let (first, last) = (first.to_string(), count.min(first + PART).to_string());
            stage.redis(&["EVAL", script, "1", letters, &user, &first, &last]).await;
        }
    }
}

fn user_of(layout: &Layout, shard: Shard) -> String {
    let mut users = (0..).map(|number: u32| format!("u{number}"));
    users.find(|user| layout.shard_of(&user.parse::<UserId>().unwrap()) == shard).unwrap()
}

#[tokio::test]
async fn a_hundred_thousand_letters_are_listed_dropped_and_replayed_in_bounded_steps() {
    const SHARDS: u32 = 8;
    const COUNT: usize = 100_000;
    let stage = Stage::with_shards(SHARDS).await;
    let layout = Layout::new(SHARDS).unwrap();
    fill(&stage, &layout, COUNT / SHARDS as usize).await;
    assert_eq!(stage.json(&["status", "--json"])["totals"]["dead"], COUNT);
    let timed = async |arguments: &[&str]| {
        let begun = Instant::now();
        let done = stage.heyday(arguments);
        let seconds = begun.elapsed().as_secs_f64();
        println!("{arguments:?}: {COUNT} letters in {seconds:.2} s, {:.0} a second", COUNT as f64 / seconds);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
        done.stdout
    };
    let listed = timed(&["dlq", "list", "--limit", "0", "--json"]).await;
    assert_eq!(listed.lines().count(), COUNT);
    let dropped = timed(&["dlq", "drop", "--reason", "birthday", "--yes", "--json"]).await;
    assert_eq!(dropped, format!("{{\"dropped\":{},\"finished\":true}}\n", COUNT / 2));
    let replayed = timed(&["dlq", "replay", "--all", "--yes", "--json"]).await;
    let answer: serde_json::Value = serde_json::from_str(&replayed).unwrap();
    let half = COUNT / 2;
    assert_eq!(
        answer,
        json!({"replayed": half, "kept": 0, "gone": 0, "with_version": half, "without_version": 0, "finished": true})
    );
    let totals = stage.json(&["status", "--json"])["totals"].clone();
    assert_eq!(totals["dead"], 0);
    let mut appended = 0;
    for shard in layout.shards() {
        let keys = stage.json(&["shard", &user_of(&layout, shard), "--json"])["keys"].clone();
        appended += stage.redis(&["XLEN", keys["changes"].as_str().unwrap()]).await.parse::<usize>().unwrap();
    }
    assert_eq!(appended, half);
}

#[tokio::test]
async fn ctrl_c_ends_between_two_steps_and_says_how_far_it_came() {
    const COUNT: usize = 1000;
    let stage = Stage::with_shards(1).await;
    fill(&stage, &Layout::new(1).unwrap(), COUNT).await;
    let keys = stage.json(&["shard", "foo", "--json"])["keys"].clone();
    let (letters, changes) = (keys["dead_letters"].as_str().unwrap(), keys["changes"].as_str().unwrap());
    let node = stage.json(&["shard", "foo", "--json"])["node"].as_str().unwrap().parse().unwrap();
    let proxy = Proxy::start(&node).await;
    let map = format!("{{\"{node}\"=\"{}\"}}", proxy.address());
    let variables = [&stage.variables()[..], &[("HEYDAY_REDIS__ADDRESS_MAP", map.as_str())]].concat();
    let length = async |key: &str| stage.redis(&["XLEN", key]).await.parse::<u64>().unwrap();
    let mut expected = COUNT as u64;
    for (action, command) in [("replay", "EVAL"), ("drop", "XDEL")] {
        // In the middle of a step.
        proxy.hold_before(command);
        let mut working = Process::start(&["dlq", action, "--all", "--yes", "--json"], &variables);
        proxy.held().await;
        working.signal(Signal::SIGINT);
        proxy.release();
        assert_eq!(working.ends().await.code(), Some(1), "{:?}", working.stderr());
        let answer: serde_json::Value = serde_json::from_str(&working.prints(1).await[0]).unwrap();
        assert_eq!(answer["finished"], false);
        assert!(working.says("told to stop").await.contains("the same command goes on"));
        let done = answer[if action == "replay" { "replayed" } else { "dropped" }].as_u64().unwrap();
        assert!(done > 0 && done < expected, "{answer}");
        expected -= done;
        assert_eq!(length(letters).await, expected);
    }
    let before = length(changes).await;
    let again = stage.json(&["dlq", "replay", "--all", "--yes", "--json"]);
    assert_eq!((&again["replayed"], &again["finished"]), (&json!(expected), &json!(true)));
    assert_eq!((length(letters).await, length(changes).await), (0, before + expected));
}
