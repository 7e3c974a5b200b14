//! `heyday read` and `heyday watch`: what was written comes out.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use heyday::birthday::{Birthday, LeapDay};
use heyday::key::Keys;
use heyday::shard::Layout;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::command;
use super::stage::Stage;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

async fn read_when(stage: &Stage, user: &str, never: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let read = async || Some(stage.json(&["read", user, "--json"])).filter(&holds);
    eventually(PATIENCE, never, read).await
}

fn write(stage: &Stage, arguments: &[&str]) {
    let written = stage.heyday(&[&["write"], arguments].concat());
    assert_eq!(written.code, 0, "{}", written.stderr);
}

#[tokio::test]
async fn view_is_public_and_keeps_its_shape() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    write(&stage, &["add", "user=foo", "friend=bar", "birthday=1990-05-01"]);
    write(&stage, &["add", "user=foo", "friend=baz"]);
    write(&stage, &["birthday", "user=foo", "birthday=--02-29"]);
    write(&stage, &["profile", "user=foo", "profile.city=Kyiv"]);
    let whole = |view: &Value| view["profile"]["city"] == "Kyiv" && view["freshness_ms"] == 0;
    let view = read_when(&stage, "foo", "the view was whole", whole).await;

    let today = jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now()).date();
    let next = Birthday::parse("1990-05-01").unwrap().next(today, LeapDay::February28).unwrap();
    let friend = &view["friends"][0];
    let found = (friend["next"].as_str().unwrap(), friend["days"].as_i64(), friend["age"].as_i64());
    assert_eq!(found, (&*next.date.to_string(), Some(next.days.into()), next.age.map(i64::from)));
    let updated_at = view["profile"]["updated_at"].to_string();
    let shape = stage.heyday(&["read", "foo", "--json"]).stdout.replace(&updated_at, "[updated_at]");
    let numbers = format!("\"days\":{},\"age\":{}", next.days, next.age.unwrap());
    let shape = shape.replace(&next.date.to_string(), "[next]").replace(&numbers, "\"days\":[days],\"age\":[age]");
    insta::assert_snapshot!(shape, @r#"{"user":"foo","shard":2,"state":"live","freshness_ms":0,"profile":{"schema":2,"version":2,"updated_at":[updated_at],"birthday":"--02-29","expires_at":null,"city":"Kyiv"},"activity":{"today":0,"last_7_days":0,"last_30_days":0,"last":null},"top":[],"friends":[{"friend":"bar","birthday":"1990-05-01","next":"[next]","days":[days],"age":[age]},{"friend":"baz","birthday":null,"next":null,"days":null,"age":null}]}"#);
}

#[tokio::test]
async fn view_is_a_table_for_people() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    write(&stage, &["profile", "user=foo", "profile.city=Kyiv"]);
    write(&stage, &["add", "user=foo", "friend=bar", "birthday=1990-05-01"]);
    read_when(&stage, "foo", "the friend was there", |view| view["friends"][0]["friend"] == "bar").await;
    let text = stage.heyday(&["read", "foo"]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["user", "foo"]);
    assert_eq!(lines[1].split_whitespace().take(2).collect::<Vec<_>>(), ["state", "live"], "{text}");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["city", "Kyiv"]);
    let heading = lines.iter().position(|line| line.starts_with("FRIEND")).expect("a table of friends");
    assert!(lines[heading + 1].starts_with("bar") && lines[heading + 1].contains("1990-05-01"), "{text}");
}

#[tokio::test]
async fn activity_and_categories_are_shown() {
    let stage = Stage::with_shards(4).await;
    let layout = Layout::new(4).unwrap();
    let user = "foo".parse().unwrap();
    let keys = Keys::new(&stage.prefix).unwrap().shard(&layout, layout.shard_of(&user));
    let today = jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now()).date().to_string();
    stage.redis(&["HSET", keys.profile(&user).as_str(), "schema", "2", "last_activity", "1700000000000"]).await;
    stage.redis(&["HSET", keys.activity(&user).as_str(), &today, "2"]).await;
    stage.redis(&["ZADD", keys.top(&user).as_str(), "17", "music", "3", "films"]).await;
    let shown = stage.json(&["read", "foo", "--json"]);
    let activity = serde_json::json!({"today": 2, "last_7_days": 2, "last_30_days": 2, "last": 1_700_000_000_000u64});
    let top = serde_json::json!([{"category": "music", "weight": 17}, {"category": "films", "weight": 3}]);
    assert_eq!((&shown["activity"], &shown["top"]), (&activity, &top));
    let text = stage.heyday(&["read", "foo"]).stdout;
    let rows: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in ["active 2023-11-14 22:13:20", "activity 2 today, 2 in 7 days, 2 in 30 days", "top music 17, films 3"] {
        assert!(rows.iter().any(|shown| shown.starts_with(row)), "{row:?} in {text}");
    }
}

