//! Tests of the metrics: the table and the text agree, and gauges end with what they count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Backlog, BatchStats, Health, METRICS, Metrics, Outcomes, Readiness};

const FRESHNESS: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(700)];

fn metrics() -> Metrics {
    Metrics::new(Health::new(Duration::from_secs(10)))
}

fn batch() -> BatchStats<'static> {
    BatchStats {
        outcomes: Outcomes { applied: 5, unchanged: 4, outdated: 3, duplicate: 2, no_such_friend: 1, dead: 1 },
        dead_kinds: &["no_such_day"],
        freshness: &FRESHNESS,
        commit: Duration::from_millis(2),
    }
}

/// The value of a series as it is written, without the histogram's many lines.
fn value(metrics: &Metrics, series: &str) -> Option<String> {
    let prefix = format!("{series} ");
    metrics.encode().lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
}

#[test]
fn text_shows_every_metric_of_the_table_with_its_type_and_help() {
    let metrics = metrics();
    let shard = metrics.shard_owned(7);
    shard.backlog(Backlog { changes: 3, oldest: Duration::from_millis(1500), dead_letters: 2, outbox: 4 });
    metrics.committed(&batch());
    metrics.retried("timeout");
    metrics.taken_over("expired");
    let text = metrics.encode();

    let described = |word: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# ")?.strip_prefix(word)?.strip_prefix(' '));
        lines.filter_map(|line| line.split_once(' ')).map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
    };
    let stem = |name: &str| name.trim_end_matches("_total").to_owned();
    let types = METRICS.map(|metric| (stem(metric.name), format!("{:?}", metric.kind).to_lowercase()));
    assert_eq!(described("TYPE"), BTreeMap::from(types));
    let helps = METRICS.map(|metric| (stem(metric.name), format!("{}.", metric.help)));
    assert_eq!(described("HELP"), BTreeMap::from(helps));
    assert!(text.ends_with("# EOF\n"));

    for metric in METRICS {
        let suffix = if metric.kind == super::Kind::Histogram { "_count" } else { "" };
        let label = metric.label.map_or(String::new(), |label| format!("{{{label}="));
        let series = format!("\n{}{suffix}{label}", metric.name);
        assert!(text.contains(&series), "no {series:?} in\n{text}");
    }
}

#[test]
fn one_commit_counts_every_outcome() {
    let metrics = metrics();
    metrics.committed(&batch());
    metrics.committed(&batch());
    let expected = [
        ("heyday_commits_total", "2"),
        (r#"heyday_changes_total{outcome="applied"}"#, "10"),
        (r#"heyday_changes_total{outcome="unchanged"}"#, "8"),
        (r#"heyday_changes_total{outcome="outdated"}"#, "6"),
        (r#"heyday_changes_total{outcome="duplicate"}"#, "4"),
        (r#"heyday_changes_total{outcome="no_such_friend"}"#, "2"),
        (r#"heyday_changes_total{outcome="dead"}"#, "2"),
        (r#"heyday_dead_letters_written_total{reason="no_such_day"}"#, "2"),
        ("heyday_batch_changes_sum", "32.0"),
        ("heyday_freshness_seconds_count", "4"),
        ("heyday_commit_seconds_count", "2"),
        (r#"heyday_freshness_seconds_bucket{le="0.004"}"#, "2"),
    ];
    for (series, count) in expected {
        assert_eq!(value(&metrics, series).as_deref(), Some(count), "{series} in\n{}", metrics.encode());
    }
}

#[test]
fn released_shard_takes_its_series_along() {
    let metrics = metrics();
    let kept = metrics.shard_owned(1);
    let released = metrics.shard_owned(2);
    let backlog = Backlog { changes: 9, oldest: Duration::from_secs(4), dead_letters: 1, outbox: 0 };
    kept.backlog(backlog);
    released.backlog(backlog);
    assert_eq!(value(&metrics, "heyday_shards_owned").as_deref(), Some("2"));
    assert_eq!(value(&metrics, r#"heyday_shard_oldest_seconds{shard="2"}"#).as_deref(), Some("4.0"));

    drop(released);
    assert_eq!(metrics.shards_owned(), 1);
    assert!(!metrics.encode().contains(r#"shard="2""#));
    assert_eq!(value(&metrics, r#"heyday_shard_lag_changes{shard="1"}"#).as_deref(), Some("9"));
}

#[test]
fn presence_is_counted_as_long_as_it_lives_also_through_a_panic() {
    let metrics = metrics();
    let link = metrics.link_opened();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _link = metrics.link_opened();
        let _pause = metrics.memory_full();
        assert_eq!(metrics.shards_owned(), 1, "on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(value(&metrics, "heyday_links_open").as_deref(), Some("1"));
    assert_eq!(value(&metrics, "heyday_links_opened_total").as_deref(), Some("2"));
    assert_eq!(value(&metrics, "heyday_backpressure").as_deref(), Some("0"));
    drop(link);
    assert_eq!(value(&metrics, "heyday_links_open").as_deref(), Some("0"));
}

#[test]
fn readiness_names_what_is_missing() {
    let mut readiness = Readiness::default();
    assert_eq!(readiness.obstacle().unwrap(), "the cluster has not been looked at yet, or was refused");
    readiness.preflight_passed = true;
    assert_eq!(readiness.obstacle().unwrap(), "not registered among the workers");
    readiness.registered = true;
    readiness.shards_aimed = 4;
    readiness.shards_owned = 3;
    assert_eq!(readiness.obstacle().unwrap(), "owns 3 of 4 shards");
    readiness.shards_owned = 5;
    assert_eq!(readiness.obstacle(), None);
    readiness.maintenance = Some("somebody: upgrade".to_owned());
    assert_eq!(readiness.obstacle().unwrap(), "paused for maintenance by somebody: upgrade");
}

#[test]
fn silence_past_the_bound_is_no_life() {
    let health = Health::new(Duration::ZERO);
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while health.is_alive() {
        assert!(std::time::Instant::now() < deadline, "the process never counted as silent");
        std::thread::yield_now();
    }
    let patient = Health::new(Duration::from_secs(60));
    assert!(patient.is_alive());
    patient.beat();
    assert!(patient.heartbeat_age() < Duration::from_secs(30));
}
