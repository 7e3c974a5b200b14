//! Every setting and its default. `config/default.toml` says what each is for; a test keeps the two equal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::birthday::LeapDay;
use crate::redis::NodeAddress;

use super::values::{NotifyAt, Secret, Zone, nodes, optional, optional_secret};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// All settings, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub redis: Redis,
    pub worker: Worker,
    pub change: Change,
    pub calendar: Calendar,
    pub profile: Profile,
    pub log: Log,
    pub subscriber: Subscriber,
    pub reader: Reader,
    pub near: Near,
    pub writer: Writer,
    pub admin: Admin,
    pub logging: Logging,
}

/// How to reach the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    #[serde(deserialize_with = "nodes::deserialize")]
    pub nodes: Vec<NodeAddress>,
    #[serde(with = "optional")]
    pub username: Option<String>,
    #[serde(with = "optional_secret")]
    pub password: Option<Secret>,
    pub tls: bool,
    #[serde(with = "optional")]
    pub tls_ca_file: Option<String>,
    #[serde(with = "optional")]
    pub tls_server_name: Option<String>,
    #[serde(with = "optional")]
    pub tls_certificate_file: Option<String>,
    #[serde(with = "optional")]
    pub tls_key_file: Option<String>,
    pub prefix: String,
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub reply_timeout: Duration,
    pub address_map: BTreeMap<NodeAddress, NodeAddress>,
}

/// The consumer: how it shares shards, batches, retries and cleans up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    #[serde(with = "optional")]
    pub name: Option<String>,
    pub threads: usize,
    pub preflight: Preflight,
    pub batch_changes_max: usize,
    pub batch_bytes_max: usize,
    #[serde(with = "humantime_serde")]
    pub block: Duration,
    #[serde(with = "humantime_serde")]
    pub lease_ttl: Duration,
    #[serde(with = "humantime_serde")]
    pub heartbeat: Duration,
    #[serde(with = "humantime_serde")]
    pub backoff_min: Duration,
    #[serde(with = "humantime_serde")]
    pub backoff_max: Duration,
    pub wait_replicas: u32,
    pub outbox_max: u64,
    pub roll_percent: u8,
    pub deliveries_max: u64,
    pub strict_fields: bool,
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
    #[serde(with = "humantime_serde")]
    pub trim_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub dedup_window: Duration,
    #[serde(with = "humantime_serde")]
    pub producer_retention: Duration,
    #[serde(with = "humantime_serde")]
    pub tombstone_retention: Duration,
    pub dead_letters_max: u64,
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

/// Whether a cluster that may lose data is refused or only warned about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preflight {
    #[default]
    Refuse,
    Warn,
}

/// What a change may be at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub field_bytes_max: usize,
    pub fields_max: usize,
}

/// The day keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calendar {
    pub horizon_days: u16,
    pub time_zone: Zone,
    pub leap_day: LeapDay,
    pub notify_at: NotifyAt,
    #[serde(with = "humantime_serde")]
    pub day_grace: Duration,
}

/// What a user's runtime profile holds at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub top_max: u64,
    pub fields_max: u64,
    #[serde(with = "humantime_serde")]
    pub ttl: Duration,
    pub keep: BTreeSet<String>,
}

/// The change log that subscribers read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub length_max: u64,
}

/// How subscribers heal what signals lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscriber {
    #[serde(with = "humantime_serde")]
    pub poll_interval: Duration,
    #[serde(with = "humantime_serde")]
    pub poll_interval_degraded: Duration,
}

/// When an answer counts as fresh, and how long to wait for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reader {
    #[serde(with = "humantime_serde")]
    pub fresh_within: Duration,
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

/// What a program that reads near keeps in memory, and for how long it waits and trusts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Near {
    pub entries_max: usize,
    pub bytes_max: u64,
    #[serde(with = "humantime_serde")]
    pub patience: Duration,
    #[serde(with = "humantime_serde")]
    pub reread_after: Duration,
}

/// How changes are appended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    pub batch_changes_max: usize,
    pub queue_changes_max: usize,
}

/// The admin HTTP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    #[serde(with = "optional")]
    pub listen: Option<String>,
}

/// The process's own log lines, on stderr.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logging {
    pub format: LogFormat,
    pub level: String,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Default for Redis {
    fn default() -> Self {
        Self {
            nodes: vec![NodeAddress::new("127.0.0.1", 6379)],
            username: None,
            password: None,
            tls: false,
            tls_ca_file: None,
            tls_server_name: None,
            tls_certificate_file: None,
            tls_key_file: None,
            prefix: String::new(),
            connect_timeout: Duration::from_secs(2),
            reply_timeout: Duration::from_secs(2),
            address_map: BTreeMap::new(),
        }
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            name: None,
            threads: 0,
            preflight: Preflight::Refuse,
            batch_changes_max: 512,
            batch_bytes_max: MIB,
            block: Duration::from_secs(2),
            lease_ttl: Duration::from_secs(10),
            heartbeat: Duration::from_millis(100),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(2),
            wait_replicas: 0,
            outbox_max: 10_000,
            roll_percent: 25,
            deliveries_max: 25,
            strict_fields: false,
            retention: Duration::ZERO,
            trim_interval: Duration::from_secs(5),
            dedup_window: DAY,
            producer_retention: 30 * DAY,
            tombstone_retention: 30 * DAY,
            dead_letters_max: 100_000,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

impl Default for Change {
    fn default() -> Self {
        Self { field_bytes_max: 4 * KIB, fields_max: 64 }
    }
}

impl Default for Calendar {
    fn default() -> Self {
        Self {
            horizon_days: 8,
            time_zone: Zone::utc(),
            leap_day: LeapDay::February28,
            notify_at: NotifyAt::new(9, 0),
            day_grace: 25 * HOUR,
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self { top_max: 50, fields_max: 128, ttl: Duration::ZERO, keep: BTreeSet::new() }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { length_max: 10_000 }
    }
}

impl Default for Subscriber {
    fn default() -> Self {
        Self { poll_interval: Duration::from_secs(2), poll_interval_degraded: Duration::from_millis(200) }
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self { fresh_within: Duration::from_secs(5), timeout: Duration::from_secs(2) }
    }
}

impl Default for Near {
    fn default() -> Self {
        Self {
            entries_max: 100_000,
            bytes_max: 64 * MIB as u64,
            patience: Duration::from_millis(250),
            reread_after: Duration::from_secs(60),
        }
    }
}

impl Default for Writer {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), batch_changes_max: 128, queue_changes_max: 1024 }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: Some("127.0.0.1:9464".to_owned()) }
    }
}

impl Default for Logging {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}
