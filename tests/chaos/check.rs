//! The check while everything moves: it never tells of what is not so.

use std::time::{Duration, Instant};

use heyday::local::Options;
use heyday::redis::inspect;
use heyday::shard::Shard;

use crate::support::cluster::{own_cluster, redis_cli};
use crate::support::eventually;
use crate::support::scene::{Load, Plan, Scene, check_options, fail_over, move_slot};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn check_finds_nothing_wrong_while_slots_move_and_primaries_change() {
    let cluster = own_cluster(Options::default()).await;
    let mut scene = Scene::begin(&cluster, "", 16).await;
    scene.expiry_drift_max = Duration::from_secs(60);
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let load = Load::start(
        &scene,
        Plan { seed: 41, writers: 4, users: 500, changes: 200_000, pace: Some(600), mutual_percent: 0 },
    );
    load.goes_on(1_000).await;
    let rounds = std::cell::Cell::new(0);
    let over = std::cell::Cell::new(false);
    let moving = async {
        // Each of the first primaries, and one of them back again; checks go on through all of it.
        for (shard, replica) in [(Shard(1), 3), (Shard(6), 4), (Shard(9), 5), (Shard(1), 0)] {
            let before = rounds.get();
            let from = scene.node_of(shard).await;
            let to = other_primary(&scene, from).await;
            move_slot(&cluster, scene.layout.slot(shard), from, to).await;
            load.goes_on(100).await;
            fail_over(&cluster, replica).await;
            load.goes_on(100).await;
            eventually(WAIT, "another check came to its end", async || (rounds.get() > before).then_some(())).await;
        }
        over.set(true);
    };
    let checking = async {
        let mut undecided = 0;
        while !over.get() {
            let started = Instant::now();
            let findings = scene.check().await;
            let wrong: Vec<_> = findings.violations.list.iter().map(ToString::to_string).collect();
            assert!(wrong.is_empty(), "round {}: {wrong:#?}", rounds.get());
            undecided += findings.undecided.count();
            rounds.set(rounds.get() + 1);
            println!("{:?}: {:?}", started.elapsed(), findings.counts);
        }
        println!("{} checks, {undecided} undecided", rounds.get());
    };
    tokio::join!(moving, checking);
    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    workers.assert_running();
}

#[tokio::test]
async fn a_node_that_is_gone_is_an_error_and_no_violation() {
    let mut cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    workers.start();
    let load =
        Load::start(&scene, Plan { seed: 42, writers: 2, users: 200, changes: 500, pace: None, mutual_percent: 0 });
    load.finish().await;
    scene.settle(WAIT).await;
    // With its replica, so that nobody takes over.
    cluster.kill(4).expect("SIGKILL");
    cluster.kill(1).expect("SIGKILL");
    let started = Instant::now();
    let options = inspect::Options { patience: Duration::from_secs(2), ..check_options(false) };
    let (findings, done) = scene.check_with(scene.connect_options(), options).await;
    let error = done.expect_err("nobody answers for a third of the slots");
    assert_eq!(error.disposition(), heyday::error::Disposition::Refresh, "{error}");
    assert_eq!(findings.violations.count(), 0, "{:?}", findings.violations.list);
    assert!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
    drop(workers);
}

/// A migration that was broken off leaves a key on the node that did not get the slot.
#[tokio::test]
async fn a_copy_that_a_migration_left_behind_is_found() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 4).await;
    let mut workers = scene.workers();
    workers.start();
    let load =
        Load::start(&scene, Plan { seed: 43, writers: 1, users: 20, changes: 100, pace: None, mutual_percent: 0 });
    load.finish().await;
    scene.settle(WAIT).await;
    let (shard, keys) = (Shard(0), scene.shard_keys(Shard(0)));
    let (from, to, slot) = (scene.node_of(shard).await, 1, keys.slot.to_string());
    let ids =
        [redis_cli(&cluster, from, &["CLUSTER", "MYID"]).await, redis_cli(&cluster, to, &["CLUSTER", "MYID"]).await];
    redis_cli(&cluster, to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).await;
    redis_cli(&cluster, from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]).await;
    let (host, port) = cluster.nodes()[to].clone();
    let key = keys.users.as_str();
    let copy = ["MIGRATE", &host, &port.to_string(), key, "0", "5000", "COPY"];
    redis_cli(&cluster, from, &copy).await;
    assert_eq!(scene.check().await.violations.count(), 0, "on its way it may be on both");
    redis_cli(&cluster, from, &["CLUSTER", "SETSLOT", &slot, "STABLE"]).await;
    redis_cli(&cluster, to, &["CLUSTER", "SETSLOT", &slot, "STABLE"]).await;
    let found: Vec<_> = scene.check().await.violations.list.iter().map(ToString::to_string).collect();
    let expected =
        format!("foreign_slot {key}: expected keys of slot {slot} only on its owner, found a copy on {host}:{port}");
    assert_eq!(found, [expected]);
}

/// A node that owns slots, other than this one.
async fn other_primary(scene: &Scene, than: usize) -> usize {
    for shard in scene.layout.shards() {
        let node = scene.node_of(shard).await;
        if node != than {
            return node;
        }
    }
    panic!("one node owns every slot")
}
