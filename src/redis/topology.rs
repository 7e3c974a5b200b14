//! Which node owns which slot: one table, replaced as a whole, refreshed by whoever finds it wrong.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    encode::Pipeline,
    error::Error,
    link::Link,
    options::{ConnectOptions, NodeAddress},
    shards,
};
use crate::{
    error::{Disposition, ServerCode},
    task,
};

/// The number of slots of every Redis Cluster.
pub const SLOTS: u16 = 16384;
/// How many nodes are asked at once for their view of the cluster.
const NODES_ASKED_MAX: usize = 6;
/// How long a first answer waits for a newer one from somebody else.
const ANSWER_GRACE: Duration = Duration::from_millis(50);
/// How often the map is refreshed without a reason, and the least time between two refreshes whoever asks.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
const REFRESH_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub id: String,
    pub address: NodeAddress,
    pub primary: bool,
    /// Whether the cluster itself believes that this node works.
    pub online: bool,
}

/// One view of the cluster.
#[derive(Debug, Default, Clone)]
pub struct Table {
    pub(super) nodes: Vec<Arc<Node>>,
    /// Owners by slot. Empty before the first refresh.
    pub(super) owners: Vec<Option<Arc<Node>>>,
    /// The asked node's idea of the cluster's age: of two views the one with the higher number is newer.
    pub(super) epoch: u64,
    pub(super) healthy: bool,
}

impl Table {
    fn covered(&self) -> usize {
        self.owners.iter().flatten().count()
    }
}

/// The slot map. Shared by everything that talks to the cluster.
#[derive(Debug)]
pub struct Topology {
    options: Arc<ConnectOptions>,
    table: watch::Sender<Arc<Table>>,
    /// Held by the one refresh under way; the others wait for it and share its result.
    refreshing: tokio::sync::Mutex<Option<Instant>>,
    outcome: Mutex<Outcome>,
    /// Rung by a redirect: where one slot moved, others may have.
    stale: Notify,
}

#[derive(Debug)]
struct Outcome {
    count: u64,
    result: Result<(), Error>,
}

impl Topology {
    /// A topology that knows its seeds only. Nothing is contacted before the first [`Topology::refresh`].
    pub fn new(options: Arc<ConnectOptions>) -> Self {
        Self {
            options,
            table: watch::Sender::new(Arc::default()),
            refreshing: tokio::sync::Mutex::new(None),
            outcome: Mutex::new(Outcome { count: 0, result: Ok(()) }),
            stale: Notify::new(),
        }
    }

    /// The same, and asks the cluster at once.
    pub async fn connect(options: Arc<ConnectOptions>) -> Result<Self, Error> {
        let topology = Self::new(options);
        topology.refresh().await?;
        Ok(topology)
    }

    pub fn options(&self) -> &Arc<ConnectOptions> {
        &self.options
    }

    /// The primary that owns `slot`.
    pub fn node_of(&self, slot: u16) -> Result<Arc<Node>, Error> {
        let owner = self.table.borrow().owners.get(usize::from(slot)).cloned().flatten();
        owner.ok_or(Error::NoNode { slot })
    }

    /// Primaries that own slots, in the order of their addresses.
    pub fn primaries(&self) -> Vec<Arc<Node>> {
        let table = self.table.borrow().clone();
        let mut owners: Vec<_> = table.owners.iter().flatten().cloned().collect();
        owners.dedup();
        owners.sort_by(|left, right| left.address.cmp(&right.address));
        owners.dedup();
        owners
    }

