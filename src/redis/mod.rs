//! The boundary to Redis: nothing outside this folder speaks its protocol or knows its client libraries.
//!
//! Two ways lead to a node. Our own thin links carry what must never be sent twice: a [`Link`] in strict sequence.
//! [`Topology`] says which node owns a slot.

mod decode;
mod encode;
mod error;
mod link;
mod options;
mod reply;
mod shards;
mod stream;
mod tls;
mod topology;

pub use encode::{Command, Pipeline};
pub use error::Error;
pub use link::{Link, Reader, Writer};
pub use options::{AddressError, ConnectOptions, NodeAddress};
pub use reply::Reply;
pub use tls::{Tls, TlsOptions};
pub use topology::{Node, SLOTS, Table, Topology};
