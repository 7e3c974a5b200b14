//! The stored layout, and what is checked before a worker starts.

use heyday::error::Disposition;
use heyday::key::Keys;
use heyday::local::Options;
use heyday::redis::layout::{create_layout, read_layout};
use heyday::redis::preflight::preflight;
use heyday::redis::{Link, Topology};
use heyday::shard::Layout;

use super::{command, topology};
use crate::support::cluster::{own_cluster, redis_cli, shared_cluster, unique_prefix};

async fn set(topology: &Topology, keys: &Keys, field: &str, value: &str) {
    let key = keys.layout();
    let node = topology.node_of(key.slot()).expect("an owner");
    let mut link = Link::connect(&node.address, topology.options()).await.expect("a connection");
    command(&mut link, &["HSET", key.as_str(), field, value]).await.checked().expect("HSET");
}

#[tokio::test]
async fn a_layout_is_created_once_whoever_comes_first() {
    let topology = topology(&shared_cluster().await).await;
    let keys = Keys::new(&unique_prefix()).unwrap();
    let missing = read_layout(&topology, &keys).await.unwrap_err();
    assert!(missing.to_string().contains("run `heyday init`"), "{missing}");
    assert_eq!(missing.disposition(), Disposition::Fatal);

    let all: Vec<_> = (0..8)
        .map(|_| {
            let (topology, keys) = (topology.clone(), keys.clone());
            tokio::spawn(async move { create_layout(&topology, &keys, 64).await.expect("a layout") })
        })
        .collect();
    let mut created = 0;
    for one in all {
        let (layout, first) = one.await.unwrap();
        assert_eq!(layout, Layout::new(64).unwrap());
        created += u32::from(first);
    }
    assert_eq!(created, 1);
    assert_eq!(read_layout(&topology, &keys).await.unwrap().count(), 64);
    let other = create_layout(&topology, &keys, 128).await.unwrap_err().to_string();
    assert!(other.contains("64 shards") && other.contains("not 128"), "{other}");
}

#[tokio::test]
async fn a_foreign_or_damaged_layout_is_told_apart() {
    let topology = topology(&shared_cluster().await).await;
    for (field, value, expected) in [
        ("format", "9", "layout format 9: this build reads format 1"),
        ("shards", "x", "is damaged: shards is \"x\""),
        ("shards", "5", "expected a power of two"),
        ("shards", "16", "the stored tag of shard"),
        ("tags", "x", "is damaged: tags: "),
    ] {
        let keys = Keys::new(&unique_prefix()).unwrap();
        create_layout(&topology, &keys, 8).await.unwrap();
        set(&topology, &keys, field, value).await;
        let error = read_layout(&topology, &keys).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{field} {value:?}: {error}");
    }
    let keys = Keys::new(&unique_prefix()).unwrap();
    set(&topology, &keys, "format", "1").await;
    let error = read_layout(&topology, &keys).await.unwrap_err().to_string();
    assert!(error.contains("shards is missing"), "{error}");
}

#[tokio::test]
async fn a_cluster_fit_for_streams_has_no_findings() {
    let topology = topology(&shared_cluster().await).await;
    assert_eq!(preflight(&topology).await, []);
}

#[tokio::test]
async fn cluster_own_unfit_nodes_are_named() {
    let mut cluster = own_cluster(Options {
        config_lines: vec!["maxmemory-policy allkeys-lru".to_owned(), "appendonly no".to_owned()],
        ..Options::default()
    })
    .await;
    let topology = topology(&cluster).await;
    cluster.kill(2).expect("kill");
    let findings = preflight(&topology).await;
    let found: Vec<_> = findings.iter().map(|found| (found.what, found.advice)).collect();
    let unfit = [("maxmemory_policy", false), ("aof_enabled", false)];
    let silent = [("its answer", true)];
    assert_eq!(found, [&unfit[..], &unfit, &silent, &unfit, &unfit, &unfit].concat());
    assert!(findings[0].to_string().contains("allkeys-lru, expected noeviction"), "{}", findings[0]);
}

#[tokio::test]
async fn cluster_own_a_replica_is_looked_at_and_missed_only_where_it_is_needed() {
    let mut cluster = own_cluster(Options::default()).await;
    let topology = topology(&cluster).await;
    let first = cluster.port_first();
    let found = async || -> Vec<(u16, &'static str, bool)> {
        let findings = preflight(&topology).await;
        findings.iter().map(|found| (found.node.port - first, found.what, found.advice)).collect()
    };
    redis_cli(&cluster, 4, &["CONFIG", "SET", "appendonly", "no"]).await;
    assert_eq!(found().await, [(4, "aof_enabled", false)]);
    redis_cli(&cluster, 4, &["CONFIG", "SET", "appendonly", "yes"]).await;
    assert_eq!(found().await, []);
    for gone in [5, 2] {
        cluster.kill(gone).expect("kill");
    }
    assert_eq!(found().await, [(2, "its answer", true), (5, "its answer", true)], "the other shards need workers");
}
