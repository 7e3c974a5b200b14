//! Redis without what heyday put there: scripts, groups, streams, entries, keys, memory, everything at once.

use std::collections::BTreeSet;
use std::time::Duration;

use heyday::client::subscriber;
use heyday::key::{CONSUMER, GROUP};
use heyday::local::Options;
use heyday::shard::Shard;

use crate::support::cluster::{own_cluster, redis_cli};
use crate::support::eventually;
use crate::support::scene::{Earlier, Listener, Load, Plan, Scene, Snapshot};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn forgotten_scripts_are_told_again() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 8).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let load = Load::start(
        &scene,
        Plan { seed: 41, writers: 2, users: 500, changes: 100_000, pace: Some(600), mutual_percent: 0 },
    );
    let generations = settled_generations(&scene).await;
    for _ in 0..5 {
        load.goes_on(200).await;
        for index in 0..6 {
            redis_cli(&cluster, index, &["SCRIPT", "FLUSH"]).await;
        }
    }
    load.goes_on(1_000).await;
    assert_eq!(scene.generations().await.expect("a cluster that answers"), generations, "a shard was interrupted");
    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
}

#[tokio::test]
async fn a_destroyed_group_goes_on_where_the_views_are() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 4).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let listener = Listener::start(&scene.hub, subscriber::Options::default()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 42, writers: 2, users: 500, changes: 100_000, pace: Some(800), mutual_percent: 0 },
    );
    for _ in 0..3 {
        load.goes_on(300).await;
        for shard in scene.layout.shards() {
            let changes = scene.shard_keys(shard).changes.to_string();
            scene.command(shard, &["XGROUP", "DESTROY", &changes, GROUP]).await;
        }
    }
    load.goes_on(300).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    listener.prove(&scene, &snapshot, WAIT);
    workers.assert_running();
}

#[tokio::test]
async fn a_deleted_stream_begins_anew_and_nothing_applied_is_applied_again() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 4).await;
    let mut workers = scene.workers();
    workers.start();
    Load::start(&scene, Plan { seed: 43, writers: 2, users: 100, changes: 500, pace: None, mutual_percent: 0 })
        .finish()
        .await;
    scene.settle(WAIT).await;
    let before = Snapshot::take(&scene).await;
    let earlier = everything(&scene, &before);
    for shard in scene.layout.shards() {
        scene.command(shard, &["DEL", scene.shard_keys(shard).changes.as_str()]).await;
    }
    let load =
        Load::start(&scene, Plan { seed: 44, writers: 2, users: 100, changes: 500, pace: None, mutual_percent: 0 });
    let written = load.finish().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove_after(&earlier).await;
    scene.prove_written(&snapshot, &written, true);
    workers.assert_running();
}

/// The entries of all streams.
fn everything(scene: &Scene, snapshot: &Snapshot) -> Earlier {
    let entries = |shard| snapshot.entries(scene, shard).into_iter().map(|(id, fields)| (id, Some(fields.clone())));
    scene.layout.shards().map(|shard| (shard, entries(shard).collect())).collect()
}

#[tokio::test]
async fn entries_trimmed_under_the_groups_feet_become_dead_letters() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 1).await;
    let load =
        Load::start(&scene, Plan { seed: 45, writers: 1, users: 20, changes: 60, pace: None, mutual_percent: 0 });
    let mut written = load.finish().await;
    let keys = scene.shard_keys(Shard(0));
    let changes = keys.changes.as_str();
    // An owner that has read half of the stream and died before it applied any of it.
    scene.command(Shard(0), &["XGROUP", "CREATE", changes, GROUP, "0"]).await;
    let read = ["XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", "30", "STREAMS", changes, ">"];
    scene.command(Shard(0), &read).await;
    let before = Snapshot::take(&scene).await;
    let (id, _) = before.entries(&scene, Shard(0))[20];
    scene.command(Shard(0), &["XTRIM", changes, "MINID", &id.to_string()]).await;
    let trimmed: Vec<_> = before.entries(&scene, Shard(0))[..20].iter().map(|(id, _)| *id).collect();

    let mut workers = scene.workers();
    workers.start();
    scene.settle(WAIT).await;
    let earlier = [(Shard(0), trimmed.iter().map(|id| (*id, None)).collect())].into();
    let snapshot = scene.prove_after(&earlier).await;
    written.acknowledged.retain(|(_, appended, _)| !trimmed.contains(&appended.id));
    scene.prove_written(&snapshot, &written, true);
    let letters = snapshot.stream(keys.dead_letters.as_str());
    let kind = |fields: &[(bytes::Bytes, bytes::Bytes)]| fields.iter().any(|(_, value)| value == "trimmed");
    assert_eq!(letters.iter().filter(|(_, fields)| kind(fields)).count(), 20);
}

