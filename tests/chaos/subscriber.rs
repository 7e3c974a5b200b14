//! Subscribers that are cut off, left behind, or whose shard goes elsewhere: every change in order, or a reset, and never
//! silence beyond the poll interval.

use std::time::{Duration, Instant};

use heyday::client::{Hub, subscriber, writer};
use heyday::local::{LocalCluster, Options};
use heyday::redis::ConnectOptions;
use heyday::shard::Shard;

use crate::support::cluster::own_cluster;
use crate::support::proxy::{Cut, Proxy};
use crate::support::scene::{Detour, Listener, Load, Plan, Scene, move_slot};

const WAIT: Duration = Duration::from_secs(60);
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

fn options() -> subscriber::Options {
    subscriber::Options { poll_interval: Duration::from_secs(1), ..subscriber::Options::default() }
}

/// A way around the three primaries, and a client that takes it. Workers and writers do not.
async fn detour(cluster: &LocalCluster, scene: &Scene) -> (Detour, Hub) {
    let detour = Detour::around(cluster, 3).await;
    let connect = ConnectOptions { reply_timeout: REPLY_TIMEOUT, ..scene.connect_options() };
    let hub = detour.hub(scene, connect).await;
    (detour, hub)
}

#[tokio::test]
async fn a_subscriber_cut_off_and_stalled_hears_every_change_in_order() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    workers.start();
    let (detour, hub) = detour(&cluster, &scene).await;
    let listener = Listener::start(&hub, options()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 31, writers: 2, users: 500, changes: 100_000, pace: Some(600), mutual_percent: 0 },
    );
    for how in [Cut::Fin, Cut::Reset, Cut::Fin, Cut::Reset] {
        load.goes_on(150).await;
        detour.each(|proxy| proxy.cut(how));
    }
    let mut silent_max = Duration::ZERO;
    for stall in [Proxy::stall, Proxy::stall_answers] {
        load.goes_on(150).await;
        let stalled = Instant::now();
        detour.each(stall);
        // Long enough for requests to time out on the old connections, and for new ones to be as silent.
        load.goes_on(1_500).await;
        detour.each(Proxy::pass);
        silent_max = silent_max.max(stalled.elapsed());
    }
    load.goes_on(300).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    assert_eq!(listener.resets(), 0, "the log reached back far enough all the time");
    listener.prove(&scene, &snapshot, silent_max + REPLY_TIMEOUT);
}

#[tokio::test]
async fn a_subscriber_whose_signals_never_arrive_lives_on_the_log() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 8).await;
    let mut workers = scene.workers();
    workers.start();
    let (detour, hub) = detour(&cluster, &scene).await;
    // The subscriptions are asked for, and the servers never hear of it.
    detour.each(|proxy| proxy.hold_before("$10\r\nSSUBSCRIBE\r\n"));
    let listener = Listener::start(&hub, options()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 32, writers: 2, users: 500, changes: 1_000, pace: Some(800), mutual_percent: 0 },
    );
    let written = load.finish().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    assert_eq!(listener.resets(), 0);
    assert!(listener.changes() > 500, "only {} changes were told", listener.changes());
    listener.prove(&scene, &snapshot, Duration::ZERO);
}

#[tokio::test]
async fn a_shard_that_moves_under_load_stalls_nobody_else_and_loses_nothing() {
    let cluster = own_cluster(Options::default()).await;
    let mut scene = Scene::begin(&cluster, "", 8).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let listener = Listener::start(&scene.hub, options()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 33, writers: 4, users: 2_000, changes: 100_000, pace: Some(1_000), mutual_percent: 0 },
    );
    load.goes_on(2_000).await;
    let moving = Shard(1);
    let (from, slot) = (scene.node_of(moving).await, scene.shard_keys(moving).slot);
    let to = (from + 1) % 3;
    let before = scene.generations().await.expect("a cluster that answers");
    let started = Instant::now();
    move_slot(&cluster, slot, from, to).await;
    let took = started.elapsed();
    assert_eq!(scene.node_of(moving).await, to);
    load.goes_on(1_000).await;
    let after = scene.generations().await.expect("a cluster that answers");
    for shard in scene.layout.shards().filter(|shard| *shard != moving) {
        let (before, after) = (before[usize::from(shard.0)], after[usize::from(shard.0)]);
        assert_eq!(before, after, "shard {shard} was interrupted although another one moved");
    }
    // And back, so that a node gets keys again that it had before.
    let started = Instant::now();
    move_slot(&cluster, slot, to, from).await;
    scene.expiry_drift_max = took + started.elapsed();
    load.goes_on(500).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    assert_eq!(listener.resets(), 0, "nothing was lost that a subscriber would have to know");
    listener.prove(&scene, &snapshot, 2 * took);
    workers.assert_running();
}

#[tokio::test]
async fn a_subscriber_left_behind_by_the_log_is_told_to_begin_anew() {
    let cluster = own_cluster(Options::default()).await;
    // One commit each, so that the log grows as fast as the stream.
    let settings = [("HEYDAY_LOG__LENGTH_MAX", "100"), ("HEYDAY_WORKER__BATCH_CHANGES_MAX", "1")];
    let scene = Scene::begin_with(&cluster, "", 1, &settings).await;
    let mut workers = scene.workers();
    workers.start();
    let (detour, hub) = detour(&cluster, &scene).await;
    let listener = Listener::start(&hub, options()).await;
    let writer = scene.hub.writer(writer::Options::default());
    let append = async |count: u64| {
        for number in 0..count {
            let version = number.to_string();
            let fields = [("type", "profile"), ("user", "42"), ("profile.shoe", version.as_str())];
            writer.append_fields(&fields).await.expect("an appended change");
        }
        scene.settle(WAIT).await;
    };
    append(20).await;
    listener.catch_up(&scene).await;
    assert_eq!((listener.changes(), listener.resets()), (20, 0));
    detour.each(Proxy::stall);
    // Whole nodes of the log, of up to 100 entries, are trimmed at once.
    append(320).await;
    detour.each(|proxy| proxy.cut(Cut::Reset));
    detour.each(Proxy::pass);
    listener.reset(1).await;
    append(5).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    assert_eq!(listener.resets(), 1);
    listener.prove(&scene, &snapshot, WAIT);
}
