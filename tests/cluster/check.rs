//! The check and its repair while a worker goes on.

use std::time::Duration;

use heyday::redis::{ConnectOptions, NodeAddress, Reply};
use heyday::shard::Shard;

use crate::support::cluster::{shared_cluster, unique_prefix};
use crate::support::proxy::Proxy;
use crate::support::scene::{Load, Plan, Scene, check_options};

const WAIT: Duration = Duration::from_secs(60);
/// Rounds of damage and repair.
const ROUNDS: usize = 4;

/// What is planted, under load, is found and mended; what the worker makes of it afterwards is what the oracle foretells.
#[tokio::test]
async fn repair_beside_a_worker_leaves_what_the_views_say() {
    let nodes = shared_cluster().await;
    let scene = Scene::begin(&nodes, &unique_prefix(), 4).await;
    let mut workers = scene.workers();
    workers.start();
    let load = Load::start(
        &scene,
        Plan { seed: 31, writers: 2, users: 60, changes: 100_000, pace: Some(600), mutual_percent: 0 },
    );
    load.goes_on(400).await;
    let mut repaired = 0;
    for _ in 0..ROUNDS {
        load.goes_on(60).await;
        for shard in scene.layout.shards() {
            damage(&scene, shard).await;
        }
        let findings = scene.repair().await;
        repaired += findings.repaired.count();
        let left: Vec<_> = findings.violations.list.iter().map(ToString::to_string).collect();
        assert!(left.is_empty(), "{left:#?}");
    }
    let written = load.stop().await;
    scene.settle(WAIT).await;
    println!("{repaired} repaired");
    assert!(repaired >= ROUNDS as u64, "only {repaired} repaired");
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
}

/// A listed user is taken out of the index, one without a view put in, and a day gets a wrong member and loses a right one.
async fn damage(scene: &Scene, shard: Shard) {
    let keys = scene.shard_keys(shard);
    let day = keys.day(scene.today()).to_string();
    let users = keys.users.to_string();
    let picked = async |words: &[&str]| match scene.command(shard, words).await {
        Reply::Null => None,
        reply => Some(reply.to_str().expect("a name").to_owned()),
    };
    if let Some(user) = picked(&["ZRANDMEMBER", &users]).await {
        scene.command(shard, &["ZREM", &users, &user]).await;
    }
    if let Some(member) = picked(&["ZRANDMEMBER", &day]).await {
        scene.command(shard, &["ZREM", &day, &member]).await;
    }
    scene.command(shard, &["ZADD", &day, "7", "nobody:nowhere"]).await;
    let end = scene.rules.calendar.expires_at(scene.today()).to_string();
    scene.command(shard, &["EXPIREAT", &day, &end]).await;
    scene.command(shard, &["ZADD", &users, "0", &nobody(scene, shard)]).await;
}

/// The id of somebody of whom nothing was ever written.
fn nobody(scene: &Scene, shard: Shard) -> String {
    let ids = (0..).map(|number: u32| format!("nobody-{number}"));
    let belongs = |id: &String| scene.layout.shard_of(&id.parse().expect("an id")) == shard;
    ids.into_iter().find(belongs).expect("somebody of every shard")
}

/// The repair has read that the friend celebrates today and sent half of what it writes; then the friend is removed. The watch
/// on the state is what keeps the friend off the day.
#[tokio::test]
async fn repair_that_a_commit_overtakes_is_decided_anew() {
    let nodes = shared_cluster().await;
    let scene = Scene::begin(&nodes, &unique_prefix(), 1).await;
    let mut workers = scene.workers();
    workers.start();
    let keys = scene.shard_keys(Shard(0));
    let (day, changes) = (keys.day(scene.today()).to_string(), keys.changes.to_string());
    let birthday = format!("--{}", scene.today().strftime("%m-%d"));
    let add = ["XADD", &changes, "*", "type", "add", "user", "a", "friend", "b", "birthday", &birthday];
    scene.command(Shard(0), &add).await;
    scene.settle(WAIT).await;
    scene.command(Shard(0), &["ZREM", &day, "a:b"]).await;

    let (host, port) = nodes.nodes()[scene.node_of(Shard(0)).await].clone();
    let address = NodeAddress::new(host, port);
    let proxy = Proxy::start(&address).await;
    // Only the repair says so.
    proxy.hold_before("EXPIREAT");
    let through =
        ConnectOptions { address_map: [(address, proxy.address().clone())].into(), ..scene.connect_options() };
    let through = ConnectOptions { reply_timeout: WAIT, ..through };
    let repair = scene.check_with(through, check_options(true));
    let overtake = async {
        proxy.held().await;
        scene.command(Shard(0), &["XADD", &changes, "*", "type", "remove", "user", "a", "friend", "b"]).await;
        scene.settle(WAIT).await;
        proxy.release();
    };
    let ((findings, done), ()) = tokio::join!(repair, overtake);
    done.expect("a check that goes on");
    assert_eq!((findings.violations.count(), findings.repaired.count()), (0, 1));
    assert_eq!(scene.command(Shard(0), &["EXISTS", &day]).await, Reply::Integer(0), "the friend is no more");
    scene.prove().await;
}
