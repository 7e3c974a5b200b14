//! The worker: one task per owned shard, and one that decides which shards to own.
//!
//! A shard's task has one link of its own and uses it in strict sequence. It ends when the shard is given up, when
//! somebody else owns it, or on a bug; nothing that happens to one shard touches another.

mod backoff;
mod batch;
mod jobs;
mod maintenance;
mod outbox;
mod ownership;
mod pace;
mod roll;
mod session;
mod shard;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use crate::key::Keys;
use crate::lease::WorkerId;
use crate::metrics::Metrics;
use crate::reduce::Rules;
use crate::shard::Layout;
use crate::store::Store;

/// The bounds of one worker's work.
#[derive(Clone, Debug)]
pub struct Options {
    pub worker: WorkerId,
    /// Most changes of a batch.
    pub batch_changes_max: usize,
    /// Batches shrink where their entries would exceed this on average.
    pub batch_bytes_max: usize,
    /// How long a read waits for the first change.
    pub block: Duration,
    pub lease_ttl: Duration,
    /// How often a worker tells that it lives and looks at its share.
    pub heartbeat: Duration,
    /// How much of a shard's time its roll takes at most.
    pub roll_share: f64,
    /// How long settled entries stay in the stream.
    pub retention: Duration,
    pub trim_interval: Duration,
    /// How long a stopping worker waits for its shards.
    pub shutdown_grace: Duration,
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// What goes to another shard goes once so many replicas have the commit it comes from.
    pub wait_replicas: u32,
    /// With so many entries for other shards waiting, a shard reads no further changes.
    pub outbox_max: u64,
    /// Above this many deliveries an entry is tried alone; above [`DELIVERIES_FACTOR`] times as many it is set aside.
    pub deliveries_max: u64,
}

/// See [`Options::deliveries_max`].
pub const DELIVERIES_FACTOR: u64 = 4;

/// Everything a worker works with. Cheap to clone.
#[derive(Clone)]
pub struct Context<S> {
    pub store: S,
    pub layout: Layout,
    pub keys: Keys,
    pub rules: Arc<Rules>,
    pub options: Arc<Options>,
    pub metrics: Metrics,
}

/// Works until `shutdown` completes, then gives every shard up in order, for at most the grace period.
pub async fn run<S: Store>(context: Context<S>, shutdown: impl Future<Output = ()> + Send) {
    ownership::Ownership::new(context).run(shutdown).await;
}

impl Default for Options {
    /// The defaults of the settings, for a worker named `worker`.
    fn default() -> Options {
        Options {
            worker: "worker".parse().expect("a valid name"),
            batch_changes_max: 512,
            batch_bytes_max: 1 << 20,
            block: Duration::from_secs(2),
            lease_ttl: Duration::from_secs(10),
            heartbeat: Duration::from_millis(100),
            roll_share: 0.25,
            retention: Duration::ZERO,
            trim_interval: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(10),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(2),
            wait_replicas: 0,
            outbox_max: 10_000,
            deliveries_max: 25,
        }
    }
}
