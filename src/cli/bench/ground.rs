//! Where it is measured: a cluster of its own or a given one, and on it one field after the other, each with a layout under
//! a prefix of its own and empty at first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::servers::{NodeUse, Servers};
use crate::change::Change;
use crate::cli::Context;
use crate::client::{self, Hub};
use crate::config::{Config, Settings};
use crate::key::Keys;
use crate::local::{LocalCluster, Options};
use crate::position::EntryId;
use crate::redis::layout::create_layout;
use crate::redis::{ConnectOptions, NodeAddress, Pipeline, Pipes, Reply, Topology};
use crate::shard::Shard;

/// Commands of one node that are sent together while a field is prepared.
const APPENDS_MAX: usize = 1000;
/// How long replicas may take to have all that was prepared.
const REPLICAS_WAIT_MILLISECONDS: &str = "30000";
/// A file of appended commands that is rewritten halfway through would be measured with whoever's turn it is.
const NO_REWRITE: &str = "auto-aof-rewrite-percentage 0";
/// A machine that is measured is busy: a node that waits its turn must not pass for a dead one. What faults cost is measured on
/// servers with the usual patience.
const PATIENT_NODES: &str = "cluster-node-timeout 15000";

/// A cluster to measure on.
pub struct Ground {
    own: Option<LocalCluster>,
    /// What worker processes must be told too.
    pub settings: Settings,
    pub config: Config,
    pub options: ConnectOptions,
    pub topology: Arc<Topology>,
    pub seed: u64,
    servers: Mutex<Servers>,
    fields: AtomicU64,
}

/// A layout of its own.
pub struct Field {
    pub hub: Hub,
    pipes: Pipes,
}

impl Ground {
    /// On the cluster of the settings where that is `given`, else on six servers that live as long as this does.
    pub async fn open(context: &Context, given: bool, seed: u64) -> anyhow::Result<Ground> {
        let settings = context.settings.clone();
        let config = settings.config.clone();
        let (own, options) = if given {
            (None, config.redis.connect_options()?)
        } else {
            let lines = vec![NO_REWRITE.to_owned(), PATIENT_NODES.to_owned()];
            let cluster = LocalCluster::start(Options { config_lines: lines, ..Options::default() }).await?;
            let seeds = cluster.nodes().into_iter().map(|(host, port)| NodeAddress::new(host, port)).collect();
            (Some(cluster), ConnectOptions::new(seeds))
        };
        let topology = Arc::new(Topology::connect(Arc::new(options.clone())).await?);
        let servers = Mutex::new(Servers::connect(&topology).await?);
        Ok(Ground { own, settings, config, options, topology, seed, servers, fields: AtomicU64::new(0) })
    }

    /// Whether the servers are the bench's own.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Name and version of the servers, as the first one says.
    pub async fn server_version(&self) -> anyhow::Result<String> {
        self.servers.lock().await.version().await
    }

    /// What every node has counted so far.
    pub async fn look(&self) -> anyhow::Result<Vec<NodeUse>> {
        self.servers.lock().await.look().await
    }

    /// An empty field of so many shards.
    pub async fn field(&self, shards: u32) -> anyhow::Result<Field> {
        let number = self.fields.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{}bench-{}-{number}:", self.config.redis.prefix, std::process::id());
        Field::create(&self.topology, &self.options, &prefix, shards).await
    }

    /// Takes away all that a field holds.
    pub async fn clear(&self, field: Field) -> anyhow::Result<()> {
        if self.own.is_some() {
            self.servers.lock().await.primaries(&["FLUSHALL", "SYNC"]).await?;
            return self.rewrite().await;
        }
        field.clear().await
    }

