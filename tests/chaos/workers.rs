//! Workers that are killed, frozen and started again, a thousand times if need be.

use std::sync::Arc;
use std::time::Duration;

use heyday::local::Options;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::support::cluster::own_cluster;
use crate::support::eventually;
use crate::support::scene::{Inline, Load, Plan, Scene};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn workers_killed_twenty_times_lose_and_double_nothing() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let seed = 11;
    let load = Load::start(
        &scene,
        Plan { seed, writers: 4, users: 1_000, changes: 100_000, pace: Some(1_500), mutual_percent: 0 },
    );
    let mut random = SmallRng::seed_from_u64(seed);
    for _ in 0..20 {
        load.goes_on(random.random_range(1..900)).await;
        let number = random.random_range(0..2);
        workers.kill(number);
        // Sometimes both are gone for a moment.
        load.goes_on(random.random_range(1..200)).await;
        workers.restart(number);
    }
    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    workers.assert_running();
}

#[tokio::test]
async fn a_worker_frozen_past_its_lease_commits_nothing_when_it_goes_on() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 8).await;
    let mut workers = scene.workers();
    let (frozen, other) = (workers.start(), workers.start());
    both_own_some(&scene).await;
    let load = Load::start(
        &scene,
        Plan { seed: 12, writers: 4, users: 500, changes: 100_000, pace: Some(1_000), mutual_percent: 0 },
    );
    let mut taken_over = Vec::new();
    for _ in 0..3 {
        load.goes_on(500).await;
        workers.freeze(frozen);
        scene.owned_by(&workers.name(other), WAIT).await;
        load.goes_on(200).await;
        taken_over.push(scene.generations().await.expect("a cluster that answers"));
        workers.thaw(frozen);
        both_own_some(&scene).await;
    }
    let written = load.stop().await;
    scene.settle(WAIT).await;
    // The log's ids only rise, as the proof finds, so no generation came back once a higher one had written.
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    workers.assert_running();
    let last = scene.generations().await.expect("a cluster that answers");
    let rose = |shard: usize| taken_over.windows(2).any(|pair| pair[1][shard] > pair[0][shard]);
    assert!((0..last.len()).any(rose), "no shard was ever taken over: {taken_over:?}");
}

#[tokio::test]
async fn a_thousand_restarts_leave_no_trace() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 4).await;
    let topology = Arc::new(scene.topology().await.expect("a cluster that answers"));
    let life = async |number: u32| {
        let worker = Inline::over(&scene, &format!("life-{number}"), topology.clone());
        eventually(WAIT, "the new worker owned every shard", async || {
            (worker.metrics.shards_owned() == 4).then_some(())
        })
        .await;
        worker.stop().await;
    };
    // Data first, and a few lives in which everything that may grow once does so.
    let load =
        Load::start(&scene, Plan { seed: 13, writers: 1, users: 50, changes: 500, pace: None, mutual_percent: 0 });
    for number in 0..100 {
        life(number).await;
    }
    load.finish().await;
    let worker = Inline::over(&scene, "between", topology.clone());
    scene.settle(WAIT).await;
    worker.stop().await;
    let (before, resident_before) = (scene.figures().await, resident_kib());
    for number in 100..1_100 {
        life(number).await;
    }
    // What a server keeps for connections that have just ended it counts as data until its next round of housekeeping.
    let given_back = async || {
        let figures = scene.figures().await;
        (figures.memory_bytes <= before.memory_bytes + 64 * 1024).then_some(figures)
    };
    let after = eventually(WAIT, "memory was no more than before", given_back).await;
    let resident_after = resident_kib();
    println!("{before:?} {resident_before} KiB, then {after:?} {resident_after} KiB");
    assert_eq!((after.keys, after.scripts), (before.keys, before.scripts));
    assert!(after.connections <= before.connections, "{before:?} {after:?}");
    assert!(resident_after <= resident_before + 8 * 1024, "{resident_before} KiB became {resident_after} KiB");
    scene.prove().await;
}

/// Memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number of KiB")
}

/// Waits until both workers own shards again.
async fn both_own_some(scene: &Scene) {
    eventually(WAIT, "both workers owned shards", async || {
        let owners: Vec<String> = scene.owners().await?.into_iter().collect::<Option<_>>()?;
        ["w0-", "w1-"].iter().all(|name| owners.iter().any(|owner| owner.starts_with(name))).then_some(())
    })
    .await;
}
