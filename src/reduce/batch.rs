//! A batch as one commit.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use jiff::civil::Date;

use super::user::{Moment, Working, Written};
use super::{Commit, Decoded, Loaded, Op, Outcome, PRUNE_SAMPLE, Plan, Rules, ShardState};
use crate::calendar::Window;
use crate::change::{Change, Fields, Producer, Rejection, UserId};
use crate::key::{ShardKeys, day_member};
use crate::position::{CommitId, EntryId};
use crate::signal::Signal;

/// Settles every entry of `batch` on top of `state`, in order. `plan` and `loaded` belong to this batch and state.
pub fn reduce(
    rules: &Rules,
    keys: &ShardKeys,
    state: &ShardState,
    batch: &[Decoded],
    (plan, loaded): (&Plan, &Loaded),
) -> Commit {
    let mut reduction = Reduction::new(rules, keys, plan, loaded);
    let outcomes: Vec<Outcome> = batch.iter().map(|decoded| reduction.settle(decoded, state.applied)).collect();
    let dead_kinds = std::mem::take(&mut reduction.dead_kinds);
    let (ops, users) = reduction.write();

    let mut after = *state;
    let sequence = if state.last.generation == state.generation { state.last.sequence + 1 } else { 1 };
    after.last = CommitId::new(state.generation, sequence);
    after.applied = batch.last().map_or(state.applied, |decoded| decoded.entry.id.max(state.applied));
    after.counts.entries += batch.len() as u64;
    after.counts.dead += dead_kinds.len() as u64;
    let changed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied | Outcome::Dead)).count();
    after.counts.skipped += (batch.len() - changed) as u64;
    Commit {
        acks: batch.iter().map(|decoded| decoded.entry.id).collect(),
        ops,
        signal: Signal { id: after.last, previous: state.last, at_milliseconds: loaded.milliseconds, users },
        state: after,
        log_length_max: rules.log_length_max,
        outcomes,
        dead_kinds,
    }
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
}

struct Position {
    sequence: Option<u64>,
    known: bool,
    moved: bool,
}

impl<'a> Reduction<'a> {
    fn new(rules: &'a Rules, keys: &'a ShardKeys, plan: &'a Plan, loaded: &'a Loaded) -> Reduction<'a> {
        let position = |stored: &Option<String>| Position {
            sequence: stored.as_deref().and_then(|text| text.split(':').next()?.parse().ok()),
            known: stored.is_some(),
            moved: false,
        };
        Reduction {
            rules,
            keys,
            plan,
            loaded,
            window: rules.calendar.window(loaded.milliseconds),
            users: plan.users.iter().enumerate().map(|(at, user)| (&user.user, at)).collect(),
            working: plan.users.iter().zip(&loaded.users).map(|(plan, loaded)| Working::new(plan, loaded)).collect(),
            events: plan.events.iter().map(String::as_str).zip(loaded.events.iter().copied()).collect(),
            events_new: Vec::new(),
            producers: plan.producers.iter().map(String::as_str).zip(loaded.producers.iter().map(position)).collect(),
            ops: Vec::new(),
            dead_kinds: Vec::new(),
        }
    }

    fn settle(&mut self, decoded: &'a Decoded, applied: EntryId) -> Outcome {
        // Below the stored position everything is settled: a server that forgot an acknowledgement delivers it again.
        if decoded.entry.id <= applied {
            return Outcome::Duplicate;
        }
        match &decoded.change {
            Ok(change) => self.change(change, decoded.entry.id),
            Err(rejection) => {
                self.bury(decoded, rejection);
                Outcome::Dead
            }
        }
    }

    fn change(&mut self, change: &'a Change, entry: EntryId) -> Outcome {
        // Both are looked at, so that a repeated entry moves its producer's position all the same.
        let repeated_sequence = change.producer.as_ref().is_some_and(|producer| self.repeated_sequence(producer));
        let repeated_event =
            change.event.as_deref().is_some_and(|event| !repeated_sequence && self.repeated_event(event));
        if repeated_sequence || repeated_event {
            return Outcome::Duplicate;
        }
        let at = self.users[&change.user];
        let moment = Moment {
            version: change.version,
            changed_at: change.at.unwrap_or(entry.milliseconds),
            now: self.loaded.milliseconds,
        };
        self.working[at].apply(&change.action, moment)
    }

    fn repeated_sequence(&mut self, producer: &'a Producer) -> bool {
        let position = self.producers.get_mut(producer.name.as_str()).expect("the plan names every producer");
        if position.sequence.is_some_and(|last| producer.sequence <= last) {
            return true;
        }
        position.sequence = Some(producer.sequence);
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

    fn bury(&mut self, decoded: &Decoded, rejection: &Rejection) {
        self.dead_kinds.push(rejection.kind());
        self.ops.push(Op::Append {
            key: self.keys.dead_letters.clone(),
            length_max: self.rules.dead_letters_max,
            fields: dead_letter(decoded.entry.id, rejection, decoded.entry.fields.as_ref()),
        });
    }

    fn write(mut self) -> (Vec<Op>, Vec<(UserId, crate::signal::Views)>) {
        let mut days = Days::default();
        let (mut listed, mut unlisted, mut users) = (Vec::new(), Vec::new(), Vec::new());
        for (plan, working) in self.plan.users.iter().zip(&self.working) {
            let written = working.write(self.keys, self.rules, self.loaded.milliseconds, &mut self.ops);
            days.note(self.rules, self.window, &plan.user, &written);
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
        days.write(self.rules, self.keys, &mut self.ops);
        self.write_memory();
        (self.ops, users)
    }

    /// Event ids and producer positions.
    fn write_memory(&mut self) {
        for event in &self.events_new {
            self.ops.push(Op::Remember { key: self.keys.dedup(event), ttl: self.rules.dedup_window });
        }
        let now = self.loaded.milliseconds;
        let moved = self.plan.producers.iter().filter(|name| self.producers[name.as_str()].moved);
        let set: Vec<(String, String)> = moved
            .filter_map(|name| Some((name.clone(), format!("{}:{now}", self.producers[name.as_str()].sequence?))))
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

/// The day keys that a batch touches.
#[derive(Default)]
struct Days {
    days: BTreeMap<Date, Day>,
}

#[derive(Default)]
struct Day {
    added: Vec<(i64, String)>,
    removed: Vec<String>,
}

impl Days {
    fn note(&mut self, rules: &Rules, window: Window, user: &UserId, written: &Written<'_>) {
        for change in &written.dates {
            let days = |birthday| rules.calendar.days(birthday, window);
            let after: Vec<Date> = change.after.into_iter().flat_map(days).collect();
            for date in change.before.into_iter().flat_map(days).filter(|date| !after.contains(date)) {
                self.days.entry(date).or_default().removed.push(day_member(user, change.friend));
            }
            for date in after {
                let member = (rules.calendar.due(date), day_member(user, change.friend));
                self.days.entry(date).or_default().added.push(member);
            }
        }
    }

    fn write(self, rules: &Rules, keys: &ShardKeys, ops: &mut Vec<Op>) {
        for (date, day) in self.days {
            let key = keys.day(date);
            if !day.removed.is_empty() {
                ops.push(Op::SortedRemove { key: key.clone(), members: day.removed });
            }
            if !day.added.is_empty() {
                ops.push(Op::SortedAdd { key: key.clone(), members: day.added });
                ops.push(Op::ExpireAt { key, at_seconds: rules.calendar.expires_at(date) });
            }
        }
    }
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
