//! Clocks that are an hour wrong. All time that matters is the servers', and of one server at a time.

use std::time::Duration;

use heyday::local::Options;

use crate::support::cluster::{own_cluster, redis_cli};
use crate::support::scene::{Load, Plan, Scene, now_milliseconds, undisturbed};
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
    let load = Load::start(&scene, Plan { seed: 31, writers: 2, users: 500, changes: 100_000, pace: Some(1_000) });
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
