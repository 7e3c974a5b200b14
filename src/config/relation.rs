//! What settings must be to each other.

use super::{Config, Settings};

/// What settings must be to each other: the keys, whether it holds, and what was expected and why.
pub(super) fn violations(settings: &Settings) -> Vec<String> {
    let Config { redis, worker, change, subscriber, writer, .. } = &settings.config;
    let change_bytes_max = change.field_bytes_max.saturating_mul(change.fields_max);
    let table: [(&[&str], bool, &str); 15] = [
        (
            &["worker.block", "worker.lease_ttl"],
            worker.block <= worker.lease_ttl / 3,
            "worker.block at most a third of worker.lease_ttl, so that an idle owner renews in time",
        ),
        (
            &["worker.heartbeat", "worker.lease_ttl"],
            worker.heartbeat <= worker.lease_ttl / 4,
            "worker.heartbeat at most a quarter of worker.lease_ttl, so that one lost beat costs no shard",
        ),
        (
            &["redis.connect_timeout", "redis.reply_timeout", "worker.lease_ttl"],
            redis.connect_timeout + redis.reply_timeout < worker.lease_ttl,
            "redis.connect_timeout and redis.reply_timeout together below worker.lease_ttl, so that one dead node costs no lease elsewhere",
        ),
        (
            &["worker.backoff_min", "worker.backoff_max"],
            worker.backoff_min <= worker.backoff_max,
            "worker.backoff_min at most worker.backoff_max",
        ),
        (
            &["worker.backoff_max", "worker.lease_ttl"],
            worker.backoff_max <= worker.lease_ttl / 2,
            "worker.backoff_max at most half of worker.lease_ttl, so that a waiting owner keeps its lease",
        ),
        (
            &["worker.shutdown_grace", "worker.block"],
            worker.shutdown_grace >= worker.block,
            "worker.shutdown_grace at least worker.block, so that a batch being read can still be finished",
        ),
        (
            &["change.field_bytes_max", "change.fields_max", "worker.batch_bytes_max"],
            change_bytes_max <= worker.batch_bytes_max,
            "change.field_bytes_max times change.fields_max at most worker.batch_bytes_max, so that the largest change fits a batch",
        ),
        (
            &["subscriber.poll_interval_degraded", "subscriber.poll_interval"],
            subscriber.poll_interval_degraded <= subscriber.poll_interval,
            "subscriber.poll_interval_degraded at most subscriber.poll_interval",
        ),
        (
            &["writer.batch_changes_max", "writer.queue_changes_max"],
            writer.batch_changes_max <= writer.queue_changes_max,
            "writer.batch_changes_max at most writer.queue_changes_max",
        ),
        (
            &["writer.timeout", "redis.reply_timeout"],
            writer.timeout >= redis.reply_timeout,
            "writer.timeout at least redis.reply_timeout, so that one append can be answered",
        ),
        (
            &["redis.tls_ca_file", "redis.tls"],
            redis.tls || redis.tls_ca_file.is_none(),
            "redis.tls = true where redis.tls_ca_file is set",
        ),
        (
            &["redis.tls_server_name", "redis.tls"],
            redis.tls || redis.tls_server_name.is_none(),
            "redis.tls = true where redis.tls_server_name is set",
        ),
        (
            &["redis.tls_certificate_file", "redis.tls"],
            redis.tls || redis.tls_certificate_file.is_none(),
            "redis.tls = true where redis.tls_certificate_file is set",
        ),
        (
            &["redis.tls_certificate_file", "redis.tls_key_file"],
            redis.tls_certificate_file.is_some() == redis.tls_key_file.is_some(),
            "both redis.tls_certificate_file and redis.tls_key_file, or neither",
        ),
        (
            &["redis.username", "redis.password"],
            redis.username.is_none() || redis.password.is_some(),
            "redis.password where redis.username is set",
        ),
    ];
    let broken = table.into_iter().filter(|(_, holds, _)| !holds);
    broken.map(|(keys, _, expected)| format!("{}: expected {expected}", named(settings, keys))).collect()
}

/// `key = value (source)` of each.
fn named(settings: &Settings, keys: &[&str]) -> String {
    let rows = settings.effective();
    let parts = keys.iter().filter_map(|key| rows.iter().find(|row| row.key == **key)).map(|row| {
        let value = row.value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        format!("{} = {} ({})", row.key, value.unwrap_or_else(|| row.value.to_string()), row.source)
    });
    parts.collect::<Vec<_>>().join(", ")
}
