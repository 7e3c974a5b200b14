//! Shards that change hands among workers, 256 of them: how long that takes, how many move, and who notices.

use std::time::{Duration, Instant};

use heyday::local::{LocalCluster, Options};
use heyday::shard::Shard;

use crate::support::cluster::own_cluster;
use crate::support::eventually;
use crate::support::scene::{LeaseWatch, Load, Plan, Probe, Scene, Standing, heyday_in, longest_pause, undisturbed};

const WAIT: Duration = Duration::from_secs(90);
const SHARDS: u32 = 256;
const LEASE_TTL: Duration = Duration::from_secs(5);
/// What a machine that is busy with other things may take on top of what is promised.
const BUSY_MARGIN: Duration = Duration::from_secs(25);
/// Its probe's pace included. A shard that changed its owner because a lease ran out pauses for longer.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PROBE_PACE: Duration = Duration::from_secs(1);

async fn stage() -> (LocalCluster, Scene) {
    // No node is to take another for dead because the machine is busy.
    let config_lines = vec!["cluster-node-timeout 15000".to_owned()];
    let cluster = own_cluster(Options { config_lines, ..Options::default() }).await;
    let scene = Scene::begin_with(&cluster, "", SHARDS, &[("HEYDAY_WORKER__LEASE_TTL", "5s")]).await;
    (cluster, scene)
}

/// Shards whose owner is the same: they must not have been interrupted.
fn unaffected(before: &[Standing], after: &[Standing]) -> Vec<Shard> {
    undisturbed(before, after);
    let pairs = before.iter().zip(after).enumerate();
    pairs.filter(|(_, (before, after))| before == after).map(|(shard, _)| Shard(shard as u16)).collect()
}

fn moves(standing: &[Standing]) -> u64 {
    standing.iter().map(|shard| shard.moves).sum()
}

#[tokio::test]
async fn a_killed_workers_shards_are_shared_a_lease_and_a_second_later() {
    let (_cluster, scene) = stage().await;
    let mut workers = scene.workers();
    let (killed, second, third) = (workers.start(), workers.start(), workers.start());
    let [first_name, second_name, third_name] = [killed, second, third].map(|worker| workers.name(worker));
    let watch = LeaseWatch::start(&scene).await;
    watch.shared_between(&[&first_name, &second_name, &third_name], WAIT).await;
    let before = scene.standing().await;
    let probe = Probe::start(&scene, PROBE_PACE).await;
    // Until every shard is under way.
    scene.committed_more(2, WAIT).await;

    let begun = Instant::now();
    workers.kill(killed);
    let shared = watch.shared_between(&[&second_name, &third_name], LEASE_TTL + BUSY_MARGIN).await;
    let took = shared - begun;
    let after = scene.standing().await;
    let unaffected = unaffected(&before, &after);
    let span = probe.stop();
    scene.settle(WAIT).await;
    let pause = longest_pause(&scene, &scene.prove().await, &unaffected, span);
    println!(
        "killed: {} shards shared after {took:?} (promised {:?}), {} unaffected, longest pause of one {pause:?}",
        SHARDS as usize - unaffected.len(),
        LEASE_TTL + Duration::from_secs(1),
        unaffected.len(),
    );
    assert!(took <= LEASE_TTL + BUSY_MARGIN, "{took:?}");
    assert!(pause < PAUSE_MAX, "an unaffected shard paused for {pause:?}");
    assert_eq!(moves(&after) - moves(&before), (SHARDS as usize - unaffected.len()) as u64, "each moved once");
    workers.assert_running();
}

