//! Full memory, a dead node, a slot on its way, a lost script cache, a cut connection: what is told, and that nothing was done.

use std::time::{Duration, Instant};

use heyday::error::Disposition;
use heyday::local::Options;
use heyday::reduce::Plan;
use heyday::shard::Shard;
use heyday::store::{Committed, Read, ShardLink, Store};

use super::{DONE, Ground, NEW, SHARD, TTL, id, mine, refused};
use crate::support::cluster::own_cluster;

#[tokio::test]
async fn cluster_own_full_memory_refuses_a_commit_whole_and_keeps_the_lease() {
    let cluster = own_cluster(Options::default()).await;
    let mut ground = Ground::on(&cluster).await;
    let keys = ground.keys.clone();
    let (mut link, state) = ground.owner("a").await;
    let appended = ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    ground.command(&["CONFIG", "SET", "maxmemory", "1"]).await.checked().unwrap();

    refused(link.commit(&commit).await, Disposition::Full, &["OOM", "commit: ", "shard 1", "127.0.0.1:"]);
    assert_eq!(link.commit(&commit).await.unwrap(), Committed::Refused, "the watch is spent");
    let pending = link.read(Read::Pending, 10).await.expect("the link is in order");
    assert_eq!(pending[0].id.to_string(), appended, "XACK was not executed");
    assert!(!ground.exists(&keys.log).await && !ground.exists(&keys.birthdays(&"42".parse().unwrap())).await);

    assert!(link.renew(&id("a"), TTL).await.unwrap());
    refused(link.take(&id("a"), TTL).await, Disposition::Full, &["OOM", "take"]);
    assert_eq!(link.trim(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(link.backlog().await.unwrap().pending, 1);
    assert_eq!(ground.store.heartbeat(&id("a"), TTL).await.unwrap(), [id("a")]);
    link.load(&Plan::default()).await.unwrap();

    ground.command(&["CONFIG", "SET", "maxmemory", "0"]).await.checked().unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, pending).await;
    assert_eq!(link.commit(&commit).await.unwrap(), DONE);
    ground.command(&["CONFIG", "SET", "maxmemory", "1"]).await.checked().unwrap();
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap());
}

#[tokio::test]
async fn cluster_own_slot_on_its_way_is_waited_for() {
    let cluster = own_cluster(Options::default()).await;
    let mut ground = Ground::on(&cluster).await;
    let slot = ground.keys.slot.to_string();
    let (mut link, state) = ground.owner("a").await;
    ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries.clone()).await;
    let target =
        ground.store.topology().primaries().into_iter().find(|node| node.address != *ground.raw.node()).unwrap();
    ground.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.id]).await.checked().unwrap();

    // The log is not there yet, so that it might be on the other side.
    refused(link.commit(&commit).await, Disposition::Retry, &["shard 1: commit: "]);
    assert!(!ground.exists_here(&ground.keys.birthdays(&"42".parse().unwrap())).await);
    assert!(link.renew(&id("a"), TTL).await.unwrap());
    let plan = Plan { producers: vec!["p".to_owned()], ..Plan::default() };
    refused(link.load(&plan).await, Disposition::Retry, &["ASK", ground.keys.producers.as_str()]);
    assert_eq!(link.read(Read::Pending, 10).await.unwrap().len(), 1, "XACK was not executed");

    ground.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).await.checked().unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    assert_eq!(link.commit(&commit).await.unwrap(), DONE);

    // Now all that the next commit touches is here, until one key of it has gone.
    ground.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.id]).await.checked().unwrap();
    ground.add("42", "78").await;
    let state = ground.settle(&mut link, &commit.state).await;
    ground.add("42", "79").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    let log = ground.keys.log.clone();
    ground.command(&["DEL", log.as_str()]).await.checked().unwrap();
    refused(link.commit(&commit).await, Disposition::Retry, &["shard 1: commit: "]);
    assert!(!ground.exists_here(&log).await);
}

