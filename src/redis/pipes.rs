//! A live pipe to every node that is written to.

use std::sync::Arc;

use super::{
    error::Error,
    options::{ConnectOptions, NodeAddress},
    pipe::Pipe,
    shared::Shared,
};

/// One pipe a node, opened when it is needed and not there.
#[derive(Debug)]
pub struct Pipes {
    options: Arc<ConnectOptions>,
    open: Shared<Pipe>,
}

impl Pipes {
    pub fn new(options: Arc<ConnectOptions>) -> Self {
        Self { options, open: Shared::new() }
    }

    /// The pipe to `node`. A node that cannot be reached is tried ever less often; in between its error comes back
    /// at once.
    pub async fn get(&self, node: &NodeAddress) -> Result<Pipe, Error> {
        let open = async || Pipe::connect(node, &self.options).await;
        self.open.get(node, |pipe| !pipe.is_closed(), open).await
    }

    /// Closes pipes to nodes that `keep` does not name, once their callers are done.
    pub fn retain(&self, keep: impl Fn(&NodeAddress) -> bool) {
        self.open.retain(keep);
    }
}
