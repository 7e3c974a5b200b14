//! heyday keeps every user's friends' birthdays and runtime profile ready to read on a Redis Cluster.
//!
//! Writers append changes to sharded streams; workers turn them into per-user views, each change exactly once and in
//! order per user; readers get a ready answer in one round trip; subscribers hear every change at once and heal by
//! polling. `ARCHITECTURE.md` is the long form of this map:
//!
//! | layer | modules | may use |
//! |---|---|---|
//! | 1 pure | [`change`] [`key`] [`shard`] [`position`] [`birthday`] [`calendar`] [`lease`] [`profile`] [`activity`] [`reduce`] [`signal`] [`error`] [`invariant`] | 1 |
//! | 2 boundaries | [`store`] [`redis`] [`task`] `metrics` | 1 |
//! | 3 parts | `worker` [`client`] | 1, 2; never each other |
//! | 4 process | `config` `cli` `admin` `local` `oracle` | all but 5 |
//! | 5 testing | `testing` | all |

#![forbid(unsafe_code)]

pub mod activity;
pub mod birthday;
pub mod calendar;
pub mod change;
pub mod error;
pub mod invariant;
pub mod key;
pub mod lease;
pub mod position;
pub mod profile;
pub mod reduce;
pub mod shard;
pub mod signal;

#[cfg(feature = "server")]
pub mod metrics;
pub mod redis;
pub mod store;
pub mod task;

pub mod client;

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod local;
#[cfg(feature = "server")]
pub mod oracle;
#[cfg(feature = "server")]
pub mod worker;

#[cfg(feature = "testing")]
pub mod testing;
