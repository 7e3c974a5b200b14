//! What the client's tests share: a layout, a hub, commands to the owner of a slot, and moving a slot.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::client::{self, Hub};
use heyday::local::Nodes;
use heyday::redis::{ConnectOptions, Link, NodeAddress, Pipeline, Reply};
use heyday::shard::{Layout, Shard, slot_of};

use crate::support::cluster::{redis_cli, unique_prefix};
use crate::support::eventually;
use crate::support::proxy::Proxy;

/// How long anything in these tests may take that takes no time when all is well.
pub const WAIT: Duration = Duration::from_secs(30);

/// A layout of its own on a cluster, and a client for it.
pub struct Ground {
    pub nodes: Nodes,
    pub prefix: String,
    pub layout: Layout,
    pub hub: Hub,
}

impl Ground {
    pub async fn new(nodes: &Nodes, shards: u32) -> Ground {
        let prefix = unique_prefix();
        let layout = Layout::new(shards).unwrap();
        create_layout(nodes, &prefix, &layout).await;
        let hub = connect(nodes, &prefix, BTreeMap::new()).await;
        Ground { nodes: nodes.clone(), prefix, layout, hub }
    }

    /// The same with a proxy between the client and the node that owns the shard.
    pub async fn with_proxy(nodes: &Nodes, shards: u32, proxied: Shard) -> (Ground, Proxy) {
        let mut ground = Ground::new(nodes, shards).await;
        let proxy = ground.put_proxy(proxied).await;
        (ground, proxy)
    }

    /// Puts one there from now on.
    pub async fn put_proxy(&mut self, proxied: Shard) -> Proxy {
        let owner = self.owner(proxied);
        let proxy = Proxy::start(&owner).await;
        let map = BTreeMap::from([(owner, proxy.address().clone())]);
        self.hub = connect(&self.nodes, &self.prefix, map).await;
        proxy
    }

    pub fn owner(&self, shard: Shard) -> NodeAddress {
        self.hub.topology().node_of(self.layout.slot(shard)).unwrap().address.clone()
    }

    /// The position of a node among the six.
    pub fn index_of(&self, node: &NodeAddress) -> usize {
        usize::from(node.port - self.nodes.port_first())
    }

    /// Commands to whoever owns the shard now, as somebody without this library sends them.
    pub async fn ask(&self, shard: Shard, pipeline: &Pipeline) -> Vec<Reply> {
        ask_owner(&self.nodes, self.layout.slot(shard), pipeline).await
    }

    pub async fn ask_one<W: AsRef<[u8]>>(&self, shard: Shard, words: &[W]) -> Reply {
        let mut pipeline = Pipeline::new();
        pipeline.push(words);
        self.ask(shard, &pipeline).await.pop().unwrap()
    }

    /// One field of each entry of the shard's stream, in order; empty where an entry lacks it.
    pub async fn appended(&self, shard: Shard, field: &str) -> Vec<String> {
        let keys = self.hub.shard_keys(shard);
        let entries = self.ask_one(shard, &["XRANGE", keys.changes.as_str(), "-", "+"]).await;
        let value = |entry: &Reply| {
            let mut pairs = entry.as_array().unwrap()[1].as_pairs().unwrap();
            let found = pairs.find(|(name, _)| name.to_str().unwrap() == field);
            found.map_or_else(String::new, |(_, value)| value.to_str().unwrap().to_owned())
        };
        entries.as_array().unwrap().iter().map(value).collect()
    }

    /// A user whose shard this is; another one for each number.
    pub fn user(&self, shard: Shard, number: usize) -> heyday::change::UserId {
        let users = (0..).map(|index: u32| format!("u{index}").parse().unwrap());
        users.filter(|user| self.layout.shard_of(user) == shard).nth(number).unwrap()
    }
}

pub fn seeds(nodes: &Nodes) -> Vec<NodeAddress> {
    nodes.nodes().iter().map(|(host, port)| NodeAddress::new(host.as_str(), *port)).collect()
}

