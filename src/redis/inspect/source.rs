//! Where a check reads from: whoever owns a slot by then, with pauses, and for so long as patience lasts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{Disposition, ServerCode};
use crate::redis::query::command;
use crate::redis::topology::endpoint_address;
use crate::redis::{Error, NodeAddress, Pipeline, Pipes, Reply, Topology};

/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a look at several keys at once is tried while some of them are on their way to another node.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);
/// A pause shorter than this is put off until it is worth it.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// One slow answer is followed by no longer pause than this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Reads, in strict sequence.
pub(in crate::redis) struct Source {
    topology: Arc<Topology>,
    pipes: Arc<Pipes>,
    share: f64,
    patience: Duration,
    /// Time that is owed to the nodes.
    debt: Duration,
    /// Whether keys that are on their way were waited for in vain: then once is enough.
    hurried: bool,
    owners: HashMap<u16, NodeAddress>,
    /// Rises with everything after which a cursor may mean nothing: another owner, a redirect, a second try.
    unrest: u64,
}

impl Source {
    pub fn new(topology: Arc<Topology>, pipes: Arc<Pipes>, share: f64, patience: Duration) -> Source {
        let share = share.clamp(0.01, 1.0);
        let owners = HashMap::new();
        Source { topology, pipes, share, patience, debt: Duration::ZERO, hurried: false, owners, unrest: 0 }
    }

    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    pub fn unrest(&self) -> u64 {
        self.unrest
    }

    pub fn primaries(&self) -> Vec<NodeAddress> {
        self.topology.primaries().iter().map(|node| node.address.clone()).collect()
    }

    /// Another shard: it may be waited for anew.
    pub fn begin(&mut self) {
        self.hurried = false;
    }

    /// One reply to each command, from whoever owns its slot by then. All of them are reads of one key, and all are
    /// asked anew where one was not answered.
    pub async fn ask(&mut self, commands: &[(u16, Pipeline)]) -> Result<Vec<Reply>, Error> {
        let end = Instant::now() + self.patience;
        loop {
            let failure = match self.attempt(commands).await {
                Ok(replies) => match passing(&replies) {
                    None => return Ok(replies),
                    Some(error) => error,
                },
                Err(error) => error,
            };
            self.wait_out(failure, end).await?;
        }
    }

    /// The same for commands that concern one slot.
    pub async fn ask_slot(&mut self, slot: u16, commands: Vec<Pipeline>) -> Result<Vec<Reply>, Error> {
        self.ask(&commands.into_iter().map(|command| (slot, command)).collect::<Vec<_>>()).await
    }

    /// One reply to each command, from this very node; nothing is tried again.
    pub async fn ask_node(&mut self, node: &NodeAddress, commands: &[Pipeline]) -> Result<Vec<Reply>, Error> {
        let mut all = Pipeline::new();
        commands.iter().for_each(|command| all.append(command));
        let started = Instant::now();
        let expected = all.len();
        let replies = self.pipes.get(node).await?.submit(all).await;
        self.pause(started.elapsed()).await;
        let replies = replies?;
        if replies.len() == expected {
            return Ok(replies);
        }
        Err(Error::protocol("an answer to each command", "another number"))
    }

    /// What all of these commands, reads of one slot, answer in one and the same moment; none where keys are on their
    /// way to another node for too long. What a single command says may be its refusal.
    pub async fn snapshot(&mut self, slot: u16, commands: &[Pipeline]) -> Result<Option<Vec<Reply>>, Error> {
        let started = Instant::now();
        loop {
            let failure = match self.transaction(slot, commands).await {
                Ok(replies) => return Ok(Some(replies)),
                Err(error) => error,
            };
            let on_its_way = matches!(&failure, Error::Server(error)
                if matches!(error.code, ServerCode::Ask { .. } | ServerCode::TryAgain));
            if on_its_way && (self.hurried || started.elapsed() > SNAPSHOT_PATIENCE) {
                self.hurried = true;
                return Ok(None);
            }
            let end = if on_its_way { started + 2 * SNAPSHOT_PATIENCE } else { started + self.patience };
            self.wait_out(failure, end).await?;
        }
    }

