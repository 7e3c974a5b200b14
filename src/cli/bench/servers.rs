//! What the servers themselves count: CPU, bytes and commands, node by node.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tokio::time::Instant;

use crate::redis::{ConnectOptions, Link, NodeAddress, Pipeline, Topology};

/// How long a node may take to say how it is.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// What empties a node may take longer.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the replicas of a node may take to have all that was written to it.
const REPLICAS_PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at how far they are.
const REPLICAS_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// One connection to every node of a cluster.
pub struct Servers {
    nodes: Vec<(NodeAddress, Link)>,
}

/// What one node has counted since it started, or between two looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeUse {
    pub node: String,
    pub primary: bool,
    /// User and system time of the whole process, its background threads included.
    pub cpu_seconds: f64,
    /// From and to clients.
    pub bytes_in: f64,
    pub bytes_out: f64,
    /// From a primary to its replicas, and their answers.
    pub bytes_replicated: f64,
    pub commands: f64,
    /// Calls by command.
    pub calls: BTreeMap<String, f64>,
    /// Microseconds that the same took to run, from the command's beginning to its end.
    pub busy: BTreeMap<String, f64>,
    pub memory_bytes: f64,
    /// Of these what keys take: without what connections, replication, and the file of appended commands hold back.
    pub data_bytes: f64,
    pub connections: f64,
}

impl Servers {
    pub async fn connect(topology: &Topology) -> anyhow::Result<Servers> {
        let mut nodes = Vec::new();
        for node in topology.all().iter() {
            nodes.push((node.address.clone(), open(&node.address, topology.options()).await?));
        }
        Ok(Servers { nodes })
    }

    /// What every node has counted so far.
    pub async fn look(&mut self) -> anyhow::Result<Vec<NodeUse>> {
        let mut question = Pipeline::new();
        question.push(&["INFO", "cpu", "clients", "stats", "replication", "memory", "commandstats"]);
        let mut found = Vec::new();
        for (address, link) in &mut self.nodes {
            let replies = link.request(&question, REPLY_TIMEOUT).await?;
            let text = replies.first().context("no answer to INFO")?.to_str()?;
            found.push(parse(&address.to_string(), text));
        }
        Ok(found)
    }

    /// Sends the same command to every node that is a primary now; an error reply is an error.
    pub async fn primaries(&mut self, words: &[&str]) -> anyhow::Result<()> {
        let seen = self.look().await?;
        self.send(words, |at| seen[at].primary).await
    }

    /// The same to every node.
    pub async fn every(&mut self, words: &[&str]) -> anyhow::Result<()> {
        self.send(words, |_| true).await
    }

    /// What the first node has for a setting.
    pub async fn setting(&mut self, name: &str) -> anyhow::Result<String> {
        let (_, link) = self.nodes.first_mut().context("a cluster without nodes")?;
        let mut question = Pipeline::new();
        question.push(&["CONFIG", "GET", name]);
        let replies = link.request(&question, REPLY_TIMEOUT).await?;
        let value = replies.first().context("no answer to CONFIG GET")?.as_array()?.get(1);
        Ok(value.with_context(|| format!("no setting {name}"))?.to_str()?.to_owned())
    }

    async fn send(&mut self, words: &[&str], wanted: impl Fn(usize) -> bool) -> anyhow::Result<()> {
        let mut command = Pipeline::new();
        command.push(words);
        let wanted = self.nodes.iter_mut().enumerate().filter(|(at, _)| wanted(*at));
        for (_, (address, link)) in wanted {
            for reply in link.request(&command, COMMAND_TIMEOUT).await? {
                reply.checked().with_context(|| format!("{address}: {}", words.join(" ")))?;
            }
        }
        Ok(())
    }

