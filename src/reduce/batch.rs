//! A batch as one commit.

use bytes::Bytes;
use foldhash::HashMap;

use super::days::Days;
use super::jobs::JobChange;
use super::plan::producer_of;
use super::step::Place;
use super::user::{Beyond, Moment, Working, Writing};
use super::{Commit, Decoded, Loaded, Op, Outcome, PRUNE_SAMPLE, Plan, Rules, ShardState};
use crate::calendar::Window;
use crate::change::{Change, Fields, Rejection, SHARD_PRODUCER, UserId};
use crate::key::ShardKeys;
use crate::position::{CommitId, EntryId, Order};
use crate::signal::{Signal, Views};

/// Settles every entry of `batch` on top of `state`, in order. `plan` and `loaded` belong to this batch and state.
pub fn reduce(
    rules: &Rules,
    keys: &ShardKeys,
    state: &ShardState,
    batch: &[Decoded],
    (plan, loaded): (&Plan, &Loaded),
) -> Commit {
    let window = state.window(&rules.calendar, loaded.milliseconds);
    let mut reduction = Reduction::new((rules, window), keys, plan, loaded);
    reduction.order = state.order;
    let outcomes: Vec<Outcome> = batch.iter().map(|decoded| reduction.settle(decoded, state.applied)).collect();
    let dead_kinds = std::mem::take(&mut reduction.dead_kinds);
    let mut after = state.next(window);
    after.order = reduction.order;
    after.applied = batch.last().map_or(state.applied, |decoded| decoded.entry.id.max(state.applied));
    // What was settled before is only acknowledged again.
    let new = batch.iter().filter(|decoded| decoded.entry.id > state.applied).count();
    after.counts.entries += new as u64;
    after.counts.dead += dead_kinds.len() as u64;
    let changed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied | Outcome::Dead)).count();
    after.counts.skipped += (new - changed) as u64;
    let effects = reduction.write(after.last);
    let settled: Vec<EntryId> = batch.iter().map(|decoded| decoded.entry.id).collect();
    let pends = |id: &EntryId| loaded.pending > 1 || loaded.pending_first == Some(*id);
    Commit {
        acks: settled.iter().copied().filter(pends).collect(),
        settled,
        ops: effects.ops,
        signal: Signal {
            id: after.last,
            previous: state.last,
            at_milliseconds: loaded.milliseconds,
            users: effects.users,
        },
        state: after,
        log_length_max: rules.log_length_max,
        outcomes,
        dead_kinds,
        relays: effects.relays,
        jobs: effects.jobs,
    }
}

/// What one step of a job or of a roll comes to, beside the state.
#[derive(Default)]
pub(super) struct StepEffects {
    pub ops: Vec<Op>,
    pub users: Vec<(UserId, Views)>,
    pub relays: Vec<Change>,
    pub jobs: Vec<JobChange>,
}

impl Commit {
    /// Of one step that no entry asked for.
    pub(super) fn of_step(
        place: Place<'_>,
        (before, after): (&ShardState, ShardState),
        at: u64,
        step: StepEffects,
    ) -> Commit {
        let StepEffects { mut ops, users, relays, jobs } = step;
        enqueue(place.keys, after.last, &relays, &mut ops);
        note_jobs(place.keys, &jobs, &mut ops);
        Commit {
            settled: Vec::new(),
            acks: Vec::new(),
            ops,
            signal: Signal { id: after.last, previous: before.last, at_milliseconds: at, users },
            state: after,
            log_length_max: place.rules.log_length_max,
            outcomes: Vec::new(),
            dead_kinds: Vec::new(),
            relays: relays.len() as u64,
            jobs,
        }
    }
}

fn enqueue(keys: &ShardKeys, commit: CommitId, relays: &[Change], ops: &mut Vec<Op>) {
    for (index, change) in (0..).zip(relays) {
        let fields = change.encode().into_iter();
        let fields = fields.map(|(name, value)| (name.into_owned().into(), value.into_owned().into())).collect();
        ops.push(Op::Enqueue { key: keys.outbox.clone(), id: commit.outbox(index), fields });
    }
}

fn note_jobs(keys: &ShardKeys, jobs: &[JobChange], ops: &mut Vec<Op>) {
    let set: Vec<(String, String)> =
        jobs.iter().filter_map(|(job, progress)| Some((job.to_string(), progress.as_ref()?.to_string()))).collect();
    let deleted: Vec<String> =
        jobs.iter().filter(|(_, progress)| progress.is_none()).map(|(job, _)| job.to_string()).collect();
    if !deleted.is_empty() {
        ops.push(Op::HashDelete { key: keys.fanout.clone(), fields: deleted });
    }
    if !set.is_empty() {
        ops.push(Op::HashSet { key: keys.fanout.clone(), fields: set });
    }
}

