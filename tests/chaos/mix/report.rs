//! What many rounds came to, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::pauses::{Cause, Pause};
use super::round::{Counts, Outcome};
use super::schedule::Kind;

/// The sums over all rounds.
#[derive(Default)]
pub struct Report {
    pub rounds: usize,
    pub took: Duration,
    kinds: BTreeMap<Kind, OfKind>,
    counts: Counts,
    wrong: usize,
    pauses: BTreeMap<Cause, Pause>,
}

/// What there was of one kind.
#[derive(Default)]
struct OfKind {
    /// Times that it struck.
    struck: usize,
    /// How long it was in force, from its first act until what it struck was whole.
    in_force: Duration,
    /// The length of the rounds that had it.
    rounds: Duration,
}

impl Report {
    pub fn add(&mut self, outcome: &Outcome) {
        self.rounds += 1;
        self.took += outcome.took;
        self.wrong += outcome.wrong.len();
        let mut struck = BTreeMap::<Kind, (usize, u64)>::new();
        for strike in &outcome.strikes {
            let (count, lasted) = struck.entry(strike.kind).or_default();
            *count += 1;
            *lasted += strike.end_ms.saturating_sub(strike.begin_ms);
        }
        for (kind, (count, lasted)) in struck {
            let kind = self.kinds.entry(kind).or_default();
            kind.struck += count;
            kind.in_force += Duration::from_millis(lasted);
            kind.rounds += outcome.took;
        }
        for pause in &outcome.pauses {
            let known = self.pauses.entry(pause.cause).or_insert(*pause);
            if known.lasted < pause.lasted {
                *known = *pause;
            }
        }
        self.counts.add(&outcome.counts);
    }

    /// The longest pause of a shard that no fault touched, and of one that some did.
    fn longest(&self, affected: bool) -> Duration {
        let pauses = self.pauses.values().filter(|pause| (pause.cause != Cause::None) == affected);
        pauses.map(|pause| pause.lasted).max().unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        let kinds: Vec<Value> = self.kinds.iter().map(|(kind, of)| self.kind(*kind, of)).collect();
        let Counts {
            acknowledged,
            refused,
            unknown,
            unknown_appended,
            applied,
            dead,
            lost_by_redis,
            lost,
            doubled,
            disordered,
            heard,
            resets,
        } = self.counts;
        json!({
            "rounds": self.rounds,
            "minutes": minutes(self.took),
            "faults": kinds,
            "appends": {
                "acknowledged": acknowledged,
                "refused": refused,
                "unknown": unknown,
                "unknown_appended": unknown_appended,
            },
            "changes": {
                "applied": applied,
                "dead_letters": dead,
                "lost": lost,
                "lost_by_redis": lost_by_redis,
                "doubled": doubled,
                "out_of_order": disordered,
            },
            "subscribers": { "heard": heard, "resets": resets },
            "longest_pause_ms": {
                "unaffected_shard": self.longest(false).as_millis() as u64,
                "affected_shard": self.longest(true).as_millis() as u64,
            },
            "wrong": self.wrong,
        })
    }

    fn kind(&self, kind: Kind, of: &OfKind) -> Value {
        let alone = self.pauses.get(&Cause::One(kind)).map(|pause| pause.lasted.as_millis() as u64);
        json!({
            "kind": format!("{kind:?}"),
            "struck": of.struck,
            "minutes_in_force": minutes(of.in_force),
            "minutes_of_rounds": minutes(of.rounds),
            "longest_pause_alone_ms": alone,
        })
    }

    /// The same for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let counts = &self.counts;
        let _ = writeln!(text, "{} rounds, {} minutes", self.rounds, minutes(self.took));
        let _ = writeln!(
            text,
            "{:<22}{:>8}{:>16}{:>19}{:>22}",
            "fault", "struck", "min in force", "min of rounds", "longest pause alone"
        );
        for (kind, of) in &self.kinds {
            let alone = self.pauses.get(&Cause::One(*kind)).map(|pause| format!("{} ms", pause.lasted.as_millis()));
            let _ = writeln!(
                text,
                "{:<22}{:>8}{:>16}{:>19}{:>22}",
                format!("{kind:?}"),
                of.struck,
                minutes(of.in_force),
                minutes(of.rounds),
                alone.unwrap_or_default()
            );
        }
        let _ = writeln!(
            text,
            "appends: {} acknowledged, {} refused, {} unknown ({} of them appended)",
            counts.acknowledged, counts.refused, counts.unknown, counts.unknown_appended
        );
        let _ = writeln!(
            text,
            "changes: {} applied, {} dead letters; lost {}, doubled {}, out of order {}; lost by Redis {}",
            counts.applied, counts.dead, counts.lost, counts.doubled, counts.disordered, counts.lost_by_redis
        );
        let _ = writeln!(text, "subscribers: {} changes heard, {} resets", counts.heard, counts.resets);
        let _ = writeln!(
            text,
            "longest pause: {} ms of a shard that no fault touched, {} ms of one that some did",
            self.longest(false).as_millis(),
            self.longest(true).as_millis()
        );
        let _ = write!(text, "wrong: {}", self.wrong);
        text
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.unknown_appended += other.unknown_appended;
        self.applied += other.applied;
        self.dead += other.dead;
        self.lost_by_redis += other.lost_by_redis;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.disordered += other.disordered;
        self.heard += other.heard;
        self.resets += other.resets;
    }
}

fn minutes(time: Duration) -> f64 {
    (time.as_secs_f64() / 0.6).round() / 100.0
}
