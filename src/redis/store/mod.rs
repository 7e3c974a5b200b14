//! The store on a real cluster. [`RedisLink`] is one shard's connection; what is asked about many shards, or from beside
//! a shard's link, goes over one shared link per node.

#[cfg(feature = "testing")]
pub mod bare;
mod commit;
mod encode;
mod failure;
mod leases;
mod link;
mod load;
mod nodes;
mod outbox;
mod read;
mod roll;
mod scripts;
mod survey;
mod take;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{ConnectOptions, Error, Link, Node, Pipeline, Reply, Topology, maintenance};
use crate::key::{Key, Keys, ShardKeys};
use crate::lease::WorkerId;
use crate::position::EntryId;
use crate::shard::{Layout, Shard};
use crate::store::{self, Relay, Store};
use nodes::NodeLinks;
use scripts::{By, HEARTBEAT, LOOK, RELEASE, SHORTEN, Script};

pub use link::RedisLink;

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
    /// For what goes from shard to shard.
    relays: NodeLinks,
}

impl RedisStore {
    pub fn new(topology: Arc<Topology>, keys: Keys, layout: Layout) -> RedisStore {
        let (links, relays) = (NodeLinks::default(), NodeLinks::default());
        RedisStore { shared: Arc::new(Shared { topology, keys, layout, links, relays }) }
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

    /// The same for a script; its keys are all in one slot.
    async fn run(
        &self,
        asked: &'static str,
        script: &Script,
        keys: &[&Key],
        arguments: &[&str],
    ) -> Result<Answer<'_>, store::Error> {
        let slot = keys[0].slot();
        let mut pipeline = Pipeline::new();
        script.write(&mut pipeline, By::Name, keys, arguments);
        let answer = self.ask(asked, slot, &pipeline).await?;
        if !scripts::is_lost(&answer.reply) {
            return Ok(answer);
        }
        pipeline.clear();
        script.write(&mut pipeline, By::Body, keys, arguments);
        self.ask(asked, slot, &pipeline).await
    }

    fn owner(&self, asked: &str, slot: u16) -> Result<Arc<Node>, store::Error> {
        self.topology().node_of(slot).map_err(|error| store::Error {
            disposition: error.disposition(),
            reason: error.reason(),
            message: format!("{asked}: {error}"),
        })
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
        let answer = self.run("heartbeat", &HEARTBEAT, &[&key], &[worker.as_str(), &silent_max]).await?;
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

    async fn maintenance(&self, worker: &WorkerId, paused: bool) -> Result<store::Maintenance, store::Error> {
        let key = self.shared.keys.maintenance();
        let paused = if paused { "1" } else { "0" };
        let answer = self.run("maintenance", &LOOK, &[&key], &[worker.as_str(), paused]).await?;
        answer.read(maintenance::seen)
    }

    async fn holders(&self, shards: &[Shard]) -> Vec<Result<Option<WorkerId>, store::Error>> {
        let question = |keys: &ShardKeys, pipeline: &mut Pipeline| {
            pipeline.command("GET").arg(keys.lease.as_bytes());
        };
        let replies = self.ask_many("holder", shards, question).await;
        replies.into_iter().map(|reply| reply?.read(leases::holder)).collect()
    }

    async fn shorten(&self, leases: &[(Shard, WorkerId)], ttl: Duration) -> Vec<Result<bool, store::Error>> {
        let shards: Vec<Shard> = leases.iter().map(|(shard, _)| *shard).collect();
        let (holders, ttl): (BTreeMap<_, _>, _) = (leases.iter().cloned().collect(), ttl.as_millis().to_string());
        // It is rare, so it goes by its body: an answer that the node has lost it would come too late for the others.
        let question = move |keys: &ShardKeys, pipeline: &mut Pipeline| {
            SHORTEN.write(pipeline, By::Body, &[&keys.lease], &[holders[&keys.shard].as_str(), &ttl]);
        };
        let replies = self.ask_many("shorten", &shards, question).await;
        replies.into_iter().map(|reply| reply?.read(|reply| Ok(reply.as_i64()? == 1))).collect()
    }

    async fn release(&self, shard: Shard, worker: &WorkerId) -> Result<bool, store::Error> {
        let keys = self.shard_keys(shard);
        let answer = self.run("release", &RELEASE, &[&keys.lease, &keys.state], &[worker.as_str()]).await?;
        answer.read(|reply| Ok(reply.as_i64()? == 1))
    }

    async fn outbox(&self, shard: Shard, after: EntryId, count: usize) -> Result<Vec<Relay>, store::Error> {
        self.read_outbox(shard, after, count).await
    }

    async fn relay(&self, source: Shard, target: Shard, relays: &[Relay], replicas: u32) -> Result<(), store::Error> {
        self.append_relays(source, target, relays, replicas).await
    }

    async fn relayed(&self, shard: Shard, ids: &[EntryId]) -> Result<(), store::Error> {
        self.delete_relayed(shard, ids).await
    }
}
