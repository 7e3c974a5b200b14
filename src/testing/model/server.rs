//! One shard of the model's server: each operation of the store as one atomic step on the shard's keys.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::history::{History, Record};
use super::keyspace::{Hash, Keyspace};
use super::refusal;
use super::stream::{Group, Stream, after};
use crate::change::Fields;
use crate::key::{GROUP, ShardKeys};
use crate::lease::WorkerId;
use crate::position::{CommitId, EntryId};
use crate::reduce::{Commit, Counts, Entry, Loaded, PRUNE_SAMPLE, Plan, ShardState, UserLoaded, UserPlan};
use crate::store::{Backlog, Committed, Error, Taken};

/// What a blocked read is told at last.
pub(super) type Served = Result<Vec<Entry>, Error>;

/// A request on its way whose sender is gone.
pub(super) struct Late {
    pub at: u64,
    pub effect: Box<dyn FnOnce(&mut ShardServer) + Send>,
}

struct Waiter {
    number: u64,
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
    /// The keys before each of the last commits, for a failover to go back to.
    before_commits: VecDeque<Keyspace>,
    pub snapshots_max: usize,
    /// Sabotage: commits are not fenced.
    pub unfenced: bool,
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
            before_commits: VecDeque::new(),
            snapshots_max: 0,
            unfenced: false,
            history: History::default(),
        }
    }

    /// Lets time pass: what is due on the way arrives in its turn.
    pub fn advance(&mut self, now: u64) {
        let (mut due, later): (Vec<_>, Vec<_>) = self.inbox.drain(..).partition(|late| late.at <= now);
        self.inbox = later;
        due.sort_by_key(|late| late.at);
        for late in due {
            self.keyspace.now = late.at;
            (late.effect)(self);
        }
        self.keyspace.now = now;
    }

    pub fn append(&mut self, fields: Fields) -> Result<EntryId, Error> {
        self.writable()?;
        let now = self.keyspace.now;
        let id =
            self.keyspace.get_mut::<Stream>(&self.keys.changes).map_err(refusal::poison)?.append(now, fields.clone());
        self.history.entries.push((id, fields));
        self.serve();
        Ok(id)
    }

    pub fn take(&mut self, worker: &WorkerId, ttl: Duration) -> Result<Taken, Error> {
        self.writable()?;
        let now = self.keyspace.now;
        if let Some(holder) = self.holder()?
            && holder != *worker
        {
            return Ok(Taken::Held(holder));
        }
        self.keyspace.set(&self.keys.lease, worker.as_str(), Some(now + ttl.as_millis() as u64));
        let tip =
            self.keyspace.get::<Stream>(&self.keys.log).map_err(refusal::poison)?.map_or(EntryId::ZERO, |log| log.last);
        let mut state = self.state()?;
        // Above the log's tip too, where the state was lost and the log was not.
        state.generation = now.max(state.generation + 1).max(tip.milliseconds + 1);
        let field = ("generation".to_owned(), state.generation.to_string());
        self.keyspace.get_mut::<Hash>(&self.keys.state).map_err(refusal::poison)?.extend([field]);
        self.state_writes += 1;
        let changes = self.keyspace.get_mut::<Stream>(&self.keys.changes).map_err(refusal::poison)?;
        let created = || Group { delivered: state.applied, ..Group::default() };
        changes.groups.entry(GROUP.to_owned()).or_insert_with(created);
        // A stream that was lost and begun anew: its next entries must not pass for entries that are applied already.
        changes.last = changes.last.max(state.applied);
        Ok(Taken::Mine(state))
    }

    pub fn renew(&mut self, worker: &WorkerId, ttl: Duration) -> Result<bool, Error> {
        let mine = self.holder()?.as_ref() == Some(worker);
        if mine {
            let at = self.keyspace.now + ttl.as_millis() as u64;
            self.keyspace.expire_at(&self.keys.lease, Some(at));
        }
        Ok(mine)
    }

    pub fn release(&mut self, worker: &WorkerId) -> Result<bool, Error> {
        let mine = self.holder()?.as_ref() == Some(worker);
        if mine {
            self.keyspace.delete(&self.keys.lease);
        }
        Ok(mine)
    }

    pub fn holder(&self) -> Result<Option<WorkerId>, Error> {
        let holder = self.keyspace.get::<String>(&self.keys.lease).map_err(refusal::poison)?;
        Ok(holder.and_then(|text| text.parse().ok()))
    }

    pub fn read_pending(&mut self, count: usize) -> Result<Vec<Entry>, Error> {
        self.changes()?.deliver_again(count).ok_or_else(refusal::no_group)
    }

    /// Waits where there is nothing; the waiting goes on when the receiver is dropped, until its time is over.
    pub fn read_new(&mut self, count: usize, block: Duration) -> Result<Delivery, Error> {
        let entries = self.changes()?.deliver(count).ok_or_else(refusal::no_group)?;
        if !entries.is_empty() || block.is_zero() {
            return Ok(Delivery::Now(entries));
        }
        let (reply, receiver) = oneshot::channel();
        self.waiters_ever += 1;
        let until = self.keyspace.now + block.as_millis() as u64;
        self.waiters.push_back(Waiter { number: self.waiters_ever, count, until, reply });
        Ok(Delivery::Blocked(self.waiters_ever, receiver))
    }

    /// The client of a blocked read is gone and the server has noticed.
    pub fn forget(&mut self, waiter: u64) {
        self.waiters.retain(|waiting| waiting.number != waiter);
    }

    /// What the plan names, and the count of writes that a commit compares with.
    pub fn load(&mut self, plan: &Plan) -> Result<(Loaded, u64), Error> {
        let state = self.state()?;
        let group = self.changes()?.group().ok_or_else(refusal::no_group)?;
        let pending_first = group.pending.keys().next().copied();
        let users = plan.users.iter().map(|user| self.load_user(user)).collect::<Result<_, String>>();
        let users = users.map_err(refusal::poison)?;
        let producers = self.hash(&self.keys.producers).map_err(refusal::poison)?;
        let sampled = if plan.producers.is_empty() { 0 } else { PRUNE_SAMPLE };
        let loaded = Loaded {
            milliseconds: self.keyspace.now,
            generation: state.generation,
            last: state.last,
            pending_first,
            users,
            events: plan.events.iter().map(|event| self.keyspace.exists(&self.keys.dedup(event))).collect(),
            producers: plan.producers.iter().map(|name| producers.get(name).cloned()).collect(),
            producers_sample: sample(&producers, sampled),
        };
        Ok((loaded, self.state_writes))
    }

    pub fn commit(&mut self, watched: u64, commit: &Commit) -> Result<Committed, Error> {
        self.writable()?;
        if watched != self.state_writes && !self.unfenced {
            return Ok(Committed::Refused);
        }
        self.remember();
        let stored = self.state()?;
        self.history.commits.push(Record {
            id: commit.state.last,
            previous: commit.signal.previous,
            generation_stored: stored.generation,
            entries: commit.acks.clone(),
            lost: false,
        });
        if let Some(group) = self.changes()?.group() {
            group.pending.retain(|id, _| !commit.acks.contains(id));
        }
        let mut errors: Vec<String> = commit.ops.iter().filter_map(|op| self.keyspace.execute(op).err()).collect();
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
        Ok(changes.map_or(0, |changes| changes.trim_below(changes.needed_from().min(oldest))))
    }

    pub fn backlog(&mut self) -> Result<Backlog, Error> {
        let (state, now) = (self.state()?, self.keyspace.now);
        let dead = self.keyspace.get::<Stream>(&self.keys.dead_letters).map_err(refusal::poison)?;
        let dead_letters = dead.map_or(0, |dead| dead.entries.len() as u64);
        let changes = self.changes()?;
        let group = changes.groups.get(GROUP).ok_or_else(refusal::no_group)?;
        let oldest = changes.entries.range(after(state.applied)..).next();
        Ok(Backlog {
            unread: changes.unread(group),
            pending: group.pending.len() as u64,
            oldest_milliseconds: oldest.map(|(id, _)| now.saturating_sub(id.milliseconds)),
            dead_letters,
        })
    }

    pub fn lose_lease(&mut self) {
        self.keyspace.delete(&self.keys.lease);
    }

    pub fn destroy_group(&mut self) {
        if let Ok(Some(changes)) = self.keyspace.find_mut::<Stream>(&self.keys.changes) {
            changes.groups.remove(GROUP);
        }
        self.unblock(&refusal::no_group());
    }

    /// All keys are gone. Nobody writes `state` here, but what was watched was touched.
    pub fn flush(&mut self) {
        self.keyspace.clear();
        self.state_writes += 1;
        self.unblock(&refusal::unblocked());
    }

    /// Trims the oldest pending entry and everything before it.
    pub fn trim_pending(&mut self) {
        let Ok(Some(changes)) = self.keyspace.find_mut::<Stream>(&self.keys.changes) else {
            return;
        };
        let first = changes.group().and_then(|group| group.pending.keys().next().copied());
        if let Some(first) = first {
            changes.trim_below(after(first));
            self.history.trimmed.push(first);
        }
    }

    /// A replica takes over that has not heard of the last commits nor of anything since. Appended entries are kept:
    /// their writers waited for the replica.
    pub fn fail_over(&mut self, away: Duration, commits_lost: usize) {
        let lost = commits_lost.min(self.before_commits.len());
        if lost > 0 {
            let at = self.before_commits.len() - lost;
            let mut restored = self.before_commits.split_off(at).pop_front().unwrap_or_default();
            restored.now = self.keyspace.now;
            self.keyspace = restored;
            self.keep_entries();
            self.history.lose(lost);
        }
        self.epoch += 1;
        self.state_writes += 1;
        self.inbox.clear();
        self.unblock(&refusal::unblocked());
        self.away_until = self.keyspace.now + away.as_millis() as u64;
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
            let count = waiter.count;
            let entries = self.changes().ok().and_then(|changes| changes.deliver(count)).unwrap_or_default();
            if entries.is_empty() {
                return;
            }
            // Whether or not anybody is there to hear it.
            self.waiters.pop_front().into_iter().for_each(|waiter| drop(waiter.reply.send(Ok(entries.clone()))));
        }
    }

    fn unblock(&mut self, error: &Error) {
        self.waiters.drain(..).for_each(|waiter| drop(waiter.reply.send(Err(error.clone()))));
    }

    fn remember(&mut self) {
        if self.snapshots_max > 0 {
            self.before_commits.push_back(self.keyspace.clone());
        }
        while self.before_commits.len() > self.snapshots_max {
            self.before_commits.pop_front();
        }
    }

    /// Puts back the entries that were appended since, also those that were settled and trimmed since.
    fn keep_entries(&mut self) {
        let Ok(changes) = self.keyspace.get_mut::<Stream>(&self.keys.changes) else {
            return;
        };
        let later = self.history.entries.iter().rev().take_while(|(id, _)| *id > changes.last);
        changes.entries.extend(later.cloned());
        changes.last = changes.entries.keys().next_back().map_or(changes.last, |last| changes.last.max(*last));
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
            counts: Counts { entries: number("entries"), dead: number("dead"), skipped: number("skipped") },
        })
    }

    fn load_user(&self, plan: &UserPlan) -> Result<UserLoaded, String> {
        let (birthdays, profile) = (self.hash(&self.keys.birthdays(&plan.user))?, self.keys.profile(&plan.user));
        let versions = self.hash(&self.keys.versions(&plan.user))?;
        let profile_version = self.hash(&profile)?.get("version").cloned();
        Ok(UserLoaded {
            friends: plan.friends.iter().map(|friend| birthdays.get(friend.as_str()).cloned()).collect(),
            versions: plan.versions.iter().map(|field| versions.get(field).cloned()).collect(),
            profile_version: profile_version.filter(|_| plan.profile),
            extent: plan.extent.then(|| (birthdays.len() as u64, self.keyspace.exists(&profile))),
            sample: sample(&versions, if plan.sample { PRUNE_SAMPLE } else { 0 }),
        })
    }

    fn hash(&self, key: &crate::key::Key) -> Result<std::borrow::Cow<'_, Hash>, String> {
        Ok(self.keyspace.get::<Hash>(key)?.map_or_else(Default::default, std::borrow::Cow::Borrowed))
    }
}

fn sample(fields: &Hash, count: usize) -> Vec<(String, String)> {
    fields.iter().take(count).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The hash `state` after a commit; `generation` is written by taking the lease alone.
fn state_fields(state: &ShardState, applied_at: u64) -> [(String, String); 6] {
    let ShardState { last, applied, counts, .. } = state;
    [
        ("last", last.to_string()),
        ("applied", applied.to_string()),
        ("applied_at", applied_at.to_string()),
        ("entries", counts.entries.to_string()),
        ("dead", counts.dead.to_string()),
        ("skipped", counts.skipped.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}
