//! Clocks that are an hour wrong. All time that matters is the servers', and of one server at a time.

use std::time::{Duration, Instant};

use heyday::client::subscriber;
use heyday::local::Options;

use crate::support::cluster::{own_cluster, redis_cli};
use crate::support::scene::{Listener, Load, Plan, Scene, fail_over, now_milliseconds, undisturbed};
use crate::support::skew;

const WAIT: Duration = Duration::from_secs(60);
const HOUR_SECONDS: i64 = 3600;

#[tokio::test]
async fn workers_whose_clocks_are_two_hours_apart_share_and_lose_nothing() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    let ahead = workers.start_with(skew::environment(HOUR_SECONDS));
    let behind = workers.start_with(skew::environment(-HOUR_SECONDS));
    let (ahead_name, behind_name) = (workers.name(ahead), workers.name(behind));
    scene.shared_between(&[&ahead_name, &behind_name], WAIT).await;
    for (worker, seconds) in [(ahead, HOUR_SECONDS), (behind, -HOUR_SECONDS)] {
        let log = workers.log(worker);
        let told = log.split_whitespace().find_map(|word| word.parse::<jiff::Timestamp>().ok());
        let told = told.unwrap_or_else(|| panic!("no time in its log: {log}"));
        let off = told.as_second() - now_milliseconds() as i64 / 1000;
        assert!((off - seconds).abs() < 120, "worker {worker} is {off} s off, expected {seconds}");
    }

    let before = scene.standing().await;
    let load = Load::start(
        &scene,
        Plan { seed: 31, writers: 2, users: 500, changes: 100_000, pace: Some(1_000), mutual_percent: 0 },
    );
    // Longer than a lease.
    load.goes_on(4_000).await;
    undisturbed(&before, &scene.standing().await);
    assert_eq!(before, scene.standing().await, "no shard was taken over");
    let third = workers.start_with(skew::environment(0));
    scene.shared_between(&[&ahead_name, &behind_name, &workers.name(third)], WAIT).await;
    workers.kill(ahead);
    scene.shared_between(&[&behind_name, &workers.name(third)], WAIT).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    workers.assert_running();
}

#[tokio::test]
async fn a_failover_to_a_clock_an_hour_behind_holds_nothing_up() {
    // Neither the clock of the primaries nor that of the replicas may pass a midnight while the test runs, or the oracle would
    // have to know which of them foretold a day.
    let morning = now_milliseconds() / 1000 % 86_400 < 43_200;
    let (primaries, replicas) = if morning { (HOUR_SECONDS, 0) } else { (0, -HOUR_SECONDS) };
    let clock = |node: usize| if node < 3 { primaries } else { replicas };
    let environment = (0..6).map(|node| (node, skew::environment(clock(node)))).collect();
    let cluster = own_cluster(Options { environment, ..Options::default() }).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    let (killed, staying) = (workers.start(), workers.start());
    let (killed_name, staying_name) = (workers.name(killed), workers.name(staying));
    scene.shared_between(&[&killed_name, &staying_name], WAIT).await;
    let listener = Listener::start(&scene.hub, subscriber::Options::default()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 32, writers: 2, users: 500, changes: 100_000, pace: Some(500), mutual_percent: 0 },
    );
    load.goes_on(500).await;

    // Its leases are on their way to clocks that take them for an hour long.
    workers.kill(killed);
    for replica in [3, 4, 5] {
        fail_over(&cluster, replica).await;
    }
    let begun = Instant::now();
    load.goes_on(200).await;
    scene.owned_by(&staying_name, WAIT).await;
    println!("a dead owner's shards were taken {:?} after the failover", begun.elapsed());
    load.goes_on(500).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    // By the wrong clock everything is told an hour late, or early.
    listener.prove(&scene, &snapshot, Duration::from_secs(2 * HOUR_SECONDS as u64));
    workers.assert_running();
    let log = workers.log(staying);
    assert!(log.contains("would have lasted too long"), "no lease was too long, so this test shows nothing: {log}");
}

#[tokio::test]
async fn a_node_may_run_on_a_clock_of_its_own() {
    let environment = [(3, skew::environment(-HOUR_SECONDS))].into();
    let cluster = own_cluster(Options { environment, ..Options::default() }).await;
    let mut times = Vec::new();
    for node in [0, 3] {
        let time = redis_cli(&cluster, node, &["TIME"]).await;
        times.push(time.lines().next().and_then(|seconds| seconds.parse::<i64>().ok()).expect("seconds"));
    }
    assert!((times[0] - times[1] - HOUR_SECONDS).abs() < 60, "{times:?}");
}
