//! What an operator wants to know of shards and workers, asked of all nodes at once. A node that does not answer costs its
//! own shards' figures and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::maintenance::{self, MaintenanceLocks};
use super::query::{ask, command};
use super::reply::{Reply, milliseconds};
use super::{encode::Pipeline, error::Error, options::NodeAddress, pipes::Pipes, roll, topology::Topology};
use crate::error::Disposition;
use crate::key::{GROUP, Keys, ShardKeys};
use crate::position::{CommitId, EntryId};
use crate::shard::{Layout, Shard, slot_of};
use crate::store::Backlog;
use crate::task;

/// Shards asked about in one write.
const SHARDS_ASKED_MAX: usize = 128;
/// Unread entries are counted one by one up to this many where the server has lost count, as `backlog.lua` does; of
/// more, all the stream holds pass for unread.
pub const UNREAD_COUNTED_MAX: usize = 100;
/// Once as the slot map says, and once more for what has moved meanwhile.
const PASSES: usize = 2;

/// All that was found out.
#[derive(Debug, Clone, Default)]
pub struct Status {
    pub shards: Vec<ShardStatus>,
    /// None where the node that has the list does not answer.
    pub workers: Option<Vec<WorkerStatus>>,
    /// None where the node that has the lock does not answer.
    pub maintenance: Option<maintenance::Found>,
    /// Why figures are missing, a sentence each.
    pub troubles: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct ShardStatus {
    pub shard: Shard,
    /// Who owns the slot as far as anybody knows.
    pub node: Option<NodeAddress>,
    /// None where that node does not answer.
    pub figures: Option<ShardFigures>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardFigures {
    /// The holder of the lease.
    pub owner: Option<String>,
    /// For how long the shard has been its owner's, by server time; none where nobody owns it.
    pub owned_for: Option<Duration>,
    /// How often the shard went from one worker to another.
    pub moves: u64,
    pub generation: u64,
    pub last: CommitId,
    pub applied: EntryId,
    pub backlog: Backlog,
    pub calendar: roll::Progress,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    pub worker: String,
    /// By server time.
    pub heartbeat_age: Duration,
}

/// Asks about shards and workers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Inspector {
    topology: Arc<Topology>,
    pipes: Arc<Pipes>,
    keys: Keys,
    layout: Layout,
}

type Answer = (Shard, Result<ShardFigures, Error>);

impl Inspector {
    pub fn new(topology: Arc<Topology>, pipes: Arc<Pipes>, keys: Keys, layout: Layout) -> Self {
        Self { topology, pipes, keys, layout }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Looks at these shards and at the workers; answers within `deadline` whatever is down.
    pub async fn look(&self, shards: &[Shard], deadline: Duration) -> Status {
        let end = Instant::now() + deadline;
        let workers = task::spawn("status workers", self.clone().workers(end));
        let locks = MaintenanceLocks::new(self.topology.clone(), self.pipes.clone(), &self.keys);
        let maintenance = task::spawn("status maintenance", async move { timeout_at(end, locks.look()).await });
        let mut found: BTreeMap<Shard, Result<ShardFigures, Error>> = BTreeMap::new();
        let mut left = shards.to_vec();
        for pass in 1..=PASSES {
            found.extend(self.pass(&left, end).await);
            left.retain(|shard| !matches!(found.get(shard), Some(Ok(_))));
            if left.is_empty() || pass == PASSES || Instant::now() >= end {
                break;
            }
            // Where this fails the second pass says why.
            let _ = timeout_at(end, self.topology.refresh()).await;
        }
        let mut troubles = BTreeSet::new();
        let shards = shards.iter().map(|shard| {
            let node = self.topology.node_of(self.layout.slot(*shard)).ok().map(|node| node.address.clone());
            let figures = match found.remove(shard) {
                Some(Ok(figures)) => Some(figures),
                Some(Err(error)) => {
                    troubles.insert(error.to_string());
                    None
                }
                None => None,
            };
            ShardStatus { shard: *shard, node, figures }
        });
        let shards = shards.collect();
        let workers = match workers.await {
            Ok(Ok(workers)) => Some(workers),
            Ok(Err(error)) => {
                troubles.insert(error.to_string());
                None
            }
            Err(_) => None,
        };
        let maintenance = match maintenance.await {
            Ok(Ok(Ok(found))) => Some(found),
            Ok(Ok(Err(error))) => {
                troubles.insert(error.to_string());
                None
            }
            Ok(Err(_)) => {
                troubles.insert(format!("maintenance: no answer within {deadline:?}"));
                None
            }
            Err(_) => None,
        };
        Status { shards, workers, maintenance, troubles: troubles.into_iter().collect() }
    }

    /// One task a node, so that a silent one holds up no other.
    async fn pass(&self, shards: &[Shard], end: Instant) -> Vec<Answer> {
        let mut by_node: BTreeMap<NodeAddress, Vec<Shard>> = BTreeMap::new();
        let mut answers = Vec::new();
        for shard in shards {
            match self.topology.node_of(self.layout.slot(*shard)) {
                Ok(node) => by_node.entry(node.address.clone()).or_default().push(*shard),
                Err(error) => answers.push((*shard, Err(error))),
            }
        }
        let tasks = by_node.into_iter().map(|(node, shards)| {
            let inspector = self.clone();
            task::spawn("status", async move { inspector.node(&node, &shards, end).await })
        });
        for task in tasks.collect::<Vec<_>>() {
            // A task that panicked was logged; its shards stay unknown.
            answers.extend(task.await.unwrap_or_default());
        }
        answers
    }

    async fn node(&self, node: &NodeAddress, shards: &[Shard], end: Instant) -> Vec<Answer> {
        let started = Instant::now();
        let mut answers = Vec::with_capacity(shards.len());
        for chunk in shards.chunks(SHARDS_ASKED_MAX) {
            let keys: Vec<ShardKeys> = chunk.iter().map(|shard| self.keys.shard(&self.layout, *shard)).collect();
            let late = Error::Timeout { node: node.clone(), after: end - started, sent: true };
            match timeout_at(end, self.figures(node, &keys)).await.unwrap_or(Err(late)) {
                Ok(figures) => answers.extend(chunk.iter().copied().zip(figures)),
                Err(error) => answers.extend(chunk.iter().map(|shard| (*shard, Err(error.clone())))),
            }
        }
        answers
    }

    async fn figures(&self, node: &NodeAddress, keys: &[ShardKeys]) -> Result<Vec<Result<ShardFigures, Error>>, Error> {
        let mut commands = vec![command(&["TIME"])];
        commands.extend(keys.iter().flat_map(first_look));
        let replies = ask(&self.topology, &self.pipes, node, &commands).await?;
        let now = milliseconds(&replies[0])?;
        let firsts: Vec<Result<First, Error>> = replies[1..].chunks(FIRST_LOOK).map(First::read).collect();
        // What lies behind the applied position can only be asked once that is known.
        let seconds: Vec<Pipeline> = keys
            .iter()
            .zip(&firsts)
            .filter_map(|(keys, first)| first.as_ref().ok().map(|first| first.second_look(keys)))
            .collect();
        let mut seconds = ask(&self.topology, &self.pipes, node, &seconds).await?.into_iter();
        let figures = firsts.into_iter().map(|first| {
            let first = first?;
            let behind = seconds.next().ok_or_else(|| Error::protocol("an answer to each command", "fewer"))?;
            first.figures(&behind, now)
        });
        Ok(figures.collect())
    }

    async fn workers(self, end: Instant) -> Result<Vec<WorkerStatus>, Error> {
        let key = self.keys.workers();
        let commands = [command(&["TIME"]), command(&["ZRANGE", key.as_str(), "0", "-1", "WITHSCORES"])];
        let started = Instant::now();
        loop {
            let node = self.topology.node_of(slot_of(key.as_bytes()))?;
            let late = || Error::Timeout { node: node.address.clone(), after: end - started, sent: true };
            let asked = async {
                let replies = ask(&self.topology, &self.pipes, &node.address, &commands).await?;
                workers(milliseconds(&replies[0])?, &replies[1])
            };
            match timeout_at(end, asked).await {
                Err(_) => return Err(late()),
                Ok(Ok(found)) => return Ok(found),
                // A redirect was learnt: ask there.
                Ok(Err(error)) if error.disposition() == Disposition::Refresh => {
                    let known = timeout_at(end, self.topology.refresh()).await.map_err(|_| late())?;
                    let owner = self.topology.node_of(slot_of(key.as_bytes()))?;
                    if known.is_err() || owner.address == node.address {
                        return Err(error);
                    }
                }
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}

/// How many commands [`first_look`] has.
const FIRST_LOOK: usize = 5;

fn first_look(keys: &ShardKeys) -> [Pipeline; FIRST_LOOK] {
    [
        command(&["GET", keys.lease.as_str()]),
        command(
            &[&["HMGET", keys.state.as_str(), "generation", "last", "applied", "owned_at", "moves"], &roll::FIELDS[..]]
                .concat(),
        ),
        command(&["XINFO", "GROUPS", keys.changes.as_str()]),
        command(&["XLEN", keys.dead_letters.as_str()]),
        command(&["XLEN", keys.changes.as_str()]),
    ]
}

/// What the first look at a shard finds.
struct First {
    figures: ShardFigures,
    /// Unix milliseconds; 0 where nobody ever owned the shard.
    owned_at: u64,
    group: Option<Group>,
    /// Entries in the stream, read or not.
    length: u64,
}

/// The workers' group on the stream.
#[derive(Clone, Copy)]
struct Group {
    pending: u64,
    /// None where the server has lost count.
    lag: Option<u64>,
    delivered: EntryId,
}

impl First {
    fn read(replies: &[Reply]) -> Result<First, Error> {
        let [lease, state, groups, dead, length] = replies else {
            return Err(Error::protocol("an answer to each command", "fewer"));
        };
        let owner = lease.as_bytes_or_null()?.map(|owner| String::from_utf8_lossy(owner).into_owned());
        let [generation, last, applied, owned_at, moves, calendar @ ..] = state.as_array()? else {
            return Err(Error::protocol("ten fields", "fewer"));
        };
        let number = |reply: &Reply| if reply.is_null() { Ok(0) } else { reply.as_u64() };
        let figures = ShardFigures {
            owner,
            owned_for: None,
            moves: number(moves)?,
            generation: number(generation)?,
            last: position(last)?.unwrap_or(CommitId::ZERO),
            applied: position(applied)?.unwrap_or(EntryId::ZERO),
            calendar: roll::Progress::read(calendar),
            backlog: Backlog { dead_letters: dead.as_u64()?, ..Backlog::default() },
        };
        Ok(First { figures, owned_at: number(owned_at)?, group: Group::read(groups)?, length: length.as_u64()? })
    }

    /// One entry tells whether anything waits, and since when; more are only needed to count.
    fn second_look(&self, keys: &ShardKeys) -> Pipeline {
        let counted = self.group.is_some_and(|group| group.lag.is_some());
        let count = if counted { 1 } else { UNREAD_COUNTED_MAX };
        let after = format!("({}", self.figures.applied);
        command(&["XRANGE", keys.changes.as_str(), &after, "+", "COUNT", &count.to_string()])
    }

    fn figures(mut self, behind: &Reply, now: u64) -> Result<ShardFigures, Error> {
        let ids = behind.as_array()?.iter().map(entry_id).collect::<Result<Vec<_>, _>>()?;
        if self.figures.owner.is_some() {
            self.figures.owned_for = Some(Duration::from_millis(now.saturating_sub(self.owned_at)));
        }
        let backlog = &mut self.figures.backlog;
        backlog.oldest_milliseconds = ids.first().map(|first| now.saturating_sub(first.milliseconds));
        backlog.pending = self.group.map_or(0, |group| group.pending);
        backlog.unread = unread(self.group, &ids, self.length);
        Ok(self.figures)
    }
}

/// `behind` are the entries after the applied position, or the first of them.
fn unread(group: Option<Group>, behind: &[EntryId], length: u64) -> u64 {
    let delivered = group.map_or(EntryId::ZERO, |group| group.delivered);
    let counted = behind.iter().filter(|id| **id > delivered).count() as u64;
    match group.and_then(|group| group.lag) {
        _ if behind.is_empty() => 0,
        Some(lag) => lag.max(counted),
        None if behind.len() >= UNREAD_COUNTED_MAX => length,
        None => counted,
    }
}

impl Group {
    fn read(groups: &Reply) -> Result<Option<Group>, Error> {
        if groups.error().is_some_and(|error| error.message.contains("no such key")) {
            return Ok(None);
        }
        for group in groups.as_array()? {
            let fields: Vec<(&str, &Reply)> =
                group.as_pairs()?.map(|(name, value)| Ok((name.to_str()?, value))).collect::<Result<_, Error>>()?;
            let field = |name: &str| {
                let found = fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
                found.ok_or_else(|| Error::protocol(format!("the field {name} in XINFO GROUPS"), "none"))
            };
            if field("name")?.as_bytes()?.as_ref() != GROUP.as_bytes() {
                continue;
            }
            let lag = field("lag").ok().filter(|lag| !lag.is_null()).map(Reply::as_u64).transpose()?;
            return Ok(Some(Group {
                pending: field("pending")?.as_u64()?,
                lag,
                delivered: position(field("last-delivered-id")?)?.unwrap_or(EntryId::ZERO),
            }));
        }
        Ok(None)
    }
}

fn workers(now: u64, scored: &Reply) -> Result<Vec<WorkerStatus>, Error> {
    let living = scored.as_pairs()?.map(|(worker, heartbeat)| {
        let heartbeat = heartbeat.to_str()?.parse::<f64>().map_err(|_| Error::protocol("a score", "another text"))?;
        let age = now.saturating_sub(heartbeat as u64);
        Ok(WorkerStatus { worker: worker.to_str()?.to_owned(), heartbeat_age: Duration::from_millis(age) })
    });
    let mut living = living.collect::<Result<Vec<_>, Error>>()?;
    living.sort_by(|left, right| left.worker.cmp(&right.worker));
    Ok(living)
}

/// An entry id or commit id, or nothing where the field is absent.
fn position<P: std::str::FromStr>(reply: &Reply) -> Result<Option<P>, Error> {
    if reply.is_null() {
        return Ok(None);
    }
    let text = reply.to_str()?;
    text.parse().map(Some).map_err(|_| Error::protocol("a position", text))
}

fn entry_id(entry: &Reply) -> Result<EntryId, Error> {
    let id = entry.as_array()?.first().ok_or_else(|| Error::protocol("an entry id", "nothing"))?;
    position(id)?.ok_or_else(|| Error::protocol("an entry id", "nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(pending: u64, lag: Option<u64>, delivered: u64) -> Option<Group> {
        Some(Group { pending, lag, delivered: EntryId::new(delivered, 0) })
    }

    #[test]
    fn unread_is_zero_exactly_where_nothing_waits() {
        let ids = |range: std::ops::Range<u64>| range.map(|at| EntryId::new(at, 0)).collect::<Vec<_>>();
        let cases = [
            // group, entries after the applied position, unread
            (None, ids(0..0), 0),
            (None, ids(1..4), 3),
            (group(0, Some(7), 5), ids(0..0), 0),
            (group(0, Some(7), 5), ids(6..7), 7),
            (group(0, Some(0), 5), ids(6..7), 1),
            (group(2, Some(0), 5), ids(4..5), 0),
            (group(0, None, 5), ids(6..9), 3),
            (group(2, None, 5), ids(4..9), 3),
            (group(0, None, 5), ids(6..105), 99),
            (group(0, None, 5), ids(6..106), 700),
        ];
        for (at, (group, behind, expected)) in cases.into_iter().enumerate() {
            assert_eq!(unread(group, &behind, 700), expected, "case {at}");
        }
    }
}