    /// Every member, replicas too.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.table.borrow().nodes.clone()
    }

    /// Wakes whenever the table changes.
    pub fn changes(&self) -> watch::Receiver<Arc<Table>> {
        self.table.subscribe()
    }

    /// Takes a redirect's word for one slot at once. `asked` is the node that said so: an endpoint without a host
    /// means the same host.
    pub fn learn_moved(&self, slot: u16, endpoint: &str, asked: &NodeAddress) {
        let Some(address) = endpoint_address(endpoint, asked) else {
            return;
        };
        self.table.send_if_modified(|table| {
            let Some(owner) = table.owners.get(usize::from(slot)) else {
                return false;
            };
            if owner.as_ref().is_some_and(|owner| owner.address == address) {
                return false;
            }
            let known = table.nodes.iter().find(|node| node.address == address).cloned();
            let node =
                known.unwrap_or_else(|| Arc::new(Node { id: String::new(), address, primary: true, online: true }));
            Arc::make_mut(table).owners[usize::from(slot)] = Some(node);
            self.stale.notify_one();
            true
        });
    }

    /// Refreshes for ever: once an interval, and soon after every redirect. To be run beside everything else.
    pub async fn keep_fresh(&self) {
        loop {
            // A refresh that fails is tried again, and whoever needs a node hears of the failure there.
            let _ = timeout(REFRESH_INTERVAL, self.stale.notified()).await;
            if let Err(error) = self.refresh().await {
                tracing::debug!(%error, "the slot map could not be refreshed");
            }
        }
    }

    /// Asks the cluster again. However many callers come, one refresh runs at a time and all share its result; two
    /// refreshes are never closer than `REFRESH_INTERVAL_MIN`. Bounded by the connect and reply timeouts.
    pub async fn refresh(&self) -> Result<(), Error> {
        let seen = self.outcome().count;
        let mut last = self.refreshing.lock().await;
        {
            let outcome = self.outcome();
            if outcome.count != seen {
                return outcome.result.clone();
            }
        }
        if let Some(last) = *last {
            sleep_until(last + REFRESH_INTERVAL_MIN).await;
        }
        *last = Some(Instant::now());
        let result = self.ask_around().await;
        let mut outcome = self.outcome();
        outcome.count += 1;
        outcome.result = result.map(|table| {
            self.table.send_replace(Arc::new(table));
        });
        outcome.result.clone()
    }

    fn outcome(&self) -> std::sync::MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Known nodes and seeds are asked together, since any one of them may be dead, silent or behind the others.
    async fn ask_around(&self) -> Result<Table, Error> {
        let asked = self.candidates();
        if asked.is_empty() {
            return Err(Error::Unreachable { tried: "no node is configured".to_owned() });
        }
        let (sender, mut answers) = mpsc::channel(asked.len());
        for address in asked {
            let (options, sender) = (self.options.clone(), sender.clone());
            task::spawn("topology", async move {
                let answer = ask(&address, &options).await;
                // Nobody listens once an earlier answer was taken.
                let _ = sender.send((address, answer)).await;
            });
        }
        drop(sender);
        let mut best: Option<Table> = None;
        let mut failures = Vec::new();
        loop {
            let next = match best {
                None => answers.recv().await,
                Some(_) => timeout(ANSWER_GRACE, answers.recv()).await.ok().flatten(),
            };
            match next {
                None => break,
                Some((_, Ok(table))) => best = Some(newer(best, table)),
                Some((address, Err(error))) => failures.push((address, error)),
            }
        }
        best.ok_or_else(|| unreachable(failures))
    }

    /// Primaries first, then the seeds, then the others; others of each with every refresh, since those that were asked
    /// may all be dead for good.
    fn candidates(&self) -> Vec<NodeAddress> {
        let turn = self.outcome().count as usize;
        let address = |node: Arc<Node>| node.address.clone();
        let primaries = turned(self.primaries().into_iter().map(address).collect(), turn);
        let seeds = turned(self.options.seeds.clone(), turn);
        let others = turned(self.all().into_iter().map(address).collect(), turn);
        let known = if others.is_empty() { NODES_ASKED_MAX } else { NODES_ASKED_MAX / 3 };
        let first = primaries.into_iter().take(NODES_ASKED_MAX / 2).chain(seeds.iter().take(known).cloned());
        let mut seen = BTreeSet::new();
        let all = first.chain(others).chain(seeds.iter().cloned());
        all.filter(|address| seen.insert(address.clone())).take(NODES_ASKED_MAX).collect()
    }
}

fn turned(mut addresses: Vec<NodeAddress>, turn: usize) -> Vec<NodeAddress> {
    let turn = turn % addresses.len().max(1);
    addresses.rotate_left(turn);
    addresses
}

fn newer(best: Option<Table>, table: Table) -> Table {
    let rank = |table: &Table| (table.healthy, table.epoch, table.covered());
    match best {
        Some(best) if rank(&best) >= rank(&table) => best,
        _ => table,
    }
}

async fn ask(node: &NodeAddress, options: &ConnectOptions) -> Result<Table, Error> {
    let mut link = Link::connect(node, options).await?;
    let mut pipeline = Pipeline::new();
    pipeline.push(&["CLUSTER", "INFO"]);
    pipeline.push(&["CLUSTER", "SHARDS"]);
    let replies = link.request(&pipeline, options.reply_timeout).await?;
    let [info, shards]: [_; 2] = replies.try_into().map_err(|_| Error::protocol("two answers", "another number"))?;
    if let Some(error) = info.error() {
        return Err(match error.code {
            ServerCode::ClusterDisabled => Error::NotCluster { node: node.clone() },
            _ => Error::Refused { node: node.clone(), error: error.clone() },
        });
    }
    let mut table = shards::parse(&shards, node, options.tls.is_some())?;
    table.healthy = shards::info_field(info.to_str()?, "cluster_state") == Some("ok");
    let epoch = shards::info_field(info.to_str()?, "cluster_current_epoch");
    table.epoch = epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    Ok(table)
}

/// A fatal answer explains more than that others could not be reached.
fn unreachable(mut failures: Vec<(NodeAddress, Error)>) -> Error {
    if let Some(fatal) = failures.iter().position(|(_, error)| error.disposition() == Disposition::Fatal) {
        return failures.swap_remove(fatal).1;
    }
    failures.sort_by(|left, right| left.0.cmp(&right.0));
    let tried: Vec<_> = failures.iter().map(|(_, error)| error.to_string()).collect();
    Error::Unreachable { tried: tried.join("; ") }
}

/// `host:port` as redirects write it: IPv6 without brackets, and no host for the node that was asked.
pub fn endpoint_address(endpoint: &str, asked: &NodeAddress) -> Option<NodeAddress> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok()?;
    Some(NodeAddress::new(if host.is_empty() || host == "?" { &asked.host } else { host }, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_known_is_asked_in_turn() {
        let address = |port| NodeAddress::new("node", port);
        let seeds: Vec<_> = (1..=4).map(address).collect();
        let topology = Topology::new(Arc::new(ConnectOptions::new(seeds.clone())));
        assert_eq!(topology.candidates(), seeds);
        let node = |port: u16| {
            Arc::new(Node { id: port.to_string(), address: address(port), primary: port <= 30, online: true })
        };
        let nodes: Vec<_> = (11..=50).map(node).collect();
        let owners = nodes[..20].iter().cloned().map(Some).collect();
        topology.table.send_replace(Arc::new(Table { nodes, owners, ..Table::default() }));
        let mut asked = BTreeSet::new();
        for _ in 0..40 {
            let candidates = topology.candidates();
            assert_eq!(candidates.len(), NODES_ASKED_MAX);
            asked.extend(candidates);
            topology.outcome().count += 1;
        }
        let everybody: BTreeSet<_> = (1..=4).chain(11..=50).map(address).collect();
        assert_eq!(asked, everybody);
    }
}