async fn connect(nodes: &Nodes, prefix: &str, address_map: BTreeMap<NodeAddress, NodeAddress>) -> Hub {
    let options = ConnectOptions {
        client_name: Some(format!("client-{}", prefix.trim_end_matches(':'))),
        address_map,
        ..ConnectOptions::new(seeds(nodes))
    };
    client::connect(options, prefix).await.expect("a client")
}

async fn create_layout(nodes: &Nodes, prefix: &str, layout: &Layout) {
    let key = heyday::key::Keys::new(prefix).unwrap().layout();
    let mut pipeline = Pipeline::new();
    let mut command = pipeline.command("HSET");
    command.arg(key.as_bytes()).arg("shards").arg_u64(u64::from(layout.count())).arg("format").arg("1");
    command.arg("created_at").arg("1").arg("tags").arg(rmp_serde::to_vec(&layout.tags()).unwrap());
    drop(command);
    ask_owner(nodes, slot_of(key.as_bytes()), &pipeline).await;
}

/// Finds the owner by asking; the test ends where nobody takes the commands.
async fn ask_owner(nodes: &Nodes, slot: u16, pipeline: &Pipeline) -> Vec<Reply> {
    let never = format!("a node took commands for slot {slot}");
    eventually(WAIT, &never, async || {
        for node in seeds(nodes) {
            let Ok(mut link) = Link::connect(&node, &ConnectOptions::default()).await else {
                continue;
            };
            match link.request(pipeline, Duration::from_secs(2)).await {
                Ok(replies) if replies.iter().all(|reply| reply.error().is_none()) => return Some(replies),
                _ => {}
            }
        }
        None
    })
    .await
}

/// Puts a slot under way from one node to another: new keys go to the target, those there are stay until moved.
pub async fn begin_move(ground: &Ground, shard: Shard, target: usize) {
    put_under_way(ground, shard, (ground.index_of(&ground.owner(shard)), target)).await;
}

/// The same where the owner may have changed without the ground's client having learnt of it.
pub async fn put_under_way(ground: &Ground, shard: Shard, (source, target): (usize, usize)) {
    let slot = ground.layout.slot(shard).to_string();
    let id = async |index| redis_cli(&ground.nodes, index, &["CLUSTER", "MYID"]).await;
    let (source_id, target_id) = (id(source).await, id(target).await);
    redis_cli(&ground.nodes, target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
    redis_cli(&ground.nodes, source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
}

/// Moves keys of a slot under way.
pub async fn move_keys(ground: &Ground, source: usize, target: usize, keys: &[&str]) {
    let port = (ground.nodes.port_first() + target as u16).to_string();
    let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS"];
    words.extend(keys);
    redis_cli(&ground.nodes, source, &words).await;
}

/// Moves all that is left and gives the slot to the target.
pub async fn end_move(ground: &Ground, shard: Shard, source: usize, target: usize) {
    let slot = ground.layout.slot(shard).to_string();
    let listed = redis_cli(&ground.nodes, source, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
    let keys: Vec<&str> = listed.lines().filter(|key| !key.is_empty()).collect();
    if !keys.is_empty() {
        move_keys(ground, source, target, &keys).await;
    }
    let id = redis_cli(&ground.nodes, target, &["CLUSTER", "MYID"]).await;
    for node in [target, source] {
        redis_cli(&ground.nodes, node, &["CLUSTER", "SETSLOT", &slot, "NODE", &id]).await;
    }
}

/// A primary that is not the owner of this shard.
pub fn other_primary(ground: &Ground, shard: Shard) -> usize {
    (ground.index_of(&ground.owner(shard)) + 1) % 3
}

/// Makes a replica the primary in agreement with the present one. Soon after another failover the nodes may not be ready for
/// it, and Redis gives the attempt up without a word: then it is asked again.
pub async fn fail_over(nodes: &Nodes, replica: usize) {
    const ATTEMPT: Duration = Duration::from_secs(2);
    eventually(WAIT, "the replica became primary", async || {
        let _ = nodes.cli(replica, &["CLUSTER", "FAILOVER"]).await;
        let promoted = eventually(WAIT, "the replica called itself primary", async || {
            nodes.cli(replica, &["ROLE"]).await.ok()?.starts_with("master").then_some(())
        });
        tokio::time::timeout(ATTEMPT, promoted).await.ok()
    })
    .await;
}