#[tokio::test]
async fn a_worker_that_leaves_hands_each_shard_over_at_once() {
    let (_cluster, scene) = stage().await;
    let mut workers = scene.workers();
    let (leaving, second, third) = (workers.start(), workers.start(), workers.start());
    let [first_name, second_name, third_name] = [leaving, second, third].map(|worker| workers.name(worker));
    let watch = LeaseWatch::start(&scene).await;
    watch.shared_between(&[&first_name, &second_name, &third_name], WAIT).await;
    drop(watch);
    let probe = Probe::start(&scene, PROBE_PACE).await;
    scene.committed_more(2, WAIT).await;

    let before = scene.standing().await;
    let watch = LeaseWatch::start(&scene).await;
    assert_eq!(workers.stop(leaving).await.code(), Some(0));
    watch.shared_between(&[&second_name, &third_name], LEASE_TTL + BUSY_MARGIN).await;
    let ownerless = watch.ownerless_max();
    let after = scene.standing().await;
    let unaffected = unaffected(&before, &after);
    let span = probe.stop();
    scene.settle(WAIT).await;
    let pause = longest_pause(&scene, &scene.prove().await, &unaffected, span);
    println!(
        "left: {} shards handed over, the longest without owner {ownerless:?} (promised 200ms), longest pause of an \
         unaffected one {pause:?}",
        SHARDS as usize - unaffected.len(),
    );
    assert!(ownerless < LEASE_TTL, "a shard had no owner for {ownerless:?}, as if its lease had run out");
    assert!(pause < PAUSE_MAX, "an unaffected shard paused for {pause:?}");
    assert_eq!(moves(&after) - moves(&before), (SHARDS as usize - unaffected.len()) as u64, "each moved once");
}

#[tokio::test]
async fn a_worker_that_joins_takes_its_share_and_no_other_shard_moves() {
    let (_cluster, scene) = stage().await;
    let mut workers = scene.workers();
    let [first, second] = [workers.start(), workers.start()].map(|worker| workers.name(worker));
    let watch = LeaseWatch::start(&scene).await;
    watch.shared_between(&[&first, &second], WAIT).await;
    drop(watch);
    let probe = Probe::start(&scene, PROBE_PACE).await;
    scene.committed_more(2, WAIT).await;

    let (before, begun) = (scene.standing().await, Instant::now());
    let watch = LeaseWatch::start(&scene).await;
    let joined = workers.start();
    let joined_name = workers.name(joined);
    let shared = watch.shared_between(&[&first, &second, &joined_name], WAIT).await;
    let (took, ownerless) = (shared - begun, watch.ownerless_max());
    let after = scene.standing().await;
    let unaffected = unaffected(&before, &after);
    let span = probe.stop();
    scene.settle(WAIT).await;
    let pause = longest_pause(&scene, &scene.prove().await, &unaffected, span);
    let moved = moves(&after) - moves(&before);
    println!(
        "joined: {moved} shards moved within {took:?} of its start, the longest without owner {ownerless:?}, longest \
         pause of an unaffected one {pause:?}"
    );
    let share = watch.shares(&[&joined_name])[0];
    assert_eq!((moved, watch.changed()), (share as u64, share), "its share moved, and nothing else");
    assert!(pause < PAUSE_MAX, "an unaffected shard paused for {pause:?}");
}

#[tokio::test]
async fn nothing_is_committed_during_maintenance_and_nothing_is_lost() {
    let (_cluster, scene) = stage().await;
    let mut workers = scene.workers();
    let [first, second] = [workers.start(), workers.start()].map(|worker| workers.name(worker));
    let watch = LeaseWatch::start(&scene).await;
    watch.shared_between(&[&first, &second], WAIT).await;
    drop(watch);
    let load = Load::start(
        &scene,
        Plan { seed: 41, writers: 4, users: 5_000, changes: 200_000, pace: Some(800), mutual_percent: 0 },
    );
    load.goes_on(2_000).await;

    let on = ["maintenance", "on", "--reason", "a test", "--holder", "ann", "--wait", "30s"];
    let begun = Instant::now();
    let done = heyday_in(&scene, &on).output().expect("the binary");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    println!("maintenance: every worker had paused within {:?}", begun.elapsed());
    let (before, last) = (scene.standing().await, scene.last_commits().await);
    let watch = LeaseWatch::start(&scene).await;
    let begun = Instant::now();
    while begun.elapsed() < 2 * LEASE_TTL {
        load.goes_on(200).await;
        assert_eq!(scene.last_commits().await, last, "somebody committed");
    }
    assert_eq!(watch.changed(), 0, "a lease was lost");
    assert_eq!(scene.standing().await, before);

    let begun = Instant::now();
    let done = heyday_in(&scene, &["maintenance", "off", "--holder", "ann"]).output().expect("the binary");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    eventually(WAIT, "commits went on", async || (scene.last_commits().await != last).then_some(())).await;
    println!("maintenance: commits went on {:?} after its end was asked for", begun.elapsed());
    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    workers.assert_running();
}