#[tokio::test]
async fn unknown_user_is_cold_and_no_error() {
    let stage = Stage::with_shards(4).await;
    let cold = stage.heyday(&["read", "nobody", "--json"]);
    assert_eq!(cold.code, 0);
    insta::assert_snapshot!(cold.stdout, @r#"{"user":"nobody","shard":0,"state":"cold","freshness_ms":0,"profile":{"schema":null,"version":null,"updated_at":null,"birthday":null,"expires_at":null},"activity":{"today":0,"last_7_days":0,"last_30_days":0,"last":null},"top":[],"friends":[]}"#);
    let wrong = stage.heyday(&["read", "no body"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (64, ""));
}

#[tokio::test]
async fn waiting_changes_show_in_the_answer() {
    let stage = Stage::with_shards(4).await;
    write(&stage, &["add", "user=foo", "friend=bar"]);
    let behind = |view: &Value| view["freshness_ms"].as_u64().is_some_and(|waiting| waiting > 0);
    read_when(&stage, "foo", "the wait of the change showed", behind).await;
}

#[tokio::test]
async fn watch_prints_each_change_as_it_comes() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    let mut watch = stage.start(&["watch", "--json", "--user", "foo", "--count", "2"]);
    watch.says("watching").await;
    write(&stage, &["add", "user=bar", "friend=foo"]);
    write(&stage, &["add", "user=foo", "friend=bar", "birthday=1990-05-01"]);
    let first: Value = serde_json::from_str(&watch.prints(1).await[0]).unwrap();
    let commit = first["commit"].as_str().unwrap();
    insta::assert_snapshot!(watch.stdout()[0].replace(commit, "[commit]"), @r#"{"type":"changed","shard":2,"commit":"[commit]","user":"foo","views":["birthdays"]}"#);
    // The first line came although the process goes on.
    write(&stage, &["profile", "user=foo", "profile.city=Kyiv"]);
    assert_eq!(watch.ends().await.code(), Some(0), "{:?}", watch.stderr());
    let second: Value = serde_json::from_str(&watch.prints(2).await[1]).unwrap();
    assert_eq!((&second["user"], &second["views"]), (&"foo".into(), &serde_json::json!(["profile"])));
}

#[tokio::test]
async fn watch_ends_cleanly_when_nobody_reads_it_any_more() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    let (reader, writer) = std::io::pipe().unwrap();
    let arguments = ["watch", "--for", "30s"];
    let mut watch = command(&arguments, &stage.variables()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(watch.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert_eq!(said, "heyday: watching\n");
    drop(reader);
    write(&stage, &["add", "user=foo", "friend=bar"]);
    let ended = eventually(PATIENCE, "watch ended", async || watch.try_wait().unwrap()).await;
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!((ended.code(), rest.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn watch_ends_cleanly_when_told() {
    let stage = Stage::with_shards(4).await;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut watch = stage.start(&["watch"]);
        watch.says("watching").await;
        watch.signal(signal);
        assert_eq!(watch.ends().await.code(), Some(0), "{:?}", watch.stderr());
        assert_eq!(watch.stdout(), Vec::<String>::new());
    }
    let over = stage.heyday(&["watch", "--for", "50ms"]);
    assert_eq!((over.code, over.stdout.as_str()), (0, ""));
    let wrong = stage.heyday(&["watch", "--shard", "4"]);
    assert_eq!((wrong.code, wrong.stderr.as_str()), (64, "heyday: shard 4: this layout has shards 0 to 3\n"));
}
