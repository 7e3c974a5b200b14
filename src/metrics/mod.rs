//! What a process tells about itself: numbers for Prometheus, and whether it lives and is ready.
//!
//! Handles are cheap to clone and need no lock of the caller's. What can end with a panic (an owned shard, a link, a
//! pause) is counted by a guard, so that no gauge outlives what it counts.

mod health;
mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

pub use health::{Health, Readiness};
pub use table::{Kind, METRICS, Metric, markdown};

/// What `/metrics` answers with.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Seconds = Gauge<f64, AtomicU64>;

/// The numbers of one process.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    handles: Arc<Handles>,
    health: Health,
}

#[derive(Debug, Default)]
struct Handles {
    shards_owned: Gauge,
    shard_lag_changes: Family<OfShard, Gauge>,
    shard_oldest_seconds: Family<OfShard, Seconds>,
    dead_letters: Family<OfShard, Gauge>,
    outbox_entries: Family<OfShard, Gauge>,
    commits: Counter,
    changes: Family<OfOutcome, Counter>,
    batch_changes: ByCount,
    freshness_seconds: ByTime,
    commit_seconds: ByTime,
    retries: Family<OfReason, Counter>,
    dead_letters_written: Family<OfReason, Counter>,
    links_open: Gauge,
    links_opened: Counter,
    takeovers: Family<OfCause, Counter>,
    fenced: Counter,
    backpressure: Gauge,
    maintenance_paused: Gauge,
    maintenance_expired: Counter,
    trimmed: Counter,
    relayed: Counter,
    rolls: Counter,
    rolled_users: Counter,
    heartbeat_age_seconds: Seconds,
}

/// What one commit did.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchStats<'a> {
    pub outcomes: Outcomes,
    /// The kind of each dead letter, such as `no_such_day`.
    pub dead_kinds: &'a [&'static str],
    /// For each entry, the time from its append to its commit.
    pub freshness: &'a [Duration],
    /// From the first byte of the commit to its answer.
    pub commit: Duration,
}

/// How the entries of a batch were settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub applied: u64,
    pub unchanged: u64,
    pub outdated: u64,
    pub duplicate: u64,
    pub no_such_friend: u64,
    pub dead: u64,
}

/// What waits in a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Unread and pending entries.
    pub changes: u64,
    /// The age of the oldest of them; zero where there is none.
    pub oldest: Duration,
    pub dead_letters: u64,
    /// Changes for other shards.
    pub outbox: u64,
}

/// An owned shard's own series. Dropping it takes them away.
#[derive(Debug)]
pub struct OwnedShard {
    handles: Arc<Handles>,
    label: OfShard,
    lag_changes: Gauge,
    oldest_seconds: Seconds,
    dead_letters: Gauge,
    outbox_entries: Gauge,
}

/// Counts something that is there as long as this is.
#[derive(Debug)]
pub struct Presence(Gauge);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfShard {
    shard: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCause {
    cause: &'static str,
}

/// From half a millisecond to half a minute.
#[derive(Debug)]
struct ByTime(Histogram);

/// From 1 to 16384.
#[derive(Debug)]
struct ByCount(Histogram);

impl Metrics {
    /// Registers every metric of the table.
    #[must_use]
    pub fn new(health: Health) -> Self {
        let handles = Handles::default();
        let mut registry = Registry::default();
        table::register_all(&mut registry, &handles);
        Self { registry: Arc::new(registry), handles: Arc::new(handles), health }
    }

    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// A shard is this worker's now.
    #[must_use]
    pub fn shard_owned(&self, shard: u32) -> OwnedShard {
        let label = OfShard { shard };
        self.handles.shards_owned.inc();
        OwnedShard {
            lag_changes: self.handles.shard_lag_changes.get_or_create_owned(&label),
            oldest_seconds: self.handles.shard_oldest_seconds.get_or_create_owned(&label),
            dead_letters: self.handles.dead_letters.get_or_create_owned(&label),
            outbox_entries: self.handles.outbox_entries.get_or_create_owned(&label),
            handles: Arc::clone(&self.handles),
            label,
        }
    }

    /// A shard was taken that was not this worker's; `cause` says why it was free.
    pub fn taken_over(&self, cause: &'static str) {
        self.handles.takeovers.get_or_create(&OfCause { cause }).inc();
    }

    /// A shard was dropped because somebody else owns it.
    pub fn fenced(&self) {
        self.handles.fenced.inc();
    }

