//! Nodes that fail and slots that move in the middle of a walk.

use std::sync::Arc;
use std::time::Duration;

use heyday::client::day::{Celebrations, DayStream, Error, Options};
use heyday::local::{LocalCluster, Nodes, Options as ClusterOptions};
use heyday::redis::{ConnectOptions, Topology};
use heyday::shard::Shard;

use super::almanac::{Almanac, entries};
use crate::cluster::client::{Ground, WAIT, fail_over, move_keys, put_under_way, seeds};
use crate::support::cluster::{own_cluster, shared_cluster};
use crate::support::eventually;
use crate::support::scene::{crash, move_slot};

/// Users that come before the next blow.
const STRETCH: usize = 60;

fn options() -> Options {
    Options { page: 4, timeout: 2 * WAIT, ..Options::default() }
}

#[tokio::test]
async fn a_walk_goes_on_through_failovers_crashes_and_moving_slots_cluster_own() {
    let mut cluster = own_cluster(ClusterOptions::default()).await;
    let almanac = Almanac::new(&cluster, 2, 800, 3).await;
    replicated(&almanac).await;
    let mut day = almanac.reader().day(almanac.date, options());
    let mut found = Vec::new();
    for blow in [Blow::FailOver, Blow::MoveSome, Blow::MoveAll, Blow::Crash, Blow::Restart] {
        // What is under way is read on from, while it happens.
        let shard = read(&mut day, &mut found, STRETCH).await;
        let struck = strike(&mut cluster, &almanac, shard, blow);
        tokio::join!(struck, read(&mut day, &mut found, STRETCH));
    }
    while let Some(item) = day.next_user().await {
        found.push(item.unwrap());
    }
    assert_eq!(entries(&found), almanac.expected());
}

#[derive(Clone, Copy)]
enum Blow {
    FailOver,
    /// Some keys of the slot here and some there.
    MoveSome,
    MoveAll,
    Crash,
    Restart,
}

/// Reads so many users; answers in which shard the walk is then.
async fn read(day: &mut DayStream, found: &mut Vec<Celebrations>, count: usize) -> Shard {
    for _ in 0..count {
        found.push(day.next_user().await.expect("more than that").unwrap());
    }
    found.last().expect("one at least").shard
}

async fn strike(cluster: &mut LocalCluster, almanac: &Almanac, shard: Shard, blow: Blow) {
    let ground = &almanac.ground;
    let (at, other) = owner_and_other(cluster, ground, shard).await;
    match blow {
        Blow::FailOver => fail_over(cluster, (at + 3) % 6).await,
        Blow::MoveSome => {
            put_under_way(ground, shard, (at, other)).await;
            let keys = ground.hub.shard_keys(shard);
            move_keys(ground, at, other, &[keys.day(almanac.date).as_str()]).await;
        }
        Blow::MoveAll => move_slot(cluster, ground.layout.slot(shard), at, other).await,
        Blow::Crash => {
            crash(cluster, at, (at + 3) % 6).await;
            cluster.restart(at).await.expect("the killed node again");
            cluster.form().await.expect("a whole cluster again");
        }
        Blow::Restart => {
            // Too short for a failover: the same node answers again, from its file.
            cluster.kill(at).expect("SIGKILL");
            cluster.restart(at).await.expect("the killed node again");
        }
    }
}

/// The owner of a shard and another primary, once all nodes agree on it. The walk's own map finds out by itself.
async fn owner_and_other(nodes: &Nodes, ground: &Ground, shard: Shard) -> (usize, usize) {
    let slot = ground.layout.slot(shard);
    eventually(WAIT, "all nodes agreed on an owner", async || {
        let mut views = Vec::new();
        for node in seeds(nodes) {
            let map = Topology::connect(Arc::new(ConnectOptions::new(vec![node]))).await.ok()?;
            let primaries: Vec<_> = map.primaries().iter().map(|node| node.address.clone()).collect();
            views.push((map.node_of(slot).ok()?.address.clone(), primaries));
        }
        views.dedup();
        let [(owner, primaries)] = &*views else { return None };
        let other = primaries.iter().find(|node| *node != owner)?;
        Some((ground.index_of(owner), ground.index_of(other)))
    })
    .await
}

/// Waits until replicas hold all that was stored.
async fn replicated(almanac: &Almanac) {
    for shard in almanac.ground.layout.shards() {
        let held = almanac.ground.ask_one(shard, &["WAIT", "1", "20000"]).await;
        assert_eq!(held.as_i64().unwrap(), 1, "a replica holds shard {shard}");
    }
}

#[tokio::test]
async fn a_silent_node_ends_a_walk_with_the_place_to_go_on_from() {
    let mut almanac = Almanac::new(&shared_cluster().await, 1, 0, 1).await;
    let day = almanac.date.strftime("--%m-%d").to_string();
    for user in ["a", "b", "c"] {
        almanac.put(user, "UTC", &[("f", &day)]).await;
    }
    let proxy = almanac.ground.put_proxy(Shard(0)).await;
    let options = Options { page: 1, timeout: Duration::from_millis(600), ..Options::default() };
    let mut walk = almanac.reader().day(almanac.date, options.clone());
    assert_eq!(walk.next_user().await.unwrap().unwrap().user.as_str(), "a");
    proxy.stall();
    let failed = async || loop {
        match walk.next_user().await.expect("an error before the end") {
            Ok(item) => assert_eq!(item.user.as_str(), "b", "what was read before the node fell silent"),
            Err(error) => break error,
        }
    };
    let error = tokio::time::timeout(WAIT, { failed }()).await.expect("an answer");
    let Error::Redis { shard, .. } = &error else { panic!("{error}") };
    assert_eq!(*shard, Shard(0));
    assert!(error.to_string().contains(&almanac.ground.owner(Shard(0)).to_string()), "{error}");
    proxy.pass();
    let behind = error.cursor().cloned();
    let rest = eventually(WAIT, "the walk went on", async || {
        let mut walk = almanac.reader().day(almanac.date, Options { cursor: behind.clone(), ..options.clone() });
        let mut users = Vec::new();
        while let Some(item) = walk.next_user().await {
            users.push(item.ok()?.user.to_string());
        }
        Some(users)
    })
    .await;
    assert!(rest == ["b", "c"] || rest == ["c"], "{rest:?} from {behind:?}");
    assert_eq!(rest.len() == 2, behind.unwrap().to_string().ends_with(":a:f"));
}
