//! The client: whoever writes changes, reads views or listens to what changed starts from one [`Hub`].
//!
//! ```no_run
//! use heyday::client;
//! use heyday::redis::ConnectOptions;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = client::connect(ConnectOptions::new(vec!["127.0.0.1:7000".parse()?]), "").await?;
//! let view = hub.reader(client::reader::Options::default()).read(&"42".parse()?).await?;
//! println!("{} friends, {:?}", view.friends.len(), view.state);
//! # Ok(())
//! # }
//! ```
//!
//! All parts made from one hub share its slot map and its connections, one or two to a node however many parts there
//! are. Nothing here needs the feature `server`.

mod answer;
mod backoff;
pub mod day;
mod hub;
mod lane;
mod listen;
pub mod loader;
pub mod near;
mod poll;
mod profile;
pub mod reader;
mod reading;
mod session;
pub mod subscriber;
pub mod upcoming;
pub mod writer;

use std::fmt;

use crate::redis::{self, NodeAddress};

pub use hub::{ConnectError, Hub, connect};
pub use near::Near;
pub use reader::Reader;
pub use subscriber::Subscriber;
pub use writer::Writer;

/// What went wrong at Redis, and at which node.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The node that was asked; none where no node could be named.
    pub node: Option<NodeAddress>,
    pub error: redis::Error,
}

impl Failure {
    fn new(node: Option<&NodeAddress>, error: redis::Error) -> Failure {
        Failure { node: node.cloned(), error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.error) {
            // The other errors name their node themselves.
            (Some(node), redis::Error::Server(_) | redis::Error::Protocol { .. }) => {
                write!(f, "{node}: {}", self.error)
            }
            _ => self.error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}
