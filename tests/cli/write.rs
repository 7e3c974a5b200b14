//! `heyday write`: one change, and files of them.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use heyday::local::Options;
use serde_json::json;

use super::stage::Stage;
use super::{command, run};
use crate::support::cluster::own_cluster;
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::proxy::{Cut, Proxy};

const PATIENCE: Duration = Duration::from_secs(20);

/// A file with these lines, removed at the end of the test.
fn file(lines: &[String]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changes.ndjson");
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

#[tokio::test]
async fn change_is_appended_where_it_says() {
    let stage = Stage::with_shards(4).await;
    let changes = stage.json(&["shard", "foo", "--json"])["keys"]["changes"].as_str().unwrap().to_owned();
    let written = stage.heyday(&["write", "add", "user=foo", "friend=bar", "birthday=1990-05-01"]);
    assert_eq!((written.code, written.stderr.as_str()), (0, ""));
    let id = written.stdout.strip_prefix("shard 2 entry ").unwrap().trim_end();
    let entry = stage.redis(&["XRANGE", &changes, id, id]).await;
    let expected = [id, "type", "add", "user", "foo", "friend", "bar", "birthday", "1990-05-01"];
    assert_eq!(entry.lines().collect::<Vec<_>>(), expected);
    let answer = stage.heyday(&["write", "remove", "user=foo", "friend=bar", "--json"]).stdout;
    let id = stage.redis(&["XREVRANGE", &changes, "+", "-", "COUNT", "1"]).await;
    insta::assert_snapshot!(answer.replace(id.lines().next().unwrap(), "[id]"), @r#"{"shard":2,"id":"[id]"}"#);
}

#[tokio::test]
async fn wrong_change_is_refused_with_its_reason() {
    let stage = Stage::with_shards(4).await;
    let long = format!("user={}", "x".repeat(65));
    let cases: [(&[&str], &str); 17] = [
        (
            &["befriend", "user=1"],
            "type \"befriend\": expected add, remove, update, birthday, profile, activity or forget",
        ),
        (&["add", "friend=2"], "user: missing"),
        (&["add", "user=", "friend=2"], "user \"\": empty"),
        (&["remove", &long, "friend=2"], "65 bytes long, at most 64 are allowed"),
        (&["add", "user=a:b", "friend=2"], "user \"a:b\": contains ':'"),
        (&["add", "user=1", "friend=1"], "friend \"1\": the same as user"),
        (&["add", "user=1", "friend=2", "birthday=1990-02-30"], "birthday \"1990-02-30\": no such day"),
        (&["add", "user=1", "friend=2", "birthday=2999-01-01"], "birthday \"2999-01-01\": in the future"),
        (&["add", "user=1", "friend=2", "birthday=1.5.1990"], "expected YYYY-MM-DD, --MM-DD or nothing"),
        (&["add", "user=1", "friend=2", "version=new"], "version \"new\": expected a number"),
        (&["add", "user=1", "friend=2", "seq=1"], "seq \"1\": given without producer"),
        (&["add", "user=1", "friend=2", "brithday=1990-05-01"], "brithday: no such field for this type"),
        (&["profile", "user=1", "profile.city=a", "profile.city=b"], "profile.city \"b\": given more than once"),
        (&["add", "user=1", "friend"], "expected FIELD=VALUE"),
        (&["activity", "user=1", "weight=0"], "weight \"0\": expected a whole number from 1 to 1000000"),
        (&["activity", "user=1", "category=a b"], "category \"a b\": contains ' '"),
        (&["activity", "user=1", "version=3"], "version: no such field for this type"),
    ];
    for (arguments, expected) in cases {
        let refused = stage.heyday(&[&["write"], arguments].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{arguments:?}: {}", refused.stderr);
    }
    assert_eq!(stage.json(&["status", "--json"])["totals"]["unread"], 0);
}

#[tokio::test]
async fn file_is_appended_in_the_order_of_its_lines() {
    const USERS: usize = 50;
    const LINES: usize = 5_000;
    let stage = Stage::with_shards(4).await;
    let line = |at: usize| format!(r#"{{"type":"profile","user":"u{}","profile.at":{at},"version":null}}"#, at % USERS);
    let (_folder, path) = file(&(0..LINES).map(line).collect::<Vec<_>>());
    let written = stage.heyday(&["write", "--file", &path, "--json"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    insta::assert_snapshot!(written.stdout, @r#"{"lines":5000,"appended":5000,"bad":0,"refused":[],"unknown":[]}"#);
    assert!(written.stderr.starts_with("heyday: 5000 appended in "), "{}", written.stderr);
    let mut found = 0;
    for user in ["u0", "u1", "u2", "u7", "u11", "u49"] {
        let changes = stage.json(&["shard", user, "--json"])["keys"]["changes"].as_str().unwrap().to_owned();
        let entries = stage.redis(&["XRANGE", &changes, "-", "+"]).await;
        let entries: Vec<&str> = entries.lines().collect();
        let fields: Vec<&[&str]> = entries.chunks(7).filter(|entry| entry[4] == user).collect();
        let at: Vec<usize> = fields.iter().map(|entry| entry[6].parse().unwrap()).collect();
        assert!(at.is_sorted() && at.len() == LINES / USERS, "{user}: {at:?}");
        found += at.len();
    }
    assert_eq!(found, 6 * LINES / USERS);
}

#[tokio::test]
async fn bad_lines_are_named_and_stop_or_are_skipped() {
    let stage = Stage::with_shards(4).await;
    let lines = [
        r#"{"type":"add","user":1,"friend":2}"#,
        "",
        r#"{"type":"add","user":1,"friend":1}"#,
        r#"{"type":"add","user":1,"friend":{"id":3}}"#,
        "not json",
        r#"{"type":"remove","user":1,"friend":2}"#,
    ];
    let (_folder, path) = file(&lines.map(str::to_owned));
    let stopped = stage.heyday(&["write", "--file", &path]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (1, ""));
    let said: Vec<&str> = stopped.stderr.lines().collect();
    assert_eq!(said[0], "heyday: line 3: friend \"1\": the same as user");
    assert!(said[1].contains("1 appended") && said[1].ends_with("1 bad line, stopped at line 3"), "{}", said[1]);

    let skipped = stage.heyday(&["write", "--file", &path, "--on-error", "skip", "--json"]);
    assert_eq!(skipped.code, 1);
    assert_eq!(skipped.stdout, "{\"lines\":6,\"appended\":2,\"bad\":3,\"refused\":[],\"unknown\":[]}\n");
    let said: Vec<&str> = skipped.stderr.lines().collect();
    assert!(said[1].starts_with("heyday: line 4: field \"friend\": an object; expected"), "{}", said[1]);
    assert!(said[2].starts_with("heyday: line 5: "), "{}", said[2]);
    assert_eq!(said.len(), 4);
}

#[tokio::test]
async fn activity_of_a_command_and_of_a_file_adds_up() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    let written = stage.heyday(&["write", "activity", "user=foo", "category=music", "weight=3"]);
    assert_eq!((written.code, written.stderr.as_str()), (0, ""));
    let lines = [
        r#"{"type":"activity","user":"foo","category":"music","weight":4}"#,
        r#"{"type":"activity","user":"foo","weight":1000001}"#,
        r#"{"type":"activity","user":"foo"}"#,
    ];
    let (_folder, path) = file(&lines.map(str::to_owned));
    let written = stage.heyday(&["write", "--file", &path, "--on-error", "skip"]);
    assert_eq!(written.code, 1);
    let said = written.stderr.lines().next().unwrap();
    assert_eq!(said, "heyday: line 2: weight \"1000001\": expected a whole number from 1 to 1000000");
    settled(&stage).await;
    let view = stage.json(&["read", "foo", "--json"]);
    assert_eq!((&view["activity"]["last_7_days"], &view["top"][0]["weight"]), (&json!(8), &json!(7)), "{view}");
}

#[tokio::test]
async fn file_of_a_producer_may_be_written_again() {
    const LINES: usize = 200;
    let stage = Stage::with_shards(4).await;
    let line = |at: usize| format!(r#"{{"type":"profile","user":"u{}","profile.at":"{at}"}}"#, at % 2);
    let (_folder, path) = file(&(0..LINES).map(line).collect::<Vec<_>>());
    let _worker = stage.worker().await;
    for _ in 0..2 {
        let written = stage.heyday(&["write", "--file", &path, "--producer", "import-7"]);
        assert_eq!(written.code, 0, "{}", written.stderr);
    }
    settled(&stage).await;
    let profile = stage.json(&["read", "u1", "--json"])["profile"].clone();
    assert_eq!((&profile["version"], &profile["at"]), (&json!(LINES / 2), &json!("199")));
    let dead = stage.json(&["status", "--json"])["totals"]["dead"].clone();
    assert_eq!(dead, 0);
}

#[tokio::test]
async fn file_of_a_producer_is_finished_after_a_kill() {
    const LINES: usize = 20_000;
    let stage = Stage::with_shards(4).await;
    let line = |at: usize| format!(r#"{{"type":"profile","user":"u{}","profile.at":"{at}"}}"#, at % 4);
    let (_folder, path) = file(&(0..LINES).map(line).collect::<Vec<_>>());
    let _worker = stage.worker().await;
    let arguments = ["write", "--file", path.as_str(), "--producer", "import-8"];
    let mut first = stage.start(&arguments);
    let begun = async || Some(()).filter(|()| stage.json(&["read", "u1", "--json"])["state"] != "cold");
    eventually(PATIENCE, "some lines were applied", begun).await;
    first.signal(nix::sys::signal::Signal::SIGKILL);
    first.ends().await;
    let again = stage.heyday(&arguments);
    assert_eq!(again.code, 0, "{}", again.stderr);
    settled(&stage).await;
    for user in 0..4 {
        let profile = stage.json(&["read", &format!("u{user}"), "--json"])["profile"].clone();
        assert_eq!(profile["version"], LINES / 4, "{user}: {profile}");
    }
}

#[tokio::test]
async fn stdin_is_a_file_too() {
    let stage = Stage::with_shards(4).await;
    let mut writing = command(&["write", "--file", "-"], &stage.variables())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writing.stdin.take().unwrap().write_all(b"{\"type\":\"add\",\"user\":1,\"friend\":2}").unwrap();
    let output = writing.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(stage.json(&["status", "--json"])["totals"]["unread"], 1);

    let absent = stage.heyday(&["write", "--file", "absent.ndjson"]);
    assert_eq!((absent.code, absent.stdout.as_str()), (64, ""));
    assert!(absent.stderr.starts_with("heyday: absent.ndjson: "), "{}", absent.stderr);
}

#[tokio::test]
async fn fields_without_effect_are_told_and_let_through() {
    let stage = Stage::with_shards(4).await;
    let lines = [
        r#"{"type":"add","user":1,"friend":2,"colour":"blue"}"#,
        r#"{"type":"remove","user":1,"friend":2,"birthday":"1990-05-01","colour":"red"}"#,
    ];
    let (_folder, path) = file(&lines.map(str::to_owned));
    let written = stage.heyday(&["write", "--file", &path]);
    assert_eq!((written.code, written.stdout.as_str()), (0, ""), "{}", written.stderr);
    let expected = r#"heyday: without effect, as their type has no such field: "birthday" (1), "colour" (2)"#;
    assert_eq!(written.stderr.lines().next(), Some(expected));
    assert_eq!(stage.json(&["status", "--json"])["totals"]["unread"], 2);
}

#[tokio::test]
async fn input_that_breaks_off_is_told_with_what_was_appended() {
    let stage = Stage::with_shards(4).await;
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.write_all(b"{\"type\":\"add\",\"user\":1,\"friend\":2}\n{\"type\":\"add\",\"user\":1,\"friend\":3}\n")
        .unwrap();
    // What nobody reads on our side makes the other side fail once we are gone, instead of seeing an end.
    theirs.try_clone().unwrap().write_all(b"unread").unwrap();
    let writing = command(&["write", "--file", "-", "--json"], &stage.variables())
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let appended = async || Some(()).filter(|()| stage.json(&["status", "--json"])["totals"]["unread"] == 2);
    eventually(PATIENCE, "both lines were appended", appended).await;
    drop(ours);
    let output = writing.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let tally: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tally, json!({"lines": 2, "appended": 2, "bad": 0, "refused": [], "unknown": []}));
    assert!(stderr.starts_with("heyday: line 3: cannot be read: "), "{stderr}");
    assert!(stderr.trim_end().ends_with(", stopped after line 2"), "{stderr}");
}

#[tokio::test]
async fn file_that_waits_for_room_hears_that_it_is_told_to_stop_cluster_own() {
    let cluster = own_cluster(Options::default()).await;
    let seeds = cluster.seeds();
    let variables = [
        ("HEYDAY_REDIS__NODES", seeds.as_str()),
        ("HEYDAY_WRITER__TIMEOUT", "5s"),
        ("HEYDAY_WRITER__BATCH_CHANGES_MAX", "1"),
        ("HEYDAY_WRITER__QUEUE_CHANGES_MAX", "1"),
    ];
    assert_eq!(run(&["init", "--shards", "1"], &variables).code, 0);
    for index in 0..6 {
        cluster.cli(index, &["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    }
    let lines: Vec<String> = (0..10).map(|at| format!(r#"{{"type":"remove","user":"u","friend":"f{at}"}}"#)).collect();
    let (_folder, path) = file(&lines);
    let mut writing = Process::start(&["write", "--file", &path], &variables);
    let refused = async || {
        for index in 0..6 {
            if cluster.cli(index, &["INFO", "errorstats"]).await.is_ok_and(|info| info.contains("errorstat_OOM")) {
                return Some(());
            }
        }
        None
    };
    // The first line is on its way for as long as memory is full, and the second one waits for its room.
    eventually(PATIENCE, "the first line was refused", refused).await;
    writing.signal(nix::sys::signal::Signal::SIGTERM);
    let told = writing.says("told to stop after line 1").await;
    assert!(told.starts_with("heyday: 0 appended"), "{told}");
    assert_eq!(writing.ends().await.code(), Some(69), "{:?}", writing.stderr());
}

#[tokio::test]
async fn full_memory_stops_a_file_and_names_the_lines_cluster_own() {
    let cluster = own_cluster(Options::default()).await;
    let seeds = cluster.seeds();
    let variables = [("HEYDAY_REDIS__NODES", seeds.as_str()), ("HEYDAY_WRITER__TIMEOUT", "2s")];
    assert_eq!(run(&["init", "--shards", "1"], &variables).code, 0);
    for index in 0..6 {
        cluster.cli(index, &["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    }
    let lines: Vec<String> = (0..10).map(|at| format!(r#"{{"type":"remove","user":"u","friend":"f{at}"}}"#)).collect();
    let (_folder, path) = file(&lines);
    let refused = run(&["write", "--file", &path, "--json"], &variables);
    assert_eq!(refused.code, 69, "{}", refused.stderr);
    let tally: serde_json::Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!((&tally["appended"], tally["refused"].as_array().unwrap().len()), (&json!(0), 10), "{tally}");
    assert!(
        refused.stderr.contains("OOM") && refused.stderr.contains("not appended: lines 1-10"),
        "{}",
        refused.stderr
    );
    let one = run(&["write", "remove", "user=u", "friend=f"], &variables);
    let last = one.stderr.lines().last().unwrap();
    assert!(one.code == 69 && last.starts_with("heyday: shard 0: not appended: "), "{}", one.stderr);
}

// The proxy runs beside the command that the test waits for.
#[tokio::test(flavor = "multi_thread")]
async fn file_of_a_producer_is_finished_after_answers_were_lost() {
    const LINES: usize = 400;
    let stage = Stage::with_shards(1).await;
    let shard = stage.json(&["shard", "u", "--json"]);
    let node = shard["node"].as_str().unwrap().parse().unwrap();
    let proxy = Proxy::start(&node).await;
    let map = format!("{{\"{node}\"=\"{}\"}}", proxy.address());
    let settings = [
        ("HEYDAY_REDIS__ADDRESS_MAP", map.as_str()),
        ("HEYDAY_WRITER__TIMEOUT", "2s"),
        ("HEYDAY_WRITER__BATCH_CHANGES_MAX", "10"),
        ("HEYDAY_WRITER__QUEUE_CHANGES_MAX", "50"),
    ];
    let variables = [&stage.variables()[..], &settings].concat();
    let line = |at: usize| format!(r#"{{"type":"profile","user":"u","profile.at":"{at}"}}"#);
    let (_folder, path) = file(&(1..=LINES).map(line).collect::<Vec<_>>());
    let arguments = ["write", "--file", path.as_str(), "--producer", "import-9", "--json"];
    let _worker = stage.worker().await;

    // From the batch with this line on nothing is answered, and what waits here gets there after the command has ended.
    proxy.hold_before("at\r\n$3\r\n201\r\n");
    let stopped = run(&arguments, &variables);
    assert_eq!(stopped.code, 69, "{}", stopped.stderr);
    assert!(stopped.stderr.contains("may or may not be appended: line"), "{}", stopped.stderr);
    assert!(!stopped.stderr.contains("comes first"), "that is only what follows from it: {}", stopped.stderr);
    let tally: serde_json::Value = serde_json::from_str(&stopped.stdout).unwrap();
    let lines = |kind: &str| -> Vec<u64> { serde_json::from_value(tally[kind].clone()).unwrap() };
    let (appended, unknown, refused) = (tally["appended"].as_u64().unwrap(), lines("unknown"), lines("refused"));
    assert!(unknown.contains(&201) && unknown.is_sorted(), "{tally}");
    assert!(refused.iter().all(|line| *line > unknown[unknown.len() - 1]), "what waited behind it is certain: {tally}");
    assert_eq!(appended + (unknown.len() + refused.len()) as u64, tally["lines"].as_u64().unwrap(), "{tally}");
    let length = stage.redis(&["XLEN", shard["keys"]["changes"].as_str().unwrap()]).await;
    proxy.release();
    assert!(length.parse::<u64>().unwrap() <= appended + unknown.len() as u64, "{length} entries: {tally}");
    proxy.cut(Cut::Reset);

    let again = stage.heyday(&arguments);
    assert_eq!(again.code, 0, "{}", again.stderr);
    settled(&stage).await;
    let profile = stage.json(&["read", "u", "--json"])["profile"].clone();
    assert_eq!((&profile["version"], &profile["at"]), (&json!(LINES), &json!("400")), "each line once");
}
