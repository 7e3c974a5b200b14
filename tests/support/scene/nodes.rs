//! What tests do to the nodes of a cluster of their own, and how they see it done.

use std::time::Duration;

use heyday::local::{LocalCluster, Nodes};
use heyday::shard::Shard;
use tokio::time::timeout;

use super::super::cluster::redis_cli;
use super::super::eventually;
use super::Scene;

const WAIT: Duration = Duration::from_secs(30);

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
    let replaced = async {
        nodes.in_step(replica).await;
        nodes.promote(replica).await.expect("a replica that is asked to take over");
    };
    timeout(WAIT, replaced).await.expect("the replica became a primary by hand");
}

/// SIGKILL for a primary; returns when its replica has taken over.
pub async fn crash(cluster: &mut LocalCluster, primary: usize, replica: usize) {
    cluster.kill(primary).expect("SIGKILL");
    eventually(WAIT, "the replica of a killed primary took over", async || {
        cluster.is_primary(replica).await.then_some(())
    })
    .await;
}

/// Moves a slot with all its keys, while everybody goes on.
pub async fn move_slot(nodes: &Nodes, slot: u16, from: usize, to: usize) {
    nodes.move_slot(slot, from, to).await.expect("the slot moves");
}

/// How often a node has executed a command since it started or its statistics were reset.
pub async fn calls(nodes: &Nodes, index: usize, command: &str) -> u64 {
    let statistics = redis_cli(nodes, index, &["INFO", "commandstats"]).await;
    let beginning = format!("cmdstat_{command}:calls=");
    let line = statistics.lines().find_map(|line| line.strip_prefix(beginning.as_str()));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}
