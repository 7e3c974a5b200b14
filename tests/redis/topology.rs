//! The slot map follows the cluster, whatever single nodes say or fail to say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heyday::error::Disposition;
use heyday::local::{Options, Ports};
use heyday::redis::{ConnectOptions, Error, NodeAddress, SLOTS, Topology};

use super::{WAIT, addresses};
use crate::support::cluster::{own_cluster, redis_cli, shared_cluster};
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::single::Single;

async fn topology(seeds: &[NodeAddress]) -> Topology {
    let options = Arc::new(ConnectOptions::new(seeds.to_vec()));
    Topology::connect(options).await.expect("a topology")
}

fn owner(topology: &Topology, slot: u16) -> NodeAddress {
    topology.node_of(slot).expect("an owner").address.clone()
}

#[tokio::test]
async fn one_seed_is_enough_to_know_every_slot() {
    let nodes = addresses(&shared_cluster().await);
    // A replica answers as well as a primary.
    let topology = topology(&nodes[5..]).await;
    for (slot, node) in [(0, 0), (5460, 0), (5461, 1), (10922, 1), (10923, 2), (SLOTS - 1, 2)] {
        assert_eq!(owner(&topology, slot), nodes[node], "slot {slot}");
    }
    assert!(matches!(topology.node_of(SLOTS), Err(Error::NoNode { slot: SLOTS })));
    let primaries: Vec<_> = topology.primaries().iter().map(|node| node.address.clone()).collect();
    assert_eq!(primaries, nodes[..3]);
    assert_eq!(topology.all().len(), 6);
    assert!(topology.all().iter().all(|node| node.online && !node.id.is_empty()));
}

#[tokio::test]
async fn a_redirect_is_believed_until_the_next_refresh() {
    let nodes = addresses(&shared_cluster().await);
    let topology = topology(&nodes[..1]).await;
    let mut changes = topology.changes();
    changes.mark_unchanged();
    topology.learn_moved(0, &format!(":{}", nodes[1].port), &nodes[0]);
    assert_eq!(owner(&topology, 0), nodes[1]);
    assert_eq!(owner(&topology, 1), nodes[0]);
    assert!(changes.has_changed().expect("the topology lives"));
    topology.refresh().await.expect("an answer");
    assert_eq!(owner(&topology, 0), nodes[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_callers_share_a_few_refreshes() {
    let nodes = addresses(&shared_cluster().await);
    let proxy = Proxy::start(&nodes[0]).await;
    let mut options = ConnectOptions::new(vec![nodes[0].clone()]);
    options.address_map.insert(nodes[0].clone(), proxy.address().clone());
    let topology = Arc::new(Topology::new(Arc::new(options)));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let topology = topology.clone();
        callers.spawn(async move { topology.refresh().await });
    }
    for result in callers.join_all().await {
        result.expect("an answer");
    }
    assert!(proxy.accepted() <= 2, "{} connections", proxy.accepted());
}

#[tokio::test]
async fn a_silent_node_delays_nobody() {
    let nodes = addresses(&shared_cluster().await);
    let proxy = Proxy::start(&nodes[0]).await;
    proxy.stall();
    let mut options = ConnectOptions::new(vec![nodes[0].clone(), nodes[1].clone()]);
    options.address_map.insert(nodes[0].clone(), proxy.address().clone());
    let begun = Instant::now();
    let topology = Topology::connect(Arc::new(options)).await.expect("a topology");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(owner(&topology, 0), nodes[0]);
}

#[tokio::test]
async fn unreachable_seeds_are_all_named_in_one_line() {
    let ports = Ports::reserve().expect("ports").expect("free ports");
    let seeds: Vec<_> = (0..3).map(|index| NodeAddress::new("127.0.0.1", ports.first() + index)).collect();
    let options = Arc::new(ConnectOptions::new(seeds.clone()));
    let error = Topology::connect(options).await.unwrap_err();
    let message = error.to_string();
    for seed in &seeds {
        assert!(message.contains(&format!("{seed}: cannot connect")), "{message}");
    }
    assert!(!message.contains('\n'), "{message}");
    assert_eq!(error.disposition(), Disposition::Refresh);
}

#[tokio::test]
async fn a_wrong_password_and_a_single_server_are_fatal() {
    let with = |password: &str| ConnectOptions { password: Some(password.to_owned()), ..ConnectOptions::default() };
    let locked = Single::start(&["--port", "{port}", "--requirepass", "secret"], &[], |_| with("secret")).await;
    let mut options = with("wrong");
    options.seeds = vec![locked.address().clone()];
    let error = Topology::connect(Arc::new(options)).await.unwrap_err();
    assert_eq!(error.disposition(), Disposition::Fatal, "{error:?}");
    assert!(error.to_string().contains("WRONGPASS"), "{error}");

    let single = Single::plain().await;
    let options = ConnectOptions::new(vec![single.address().clone()]);
    let error = Topology::connect(Arc::new(options)).await.unwrap_err();
    assert!(matches!(error, Error::NotCluster { .. }), "{error:?}");
    assert!(error.to_string().contains("not a cluster"), "{error}");
}

#[tokio::test]
async fn cluster_own_failovers_by_hand_and_by_crash_are_followed() {
    let mut cluster = own_cluster(Options::default()).await;
    let nodes = addresses(&cluster);
    let topology = topology(&nodes[..1]).await;
    redis_cli(&cluster, 3, &["CLUSTER", "FAILOVER"]).await;
    let follow = async |slot: u16, node: &NodeAddress| {
        eventually(WAIT, &format!("{node} owned slot {slot}"), async || {
            topology.refresh().await.ok()?;
            (owner(&topology, slot) == *node).then_some(())
        })
        .await;
    };
    follow(0, &nodes[3]).await;
    cluster.kill(2).expect("a kill");
    follow(SLOTS - 1, &nodes[5]).await;
    let dead = topology.all().into_iter().find(|node| node.address == nodes[2]);
    assert!(dead.is_none_or(|node| !node.online));
}
