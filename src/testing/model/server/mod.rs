//! One shard of the model's server: each operation of the store as one atomic step on the shard's keys.

mod beyond;
mod calamity;
mod lease;
mod load;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::history::{History, Record};
use super::keyspace::{Hash, Keyspace, Sorted};
use super::refusal;
use super::stream::{Stream, after};
use crate::change::Fields;
use crate::key::{GROUP, Key, ShardKeys};
use crate::position::{CommitId, EntryId, Order};
use crate::reduce::{Commit, Counts, Entry, Outcome, ShardState};
use crate::store::{Backlog, Committed, Error, TRIMMED_PART_MIN};

/// What a blocked read is told at last.
pub(super) type Served = Result<Vec<Entry>, Error>;

/// A request on its way whose sender is gone.
pub(super) struct Late {
    pub at: u64,
    pub effect: Box<dyn FnOnce(&mut ShardServer) + Send>,
}

/// What one call trims at most.
const TRIMMED_MAX: usize = 2 * TRIMMED_PART_MIN as usize;

struct Waiter {
    number: u64,
    applied: EntryId,
    count: usize,
    until: u64,
    reply: oneshot::Sender<Served>,
}

/// The answer to a read of new entries.
pub(super) enum Delivery {
    Now(Vec<Entry>),
    /// The read is blocked; the number names it.
    Blocked(u64, oneshot::Receiver<Served>),
}

pub(super) struct ShardServer {
    keys: ShardKeys,
    pub keyspace: Keyspace,
    /// Grows with every write of `state`: what WATCH looks at.
    state_writes: u64,
    waiters: VecDeque<Waiter>,
    waiters_ever: u64,
    pub inbox: Vec<Late>,
    /// Grows with every failover: links of an earlier epoch are dead.
    pub epoch: u64,
    pub away_until: u64,
    pub full_until: u64,
    /// How many of the last commits a failover can lose.
    pub commits_lost_max: usize,
    /// Sabotage: commits are not fenced.
    pub unfenced: bool,
    /// Sabotage: what the group delivers is taken for what comes next.
    pub unordered: bool,
    pub history: History,
}

impl ShardServer {
    pub fn new(keys: ShardKeys) -> ShardServer {
        ShardServer {
            keys,
            keyspace: Keyspace::default(),
            state_writes: 0,
            waiters: VecDeque::new(),
            waiters_ever: 0,
            inbox: Vec::new(),
            epoch: 0,
            away_until: 0,
            full_until: 0,
            commits_lost_max: 0,
            unfenced: false,
            unordered: false,
            history: History::default(),
        }
    }

    /// Lets time pass: what is due on the way arrives in its turn.
    pub fn advance(&mut self, now: u64) {
        while let Some(at) = self.inbox.iter().map(|late| late.at).min().filter(|at| *at <= now) {
            let next = self.inbox.iter().position(|late| late.at == at).expect("the least is one of them");
            self.keyspace.now = at;
            (self.inbox.remove(next).effect)(self);
        }
        self.keyspace.now = now;
    }

    /// XADD with an id of the server's choice, or with this one.
    pub fn append(&mut self, id: Option<EntryId>, fields: Fields) -> Result<EntryId, Error> {
        self.writable()?;
        let now = self.keyspace.now;
        let changes = self.keyspace.get_mut::<Stream>(&self.keys.changes).map_err(refusal::poison)?;
        let id = match id {
            Some(id) => changes.append_at(id, fields.clone()).map(|()| id).map_err(refusal::poison)?,
            None => changes.append(now, fields.clone()),
        };
        self.history.entries.push((id, fields));
        self.serve();
        Ok(id)
    }

    pub fn read_pending(&mut self, applied: EntryId, count: usize) -> Result<Vec<Entry>, Error> {
        self.changes()?.deliver_again(applied, count).ok_or_else(refusal::no_group)
    }

    /// Waits where there is nothing; the waiting goes on when the receiver is dropped, until its time is over.
    pub fn read_new(&mut self, applied: EntryId, count: usize, block: Duration) -> Result<Delivery, Error> {
        let woken = self.changes()?.deliver().ok_or_else(refusal::no_group)?;
        if woken.is_some() || block.is_zero() {
            return Ok(Delivery::Now(self.following(woken, applied, count)));
        }
        let (reply, receiver) = oneshot::channel();
        self.waiters_ever += 1;
        let until = self.keyspace.now + block.as_millis() as u64;
        self.waiters.push_back(Waiter { number: self.waiters_ever, applied, count, until, reply });
        Ok(Delivery::Blocked(self.waiters_ever, receiver))
    }

