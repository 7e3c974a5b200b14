//! Every metric in one table: what `/metrics` shows, and what `docs/operations.md` lists.

use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::registry::{Metric as Registrable, Registry, Unit};

use super::Handles;

/// One metric as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// `seconds`, `changes`, `shards` …
    pub unit: &'static str,
    /// Its label, where there is one.
    pub label: Option<&'static str>,
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

/// All of them. Cardinality is bounded: `shard` by the shards this worker owns, `outcome` and `reason` by the code.
#[rustfmt::skip] // One row a line, so that it reads as the table it is.
pub const METRICS: [Metric; 24] = [
    row("heyday_shards_owned", Gauge, "shards", None, "Shards this worker owns"),
    row("heyday_shard_lag_changes", Gauge, "changes", Some("shard"), "Changes that wait in an owned shard, unread or pending"),
    row("heyday_shard_oldest_seconds", Gauge, "seconds", Some("shard"), "Age of the oldest change that waits in an owned shard"),
    row("heyday_dead_letters", Gauge, "entries", Some("shard"), "Dead letters kept in an owned shard"),
    row("heyday_outbox_entries", Gauge, "entries", Some("shard"), "Changes for other shards that an owned shard has not relayed yet"),
    row("heyday_commits_total", Counter, "commits", None, "Commits done"),
    row("heyday_changes_total", Counter, "changes", Some("outcome"), "Changes settled: applied, unchanged, outdated, duplicate, no_such_friend or dead"),
    row("heyday_batch_changes", Histogram, "changes", None, "Changes in one commit"),
    row("heyday_freshness_seconds", Histogram, "seconds", None, "Time from the append of a change to its commit"),
    row("heyday_commit_seconds", Histogram, "seconds", None, "Time from sending a commit to its answer"),
    row("heyday_retries_total", Counter, "retries", Some("reason"), "Operations tried again"),
    row("heyday_dead_letters_written_total", Counter, "entries", Some("reason"), "Changes that became dead letters"),
    row("heyday_links_open", Gauge, "links", None, "Links to Redis that are open"),
    row("heyday_links_opened_total", Counter, "links", None, "Links to Redis that were opened"),
    row("heyday_takeovers_total", Counter, "shards", Some("cause"), "Shards taken, by why they were free: first, released or expired"),
    row("heyday_fenced_total", Counter, "shards", None, "Shards dropped because another worker owns them"),
    row("heyday_backpressure", Gauge, "shards", None, "Owned shards that have paused because memory is full"),
    row("heyday_maintenance_paused", Gauge, "shards", None, "Owned shards that have paused for maintenance"),
    row("heyday_maintenance_expired_total", Counter, "locks", None, "Maintenance locks that ran out because nobody ended them"),
    row("heyday_trimmed_total", Counter, "entries", None, "Entries trimmed from change streams"),
    row("heyday_relayed_total", Counter, "entries", None, "Changes relayed to other shards"),
    row("heyday_rolls_total", Counter, "shards", None, "Shards whose days were filled up to the horizon"),
    row("heyday_rolled_users_total", Counter, "users", None, "Users looked at by rolls"),
    row("heyday_heartbeat_age_seconds", Gauge, "seconds", None, "Time since the worker's supervision last did its round"),
];

const fn row(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    label: Option<&'static str>,
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, label, help }
}

/// The table as it stands in the documentation.
#[must_use]
pub fn markdown() -> String {
    let mut text = "| metric | type | unit | label | meaning |\n|---|---|---|---|---|\n".to_owned();
    for Metric { name, kind, unit, label, help } in METRICS {
        let kind = format!("{kind:?}").to_lowercase();
        let label = label.map_or(String::new(), |label| format!("`{label}`"));
        text.push_str(&format!("| `{name}` | {kind} | {unit} | {label} | {help} |\n"));
    }
    text
}

pub(super) fn register_all(registry: &mut Registry, handles: &Handles) {
    let mut table = Table { registry, left: METRICS.to_vec() };
    table.add("heyday_shards_owned", &handles.shards_owned);
    table.add("heyday_shard_lag_changes", &handles.shard_lag_changes);
    table.add("heyday_shard_oldest_seconds", &handles.shard_oldest_seconds);
    table.add("heyday_dead_letters", &handles.dead_letters);
    table.add("heyday_outbox_entries", &handles.outbox_entries);
    table.add("heyday_commits_total", &handles.commits);
    table.add("heyday_changes_total", &handles.changes);
    table.add("heyday_batch_changes", &handles.batch_changes.0);
    table.add("heyday_freshness_seconds", &handles.freshness_seconds.0);
    table.add("heyday_commit_seconds", &handles.commit_seconds.0);
    table.add("heyday_retries_total", &handles.retries);
    table.add("heyday_dead_letters_written_total", &handles.dead_letters_written);
    table.add("heyday_links_open", &handles.links_open);
    table.add("heyday_links_opened_total", &handles.links_opened);
    table.add("heyday_takeovers_total", &handles.takeovers);
    table.add("heyday_fenced_total", &handles.fenced);
    table.add("heyday_backpressure", &handles.backpressure);
    table.add("heyday_maintenance_paused", &handles.maintenance_paused);
    table.add("heyday_maintenance_expired_total", &handles.maintenance_expired);
    table.add("heyday_trimmed_total", &handles.trimmed);
    table.add("heyday_relayed_total", &handles.relayed);
    table.add("heyday_rolls_total", &handles.rolls);
    table.add("heyday_rolled_users_total", &handles.rolled_users);
    table.add("heyday_heartbeat_age_seconds", &handles.heartbeat_age_seconds);
    assert!(table.left.is_empty(), "metrics without a handle: {:?}", table.left);
}

struct Table<'a> {
    registry: &'a mut Registry,
    left: Vec<Metric>,
}

impl Table<'_> {
    fn add<M: Registrable + TypedMetric + Clone>(&mut self, name: &str, handle: &M) {
        let place = self.left.iter().position(|metric| metric.name == name);
        let metric = self.left.remove(place.expect("every handle has its row in METRICS, once"));
        assert!(is_of_type(metric.kind, M::TYPE), "{name} is not a {:?}", metric.kind);
        // The encoder adds the type's suffix and the unit itself.
        let stem = name.strip_suffix("_total").unwrap_or(name);
        match stem.strip_suffix("_seconds") {
            Some(stem) => self.registry.register_with_unit(stem, metric.help, Unit::Seconds, handle.clone()),
            None => self.registry.register(stem, metric.help, handle.clone()),
        }
    }
}

fn is_of_type(kind: Kind, found: MetricType) -> bool {
    matches!(
        (kind, found),
        (Counter, MetricType::Counter) | (Gauge, MetricType::Gauge) | (Histogram, MetricType::Histogram)
    )
}
