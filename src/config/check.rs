//! What each value may be. Every violation is found, not just the first.

use std::ops::RangeInclusive;
use std::time::Duration;

use humantime::format_duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::key::Keys;
use crate::redis::NodeAddress;

use super::{Config, Settings, relation};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const GIB: u64 = 1024 * 1024 * 1024;
pub(super) const NAME_BYTES_MAX: usize = 64;

/// Every sentence that is wrong with these settings.
pub(super) fn violations(settings: &Settings) -> Vec<String> {
    let mut found = counts(settings);
    found.extend(durations(settings));
    found.extend(relation::violations(settings));
    found.extend(texts(settings));
    found
}

/// Bounds of whole numbers.
fn counts(settings: &Settings) -> Vec<String> {
    let Config { worker, change, calendar, profile, log, near, writer, .. } = &settings.config;
    let table: [(&str, u64, RangeInclusive<u64>); 18] = [
        ("worker.threads", worker.threads as u64, 0..=1024),
        ("worker.batch_changes_max", worker.batch_changes_max as u64, 1..=10_000),
        ("worker.batch_bytes_max", worker.batch_bytes_max as u64, 1024..=GIB),
        ("worker.wait_replicas", worker.wait_replicas.into(), 0..=16),
        ("worker.outbox_max", worker.outbox_max, 1..=100_000_000),
        ("worker.deliveries_max", worker.deliveries_max, 1..=10_000),
        ("worker.dead_letters_max", worker.dead_letters_max, 1..=100_000_000),
        ("change.field_bytes_max", change.field_bytes_max as u64, 64..=GIB),
        ("change.fields_max", change.fields_max as u64, 16..=4096),
        ("calendar.horizon_days", u64::from(calendar.horizon_days), 1..=300),
        ("worker.roll_percent", u64::from(worker.roll_percent), 1..=100),
        ("profile.top_max", profile.top_max, 1..=10_000),
        ("profile.fields_max", profile.fields_max, 1..=10_000),
        ("log.length_max", log.length_max, 100..=100_000_000),
        ("near.entries_max", near.entries_max as u64, 1..=1_000_000_000),
        ("near.bytes_max", near.bytes_max, 1024..=1024 * GIB),
        ("writer.batch_changes_max", writer.batch_changes_max as u64, 1..=10_000),
        ("writer.queue_changes_max", writer.queue_changes_max as u64, 1..=10_000_000),
    ];
    let outside = table.into_iter().filter(|(_, value, bounds)| !bounds.contains(value));
    let sentence = |(key, value, bounds): (&str, u64, RangeInclusive<u64>)| {
        let place = settings.source(key);
        format!("{key} = {value} ({place}): expected {} to {}", bounds.start(), bounds.end())
    };
    outside.map(sentence).collect()
}

/// Bounds of durations.
fn durations(settings: &Settings) -> Vec<String> {
    let Config { redis, worker, calendar, profile, subscriber, reader, near, writer, .. } = &settings.config;
    let table: [(&str, Duration, RangeInclusive<Duration>); 22] = [
        ("redis.connect_timeout", redis.connect_timeout, 10 * MILLISECOND..=MINUTE),
        ("redis.reply_timeout", redis.reply_timeout, 10 * MILLISECOND..=MINUTE),
        ("worker.block", worker.block, 10 * MILLISECOND..=MINUTE),
        ("worker.lease_ttl", worker.lease_ttl, 100 * MILLISECOND..=HOUR),
        ("worker.heartbeat", worker.heartbeat, 10 * MILLISECOND..=MINUTE),
        ("worker.backoff_min", worker.backoff_min, MILLISECOND..=MINUTE),
        ("worker.backoff_max", worker.backoff_max, MILLISECOND..=MINUTE),
        ("worker.retention", worker.retention, Duration::ZERO..=10 * YEAR),
        ("worker.trim_interval", worker.trim_interval, 100 * MILLISECOND..=DAY),
        ("worker.dedup_window", worker.dedup_window, SECOND..=YEAR),
        ("worker.producer_retention", worker.producer_retention, HOUR..=10 * YEAR),
        ("worker.tombstone_retention", worker.tombstone_retention, HOUR..=10 * YEAR),
        ("worker.shutdown_grace", worker.shutdown_grace, 100 * MILLISECOND..=HOUR),
        ("calendar.day_grace", calendar.day_grace, DAY..=31 * DAY),
        ("profile.ttl", profile.ttl, Duration::ZERO..=10 * YEAR),
        ("subscriber.poll_interval", subscriber.poll_interval, 10 * MILLISECOND..=HOUR),
        ("subscriber.poll_interval_degraded", subscriber.poll_interval_degraded, 10 * MILLISECOND..=HOUR),
        ("reader.fresh_within", reader.fresh_within, MILLISECOND..=DAY),
        ("reader.timeout", reader.timeout, MILLISECOND..=MINUTE),
        ("near.patience", near.patience, MILLISECOND..=MINUTE),
        ("near.reread_after", near.reread_after, 100 * MILLISECOND..=DAY),
        ("writer.timeout", writer.timeout, 10 * MILLISECOND..=HOUR),
    ];
    let outside = table.into_iter().filter(|(_, value, bounds)| !bounds.contains(value));
    let sentence = |(key, value, bounds): (&str, Duration, RangeInclusive<Duration>)| {
        let (least, most) = (format_duration(*bounds.start()), format_duration(*bounds.end()));
        let place = settings.source(key);
        format!("{key} = {} ({place}): expected {least} to {most}", format_duration(value))
    };
    outside.map(sentence).collect()
}

/// Texts with a form.
fn texts(settings: &Settings) -> Vec<String> {
    let Config { redis, worker, admin, logging, .. } = &settings.config;
    let mut found = Vec::new();
    let mut expect = |key: &str, text: &str, holds: bool, expected: &str| {
        if !holds {
            found.push(format!("{key} = {text:?} ({}): expected {expected}", settings.source(key)));
        }
    };
    expect("redis.nodes", "", !redis.nodes.is_empty(), "at least one host:port");
    let prefix = redis.prefix.as_str();
    let prefix_holds = Keys::new(prefix).is_ok();
    expect("redis.prefix", prefix, prefix_holds, "at most 64 bytes without spaces, control characters, { and }");
    if let Some(name) = &worker.name {
        let holds = name.len() <= NAME_BYTES_MAX && name.bytes().all(|letter| letter.is_ascii_graphic());
        expect("worker.name", name, holds, "at most 64 ASCII letters, digits and signs");
    }
    if let Some(listen) = &admin.listen {
        // Port 0 takes any free one, which is of use here and nowhere else.
        let some_port = listen.strip_suffix(":0").map(|host| format!("{host}:1"));
        let holds = some_port.as_ref().unwrap_or(listen).parse::<NodeAddress>().is_ok();
        expect("admin.listen", listen, holds, "host:port, or nothing for no admin server");
    }
    expect(
        "logging.level",
        &logging.level,
        is_filter(&logging.level),
        "a level such as info, or a filter such as info,heyday=debug",
    );
    found
}

/// A filter takes a lone word that is no level for the name of a part, and a misspelt level would silence everything.
fn is_filter(text: &str) -> bool {
    let mut parts = text.split(',').map(str::trim);
    let holds = |part: &str| part.contains(['=', ':', '[', ']']) || part.parse::<LevelFilter>().is_ok();
    !text.is_empty() && EnvFilter::try_new(text).is_ok() && parts.all(holds)
}