/// What a batch comes to.
struct Effects {
    ops: Vec<Op>,
    users: Vec<(UserId, Views)>,
    relays: u64,
    jobs: Vec<JobChange>,
}

struct Reduction<'a> {
    rules: &'a Rules,
    keys: &'a ShardKeys,
    plan: &'a Plan,
    loaded: &'a Loaded,
    window: Window,
    users: HashMap<&'a UserId, usize>,
    working: Vec<Working<'a>>,
    /// Event ids seen before or in this batch.
    events: HashMap<&'a str, bool>,
    events_new: Vec<&'a str>,
    /// The last applied sequence of each producer.
    producers: HashMap<&'a str, Position>,
    ops: Vec<Op>,
    dead_kinds: Vec<&'static str>,
    /// The shard's clock of orders.
    order: Order,
    /// For other shards, in the order of the entries.
    relays: Vec<Change>,
}

/// A producer's: its own number, or the two of a place in another shard's outbox.
type Sequence = (u64, u64);

struct Position {
    sequence: Option<Sequence>,
    known: bool,
    moved: bool,
}

impl<'a> Reduction<'a> {
    fn new(
        (rules, window): (&'a Rules, Window),
        keys: &'a ShardKeys,
        plan: &'a Plan,
        loaded: &'a Loaded,
    ) -> Reduction<'a> {
        let position = |stored: &Option<String>| Position {
            sequence: stored.as_deref().and_then(|text| sequence(text.split(':').next()?)),
            known: stored.is_some(),
            moved: false,
        };
        Reduction {
            rules,
            keys,
            plan,
            loaded,
            window,
            users: plan.users.iter().enumerate().map(|(at, user)| (&user.user, at)).collect(),
            working: plan
                .users
                .iter()
                .zip(&loaded.users)
                .map(|user| Working::new(rules, user, loaded.milliseconds))
                .collect(),
            events: plan.events.iter().map(String::as_str).zip(loaded.events.iter().copied()).collect(),
            events_new: Vec::new(),
            producers: plan.producers.iter().map(String::as_str).zip(loaded.producers.iter().map(position)).collect(),
            ops: Vec::new(),
            dead_kinds: Vec::new(),
            order: Order::default(),
            relays: Vec::new(),
        }
    }

    fn settle(&mut self, decoded: &'a Decoded, applied: EntryId) -> Outcome {
        // Below the stored position everything is settled: a server that forgot an acknowledgement delivers it again.
        if decoded.entry.id <= applied {
            return Outcome::Duplicate;
        }
        match &decoded.change {
            Ok(change) => self.change(change, decoded.entry.id).unwrap_or_else(|rejection| {
                // A replay is no repetition.
                if let Some(event) = change.event.as_deref() {
                    self.forget_event(event);
                }
                self.bury(decoded, &rejection)
            }),
            Err(rejection) => self.bury(decoded, rejection),
        }
    }

    fn change(&mut self, change: &'a Change, entry: EntryId) -> Result<Outcome, Rejection> {
        // Both are looked at, so that a repeated entry moves its producer's position all the same.
        let repeated_sequence = self.repeated_sequence(change);
        let repeated_event =
            change.event.as_deref().is_some_and(|event| !repeated_sequence && self.repeated_event(event));
        if repeated_sequence || repeated_event {
            return Ok(Outcome::Duplicate);
        }
        let moment = Moment {
            version: change.version,
            changed_at: change.at.unwrap_or(entry.milliseconds),
            now: self.loaded.milliseconds,
            entry,
            shard: self.keys.shard.0,
            relayed: change.relayed.is_some(),
        };
        let mut outcomes = change.users().map(|user| {
            let mut beyond = Beyond { order: &mut self.order, relays: &mut self.relays };
            self.working[self.users[user]].apply(&change.action, moment, &mut beyond)
        });
        let first = outcomes.next().expect("every change has a user")?;
        // What changes one of several views is applied; there is always room for what concerns several.
        outcomes
            .try_fold(first, |outcome, other| Ok(if other? == Outcome::Applied { Outcome::Applied } else { outcome }))
    }

    fn repeated_sequence(&mut self, change: &Change) -> bool {
        let Some(name) = producer_of(change) else {
            return false;
        };
        let sequence = match (&change.producer, &change.relayed) {
            (Some(producer), _) => (producer.sequence, 0),
            (None, relayed) => relayed.map_or((0, 0), |relayed| (relayed.id.milliseconds, relayed.id.sequence)),
        };
        let position = self.producers.get_mut(&*name).expect("the plan names every producer");
        if position.sequence.is_some_and(|last| sequence <= last) {
            return true;
        }
        position.sequence = Some(sequence);
        position.moved = true;
        false
    }

    fn repeated_event(&mut self, event: &'a str) -> bool {
        let seen = self.events.get_mut(event).expect("the plan names every event id");
        if !std::mem::replace(seen, true) {
            self.events_new.push(event);
            return false;
        }
        true
    }

