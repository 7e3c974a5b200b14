//! What tests do to the nodes of a cluster of their own, and how they see it done.

use std::time::{Duration, Instant};

use heyday::local::{LocalCluster, Nodes};
use heyday::shard::Shard;

use super::super::cluster::redis_cli;
use super::super::eventually;
use super::Scene;

const WAIT: Duration = Duration::from_secs(30);
/// A manual failover that did not come about is given up by the server after 5 s.
const FAILOVER_WAIT: Duration = Duration::from_secs(6);
/// Keys moved at once.
const KEYS_MOVED_MAX: &str = "100";

impl Scene {
    /// The node that owns a shard's slot, by its index.
    pub async fn node_of(&self, shard: Shard) -> usize {
        let topology = self.topology().await.expect("a cluster that answers");
        let port = topology.node_of(self.shard_keys(shard).slot).expect("an owner").address.port;
        usize::from(port - self.nodes.port_first())
    }
}

/// Makes a replica the primary, by hand and without loss.
pub async fn fail_over(nodes: &Nodes, replica: usize) {
    eventually(WAIT, "the replica was in step", async || {
        let replication = nodes.cli(replica, &["INFO", "replication"]).await.ok()?;
        replication.contains("master_link_status:up").then_some(())
    })
    .await;
    let mut asked: Option<Instant> = None;
    eventually(WAIT, "the replica became a primary by hand", async || {
        if is_primary(nodes, replica).await {
            return Some(());
        }
        if asked.is_none_or(|asked| asked.elapsed() > FAILOVER_WAIT) {
            redis_cli(nodes, replica, &["CLUSTER", "FAILOVER"]).await;
            asked = Some(Instant::now());
        }
        None
    })
    .await;
}

/// SIGKILL for a primary; returns when its replica has taken over.
pub async fn crash(cluster: &mut LocalCluster, primary: usize, replica: usize) {
    cluster.kill(primary).expect("SIGKILL");
    eventually(WAIT, "the replica of a killed primary took over", async || {
        is_primary(cluster, replica).await.then_some(())
    })
    .await;
}

async fn is_primary(nodes: &Nodes, index: usize) -> bool {
    nodes.cli(index, &["ROLE"]).await.is_ok_and(|role| role.starts_with("master"))
}

/// Moves a slot with all its keys, while everybody goes on.
pub async fn move_slot(nodes: &Nodes, slot: u16, from: usize, to: usize) {
    let slot = slot.to_string();
    let (from_id, to_id) =
        (redis_cli(nodes, from, &["CLUSTER", "MYID"]).await, redis_cli(nodes, to, &["CLUSTER", "MYID"]).await);
    redis_cli(nodes, to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    redis_cli(nodes, from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
    let (host, port) = nodes.nodes()[to].clone();
    let port = port.to_string();
    loop {
        let keys = redis_cli(nodes, from, &["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_MOVED_MAX]).await;
        let keys: Vec<&str> = keys.lines().collect();
        if keys.is_empty() {
            break;
        }
        let command = ["MIGRATE", &host, &port, "", "0", "5000", "REPLACE", "KEYS"];
        redis_cli(nodes, from, &[&command[..], &keys].concat()).await;
    }
    // The new owner first, so that at no moment nobody owns it.
    redis_cli(nodes, to, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    redis_cli(nodes, from, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
}

/// How often a node has executed a command since it started or its statistics were reset.
pub async fn calls(nodes: &Nodes, index: usize, command: &str) -> u64 {
    let statistics = redis_cli(nodes, index, &["INFO", "commandstats"]).await;
    let beginning = format!("cmdstat_{command}:calls=");
    let line = statistics.lines().find_map(|line| line.strip_prefix(beginning.as_str()));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}
