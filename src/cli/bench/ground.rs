//! Where it is measured: a cluster of its own or a given one, and on it one field after the other, each with a layout under
//! a prefix of its own and empty at first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
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
use crate::redis::{ConnectOptions, NodeAddress, Pipeline, Pipes, Reply, Topology, escaped};
use crate::shard::Shard;

/// Commands of one node that are sent together while a field is prepared.
const APPENDS_MAX: usize = 1000;
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
    /// Tells this run's keys from those of any other, on whichever machine or in whichever container that runs.
    run: u64,
    /// Prefixes of the fields that are not cleared yet.
    left: std::sync::Mutex<BTreeSet<String>>,
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
        let (fields, run, left) = (AtomicU64::new(0), rand::random(), std::sync::Mutex::default());
        Ok(Ground { own, settings, config, options, topology, seed, servers, fields, run, left })
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
        let prefix = format!("{}bench-{}-{:016x}-{number}:", self.config.redis.prefix, std::process::id(), self.run);
        // Before it is there, so that nothing is left behind where only the answer is lost.
        self.left().insert(prefix.clone());
        let (_, created) = create_layout(&self.topology, &Keys::new(&prefix)?, shards).await?;
        if !created {
            self.left().remove(&prefix);
            bail!("somebody else has a layout under {prefix}");
        }
        Field::connect(&self.options, &prefix).await
    }

    /// Takes away all that a field holds.
    pub async fn clear(&self, field: Field) -> anyhow::Result<()> {
        if self.own.is_some() {
            self.flush().await?;
            return self.rewrite().await;
        }
        let prefix = field.hub.keys().prefix();
        sweep(field.hub.topology(), &field.pipes, prefix).await?;
        self.left().remove(prefix);
        Ok(())
    }

    /// Takes away what fields hold that were given up before they were cleared; says on stderr what stays.
    pub async fn clear_left(&self) {
        let left = self.left().clone();
        if left.is_empty() {
            return;
        }
        if self.own.is_some() {
            if let Err(error) = self.flush().await {
                eprintln!("heyday bench: what is left over cannot be cleared: {error:#}");
            }
            return;
        }
        let pipes = Pipes::new(Arc::new(self.options.clone()));
        for prefix in left {
            match sweep(&self.topology, &pipes, &prefix).await {
                Ok(()) => drop(self.left().remove(&prefix)),
                Err(error) => eprintln!("heyday bench: keys under {prefix} stay, they cannot be cleared: {error:#}"),
            }
        }
    }

    /// Empties servers of its own.
    async fn flush(&self) -> anyhow::Result<()> {
        self.servers.lock().await.primaries(&["FLUSHALL", "SYNC"]).await?;
        self.left().clear();
        Ok(())
    }

    fn left(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.servers.lock().await.settled().await
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
        let (_, created) = create_layout(topology, &Keys::new(prefix)?, shards).await?;
        ensure!(created, "somebody else has a layout under the prefix {prefix:?}");
        Field::connect(options, prefix).await
    }

    async fn connect(options: &ConnectOptions, prefix: &str) -> anyhow::Result<Field> {
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
        submit(&self.pipes, node, pipeline).await
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
}

async fn submit(pipes: &Pipes, node: &NodeAddress, pipeline: Pipeline) -> anyhow::Result<Vec<Reply>> {
    let replies = pipes.get(node).await?.submit(pipeline).await?;
    replies.into_iter().map(|reply| Ok(reply.checked()?)).collect()
}

/// Takes away all keys under a prefix, on all nodes that are primaries now.
async fn sweep(topology: &Topology, pipes: &Pipes, prefix: &str) -> anyhow::Result<()> {
    const SCANNED: &str = "1000";
    topology.refresh().await?;
    let pattern = format!("{}*", escaped(prefix));
    for node in topology.primaries() {
        let node = &node.address;
        let mut cursor = "0".to_owned();
        loop {
            let mut question = Pipeline::new();
            question.push(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", SCANNED]);
            let replies = submit(pipes, node, question).await?;
            let [next, keys] = replies.first().context("no answer to SCAN")?.as_array()? else {
                bail!("an answer to SCAN that has no cursor and keys");
            };
            cursor = next.to_str()?.to_owned();
            let mut removal = Pipeline::new();
            for key in keys.as_array()? {
                removal.command("UNLINK").arg(key.as_bytes()?);
            }
            submit(pipes, node, removal).await?;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(())
}