    /// Waits for better times, unless they will not come or `end` does first.
    pub async fn wait_out(&mut self, failure: Error, end: Instant) -> Result<(), Error> {
        self.unrest += 1;
        if !passes(failure.disposition()) || Instant::now() + RETRY_PAUSE >= end {
            return Err(failure);
        }
        sleep(RETRY_PAUSE).await;
        // What this attempt finds out, the next one says.
        let _ = self.topology.refresh().await;
        Ok(())
    }

    async fn transaction(&mut self, slot: u16, commands: &[Pipeline]) -> Result<Vec<Reply>, Error> {
        let node = self.owner(slot)?;
        let mut all = vec![command(&["MULTI"])];
        all.extend(commands.iter().cloned());
        all.push(command(&["EXEC"]));
        let replies = self.ask_node(&node, &all).await?;
        if let Some(refusal) = replies.iter().find_map(Reply::error) {
            self.learn(refusal, &node);
            return Err(Error::Server(refusal.clone()));
        }
        let executed = replies.into_iter().next_back().unwrap_or(Reply::Null).into_array()?;
        // What was handed over between queueing and execution shows here on some servers.
        match executed.len() == commands.len() {
            true => passing(&executed).map_or(Ok(executed), Err),
            false => Err(Error::protocol("an answer to each command", "another number")),
        }
    }

    async fn attempt(&mut self, commands: &[(u16, Pipeline)]) -> Result<Vec<Reply>, Error> {
        let mut by_node: BTreeMap<NodeAddress, Vec<usize>> = BTreeMap::new();
        for (at, (slot, _)) in commands.iter().enumerate() {
            by_node.entry(self.owner(*slot)?).or_default().push(at);
        }
        let mut replies = vec![Reply::Null; commands.len()];
        let mut handed: BTreeMap<NodeAddress, Vec<usize>> = BTreeMap::new();
        for (node, places) in by_node {
            let asked: Vec<Pipeline> = places.iter().map(|at| commands[*at].1.clone()).collect();
            for (at, reply) in places.into_iter().zip(self.ask_node(&node, &asked).await?) {
                if let Some(target) = reply.error().and_then(|error| self.learn(error, &node)) {
                    handed.entry(target).or_default().push(at);
                }
                replies[at] = reply;
            }
        }
        for (target, places) in handed {
            self.unrest += 1;
            let asked = |at: &usize| [command(&["ASKING"]), commands[*at].1.clone()];
            let answers = self.ask_node(&target, &places.iter().flat_map(asked).collect::<Vec<_>>()).await?;
            for (at, answer) in places.into_iter().zip(answers.into_iter().skip(1).step_by(2)) {
                replies[at] = answer;
            }
        }
        Ok(replies)
    }

    fn owner(&mut self, slot: u16) -> Result<NodeAddress, Error> {
        let owner = self.topology.node_of(slot)?.address.clone();
        match self.owners.insert(slot, owner.clone()) {
            Some(before) if before != owner => self.unrest += 1,
            _ => {}
        }
        Ok(owner)
    }

    /// Takes a redirect's word; answers where to ask for a key that was handed over already.
    fn learn(&self, error: &crate::error::ServerError, node: &NodeAddress) -> Option<NodeAddress> {
        match &error.code {
            ServerCode::Moved { slot, endpoint } => {
                self.topology.learn_moved(*slot, endpoint, node);
                None
            }
            ServerCode::Ask { endpoint, .. } => endpoint_address(endpoint, node),
            _ => None,
        }
    }

    /// An answer took the node no longer than it was waited for. So pausing in proportion bounds the share of its time.
    async fn pause(&mut self, took: Duration) {
        self.debt += took.mul_f64(1.0 / self.share - 1.0);
        if self.debt >= PAUSE_MIN {
            sleep(self.debt.min(PAUSE_MAX)).await;
            self.debt = Duration::ZERO;
        }
    }
}

fn passing(replies: &[Reply]) -> Option<Error> {
    let refusal = replies.iter().filter_map(Reply::error).find(|error| {
        // A lost group is an answer.
        error.code != ServerCode::NoGroup && error.disposition() != Disposition::Poison
    });
    refusal.map(|error| Error::Server(error.clone()))
}

/// Whether the same may succeed a moment later. All that is asked here is read only, or may be done twice.
pub(super) fn passes(disposition: Disposition) -> bool {
    match disposition {
        Disposition::Retry | Disposition::Refresh | Disposition::Ambiguous => true,
        Disposition::Fenced | Disposition::Full | Disposition::Poison | Disposition::Fatal => false,
    }
}
