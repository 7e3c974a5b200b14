//! Tests of bounds and of contradictions between settings.

use std::collections::BTreeSet;

use super::{check, scene};

#[test]
fn each_setting_that_has_bounds_is_refused_outside_of_them() {
    let cases = [
        ("redis.nodes", "[]"),
        ("redis.nodes", "['nowhere']"),
        ("redis.nodes", "['a:0']"),
        ("redis.nodes", "['a:70000']"),
        ("redis.nodes", "['::1:6379']"),
        ("redis.address_map", "{ 'a' = 'b:1' }"),
        ("redis.prefix", "'{x}'"),
        ("redis.prefix", "'a b'"),
        ("redis.connect_timeout", "'0s'"),
        ("redis.reply_timeout", "'0s'"),
        ("worker.name", "'two words'"),
        ("worker.threads", "2000"),
        ("worker.batch_changes_max", "0"),
        ("worker.batch_changes_max", "10001"),
        ("worker.batch_bytes_max", "0"),
        ("worker.block", "'0s'"),
        ("worker.lease_ttl", "'2h'"),
        ("worker.heartbeat", "'0s'"),
        ("worker.backoff_min", "'0s'"),
        ("worker.backoff_max", "'1h'"),
        ("worker.wait_replicas", "17"),
        ("worker.outbox_max", "0"),
        ("worker.roll_percent", "0"),
        ("worker.roll_percent", "101"),
        ("worker.deliveries_max", "0"),
        ("worker.retention", "'20years'"),
        ("worker.trim_interval", "'0s'"),
        ("worker.dedup_window", "'0s'"),
        ("worker.producer_retention", "'1s'"),
        ("worker.tombstone_retention", "'1s'"),
        ("worker.dead_letters_max", "0"),
        ("worker.shutdown_grace", "'2h'"),
        ("change.field_bytes_max", "1"),
        ("change.fields_max", "1"),
        ("calendar.horizon_days", "0"),
        ("calendar.horizon_days", "301"),
        ("calendar.day_grace", "'23h'"),
        ("profile.top_max", "0"),
        ("profile.fields_max", "0"),
        ("profile.ttl", "'11years'"),
        ("log.length_max", "1"),
        ("subscriber.poll_interval", "'2h'"),
        ("subscriber.poll_interval_degraded", "'0s'"),
        ("reader.fresh_within", "'0s'"),
        ("reader.timeout", "'0s'"),
        ("near.entries_max", "0"),
        ("near.bytes_max", "1"),
        ("near.patience", "'0s'"),
        ("near.reread_after", "'2days'"),
        ("writer.timeout", "'2h'"),
        ("writer.batch_changes_max", "0"),
        ("writer.queue_changes_max", "0"),
        ("admin.listen", "'9464'"),
        ("logging.level", "'heyday=loud'"),
        ("logging.level", "'inof'"),
    ];
    for (key, value) in cases {
        let (section, name) = key.split_once('.').unwrap();
        let problems = scene().file(&format!("[{section}]\n{name} = {value}\n")).problems();
        let named = problems.iter().any(|problem| problem.starts_with(&format!("{key} = ")));
        assert!(named && problems[0].contains("(file heyday.toml): "), "{key} = {value}: {problems:?}");
    }

    let bounded: BTreeSet<&str> = cases.iter().map(|(key, _)| *key).collect();
    let free = [
        "redis.username",
        "redis.password",
        "redis.tls",
        "redis.tls_ca_file",
        "redis.tls_server_name",
        "redis.tls_certificate_file",
        "redis.tls_key_file",
        "worker.preflight",
        "worker.strict_fields",
        "calendar.time_zone",
        "calendar.leap_day",
        "calendar.notify_at",
        "profile.keep",
        "logging.format",
    ];
    for row in scene().load().effective() {
        let bound = bounded.contains(row.key.as_str()) || free.contains(&row.key.as_str());
        assert!(bound, "{} has no bound, and is not listed as one that needs none", row.key);
    }
}

#[test]
fn each_contradiction_names_both_settings_and_why() {
    check(
        "[worker]\nblock = '4s'\n",
        &[
            "worker.block = 4s (file heyday.toml), worker.lease_ttl = 10s (default): expected worker.block at most a third \
           of worker.lease_ttl, so that an idle owner renews in time",
        ],
    );
    let cases = [
        ("[worker]\nheartbeat = '3s'", "worker.heartbeat at most a quarter of worker.lease_ttl"),
        (
            "[redis]\nconnect_timeout = '8s'",
            "redis.connect_timeout and redis.reply_timeout together below worker.lease_ttl",
        ),
        ("[worker]\nbackoff_min = '3s'", "worker.backoff_min at most worker.backoff_max"),
        ("[worker]\nbackoff_max = '6s'", "worker.backoff_max at most half of worker.lease_ttl"),
        ("[worker]\nshutdown_grace = '1s'", "worker.shutdown_grace at least worker.block"),
        (
            "[change]\nfields_max = 4000",
            "change.field_bytes_max times change.fields_max at most worker.batch_bytes_max",
        ),
        ("[subscriber]\npoll_interval = '100ms'", "subscriber.poll_interval_degraded at most subscriber.poll_interval"),
        ("[writer]\nqueue_changes_max = 10", "writer.batch_changes_max at most writer.queue_changes_max"),
        ("[writer]\ntimeout = '1s'", "writer.timeout at least redis.reply_timeout"),
        ("[redis]\ntls_ca_file = 'ca.pem'", "redis.tls = true where redis.tls_ca_file is set"),
        (
            "[redis]\ntls_key_file = 'key.pem'\ntls = true",
            "both redis.tls_certificate_file and redis.tls_key_file, or neither",
        ),
        ("[redis]\ntls_server_name = 'redis.example'", "redis.tls = true where redis.tls_server_name is set"),
        ("[redis]\nusername = 'heyday'", "redis.password where redis.username is set"),
    ];
    for (file, expected) in cases {
        let problems = scene().file(file).problems();
        assert_eq!(problems.len(), 1, "{file}: {problems:?}");
        assert!(problems[0].contains(&format!(": expected {expected}")), "{file}: {problems:?}");
    }
}

#[test]
fn all_violations_are_told_at_once() {
    let file = "[worker]\nblock = '4s'\nbatch_changes_max = 0\nbackoff_min = '3s'\n[calendar]\nhorizon_days = 999\n[admin]\nlisten = 'x'\n";
    assert_eq!(scene().file(file).problems().len(), 5);
}
