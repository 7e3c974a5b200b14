//! Shared clients serve reads from whoever owns a slot, and leave nothing behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fred::interfaces::{ClientLike, HashesInterface, KeysInterface};
use heyday::error::Disposition;
use heyday::local::Options;
use heyday::redis::{ConnectOptions, Error, NodeAddress, Nodes, SLOTS, Topology};

use super::{WAIT, addresses, command, through};
use crate::support::cluster::{foreign_prefix, own_cluster, redis_cli, shared_cluster};
use crate::support::eventually;
use crate::support::proxy::{Cut, Proxy};
use crate::support::single::Single;

/// A tag of the first node's slot 3300.
const TAG: &str = "b";
const SLOT: u16 = 3300;

async fn nodes(options: ConnectOptions) -> Nodes {
    let topology = Topology::connect(Arc::new(options)).await.expect("a topology");
    Nodes::new(Arc::new(topology))
}

async fn get(nodes: &Nodes, key: &str) -> Result<Option<String>, Error> {
    nodes.read(SLOT, WAIT, |client| async move { client.get(key).await }).await
}

#[tokio::test]
async fn a_read_goes_to_the_owner_and_follows_a_redirect() {
    let cluster = shared_cluster().await;
    let seeds = addresses(&cluster);
    let nodes = nodes(ConnectOptions::new(seeds[..1].to_vec())).await;
    let key = format!("{}k:{{{TAG}}}", foreign_prefix());
    command(&seeds[0], &["SET", &key, "v"]).await;
    assert_eq!(get(&nodes, &key).await.expect("an answer").as_deref(), Some("v"));
    // The map is wrong for this slot: the node that is asked says so, and the map is right again.
    nodes.topology().learn_moved(SLOT, &seeds[2].to_string(), &seeds[0]);
    assert_eq!(get(&nodes, &key).await.expect("an answer").as_deref(), Some("v"));
    let owner = nodes.topology().node_of(SLOT).expect("an owner");
    assert_eq!(owner.address, seeds[0]);
}

#[tokio::test]
async fn an_error_of_the_command_itself_comes_back_at_once() {
    let seeds = addresses(&shared_cluster().await);
    let nodes = nodes(ConnectOptions::new(seeds[..1].to_vec())).await;
    let key = format!("{}k:{{{TAG}}}", foreign_prefix());
    command(&seeds[0], &["SET", &key, "v"]).await;
    let key = key.as_str();
    let read = nodes.read(SLOT, WAIT, |client| async move { client.hlen::<u64, _>(key).await });
    let error = read.await.unwrap_err();
    assert_eq!(error.disposition(), Disposition::Poison, "{error:?}");
    assert!(error.to_string().starts_with("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn a_cut_connection_costs_a_read_no_more_than_a_moment() {
    let seeds = addresses(&shared_cluster().await);
    let proxy = Proxy::start(&seeds[0]).await;
    let nodes = nodes(through(&seeds[0], proxy.address())).await;
    let key = format!("{}k:{{{TAG}}}", foreign_prefix());
    command(&seeds[0], &["SET", &key, "v"]).await;
    for cut in [Cut::Fin, Cut::Reset] {
        get(&nodes, &key).await.expect("an answer");
        proxy.cut(cut);
        let begun = Instant::now();
        assert_eq!(get(&nodes, &key).await.expect("an answer").as_deref(), Some("v"));
        assert!(begun.elapsed() < Duration::from_secs(2), "{cut:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_silent_node_bounds_a_read_by_its_deadline() {
    let seeds = addresses(&shared_cluster().await);
    let proxy = Proxy::start(&seeds[0]).await;
    let nodes = nodes(through(&seeds[0], proxy.address())).await;
    get(&nodes, "k:{b}").await.expect("an answer");
    proxy.stall();
    let deadline = Duration::from_millis(500);
    let begun = Instant::now();
    let read = nodes.read(SLOT, deadline, |client| async move { client.get::<Option<String>, _>("k:{b}").await });
    let error = read.await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    proxy.pass();
    get(&nodes, "k:{b}").await.expect("an answer, once the network is back");
}

#[tokio::test]
async fn a_dead_node_and_wrong_credentials_are_quick_errors() {
    let mut server = Single::start(&["--port", "{port}", "--requirepass", "secret"], &[], |_| with("secret")).await;
    let client = async |options: ConnectOptions| {
        let nodes = Nodes::new(Arc::new(Topology::new(Arc::new(options))));
        nodes.client(server.address()).await.map(|_| ())
    };
    let refused = client(with("wrong")).await.unwrap_err();
    assert_eq!(refused.disposition(), Disposition::Fatal, "{refused:?}");
    client(with("secret")).await.expect("a client");
    let address = server.address().clone();
    server.kill();
    let nodes = Nodes::new(Arc::new(Topology::new(Arc::new(with("secret")))));
    let begun = Instant::now();
    let dead = nodes.client(&address).await.unwrap_err();
    assert!(matches!(dead, Error::Connect { .. }), "{dead:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

fn with(password: &str) -> ConnectOptions {
    ConnectOptions { password: Some(password.to_owned()), ..ConnectOptions::default() }
}

#[tokio::test]
async fn clients_are_shared_and_close_with_their_registry() {
    let server = Single::plain().await;
    let proxy = Proxy::start(server.address()).await;
    let options = through(server.address(), proxy.address());
    let nodes = Nodes::new(Arc::new(Topology::new(Arc::new(options))));
    for _ in 0..10 {
        let client = nodes.client(server.address()).await.expect("a client");
        client.ping::<String>(None).await.expect("an answer");
    }
    assert_eq!(proxy.accepted(), 1);
    drop(nodes);
    proxy.open(0).await;
}

#[tokio::test]
async fn cluster_own_reads_go_on_after_the_owner_was_killed() {
    let mut cluster = own_cluster(Options::default()).await;
    let seeds = addresses(&cluster);
    let nodes = nodes(ConnectOptions::new(seeds.clone())).await;
    redis_cli(&cluster, 0, &["SET", "k:{b}", "v"]).await;
    redis_cli(&cluster, 0, &["WAIT", "1", "1000"]).await;
    assert_eq!(get(&nodes, "k:{b}").await.expect("an answer").as_deref(), Some("v"));
    cluster.kill(0).expect("a kill");
    let value = get(&nodes, "k:{b}").await.expect("an answer from the new owner");
    assert_eq!(value.as_deref(), Some("v"));
    let owner: NodeAddress = nodes.topology().node_of(SLOT).expect("an owner").address.clone();
    assert_eq!(owner, seeds[3]);
    eventually(WAIT, "the last slot had an owner", async || nodes.topology().node_of(SLOTS - 1).ok()).await;
}