#[tokio::test]
async fn cluster_own_slot_that_moved_is_learned_from_the_redirect() {
    let cluster = own_cluster(Options::default()).await;
    let mut ground = Ground::on(&cluster).await;
    let slot = ground.keys.slot.to_string();
    let mut link = ground.link().await;
    let topology = ground.store.topology().clone();
    let source = ground.raw.node().clone();
    let target = topology.primaries().into_iter().find(|node| node.address != source).unwrap();
    for node in topology.primaries() {
        let mut raw = heyday::redis::Link::connect(&node.address, topology.options()).await.unwrap();
        super::command(&mut raw, &["CLUSTER", "SETSLOT", &slot, "NODE", &target.id]).await.checked().unwrap();
    }
    assert_eq!(topology.node_of(ground.keys.slot).unwrap().address, source, "nobody has looked since");
    refused(link.take(&id("a"), TTL).await, Disposition::Refresh, &["MOVED", &source.to_string()]);
    assert_eq!(topology.node_of(ground.keys.slot).unwrap().address, target.address);
    mine(ground.link().await.take(&id("a"), TTL).await.unwrap());
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap());
    ground.raw.close();
}

#[tokio::test]
async fn cluster_own_dead_node_fails_its_own_shards_only() {
    let mut cluster = own_cluster(Options::default()).await;
    let ground = Ground::on(&cluster).await;
    let shards: Vec<Shard> = (0..4).map(Shard).collect();
    assert!(ground.store.holders(&shards).await.iter().all(|holder| matches!(holder, Ok(None))));
    // Shard 0 is the first node's, shard 3 the third's, as slots are cut in four and in three.
    cluster.kill(0).expect("kill");
    cluster.stop_process(2).expect("SIGSTOP");
    let started = Instant::now();
    let holders = ground.store.holders(&shards).await;
    let took = started.elapsed();
    let good: Vec<_> = holders.iter().map(Result::is_ok).collect();
    assert_eq!(good, [false, true, true, false], "{holders:?}");
    assert!(took < Duration::from_secs(5), "took {took:?}");
    cluster.cont(2).expect("SIGCONT");
}

#[tokio::test]
async fn a_lost_script_cache_is_filled_again() {
    let mut ground = Ground::shared().await;
    let (mut link, _) = ground.owner("a").await;
    ground.command(&["SCRIPT", "FLUSH"]).await.checked().unwrap();
    assert!(link.renew(&id("a"), TTL).await.unwrap());
    ground.command(&["SCRIPT", "FLUSH"]).await.checked().unwrap();
    mine(link.take(&id("a"), TTL).await.unwrap());
    ground.command(&["SCRIPT", "FLUSH"]).await.checked().unwrap();
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap());
}

#[tokio::test]
async fn a_cut_link_commits_nothing_and_stays_dead() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    let listing = ground.text(&["CLIENT", "LIST"]).await.unwrap();
    let name = format!(" name={} ", ground.store.topology().options().client_name.as_deref().unwrap());
    let ours: Vec<_> = listing.lines().filter(|line| line.contains(&name)).collect();
    let [client] = ours[..] else { panic!("{listing}") };
    let number = client.split([' ', '=']).nth(1).unwrap();
    ground.command(&["CLIENT", "KILL", "ID", number]).await.checked().unwrap();

    let error = link.commit(&commit).await.unwrap_err();
    assert_eq!((error.disposition, error.reason), (Disposition::Refresh, "closed"), "nothing was sent: {error}");
    refused(link.load(&Plan::default()).await, Disposition::Refresh, &["this link failed before"]);
    refused(link.take(&id("a"), TTL).await, Disposition::Refresh, &["this link failed before"]);
    assert!(!ground.exists(&ground.keys.log.clone()).await);
    let mut link = ground.link().await;
    assert_eq!(mine(link.take(&id("a"), TTL).await.unwrap()).last, state.last);
}

#[tokio::test]
async fn a_dropped_call_ends_the_link() {
    let ground = Ground::shared().await;
    let (mut link, _) = ground.owner("a").await;
    let read = link.read(Read::New { block: super::WAIT }, 10);
    assert!(tokio::time::timeout(Duration::from_millis(20), read).await.is_err());
    refused(link.read(NEW, 10).await, Disposition::Refresh, &["this link failed before"]);
}
