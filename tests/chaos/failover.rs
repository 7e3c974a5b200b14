//! Primaries that are replaced under load, by hand and by SIGKILL.

use std::time::Duration;

use heyday::client::subscriber;
use heyday::local::Options;

use crate::support::cluster::own_cluster;
use crate::support::scene::{Listener, Load, Plan, Scene, crash, fail_over};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn primaries_replaced_by_hand_lose_nothing() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let listener = Listener::start(&scene.hub, subscriber::Options::default()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 21, writers: 4, users: 1_000, changes: 100_000, pace: Some(1_000), mutual_percent: 0 },
    );
    // Each replica becomes a primary, then each of the first primaries again.
    for index in [3, 4, 5, 0, 1, 2] {
        load.goes_on(200).await;
        fail_over(&cluster, index).await;
    }
    load.goes_on(500).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    assert_eq!(listener.resets(), 0, "nothing was lost that a subscriber would have to know");
    listener.prove(&scene, &snapshot, Duration::from_secs(3));
    workers.assert_running();
}

/// Replication is asynchronous: what a primary acknowledged in its last moment may be gone with it, and nobody promises
/// otherwise (docs: a crash of a primary may lose the last writes). So the oracle goes by the entries that survived, and what
/// survived must be whole: entries, views, counters, log and acknowledgements belong together in every transaction. What
/// the writers were told may be missing, but never twice there, never changed, and nothing refused may be there.
#[tokio::test]
async fn a_killed_primary_takes_nothing_with_it_but_its_last_moment() {
    let mut cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let listener = Listener::start(&scene.hub, subscriber::Options::default()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 22, writers: 4, users: 1_000, changes: 100_000, pace: Some(1_000), mutual_percent: 0 },
    );
    for (primary, replica) in [(0, 3), (3, 0), (1, 4)] {
        load.goes_on(500).await;
        crash(&mut cluster, primary, replica).await;
        load.goes_on(300).await;
        cluster.restart(primary).await.expect("the killed node again");
        cluster.form().await.expect("a whole cluster again, every replica in step");
    }
    let written = load.stop().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, false);
    listener.prove(&scene, &snapshot, Duration::from_secs(15));
    workers.assert_running();
}
