//! `heyday init`, `worker`, `shard` and `status`: from nothing to a cluster that works.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::stage::Stage;
use crate::support::eventually;

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn layout_is_created_once_and_never_changes_its_number_of_shards() {
    let stage = Stage::bare().await;
    let key = format!("{}heyday:layout", stage.prefix);
    let first = stage.heyday(&["init", "--shards", "4"]);
    assert_eq!((first.code, first.stdout), (0, format!("{key}: 4 shards, created\n")));
    let again = stage.heyday(&["init", "--shards", "4"]);
    assert_eq!((again.code, again.stdout), (0, format!("{key}: 4 shards, already there\n")));
    let other = stage.heyday(&["init"]);
    assert_eq!((other.code, other.stdout.as_str()), (78, ""));
    assert!(other.stderr.contains("has 4 shards, not 256"), "{}", other.stderr);
    assert_eq!(other.stderr.lines().count(), 1);
    let answer = stage.json(&["init", "--shards", "4", "--json"]);
    assert_eq!(answer, serde_json::json!({"key": key, "shards": 4, "created": false}));
}

#[tokio::test]
async fn shard_names_the_keys_that_redis_knows() {
    let stage = Stage::with_shards(4).await;
    let found = stage.json(&["shard", "foo", "--json"]);
    assert_eq!((&found["user"], &found["slot"], &found["shard"]), (&"foo".into(), &12182.into(), &2.into()));
    let birthdays = found["keys"]["birthdays"].as_str().unwrap();
    assert_eq!(birthdays, format!("{}user:{{{}}}:foo:birthdays", stage.prefix, found["tag"].as_str().unwrap()));
    let slot = stage.redis(&["CLUSTER", "KEYSLOT", birthdays]).await;
    assert_eq!(found["tag_slot"].to_string(), slot);
    // That node answers for the key itself, without a redirect.
    let nodes = stage.nodes.nodes();
    let node = nodes.iter().position(|(host, port)| found["node"] == format!("{host}:{port}")).expect("a known node");
    assert_eq!(stage.nodes.cli(node, &["EXISTS", birthdays]).await.unwrap(), "0");
    let text = stage.heyday(&["shard", "foo"]);
    assert!(text.stdout.contains(birthdays) && text.stdout.starts_with("user"), "{}", text.stdout);

    let wrong = stage.heyday(&["shard", "two words"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (64, ""));
    assert!(wrong.stderr.starts_with("heyday: user \"two words\": contains ' '"), "{}", wrong.stderr);
}

#[tokio::test]
async fn worker_takes_every_shard_applies_and_gives_them_back() {
    let stage = Stage::with_shards(4).await;
    let keys = stage.json(&["shard", "foo", "--json"])["keys"].clone();
    let (changes, birthdays) = (keys["changes"].as_str().unwrap(), keys["birthdays"].as_str().unwrap());
    let change = ["XADD", changes, "*", "type", "add", "user", "foo", "friend", "bar", "birthday", "1990-05-01"];
    stage.redis(&change).await;
    let waiting = stage.json(&["status", "--json"]);
    assert_eq!((&waiting["totals"]["unread"], &waiting["totals"]["owned"]), (&1.into(), &0.into()));
    assert_eq!(waiting["workers"], serde_json::json!([]));

    let mut worker = stage.worker().await;
    let line = worker.says("heyday worker ").await;
    assert!(line.ends_with(": 4 shards, admin off"), "{line}");
    let owned = async || Some(stage.json(&["status", "--json"])).filter(|status| status["totals"]["owned"] == 4);
    let owned = eventually(PATIENCE, "the worker owned all shards", owned).await;
    let name = owned["workers"][0]["worker"].as_str().unwrap();
    assert!(line.contains(name));
    assert_eq!((&owned["workers"][0]["shards"], &owned["shards"][2]["owner"]), (&4.into(), &name.into()));
    let settled = async || Some(stage.json(&["status", "--json"])).filter(|status| status["totals"]["unread"] == 0);
    let settled = eventually(PATIENCE, "the change was applied", settled).await;
    assert_eq!(settled["totals"]["oldest_ms"], serde_json::Value::Null);
    assert_eq!(stage.redis(&["HGET", birthdays, "bar"]).await, "1990-05-01");

    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ends().await.code(), Some(0), "{:?}", worker.stderr());
    let left = stage.json(&["status", "--json"]);
    assert_eq!((&left["totals"]["owned"], &left["workers"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(worker.stdout(), Vec::<String>::new());
}

#[tokio::test]
async fn worker_told_twice_ends_at_once() {
    let stage = Stage::with_shards(4).await;
    let mut worker = stage.worker().await;
    let owned = async || Some(()).filter(|()| stage.json(&["status", "--json"])["totals"]["owned"] == 4);
    eventually(PATIENCE, "the worker owned all shards", owned).await;
    // Frozen, it takes in both at once, before it can have drained.
    worker.signal(Signal::SIGSTOP);
    worker.signal(Signal::SIGTERM);
    worker.signal(Signal::SIGINT);
    worker.signal(Signal::SIGCONT);
    assert_eq!(worker.ends().await.code(), Some(1), "{:?}", worker.stderr());
    assert!(worker.stderr().iter().any(|line| line.contains("told to stop twice")), "{:?}", worker.stderr());
}

#[tokio::test]
async fn status_is_a_table_for_people() {
    let stage = Stage::with_shards(2).await;
    let status = stage.heyday(&["status"]);
    assert_eq!((status.code, status.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = status.stdout.lines().collect();
    assert!(lines[0].starts_with("SHARD") && lines[0].contains("UNREAD"), "{}", status.stdout);
    assert_eq!(lines[4], "no workers");
    assert_eq!(*lines.last().unwrap(), "2 shards, 0 owned; 0 unread, 0 pending; 0 dead letters");
    let _worker = stage.worker().await;
    let quiet =
        async || Some(stage.heyday(&["status"]).stdout).filter(|shown| shown.contains("2 quiet shards not shown"));
    let quiet = eventually(PATIENCE, "both shards were owned and quiet", quiet).await;
    assert!(quiet.starts_with("WORKER"), "{quiet}");
    let every = stage.heyday(&["status", "--all"]).stdout;
    assert!(every.starts_with("SHARD") && every.contains("GENERATION") && !every.contains("not shown"), "{every}");
    let one = stage.json(&["status", "--json", "--shard", "1"]);
    assert_eq!((one["shards"].as_array().unwrap().len(), &one["shards"][0]["shard"]), (1, &1.into()));
    let none = stage.heyday(&["status", "--shard", "2"]);
    assert_eq!((none.code, none.stderr.as_str()), (64, "heyday: shard 2: this layout has shards 0 to 1\n"));
}

#[tokio::test]
async fn status_can_be_watched() {
    let stage = Stage::with_shards(2).await;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut watch = stage.start(&["status", "--json", "--watch"]);
        for line in watch.prints(2).await {
            let status: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(status["totals"]["shards"], 2);
        }
        watch.signal(signal);
        assert_eq!(watch.ends().await.code(), Some(0), "{:?}", watch.stderr());
    }
}