    /// With nothing in them, the files of appended commands are rewritten at once, and so do not grow from turn to turn.
    async fn rewrite(&self) -> anyhow::Result<()> {
        let mut servers = self.servers.lock().await;
        servers.every(&["BGREWRITEAOF"]).await?;
        let begun = Instant::now();
        while servers.rewriting().await? {
            ensure!(begun.elapsed() < Duration::from_secs(30), "the files of appended commands are not rewritten");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Another value for a setting of all servers, which must be this run's own.
    pub async fn configure(&self, name: &str, value: &str) -> anyhow::Result<()> {
        ensure!(self.is_own(), "a given cluster keeps its settings");
        self.servers.lock().await.every(&["CONFIG", "SET", name, value]).await
    }

    /// The present value of a setting.
    pub async fn setting(&self, name: &str) -> anyhow::Result<String> {
        self.servers.lock().await.setting(name).await
    }

    /// Bytes that the keys of all primaries take.
    pub async fn data_bytes(&self) -> anyhow::Result<f64> {
        let nodes = self.look().await?;
        Ok(nodes.iter().filter(|node| node.primary).map(|node| node.data_bytes).sum())
    }

    /// Returns once the replicas have all that was written so far.
    pub async fn settled(&self) -> anyhow::Result<()> {
        self.servers.lock().await.primaries(&["WAIT", "1", REPLICAS_WAIT_MILLISECONDS]).await
    }
}

impl Field {
    /// An empty layout under this prefix, on whichever cluster.
    pub async fn create(
        topology: &Topology,
        options: &ConnectOptions,
        prefix: &str,
        shards: u32,
    ) -> anyhow::Result<Field> {
        create_layout(topology, &Keys::new(prefix)?, shards).await?;
        let hub = client::connect(options.clone(), prefix).await?;
        // Loading millions of entries must not hang on how long one answer takes.
        let patient = ConnectOptions { reply_timeout: Duration::from_secs(60), ..options.clone() };
        Ok(Field { hub, pipes: Pipes::new(Arc::new(patient)) })
    }

    /// Appends each change to its shard's stream, in order; answers the ids, shard by shard.
    pub async fn append(&self, changes: &[Change]) -> anyhow::Result<BTreeMap<Shard, Vec<EntryId>>> {
        let mut waiting: BTreeMap<NodeAddress, (Pipeline, Vec<Shard>)> = BTreeMap::new();
        let mut ids: BTreeMap<Shard, Vec<EntryId>> = BTreeMap::new();
        for change in changes {
            let keys = self.hub.keys_of(&change.user);
            let address = self.hub.topology().node_of(keys.slot)?.address.clone();
            let (pipeline, shards) = waiting.entry(address.clone()).or_default();
            let mut command = pipeline.command("XADD");
            command.arg(keys.changes.as_bytes()).arg("*");
            for (name, value) in change.encode() {
                command.arg(name.as_bytes()).arg(value.as_bytes());
            }
            drop(command);
            shards.push(keys.shard);
            if shards.len() >= APPENDS_MAX {
                let (pipeline, shards) = std::mem::take(waiting.get_mut(&address).context("it was there")?);
                self.send(&address, pipeline, &shards, &mut ids).await?;
            }
        }
        for (address, (pipeline, shards)) in waiting {
            self.send(&address, pipeline, &shards, &mut ids).await?;
        }
        Ok(ids)
    }

    async fn send(
        &self,
        node: &NodeAddress,
        pipeline: Pipeline,
        shards: &[Shard],
        ids: &mut BTreeMap<Shard, Vec<EntryId>>,
    ) -> anyhow::Result<()> {
        for (reply, shard) in self.submit(node, pipeline).await?.into_iter().zip(shards) {
            let id = reply.to_str()?.parse().map_err(|_| anyhow::anyhow!("no entry id: {reply:?}"))?;
            ids.entry(*shard).or_default().push(id);
        }
        Ok(())
    }

    /// Commands to one node, for what is prepared or proven beside the measured part. An error reply is an error.
    pub async fn submit(&self, node: &NodeAddress, pipeline: Pipeline) -> anyhow::Result<Vec<Reply>> {
        let replies = self.pipes.get(node).await?.submit(pipeline).await?;
        replies.into_iter().map(|reply| Ok(reply.checked()?)).collect()
    }

    /// One command each, to the owner of its slot; the answers in the same order. An error reply is an error.
    pub async fn ask(&self, questions: &[(u16, Pipeline)]) -> anyhow::Result<Vec<Reply>> {
        let mut answers: Vec<Option<Reply>> = questions.iter().map(|_| None).collect();
        let mut waiting: BTreeMap<NodeAddress, (Pipeline, Vec<usize>)> = BTreeMap::new();
        for (at, (slot, command)) in questions.iter().enumerate() {
            let address = self.hub.topology().node_of(*slot)?.address.clone();
            let (pipeline, places) = waiting.entry(address).or_default();
            pipeline.append(command);
            places.push(at);
        }
        for (address, (pipeline, places)) in waiting {
            for (at, reply) in places.into_iter().zip(self.submit(&address, pipeline).await?) {
                answers[at] = Some(reply);
            }
        }
        answers.into_iter().map(|answer| answer.context("an answer to each command")).collect()
    }

    async fn clear(&self) -> anyhow::Result<()> {
        const SCANNED: &str = "1000";
        let pattern = format!("{}*", self.hub.keys().prefix());
        for node in self.hub.topology().primaries() {
            let node = &node.address;
            let mut cursor = "0".to_owned();
            loop {
                let mut question = Pipeline::new();
                question.push(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", SCANNED]);
                let replies = self.submit(node, question).await?;
                let [next, keys] = replies.first().context("no answer to SCAN")?.as_array()? else {
                    anyhow::bail!("an answer to SCAN that has no cursor and keys");
                };
                cursor = next.to_str()?.to_owned();
                let mut removal = Pipeline::new();
                for key in keys.as_array()? {
                    removal.command("UNLINK").arg(key.as_bytes()?);
                }
                self.submit(node, removal).await?;
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(())
    }
}
