//! The boundary to Redis: nothing outside this folder speaks its protocol or knows its client libraries.
//!
//! Two ways lead to a node. Our own thin links carry what must never be sent twice: a [`Link`] in strict sequence,
//! a [`Pipe`] for appends, a [`Subscription`] for signals. What may be sent twice goes over shared clients ([`Nodes`]).
//! [`Topology`] says which node owns a slot.

pub mod append;
pub mod day;
#[cfg(feature = "server")]
pub mod dead_letters;
mod decode;
mod encode;
mod error;
#[cfg(feature = "server")]
pub mod inspect;
pub mod layout;
mod link;
pub mod log;
#[cfg(feature = "server")]
pub mod maintenance;
mod nodes;
mod options;
mod outgoing;
mod pipe;
mod pipes;
#[cfg(feature = "server")]
pub mod preflight;
mod pubsub;
mod query;
#[cfg(feature = "server")]
pub mod rebuild;
mod reply;
#[cfg(feature = "server")]
pub mod roll;
mod shards;
mod shared;
#[cfg(feature = "server")]
mod status;
#[cfg(feature = "server")]
mod store;
mod stream;
mod tls;
mod topology;
pub mod views;

pub use encode::{Command, Pipeline};
pub use error::Error;
pub use link::Link;
pub use nodes::Nodes;
pub use options::{AddressError, ConnectOptions, NodeAddress};
pub use pipe::Pipe;
pub use pipes::Pipes;
pub use pubsub::{Event, Subscription};
#[cfg(feature = "server")]
pub use query::escaped;
pub use reply::Reply;
#[cfg(feature = "server")]
pub use status::{Inspector, ShardFigures, ShardStatus, Status, UNREAD_COUNTED_MAX, WorkerStatus};
#[cfg(feature = "testing")]
pub use store::bare;
#[cfg(feature = "server")]
pub use store::{RedisLink, RedisStore};
pub use tls::{Tls, TlsOptions};
pub use topology::{Node, SLOTS, Table, Topology, endpoint_address};
