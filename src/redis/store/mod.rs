//! The store on a real cluster. [`RedisLink`] is one shard's connection; what is asked about many shards, or from beside
//! a shard's link, goes over one shared link per node.

mod commit;
mod encode;
mod failure;
mod link;
mod load;
mod nodes;
mod read;
mod scripts;
mod take;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{ConnectOptions, Error, Link, Node, Pipeline, Reply, Topology};
use crate::key::{Key, Keys, ShardKeys};
use crate::lease::WorkerId;
use crate::shard::{Layout, Shard};
use crate::store::{self, Store};
use crate::task;
use nodes::NodeLinks;
use scripts::{By, HEARTBEAT, RELEASE, Script};

pub use link::RedisLink;

/// How long the answers of other nodes wait for one that is silent. Its shards are asked for again with the next round.
const HOLDERS_WAIT: Duration = Duration::from_millis(500);

/// Shards on a Redis Cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    topology: Arc<Topology>,
    keys: Keys,
    layout: Layout,
    links: NodeLinks,
}

impl RedisStore {
    pub fn new(topology: Arc<Topology>, keys: Keys, layout: Layout) -> RedisStore {
        RedisStore { shared: Arc::new(Shared { topology, keys, layout, links: NodeLinks::default() }) }
    }

    pub fn topology(&self) -> &Arc<Topology> {
        &self.shared.topology
    }

    fn options(&self) -> &ConnectOptions {
        self.shared.topology.options()
    }

    fn shard_keys(&self, shard: Shard) -> ShardKeys {
        self.shared.keys.shard(&self.shared.layout, shard)
    }

    /// One command to the owner of `slot` over the node's shared link.
    async fn ask(&self, asked: &'static str, slot: u16, pipeline: &Pipeline) -> Result<Answer<'_>, store::Error> {
        let node = self.owner(asked, slot)?;
        let sent = self.shared.links.request(&node.address, self.options(), pipeline).await;
        let reply = sent.and_then(|mut replies| replies.pop().ok_or_else(|| Error::protocol("an answer", "none")));
        match reply {
            Ok(reply) => Ok(Answer { store: self, node, asked, reply }),
            Err(error) => Err(failure::tell(self.topology(), &node.address, asked, &error)),
        }
    }

    /// The same for a script of one key.
    async fn run(
        &self,
        asked: &'static str,
        script: &Script,
        key: &Key,
        arguments: &[&str],
    ) -> Result<Answer<'_>, store::Error> {
        let slot = key.slot();
        let mut pipeline = Pipeline::new();
        script.write(&mut pipeline, By::Name, &[key], arguments);
        let answer = self.ask(asked, slot, &pipeline).await?;
        if !scripts::is_lost(&answer.reply) {
            return Ok(answer);
        }
        pipeline.clear();
        script.write(&mut pipeline, By::Body, &[key], arguments);
        self.ask(asked, slot, &pipeline).await
    }

    fn owner(&self, asked: &str, slot: u16) -> Result<Arc<Node>, store::Error> {
        self.topology().node_of(slot).map_err(|error| store::Error {
            disposition: error.disposition(),
            reason: error.reason(),
            message: format!("{asked}: {error}"),
        })
    }

    /// The holders of leases that one node owns.
    async fn holders_at(&self, node: &Node, leases: &[Key]) -> Vec<Result<Option<WorkerId>, store::Error>> {
        let mut pipeline = Pipeline::new();
        for lease in leases {
            pipeline.command("GET").arg(lease.as_bytes());
        }
        let tell = |lease: &Key, error: &Error| {
            failure::tell(self.topology(), &node.address, format_args!("holder of {lease}"), error)
        };
        match self.shared.links.request(&node.address, self.options(), &pipeline).await {
            Ok(replies) => {
                let answers = leases.iter().zip(&replies);
                answers.map(|(lease, reply)| holder(reply).map_err(|error| tell(lease, &error))).collect()
            }
            Err(error) => leases.iter().map(|lease| Err(tell(lease, &error))).collect(),
        }
    }
}

/// What a node answered, and whom to name where that makes no sense.
struct Answer<'a> {
    store: &'a RedisStore,
    node: Arc<Node>,
    asked: &'static str,
    reply: Reply,
}

