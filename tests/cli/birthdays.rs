//! `heyday birthdays`, `upcoming` and `calendar`: the calendar as people and programs see it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use heyday::birthday::{Birthday, LeapDay};
use jiff::civil::Date;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::command;
use super::stage::Stage;
use crate::support::eventually;
use crate::support::process::Process;

const PATIENCE: Duration = Duration::from_secs(20);
/// A user of each shard of four, in the order of the shards.
const USERS: [&str; 4] = ["nobody", "bar", "foo", "u3"];

fn today() -> Date {
    jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now()).date()
}

/// Today in a leap year.
fn born() -> String {
    today().strftime("1992-%m-%d").to_string()
}

fn yearless() -> String {
    today().strftime("--%m-%d").to_string()
}

fn age() -> i16 {
    today().year() - 1992
}

/// Appends lines of a file.
fn write(stage: &Stage, changes: &[Value]) {
    let mut write = command(&["write", "--file", "-"], &stage.variables())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("heyday write");
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    write.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
    assert_eq!(write.wait().expect("it ends").code(), Some(0));
}

fn add(user: &str, friend: &str, birthday: &str) -> Value {
    json!({"type": "add", "user": user, "friend": friend, "birthday": birthday})
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A cluster on which everybody of [`USERS`] has two friends who celebrate today, and all shards have rolled.
async fn celebrating() -> (Stage, Process) {
    let stage = Stage::with_shards(4).await;
    let worker = stage.worker().await;
    let changes: Vec<Value> =
        USERS.iter().flat_map(|user| [add(user, "f1", &born()), add(user, "f2", &yearless())]).collect();
    write(&stage, &changes);
    celebrate(&stage, 2 * USERS.len()).await;
    (stage, worker)
}

/// Waits until so many celebrate today, over shards that all have rolled.
async fn celebrate(stage: &Stage, count: usize) {
    let whole = async || {
        let day = stage.heyday(&["birthdays", "today", "--json"]);
        let friends = |line: &Value| line["friends"].as_array().unwrap().len();
        (day.code == 0 && lines(&day.stdout).iter().map(friends).sum::<usize>() == count).then_some(())
    };
    eventually(PATIENCE, "the day was whole", whole).await;
}

#[tokio::test]
async fn a_day_is_a_line_for_each_user_and_goes_on_from_any_of_them() {
    let (stage, _worker) = celebrating().await;
    let shards: Vec<_> = USERS.iter().map(|user| stage.json(&["shard", user, "--json"])["shard"].clone()).collect();
    assert_eq!(shards, [0, 1, 2, 3], "users of four shards");
    let whole = stage.heyday(&["birthdays", "today", "--json"]);
    assert_eq!((whole.code, whole.stderr.as_str()), (0, ""));
    let found = lines(&whole.stdout);
    assert_eq!(found.iter().map(|line| &line["user"]).collect::<Vec<_>>(), USERS);
    let due = found[0]["due"].as_i64().unwrap();
    let shape = whole.stdout.lines().next().unwrap();
    let shape = shape.replace(&today().to_string(), "[date]").replace(&due.to_string(), "[due]");
    let shape = shape.replace(&born(), "[born]").replace(&yearless(), "[yearless]");
    let shape = shape.replace(&format!("\"age\":{}", age()), "\"age\":[age]");
    insta::assert_snapshot!(shape, @r#"{"user":"nobody","due":[due],"shard":0,"complete":true,"friends":[{"friend":"f1","birthday":"[born]","age":[age]},{"friend":"f2","birthday":"[yearless]","age":null}],"cursor":"[date]:0:[due]:nobody:f2"}"#);

    let first = stage.heyday(&["birthdays", &today().to_string(), "--limit", "3", "--json"]);
    assert_eq!(lines(&first.stdout), found[..3]);
    let cursor = found[2]["cursor"].as_str().unwrap();
    assert_eq!((first.code, first.stderr), (0, format!("heyday: go on with --cursor {cursor}\n")));
    let rest = stage.heyday(&["birthdays", "today", "--cursor", cursor, "--json"]);
    assert_eq!((lines(&rest.stdout), rest.stderr.as_str()), (found[3..].to_vec(), ""));
    let before = stage.heyday(&["birthdays", "today", "--due-until", &(due - 1).to_string(), "--json"]);
    assert_eq!((before.code, before.stdout.as_str()), (0, ""));
    assert_eq!(before.stderr, format!("heyday: nobody to congratulate on {}\n", today()));
    let after = stage.heyday(&[
        "birthdays",
        "today",
        "--due-after",
        &(due - 1).to_string(),
        "--due-until",
        &due.to_string(),
        "--json",
    ]);
    assert_eq!(after.stdout, whole.stdout);
}

#[tokio::test]
async fn a_day_is_a_table_for_people() {
    let (stage, _worker) = celebrating().await;
    let shown = stage.heyday(&["birthdays", "today"]);
    let rows: Vec<Vec<&str>> = shown.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["DUE", "USER", "FRIEND", "BIRTHDAY", "TURNS"]);
    let age = age().to_string();
    assert_eq!(rows[1], [&today().to_string(), "09:00:00Z", "nobody", "f1", &born(), &age]);
    assert_eq!(rows[2][2..], ["nobody", "f2", &yearless(), "-"]);
    assert_eq!((rows.len(), shown.code), (9, 0));
}

#[tokio::test]
async fn what_is_not_complete_or_not_kept_is_said() {
    let (stage, mut worker) = celebrating().await;
    // Nobody is left to roll, as if none had come so far.
    worker.signal(Signal::SIGTERM);
    worker.ends().await;
    let (today, yesterday) = (today(), today().yesterday().unwrap());
    for user in USERS {
        let keys = stage.json(&["shard", user, "--json"])["keys"].clone();
        stage.redis(&["HSET", keys["state"].as_str().unwrap(), "rolled", &yesterday.to_string()]).await;
    }
    let refused = stage.heyday(&["birthdays", "today", "--json"]);
    let text = format!("heyday: {today}, shard 0: not complete before the next roll (complete up to {yesterday})\n");
    assert_eq!((refused.code, refused.stdout.as_str(), refused.stderr), (1, "", text));
    let allowed = stage.heyday(&["birthdays", "today", "--json", "--incomplete"]);
    let found = lines(&allowed.stdout);
    assert_eq!((allowed.code, found.len(), &found[0]["complete"]), (0, 4, &json!(false)));
    let text = format!("heyday: {today} is not complete in shards 0-3: somebody may be missing there\n");
    assert_eq!(allowed.stderr, text);
    let far = stage.heyday(&["birthdays", "2001-01-01"]);
    assert_eq!((far.code, far.stdout.as_str()), (64, ""));
    assert!(far.stderr.starts_with("heyday: 2001-01-01: days are kept from "), "{}", far.stderr);
    let other = format!("{yesterday}:0");
    let refused = stage.heyday(&["birthdays", "today", "--cursor", &other]);
    assert_eq!((refused.code, refused.stderr), (64, format!("heyday: {today}: cursor {other} is of another day\n")));
    for wrong in
        [&["soon"][..], &["today", "--cursor", "5"], &["today", "--due-until", "9:00"], &["today", "--limit", "0"]]
    {
        let refused = stage.heyday(&[&["birthdays"], wrong].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_list_that_is_told_to_stop_says_where_to_go_on() {
    let stage = Stage::with_shards(4).await;
    let _worker = stage.worker().await;
    let users: Vec<String> = (0..1_500).map(|number| format!("user{number}")).collect();
    write(&stage, &users.iter().map(|user| add(user, "f1", &born())).collect::<Vec<_>>());
    celebrate(&stage, users.len()).await;
    let whole = stage.heyday(&["birthdays", "today", "--json"]).stdout;
    // More than a pipe holds: it is in the middle of its list when it is told to stop.
    assert!(whole.len() > 3 * 64 * 1024);
    let (reader, writer) = std::io::pipe().unwrap();
    let arguments = ["birthdays", "today", "--json"];
    let mut list = command(&arguments, &stage.variables()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(reader);
    let mut printed = String::new();
    reader.read_line(&mut printed).unwrap();
    kill(Pid::from_raw(list.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    reader.read_to_string(&mut printed).unwrap();
    let mut said = String::new();
    list.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(list.wait().unwrap().code(), Some(1), "{said}");
    let cursor = said.strip_prefix("heyday: told to stop; go on with --cursor ").expect(&said).trim();
    let rest = stage.heyday(&["birthdays", "today", "--json", "--cursor", cursor]).stdout;
    assert_eq!(printed + &rest, whole);
}

#[tokio::test]
async fn upcoming_is_public_and_keeps_its_shape() {
    let (stage, _worker) = celebrating().await;
    write(&stage, &[add("foo", "leap", "2000-02-29")]);
    let whole = async || {
        Some(stage.json(&["upcoming", "foo", "--days", "366", "--json"]))
            .filter(|found| found["friends"][2] != json!(null))
    };
    let found = eventually(PATIENCE, "the view was whole", whole).await;
    let leap = Birthday::parse("2000-02-29").unwrap().next(today(), LeapDay::February28).unwrap();
    let expected = json!({"friend": "leap", "birthday": "2000-02-29", "next": leap.date.to_string(), "days": leap.days, "age": leap.age});
    assert!(found["friends"].as_array().unwrap().contains(&expected), "{found}");
    let head = json!({"user": "foo", "shard": 2, "state": "live", "freshness_ms": 0, "today": today().to_string(), "days": 0, "friends": [
        {"friend": "f1", "birthday": born(), "next": today().to_string(), "days": 0, "age": age()},
        {"friend": "f2", "birthday": yearless(), "next": today().to_string(), "days": 0, "age": null},
    ]});
    let now = stage.json(&["upcoming", "foo", "--days", "0", "--json"]);
    let friends = now["friends"].as_array().unwrap();
    assert_eq!(friends[..2], head["friends"].as_array().unwrap()[..]);
    assert_eq!(
        now.as_object().unwrap().keys().collect::<Vec<_>>(),
        head.as_object().unwrap().keys().collect::<Vec<_>>()
    );
    let table = stage.heyday(&["upcoming", "foo"]).stdout;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((&rows[0][..], rows[1][0], rows[2][0]), (&["user", "foo"][..], "state", "today"));
    assert_eq!(rows[4], ["FRIEND", "BIRTHDAY", "ON", "IN", "TURNS"]);
    assert_eq!(rows[5][..2], ["f1", &born()]);
    assert_eq!(stage.heyday(&["upcoming", "foo", "--days", "367"]).code, 64);
    let nobody = stage.heyday(&["upcoming", "stranger"]).stdout;
    assert!(nobody.ends_with("\nnobody celebrates within 30 days\n"), "{nobody}");
}

#[tokio::test]
async fn a_feed_has_every_friend_with_a_date() {
    let (stage, _worker) = celebrating().await;
    let yesterday = today().yesterday().unwrap().strftime("1988-%m-%d").to_string();
    write(&stage, &[add("foo", "undated", ""), add("foo", "far", &yesterday)]);
    let feed =
        async || Some(stage.heyday(&["upcoming", "foo", "--ics"]).stdout).filter(|feed| feed.contains("SUMMARY:far"));
    let feed = eventually(PATIENCE, "the feed had everybody", feed).await;
    let summaries: Vec<&str> = feed.split("\r\n").filter(|line| line.starts_with("SUMMARY:")).collect();
    assert_eq!(summaries, ["SUMMARY:f1", "SUMMARY:f2", "SUMMARY:far"]);
    assert!(feed.starts_with("BEGIN:VCALENDAR\r\n") && feed.ends_with("END:VCALENDAR\r\n"), "{feed}");
    let soon = stage.heyday(&["upcoming", "foo", "--ics", "--days", "0"]).stdout;
    assert!(soon.contains("SUMMARY:f1") && !soon.contains("SUMMARY:far"), "{soon}");
    let empty = stage.heyday(&["upcoming", "stranger", "--ics"]).stdout;
    assert!(empty.ends_with("END:VCALENDAR\r\n") && !empty.contains("VEVENT"), "{empty}");
}

#[tokio::test]
async fn a_calendar_shows_months_and_says_the_same_in_json() {
    let (stage, _worker) = celebrating().await;
    let drawn = stage.heyday(&["calendar", "foo"]);
    let (day, title) = (today().day(), today().strftime("%B %Y").to_string());
    assert_eq!(drawn.stdout.lines().next().map(str::trim), Some(title.as_str()));
    assert!(drawn.stdout.contains(&format!("[{day:>2}*]")) && drawn.stdout.contains("f1  turns "), "{}", drawn.stdout);
    let month = today().strftime("%Y-%m").to_string();
    let months = stage.json(&["calendar", "foo", "--month", &month, "--months", "2", "--json"]);
    let friends = json!([
        {"friend": "f1", "birthday": born(), "age": age()},
        {"friend": "f2", "birthday": yearless(), "age": null},
    ]);
    assert_eq!(
        months["months"][0],
        json!({"month": month, "days": [{"date": today().to_string(), "friends": friends}]})
    );
    assert_eq!((months["months"].as_array().unwrap().len(), &months["months"][1]["days"]), (2, &json!([])));
    assert_eq!((&months["user"], &months["today"]), (&json!("foo"), &json!(today().to_string())));
    assert_eq!(stage.heyday(&["calendar", "foo", "--month", "2027-13"]).code, 64);
}