#[tokio::test]
async fn full_memory_is_backpressure_and_passes() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 8).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let load = Load::start(
        &scene,
        Plan { seed: 46, writers: 2, users: 2_000, changes: 1_000_000, pace: Some(1_500), mutual_percent: 0 },
    );
    load.goes_on(1_000).await;
    let generations = settled_generations(&scene).await;
    let full = std::time::Instant::now();
    for index in 0..3 {
        let memory = redis_cli(&cluster, index, &["INFO", "memory"]).await;
        let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("the memory used");
        let bytes = used.trim().parse::<u64>().expect("a number") + 100_000;
        redis_cli(&cluster, index, &["CONFIG", "SET", "maxmemory", &bytes.to_string()]).await;
    }
    // Longer than a lease lives: an owner that could not renew would have lost its shards.
    eventually(WAIT, "writers were refused for longer than a lease lives", async || {
        (load.refused() > 100 && full.elapsed() > Duration::from_secs(5)).then_some(())
    })
    .await;
    assert_eq!(scene.generations().await.expect("a cluster that answers"), generations, "a lease was lost");
    for index in 0..3 {
        redis_cli(&cluster, index, &["CONFIG", "SET", "maxmemory", "0"]).await;
    }
    load.goes_on(1_000).await;
    assert_eq!(scene.generations().await.expect("a cluster that answers"), generations, "a link was given up");
    let written = load.stop().await;
    assert!(written.unknown.is_empty(), "a refusal is an answer: {:?}", written.unknown);
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    let waits = (0..2).map(|number| workers.log(number).matches("shard waits").count()).sum::<usize>();
    // Where memory is full to the brim a commit goes through now and then. A shard tells of that once in ten seconds at most,
    // and each has kept its owner.
    let told_max = scene.layout.count() as usize * (1 + full.elapsed().as_secs() as usize / 10);
    println!("{waits} lines in {:?}", full.elapsed());
    assert!((1..=told_max).contains(&waits), "a change of state is one line, not each try: {waits} lines");
    workers.assert_running();
}

#[tokio::test]
async fn a_flushed_primary_begins_anew_under_load() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 8).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let listener = Listener::start(&scene.hub, subscriber::Options::default()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 47, writers: 2, users: 500, changes: 100_000, pace: Some(1_000), mutual_percent: 0 },
    );
    load.goes_on(1_000).await;
    redis_cli(&cluster, 0, &["FLUSHALL"]).await;
    load.goes_on(1_000).await;
    // What an operator does next; a worker that starts anew needs it.
    scene.create_layout();
    workers.kill(0);
    workers.restart(0);
    load.goes_on(500).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    // Entries, views, log and state of a shard were lost together, so what is there still belongs together.
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, false);
    let mut flushed = BTreeSet::new();
    for shard in scene.layout.shards() {
        if scene.node_of(shard).await == 0 {
            flushed.insert(shard);
        }
    }
    assert_eq!(listener.reset_shards(), flushed, "who lost its log, and nobody else, is told so");
    listener.prove(&scene, &snapshot, WAIT);
    workers.assert_running();
}

/// With `appendfsync everysec` a server writes its file before it answers, but for the second in which an earlier write is
/// still being synced. So an acknowledged append may be missing, as after the crash of a primary; what is there is whole.
#[tokio::test]
async fn a_cluster_restarted_from_its_files_goes_on_where_they_end() {
    let mut cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 8).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let load = Load::start(
        &scene,
        Plan { seed: 48, writers: 2, users: 500, changes: 100_000, pace: Some(1_000), mutual_percent: 0 },
    );
    load.goes_on(1_500).await;
    for index in 0..6 {
        cluster.kill(index).expect("SIGKILL");
    }
    for index in 0..6 {
        cluster.restart(index).await.expect("the server on its old data");
    }
    cluster.form().await.expect("a whole cluster again");
    load.goes_on(1_000).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, false);
    workers.assert_running();
}

/// The generations once two workers share the shards and none is on its way.
async fn settled_generations(scene: &Scene) -> Vec<u64> {
    let half = scene.layout.count() as usize / 2;
    eventually(WAIT, "two workers owned one half each", async || {
        let owners = scene.owners().await?;
        let first = owners.iter().flatten().filter(|owner| owner.starts_with("w0-")).count();
        (first == half && owners.iter().flatten().count() == 2 * half).then_some(())
    })
    .await;
    scene.generations().await.expect("a cluster that answers")
}
