//! Failures as the store tells them: node, what was asked, what came back, and what to do next.

use std::fmt::Display;

use crate::error::{Disposition, ServerCode};
use crate::redis::{Error, NodeAddress, Topology};
use crate::store;

/// `error` came back from `node` when `asked`. A redirect is believed at once, so that the next connect goes right.
pub(super) fn tell(topology: &Topology, node: &NodeAddress, asked: impl Display, error: &Error) -> store::Error {
    if let Error::Server(server) = error
        && let ServerCode::Moved { slot, endpoint } = &server.code
    {
        topology.learn_moved(*slot, endpoint, node);
    }
    let message = match error {
        // These do not say where they come from.
        Error::Server(_) | Error::Protocol { .. } => format!("{node}: {asked}: {error}"),
        _ => format!("{asked}: {error}"),
    };
    store::Error { disposition: error.disposition(), reason: error.reason(), message }
}

/// What is stored is not what heyday stores: only a person can mend it.
pub(super) fn foreign(node: &NodeAddress, asked: &str, what: impl Display) -> store::Error {
    store::Error { disposition: Disposition::Fatal, reason: "foreign_key", message: format!("{node}: {asked}: {what}") }
}