impl Answer<'_> {
    fn read<T>(&self, read: impl FnOnce(&Reply) -> Result<T, Error>) -> Result<T, store::Error> {
        let tell = |error| failure::tell(self.store.topology(), &self.node.address, self.asked, &error);
        read(&self.reply).map_err(tell)
    }
}

impl Store for RedisStore {
    type Link = RedisLink;

    async fn connect(&self, shard: Shard) -> Result<RedisLink, store::Error> {
        let keys = self.shard_keys(shard);
        let node = self.owner("connect", keys.slot)?;
        match Link::connect(&node.address, self.options()).await {
            Ok(link) => Ok(RedisLink::new(self.topology().clone(), keys, link)),
            Err(error) => Err(failure::tell(self.topology(), &node.address, "connect", &error)),
        }
    }

    async fn refresh(&self) {
        // Whoever connects next meets the same trouble and tells of it.
        if let Err(error) = self.topology().refresh().await {
            tracing::debug!(%error, "the topology was not refreshed");
        }
    }

    async fn heartbeat(&self, worker: &WorkerId, silent_max: Duration) -> Result<Vec<WorkerId>, store::Error> {
        let key = self.shared.keys.workers();
        let silent_max = silent_max.as_millis().to_string();
        let answer = self.run("heartbeat", &HEARTBEAT, &key, &[worker.as_str(), &silent_max]).await?;
        // What is no worker's id was not written by a worker.
        let living = |worker: &Reply| worker.to_str().ok()?.parse().ok();
        answer.read(|reply| Ok(reply.as_array()?.iter().filter_map(living).collect()))
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), store::Error> {
        let key = self.shared.keys.workers();
        let mut pipeline = Pipeline::new();
        pipeline.push(&["ZREM", key.as_str(), worker.as_str()]);
        self.ask("leave", key.slot(), &pipeline).await?.read(|reply| reply.as_i64().map(drop))
    }

    async fn holders(&self, shards: &[Shard]) -> Vec<Result<Option<WorkerId>, store::Error>> {
        let mut answers: Vec<_> = Vec::with_capacity(shards.len());
        let mut asked: BTreeMap<_, (Arc<Node>, Vec<usize>, Vec<Key>)> = BTreeMap::new();
        for (at, shard) in shards.iter().enumerate() {
            let keys = self.shard_keys(*shard);
            answers.push(Err(lost(&keys.lease)));
            match self.owner("holders", keys.slot) {
                Ok(node) => {
                    let at_node = asked.entry(node.address.clone()).or_insert_with(|| (node, Vec::new(), Vec::new()));
                    at_node.1.push(at);
                    at_node.2.push(keys.lease);
                }
                Err(unowned) => answers[at] = Err(unowned),
            }
        }
        // All nodes at once, so that one that is down delays no answer about the others' shards.
        let asked: Vec<_> = asked
            .into_values()
            .map(|(node, places, leases)| {
                let store = self.clone();
                (places, task::spawn("holders", async move { store.holders_at(&node, &leases).await }))
            })
            .collect();
        let until = Instant::now() + HOLDERS_WAIT;
        for (places, answer) in asked {
            // A task that is left behind ends by the timeouts of its link.
            let answer = timeout_at(until, answer).await.ok().and_then(Result::ok).unwrap_or_default();
            for (at, answer) in places.into_iter().zip(answer) {
                answers[at] = answer;
            }
        }
        answers
    }

    async fn release(&self, shard: Shard, worker: &WorkerId) -> Result<bool, store::Error> {
        let lease = self.shard_keys(shard).lease;
        let answer = self.run("release", &RELEASE, &lease, &[worker.as_str()]).await?;
        answer.read(|reply| Ok(reply.as_i64()? == 1))
    }
}

fn holder(reply: &Reply) -> Result<Option<WorkerId>, Error> {
    let Some(bytes) = reply.as_bytes_or_null()? else {
        return Ok(None);
    };
    let id = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| Error::protocol("a worker id", format!("{:?}", String::from_utf8_lossy(bytes))))
}

/// A shard that nobody answered for in time.
fn lost(lease: &Key) -> store::Error {
    store::Error {
        disposition: crate::error::Disposition::Retry,
        reason: "no_answer",
        message: format!("holder of {lease}: no answer"),
    }
}