    /// What a read gets once it was woken, or has waited in vain.
    pub fn following(&mut self, woken: Option<EntryId>, applied: EntryId, count: usize) -> Vec<Entry> {
        let unordered = self.unordered;
        let mut entries = self.changes().map(|changes| changes.following(applied, count)).unwrap_or_default();
        // As if the group's own word were taken for what comes next.
        entries.retain(|entry| !unordered || woken.is_some_and(|woken| entry.id >= woken));
        entries
    }

    /// The client of a blocked read is gone and the server has noticed.
    pub fn forget(&mut self, waiter: u64) {
        self.waiters.retain(|waiting| waiting.number != waiter);
    }

    pub fn commit(&mut self, watched: u64, commit: &Commit) -> Result<Committed, Error> {
        self.writable()?;
        if watched != self.state_writes && !self.unfenced {
            return Ok(Committed::Refused);
        }
        self.keyspace.mark(self.commits_lost_max);
        let stored = self.state()?;
        self.history.commits.push(Record {
            id: commit.state.last,
            previous: commit.signal.previous,
            generation_stored: stored.generation,
            at_milliseconds: self.keyspace.now,
            entries: settled(commit, stored.applied),
            lost: false,
        });
        let mut errors = Vec::new();
        match self.changes()?.group() {
            _ if commit.settled.is_empty() => {}
            Some(group) => {
                group.pending.retain(|id, _| !commit.acks.contains(id));
                group.delivered = commit.state.applied;
            }
            None => errors.push(format!("XGROUP SETID {}: no group", self.keys.changes)),
        }
        errors.extend(commit.ops.iter().filter_map(|op| self.keyspace.execute(op).err()));
        errors.extend(self.log(commit).err());
        let fields = state_fields(&commit.state, commit.signal.at_milliseconds);
        match self.keyspace.get_mut::<Hash>(&self.keys.state) {
            Ok(state) => state.extend(fields),
            Err(error) => errors.push(error),
        }
        self.state_writes += 1;
        self.history.signals.push(commit.signal.clone());
        Ok(Committed::Done { errors })
    }

    pub fn trim(&mut self, retention: Duration) -> Result<u64, Error> {
        let oldest = EntryId::new(self.keyspace.now.saturating_sub(retention.as_millis() as u64), 0);
        let changes = self.keyspace.find_mut::<Stream>(&self.keys.changes).map_err(refusal::poison)?;
        Ok(changes.map_or(0, |changes| changes.trim_below(changes.needed_from().min(oldest), TRIMMED_MAX)))
    }

    pub fn backlog(&mut self) -> Result<Backlog, Error> {
        let (state, now) = (self.state()?, self.keyspace.now);
        let dead = self.keyspace.get::<Stream>(&self.keys.dead_letters).map_err(refusal::poison)?;
        let dead_letters = dead.map_or(0, |dead| dead.entries.len() as u64);
        let outbox = self.outbox_length()?;
        let calendar = self.calendar_news(&*self.hash(&self.keys.state).map_err(refusal::poison)?);
        let changes = self.changes()?;
        let group = changes.groups.get(GROUP).ok_or_else(refusal::no_group)?;
        let oldest = changes.entries.range(after(state.applied)..).next();
        Ok(Backlog {
            unread: changes.unread(group),
            pending: group.pending.len() as u64,
            oldest_milliseconds: oldest.map(|(id, _)| now.saturating_sub(id.milliseconds)),
            dead_letters,
            outbox,
            state_lost: state.generation == 0,
            calendar,
        })
    }

    /// Entries that no commit has settled yet.
    pub fn unsettled(&self) -> Vec<EntryId> {
        self.keyspace.get::<Stream>(&self.keys.changes).ok().flatten().map(Stream::unsettled).unwrap_or_default()
    }

    /// The payloads in the log, in order.
    pub fn log_payloads(&self) -> Vec<Bytes> {
        let log = self.keyspace.get::<Stream>(&self.keys.log).ok().flatten();
        let payload = |fields: &Fields| fields.iter().find(|(name, _)| *name == "s").map(|(_, value)| value.clone());
        log.map(|log| log.entries.values().filter_map(payload).collect()).unwrap_or_default()
    }

    /// What the shard's own keys must be, or the error of the first that is not.
    fn own_types(&self) -> Result<(), String> {
        let keys = &self.keys;
        self.keyspace.get::<Hash>(&keys.state)?;
        self.keyspace.get::<Stream>(&keys.changes)?;
        self.keyspace.get::<Stream>(&keys.log)?;
        self.keyspace.get::<Sorted>(&keys.users)?;
        self.keyspace.get::<Hash>(&keys.producers)?;
        self.keyspace.get::<Stream>(&keys.dead_letters)?;
        self.keyspace.get::<Stream>(&keys.outbox)?;
        self.keyspace.get::<Hash>(&keys.fanout)?;
        Ok(())
    }