    pub fn committed(&self, batch: &BatchStats<'_>) {
        let handles = &*self.handles;
        handles.commits.inc();
        handles.batch_changes.0.observe(batch.outcomes.total() as f64);
        handles.commit_seconds.0.observe(batch.commit.as_secs_f64());
        for freshness in batch.freshness {
            handles.freshness_seconds.0.observe(freshness.as_secs_f64());
        }
        for (outcome, count) in batch.outcomes.named().into_iter().filter(|(_, count)| *count > 0) {
            handles.changes.get_or_create(&OfOutcome { outcome }).inc_by(count);
        }
        for reason in batch.dead_kinds {
            handles.dead_letters_written.get_or_create(&OfReason { reason }).inc();
        }
    }

    /// An operation is tried again; `reason` is one of a fixed set of names.
    pub fn retried(&self, reason: &'static str) {
        self.handles.retries.get_or_create(&OfReason { reason }).inc();
    }

    /// Entries were trimmed behind every group.
    pub fn trimmed(&self, entries: u64) {
        self.handles.trimmed.inc_by(entries);
    }

    /// Entries went to other shards.
    pub fn relayed(&self, entries: u64) {
        self.handles.relayed.inc_by(entries);
    }

    /// A step of a roll looked at so many users, and may have been the last one.
    pub fn rolled(&self, users: u64, ended: bool) {
        self.handles.rolled_users.inc_by(users);
        self.handles.rolls.inc_by(ended.into());
    }

    /// A link is open as long as the answer lives.
    #[must_use]
    pub fn link_opened(&self) -> Presence {
        self.handles.links_opened.inc();
        Presence::of(&self.handles.links_open)
    }

    /// A shard has paused because its node's memory is full, as long as the answer lives.
    #[must_use]
    pub fn memory_full(&self) -> Presence {
        Presence::of(&self.handles.backpressure)
    }

    /// A shard has paused because of maintenance, as long as the answer lives.
    #[must_use]
    pub fn maintenance_paused(&self) -> Presence {
        Presence::of(&self.handles.maintenance_paused)
    }

    /// A maintenance lock ran out that nobody had ended.
    pub fn maintenance_expired(&self) {
        self.handles.maintenance_expired.inc();
    }

    /// Shards owned now.
    #[must_use]
    pub fn shards_owned(&self) -> i64 {
        self.handles.shards_owned.get()
    }

    /// Commits since the start.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.handles.commits.get()
    }

    /// Entries settled since the start, in whatever way.
    #[must_use]
    pub fn settled(&self) -> u64 {
        let counted = |(outcome, _)| self.handles.changes.get_or_create(&OfOutcome { outcome }).get();
        Outcomes::default().named().into_iter().map(counted).sum()
    }

    /// Everything, in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        self.handles.heartbeat_age_seconds.set(self.health.heartbeat_age().as_secs_f64());
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }
}

impl Outcomes {
    #[must_use]
    pub fn total(&self) -> u64 {
        self.named().into_iter().map(|(_, count)| count).sum()
    }

    fn named(&self) -> [(&'static str, u64); 6] {
        let Self { applied, unchanged, outdated, duplicate, no_such_friend, dead } = *self;
        [
            ("applied", applied),
            ("unchanged", unchanged),
            ("outdated", outdated),
            ("duplicate", duplicate),
            ("no_such_friend", no_such_friend),
            ("dead", dead),
        ]
    }
}

impl OwnedShard {
    pub fn backlog(&self, backlog: Backlog) {
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.lag_changes.set(whole(backlog.changes));
        self.oldest_seconds.set(backlog.oldest.as_secs_f64());
        self.dead_letters.set(whole(backlog.dead_letters));
        self.outbox_entries.set(whole(backlog.outbox));
    }
}

impl Drop for OwnedShard {
    fn drop(&mut self) {
        self.handles.shards_owned.dec();
        self.handles.shard_lag_changes.remove(&self.label);
        self.handles.shard_oldest_seconds.remove(&self.label);
        self.handles.dead_letters.remove(&self.label);
        self.handles.outbox_entries.remove(&self.label);
    }
}

impl Presence {
    fn of(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for ByTime {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(0.0005, 2.0, 17)))
    }
}

impl Default for ByCount {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(1.0, 2.0, 15)))
    }
}

#[cfg(test)]
mod tests;
