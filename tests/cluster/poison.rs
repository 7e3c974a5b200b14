//! Entries that make a commit fail, or kill their worker, each time: they alone are set aside, and nothing else waits long.

use std::time::Duration;

use heyday::key::{CONSUMER, GROUP, ShardKeys};
use heyday::shard::Shard;

use crate::cli;
use crate::support::cluster::{foreign_prefix, shared_cluster, unique_prefix};
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::scene::{Scene, Snapshot};

const WAIT: Duration = Duration::from_secs(60);
const SHARD: Shard = Shard(0);

async fn append(scene: &Scene, fields: &[&str]) -> String {
    let changes = scene.shard_keys(SHARD).changes;
    let reply = scene.command(SHARD, &[&["XADD", changes.as_str(), "*"], fields].concat()).await;
    reply.to_str().expect("an entry id").to_owned()
}

async fn hash(scene: &Scene, key: &str) -> Vec<(String, String)> {
    let reply = scene.command(SHARD, &["HGETALL", key]).await;
    let text = |reply: &heyday::redis::Reply| reply.to_str().expect("text").to_owned();
    let mut fields: Vec<_> = reply.as_pairs().expect("a hash").map(|(name, value)| (text(name), text(value))).collect();
    fields.sort();
    fields
}

/// Kind, reason and entry of each dead letter, in order.
async fn letters(scene: &Scene) -> Vec<[String; 3]> {
    let snapshot = Snapshot::take(scene).await;
    let letters = snapshot.stream(scene.shard_keys(SHARD).dead_letters.as_str());
    let field = |fields: &heyday::change::Fields, wanted: &str| {
        let found = fields.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    letters.iter().map(|(_, fields)| ["kind", "reason", "entry"].map(|name| field(fields, name))).collect()
}

fn birthdays(keys: &ShardKeys, user: &str) -> String {
    keys.birthdays(&user.parse().expect("an id")).to_string()
}

#[tokio::test]
async fn entries_on_a_spoilt_key_are_set_aside_alone_and_replayed_once_it_is_mended() {
    let nodes = shared_cluster().await;
    let scene = Scene::begin(&nodes, &foreign_prefix(), 1).await;
    let keys = scene.shard_keys(SHARD);
    let spoilt = birthdays(&keys, "spoilt");
    scene.command(SHARD, &["SET", &spoilt, "not a hash"]).await;
    // All in one batch: the worker begins when they are there.
    let mut poison = Vec::new();
    for at in 0..120 {
        let (friend, at) = (format!("f{at}"), at.to_string());
        append(&scene, &["type", "add", "user", "left", "friend", &friend, "birthday", "--05-01"]).await;
        append(&scene, &["type", "profile", "user", "spoilt", "profile.at", &at, &format!("profile.a{at}"), "x"]).await;
        if matches!(at.as_str(), "10" | "11" | "70") {
            poison.push(append(&scene, &["type", "add", "user", "spoilt", "friend", &friend]).await);
        }
        append(&scene, &["type", "add", "user", "right", "friend", &friend, "birthday", "--05-01"]).await;
    }
    let mut workers = scene.workers();
    workers.start();
    scene.settle(WAIT).await;
    workers.assert_running();

    let letters = letters(&scene).await;
    assert_eq!(letters.iter().map(|[_, _, entry]| entry).collect::<Vec<_>>(), poison.iter().collect::<Vec<_>>());
    for [kind, reason, _] in &letters {
        assert!(kind == "refused" && reason.contains("WRONGTYPE") && reason.contains(&spoilt), "{kind}: {reason}");
    }
    for user in ["left", "right"] {
        assert_eq!(hash(&scene, &birthdays(&keys, user)).await.len(), 120, "the neighbours are whole");
    }
    let profile = hash(&scene, keys.profile(&"spoilt".parse().unwrap()).as_str()).await;
    let field = |wanted: &str| profile.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    assert_eq!((field("version"), field("at"), field("a119")), (Some("120"), Some("119"), Some("x")));

    scene.command(SHARD, &["DEL", &spoilt]).await;
    let seeds = nodes.seeds();
    let variables = [("HEYDAY_REDIS__NODES", seeds.as_str()), ("HEYDAY_REDIS__PREFIX", scene.keys.prefix())];
    let replayed = cli::run(&["dlq", "replay", "--reason", "refused", "--yes"], &variables);
    assert!(replayed.code == 0 && replayed.stdout.starts_with("3 replayed, 0 kept\n"), "{replayed:?}");
    scene.settle(WAIT).await;
    let friends: Vec<String> = hash(&scene, &spoilt).await.into_iter().map(|(friend, _)| friend).collect();
    assert_eq!(friends, ["f10", "f11", "f70"]);
}

#[tokio::test]
async fn an_entry_that_was_delivered_too_often_is_tried_alone_and_in_the_end_set_aside() {
    let scene = Scene::begin(&shared_cluster().await, &unique_prefix(), 1).await;
    let keys = scene.shard_keys(SHARD);
    let mut workers = scene.workers();
    let first = workers.start();
    append(&scene, &["type", "add", "user", "42", "friend", "settled"]).await;
    scene.settle(WAIT).await;
    assert_eq!(workers.stop(first).await.code(), Some(0));
    let mut entries = Vec::new();
    for friend in ["before", "often", "between", "ever", "after"] {
        entries.push(append(&scene, &["type", "add", "user", "42", "friend", friend]).await);
    }
    let changes = keys.changes.as_str();
    scene.command(SHARD, &["XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", "9", "STREAMS", changes, ">"]).await;
    // 25 is the default of worker.deliveries_max, and four times as many the end.
    for (entry, deliveries) in [(&entries[1], "60"), (&entries[3], "200")] {
        scene.command(SHARD, &["XCLAIM", changes, GROUP, CONSUMER, "0", entry, "RETRYCOUNT", deliveries]).await;
    }
    workers.start();
    scene.settle(WAIT).await;
    let letters = letters(&scene).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!((letters[0][0].as_str(), &letters[0][2]), ("undeliverable", &entries[3]), "{letters:?}");
    let friends = hash(&scene, &birthdays(&keys, "42")).await;
    assert_eq!(friends.len(), 5, "{friends:?}");
    assert!(friends.iter().all(|(friend, _)| friend != "ever"), "{friends:?}");
}

// The proxy runs beside the command that creates the layout.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_kills_its_worker_each_time_is_set_aside_and_holds_up_nobody_for_ever() {
    let nodes = shared_cluster().await;
    let prefix = unique_prefix();
    let owner = {
        let scene = Scene::begin(&nodes, &prefix, 1).await;
        let topology = scene.topology().await.expect("a cluster");
        topology.node_of(scene.shard_keys(SHARD).slot).expect("an owner").address.clone()
    };
    let proxy = Proxy::start(&owner).await;
    let map = format!("{{\"{owner}\"=\"{}\"}}", proxy.address());
    let settings = [
        ("HEYDAY_REDIS__ADDRESS_MAP", map.as_str()),
        ("HEYDAY_WORKER__DELIVERIES_MAX", "1"),
        ("HEYDAY_WORKER__BLOCK", "200ms"),
    ];
    let scene = Scene::begin_with(&nodes, &prefix, 1, &settings).await;
    for (user, friend) in [("42", "before"), ("43", "killer"), ("42", "after"), ("43", "later")] {
        append(&scene, &["type", "add", "user", user, "friend", friend]).await;
    }
    let keys = scene.shard_keys(SHARD);
    let mut workers = scene.workers();
    let worker = workers.start();
    // Between reading the entry and committing it, as long as that is tried.
    let mut deaths = 0;
    loop {
        proxy.hold_before("43:birthdays\r\n$6\r\nkiller");
        let settled = async { scene.settle(WAIT).await };
        tokio::select! {
            biased;
            () = proxy.held() => {}
            () = settled => break,
        }
        workers.kill(worker);
        proxy.release();
        eventually(WAIT, "what was held went on", async || (proxy.waiting() == 0).then_some(())).await;
        deaths += 1;
        workers.restart(worker);
    }
    assert!((3..=6).contains(&deaths), "{deaths} workers died of it");
    let letters = letters(&scene).await;
    assert_eq!(letters.iter().map(|[kind, _, _]| kind.as_str()).collect::<Vec<_>>(), ["undeliverable"], "{letters:?}");
    for (user, expected) in [("42", &["after", "before"][..]), ("43", &["later"])] {
        let friends = hash(&scene, &birthdays(&keys, user)).await;
        assert_eq!(friends.iter().map(|(friend, _)| friend.as_str()).collect::<Vec<_>>(), expected, "{user}");
    }
}