    fn forget_event(&mut self, event: &'a str) {
        self.events.insert(event, false);
        self.events_new.retain(|new| *new != event);
    }

    fn bury(&mut self, decoded: &Decoded, rejection: &Rejection) -> Outcome {
        self.dead_kinds.push(rejection.kind());
        self.ops.push(Op::Append {
            key: self.keys.dead_letters.clone(),
            length_max: self.rules.dead_letters_max,
            fields: dead_letter(decoded.entry.id, rejection, decoded.entry.fields.as_ref()),
        });
        Outcome::Dead
    }

    fn write(mut self, commit: CommitId) -> Effects {
        let mut days = Days::new(self.rules, self.window);
        let mut jobs = Vec::new();
        let at = Writing { commit, now: self.loaded.milliseconds, letters_last: self.loaded.letters_last };
        let (mut listed, mut unlisted, mut users) = (Vec::new(), Vec::new(), Vec::new());
        for (plan, working) in self.plan.users.iter().zip(&self.working) {
            let written = working.write(self.keys, self.rules, at, &mut self.ops);
            days.note(&plan.user, written.zone.as_deref(), &written.dates);
            jobs.extend(written.jobs);
            match written.listed {
                Some(true) => listed.push((0, plan.user.as_str().to_owned())),
                Some(false) => unlisted.push(plan.user.as_str().to_owned()),
                None => {}
            }
            if !written.views.is_empty() {
                users.push((plan.user.clone(), written.views));
            }
        }
        let index = &self.keys.users;
        if !listed.is_empty() {
            self.ops.push(Op::SortedAdd { key: index.clone(), members: listed });
        }
        if !unlisted.is_empty() {
            self.ops.push(Op::SortedRemove { key: index.clone(), members: unlisted });
        }
        days.write(self.keys, &mut self.ops);
        self.write_memory();
        enqueue(self.keys, commit, &self.relays, &mut self.ops);
        note_jobs(self.keys, &jobs, &mut self.ops);
        Effects { ops: self.ops, users, relays: self.relays.len() as u64, jobs }
    }

    /// Event ids and producer positions.
    fn write_memory(&mut self) {
        for event in &self.events_new {
            self.ops.push(Op::Remember { key: self.keys.dedup(event), ttl: self.rules.dedup_window });
        }
        let now = self.loaded.milliseconds;
        let moved = self.plan.producers.iter().filter(|name| self.producers[name.as_str()].moved);
        let set: Vec<(String, String)> = moved
            .filter_map(|name| {
                Some((name.clone(), format!("{}:{now}", text(name, self.producers[name.as_str()].sequence?))))
            })
            .collect();
        let retention = self.rules.producer_retention.as_millis() as u64;
        let old = |value: &str| {
            let seen = value.split_once(':').and_then(|(_, seen)| seen.parse::<u64>().ok());
            seen.is_some_and(|seen| seen.saturating_add(retention) < now)
        };
        // Only a newcomer makes the hash grow, so only then is it pruned.
        let grows = self.producers.values().any(|position| position.moved && !position.known);
        let sample = if grows { &self.loaded.producers_sample[..] } else { &[] };
        let pruned: Vec<String> = sample
            .iter()
            .take(PRUNE_SAMPLE)
            .filter(|(name, value)| old(value) && !self.producers.contains_key(name.as_str()))
            .map(|(name, _)| name.clone())
            .collect();
        let key = &self.keys.producers;
        if !pruned.is_empty() {
            self.ops.push(Op::HashDelete { key: key.clone(), fields: pruned });
        }
        if !set.is_empty() {
            self.ops.push(Op::HashSet { key: key.clone(), fields: set });
        }
    }
}

/// A number of a writer's, or a place in an outbox.
fn sequence(text: &str) -> Option<Sequence> {
    match text.split_once('-') {
        None => Some((text.parse().ok()?, 0)),
        Some((major, minor)) => Some((major.parse().ok()?, minor.parse().ok()?)),
    }
}

fn text(producer: &str, (major, minor): Sequence) -> String {
    if producer.starts_with(SHARD_PRODUCER) { format!("{major}-{minor}") } else { major.to_string() }
}

/// The fields of a dead letter: why, which entry, and what it held, each name behind `f.`.
fn dead_letter(entry: EntryId, rejection: &Rejection, fields: Option<&Fields>) -> Vec<(Bytes, Bytes)> {
    let mut letter = vec![
        (Bytes::from_static(b"reason"), Bytes::from(rejection.to_string())),
        (Bytes::from_static(b"kind"), Bytes::from_static(rejection.kind().as_bytes())),
        (Bytes::from_static(b"entry"), Bytes::from(entry.to_string())),
    ];
    let held = fields.into_iter().flatten();
    letter.extend(held.map(|(name, value)| (Bytes::from([b"f.", &name[..]].concat()), value.clone())));
    letter
}