    /// Name and version, as the first node says.
    pub async fn version(&mut self) -> anyhow::Result<String> {
        let mut question = Pipeline::new();
        question.push(&["INFO", "server"]);
        let (_, link) = self.nodes.first_mut().context("a cluster without nodes")?;
        let replies = link.request(&question, REPLY_TIMEOUT).await?;
        let text = replies.first().context("no answer to INFO")?.to_str()?;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Ok(match (value("valkey_version:"), value("redis_version:")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, version) => format!("Redis {}", version.unwrap_or("of unknown version")),
        })
    }

    /// Returns once every replica has all that its primary had at the beginning. `WAIT` says nothing about what other
    /// connections wrote, and waits in vain where there are no replicas.
    pub async fn settled(&mut self) -> anyhow::Result<()> {
        let mut question = Pipeline::new();
        question.push(&["INFO", "replication"]);
        for (address, link) in &mut self.nodes {
            let (begun, mut wanted) = (Instant::now(), None);
            loop {
                let replies = link.request(&question, REPLY_TIMEOUT).await?;
                let seen = replication(replies.first().context("no answer to INFO")?.to_str()?);
                let wanted = *wanted.get_or_insert(seen.offset);
                if seen.replicas.iter().all(|offset| *offset >= wanted) {
                    break;
                }
                ensure!(begun.elapsed() < REPLICAS_PATIENCE, "the replicas of {address} do not catch up");
                tokio::time::sleep(REPLICAS_LOOK_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Whether a node still rewrites its file of appended commands.
    pub async fn rewriting(&mut self) -> anyhow::Result<bool> {
        let mut question = Pipeline::new();
        question.push(&["INFO", "persistence"]);
        for (_, link) in &mut self.nodes {
            let replies = link.request(&question, REPLY_TIMEOUT).await?;
            let text = replies.first().context("no answer to INFO")?.to_str()?;
            let under_way = |name: &str| text.lines().any(|line| line.trim() == format!("{name}:1"));
            if under_way("aof_rewrite_in_progress") || under_way("aof_rewrite_scheduled") {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How far a primary is, and its replicas; none for a replica.
#[derive(Debug, Default, PartialEq)]
struct Replication {
    offset: u64,
    replicas: Vec<u64>,
}

fn replication(text: &str) -> Replication {
    let mut found = Replication::default();
    let number = |text: &str| text.trim().parse().unwrap_or_default();
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        if name == "role" && value.trim() != "master" {
            return Replication::default();
        }
        if name == "master_repl_offset" {
            found.offset = number(value);
        }
        // slave0:ip=127.0.0.1,port=7001,state=online,offset=98,lag=0
        let place = name.strip_prefix("slave").and_then(|place| place.parse::<u32>().ok());
        if place.is_some() {
            let offset = value.split(',').find_map(|part| part.strip_prefix("offset="));
            found.replicas.push(offset.map_or(0, number));
        }
    }
    found
}

async fn open(address: &NodeAddress, options: &ConnectOptions) -> anyhow::Result<Link> {
    Ok(Link::connect(address, options).await?)
}

/// The difference of two looks, node by node; memory and connections are what there is at the second.
pub fn between(before: &[NodeUse], after: &[NodeUse]) -> Vec<NodeUse> {
    before.iter().zip(after).map(|(before, after)| after.since(before)).collect()
}

impl NodeUse {
    fn since(&self, before: &NodeUse) -> NodeUse {
        NodeUse {
            node: self.node.clone(),
            primary: self.primary,
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            bytes_in: self.bytes_in - before.bytes_in,
            bytes_out: self.bytes_out - before.bytes_out,
            bytes_replicated: self.bytes_replicated - before.bytes_replicated,
            commands: self.commands - before.commands,
            calls: since(&before.calls, &self.calls),
            busy: since(&before.busy, &self.busy),
            memory_bytes: self.memory_bytes,
            data_bytes: self.data_bytes,
            connections: self.connections,
        }
    }
}

fn since(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let differences = after.iter().map(|(name, value)| {
        let earlier = before.get(name).copied().unwrap_or_default();
        (name.clone(), value - earlier)
    });
    differences.filter(|(_, difference)| *difference > 0.0).collect()
}

fn parse(node: &str, text: &str) -> NodeUse {
    let mut found = NodeUse { node: node.to_owned(), ..NodeUse::default() };
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let number = || value.trim().parse::<f64>().unwrap_or_default();
        match name {
            "used_cpu_sys" | "used_cpu_user" => found.cpu_seconds += number(),
            "total_net_input_bytes" => found.bytes_in += number(),
            "total_net_output_bytes" => found.bytes_out += number(),
            // Redis counts what is replicated in both totals too.
            "total_net_repl_input_bytes" => {
                found.bytes_in -= number();
                found.bytes_replicated += number();
            }
            "total_net_repl_output_bytes" => {
                found.bytes_out -= number();
                found.bytes_replicated += number();
            }
            "total_commands_processed" => found.commands = number(),
            "used_memory" => {
                found.memory_bytes = number();
                found.data_bytes += number();
            }
            "mem_clients_normal" | "mem_total_replication_buffers" | "mem_aof_buffer" | "mem_cluster_links" => {
                found.data_bytes -= number();
            }
            "connected_clients" => found.connections = number(),
            "role" => found.primary = value.trim() == "master",
            _ => {
                let Some(command) = name.strip_prefix("cmdstat_") else { continue };
                for (what, number) in value.split(',').filter_map(|part| part.split_once('=')) {
                    let counters = match what {
                        "calls" => &mut found.calls,
                        "usec" => &mut found.busy,
                        _ => continue,
                    };
                    counters.insert(command.to_owned(), number.trim().parse().unwrap_or_default());
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_as_far_as_their_primary_says() {
        let text = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=10.0.0.1,port=7003,state=online,offset=98,lag=0\r\n\
                    slave1:ip=10.0.0.2,port=7004,state=wait_bgsave,offset=0,lag=0\r\nmaster_repl_offset:112\r\n";
        assert_eq!(replication(text), Replication { offset: 112, replicas: vec![98, 0] });
        let alone = "role:master\r\nconnected_slaves:0\r\nmaster_repl_offset:112\r\n";
        assert_eq!(replication(alone), Replication { offset: 112, replicas: Vec::new() });
        let replica = "role:slave\r\nslave_repl_offset:98\r\nmaster_repl_offset:98\r\n";
        assert_eq!(replication(replica), Replication::default());
    }

    #[test]
    fn counters_are_read_and_subtracted() {
        let text = |cpu: &str, calls: u64| {
            format!(
                "# Server\r\nrole:master\r\nused_cpu_sys:1.5\r\nused_cpu_user:{cpu}\r\nused_cpu_sys_children:7\r\n\
                 total_net_input_bytes:100\r\ntotal_net_repl_input_bytes:30\r\nused_memory:4096\r\nmem_clients_normal:96\r\nmem_aof_buffer:1000\r\n\
                 cmdstat_hset:calls={calls},usec={},usec_per_call=1.2\r\n",
                calls * 2
            )
        };
        let (before, after) = (parse("a", &text("0.25", 10)), parse("a", &text("0.75", 17)));
        assert_eq!((before.cpu_seconds, before.bytes_in, before.bytes_replicated), (1.75, 70.0, 30.0));
        let used = between(&[before], &[after]);
        assert_eq!((used[0].cpu_seconds, used[0].primary, used[0].bytes_in), (0.5, true, 0.0));
        assert_eq!(used[0].calls, BTreeMap::from([("hset".to_owned(), 7.0)]));
        assert_eq!(used[0].busy, BTreeMap::from([("hset".to_owned(), 14.0)]));
        assert_eq!((used[0].memory_bytes, used[0].data_bytes), (4096.0, 3000.0));
    }
}