    /// The workers' group: its last delivered entry, and what is pending with its counts.
    pub fn group(&self) -> Option<(EntryId, BTreeMap<EntryId, u64>)> {
        let changes = self.keyspace.get::<Stream>(&self.keys.changes).ok().flatten()?;
        changes.groups.get(GROUP).map(|group| (group.delivered, group.pending.clone()))
    }

    fn writable(&self) -> Result<(), Error> {
        if self.keyspace.now < self.full_until { Err(refusal::full()) } else { Ok(()) }
    }

    fn changes(&mut self) -> Result<&mut Stream, Error> {
        let changes = self.keyspace.find_mut::<Stream>(&self.keys.changes).map_err(refusal::poison)?;
        changes.ok_or_else(refusal::no_group)
    }

    /// Hands new entries to those who wait, first come, first served.
    fn serve(&mut self) {
        let now = self.keyspace.now;
        self.waiters.retain(|waiter| waiter.until > now);
        while let Some(waiter) = self.waiters.front() {
            let (applied, count) = (waiter.applied, waiter.count);
            let woken = self.changes().ok().and_then(|changes| changes.deliver()?);
            if woken.is_none() {
                return;
            }
            let entries = self.following(woken, applied, count);
            // Whether or not anybody is there to hear it.
            self.waiters.pop_front().into_iter().for_each(|waiter| drop(waiter.reply.send(Ok(entries.clone()))));
        }
    }

    fn log(&mut self, commit: &Commit) -> Result<(), String> {
        let CommitId { generation, sequence } = commit.signal.id;
        let log = self.keyspace.get_mut::<Stream>(&self.keys.log)?;
        let payload = ("s".into(), commit.signal.encode().into());
        log.append_at(EntryId::new(generation, sequence), vec![payload])?;
        log.trim_length(commit.log_length_max);
        Ok(())
    }

    fn state(&self) -> Result<ShardState, Error> {
        let fields = self.hash(&self.keys.state).map_err(refusal::foreign)?;
        let number = |name: &str| fields.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(ShardState {
            generation: number("generation"),
            last: fields.get("last").and_then(|text| text.parse().ok()).unwrap_or(CommitId::ZERO),
            applied: fields.get("applied").and_then(|text| text.parse().ok()).unwrap_or(EntryId::ZERO),
            order: fields.get("order").and_then(|text| text.parse().ok()).unwrap_or_default(),
            first: fields.get("first").and_then(|text| text.parse().ok()),
            open: fields.get("open").and_then(|text| text.parse().ok()),
            rolled: fields.get("rolled").and_then(|text| text.parse().ok()),
            rebuild: None,
            counts: Counts { entries: number("entries"), dead: number("dead"), skipped: number("skipped") },
        })
    }

    fn hash(&self, key: &Key) -> Result<Cow<'_, Hash>, String> {
        Ok(self.keyspace.get::<Hash>(key)?.map_or_else(Default::default, Cow::Borrowed))
    }
}

/// The entries of a commit without those that it finds settled and only acknowledges again.
fn settled(commit: &Commit, applied: EntryId) -> Vec<EntryId> {
    let again = |id: EntryId, outcome: Outcome| outcome == Outcome::Duplicate && id <= applied;
    let entries = commit.settled.iter().zip(&commit.outcomes);
    entries.filter(|(id, outcome)| !again(**id, **outcome)).map(|(id, _)| *id).collect()
}

/// The hash `state` after a commit; `generation` is written by taking the lease alone.
fn state_fields(state: &ShardState, applied_at: u64) -> Vec<(String, String)> {
    let ShardState { last, applied, counts, order, first, open, rolled, .. } = state;
    let order = Some(("order", order.to_string())).filter(|_| *order != Order::default());
    let days = [("first", first), ("open", open), ("rolled", rolled)].into_iter();
    let days = days.filter_map(|(name, date)| Some((name, date.as_ref()?.to_string())));
    let fields = [
        ("last", last.to_string()),
        ("applied", applied.to_string()),
        ("applied_at", applied_at.to_string()),
        ("entries", counts.entries.to_string()),
        ("dead", counts.dead.to_string()),
        ("skipped", counts.skipped.to_string()),
    ];
    fields.into_iter().chain(order).chain(days).map(|(name, value)| (name.to_owned(), value)).collect()
}
