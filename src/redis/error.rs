//! Why an exchange with Redis failed, and whether it may have had an effect all the same.

use std::{io, sync::Arc, time::Duration};

use super::options::NodeAddress;
use crate::error::{Disposition, ServerError};
use crate::store::TOO_LARGE;

/// A failure at the boundary. Cheap to clone, since one broken connection fails many callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No connection came about. Nothing was sent.
    #[error("{node}: cannot connect: {source}")]
    Connect { node: NodeAddress, source: Arc<io::Error> },

    /// The certificate, its name or its authority is not what the settings ask for.
    #[error("{node}: TLS refused: {source}")]
    Tls { node: NodeAddress, source: Arc<io::Error> },

    /// The TLS settings themselves cannot be used.
    #[error("TLS settings: {reason}")]
    TlsSettings { reason: String },

    /// Redis turned the connection down before any of our commands.
    #[error("{node}: login refused: {error}")]
    Refused { node: NodeAddress, error: ServerError },

    /// No complete answer within the deadline.
    #[error("{node}: no answer within {after:?}")]
    Timeout { node: NodeAddress, after: Duration, sent: bool },

    /// The connection ended, or this link had failed before.
    #[error("{node}: connection closed: {reason}")]
    Closed { node: NodeAddress, sent: bool, reason: String },

    /// An answer of a shape that this command never has.
    #[error("unexpected answer: expected {expected}, found {found}")]
    Protocol { expected: String, found: String },

    /// An answer that must not be taken in.
    #[error("an answer of more than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },

    /// An error reply.
    #[error("{0}")]
    Server(#[from] ServerError),

    /// No known node owns the slot.
    #[error("no node owns slot {slot}")]
    NoNode { slot: u16 },

    /// A single Redis without cluster support.
    #[error("{node}: not a cluster: this Redis runs with cluster support disabled")]
    NotCluster { node: NodeAddress },

    /// Nobody could be asked about the cluster.
    #[error("no cluster node reached: {tried}")]
    Unreachable { tried: String },
}

impl Error {
    /// What to do next. After a command was sent, a lost answer is never a reason to send it again.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Timeout { sent: true, .. } | Self::Closed { sent: true, .. } => Disposition::Ambiguous,
            Self::Timeout { sent: false, .. } | Self::Closed { sent: false, .. } => Disposition::Refresh,
            Self::Protocol { .. } | Self::TooLarge { .. } => Disposition::Ambiguous,
            Self::Connect { .. } | Self::NoNode { .. } | Self::Unreachable { .. } => Disposition::Refresh,
            Self::Refused { error, .. } => error.disposition(),
            Self::Server(error) => error.disposition(),
            Self::Tls { .. } | Self::TlsSettings { .. } | Self::NotCluster { .. } => Disposition::Fatal,
        }
    }

    /// A short, stable name for counting.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Tls { .. } | Self::TlsSettings { .. } => "tls",
            Self::Refused { error, .. } | Self::Server(error) => error.code.name(),
            Self::Timeout { .. } => "timeout",
            Self::Closed { .. } => "closed",
            Self::Protocol { .. } => "protocol",
            Self::TooLarge { .. } => TOO_LARGE,
            Self::NoNode { .. } => "no_node",
            Self::NotCluster { .. } => "not_cluster",
            Self::Unreachable { .. } => "unreachable",
        }
    }

    /// Whether what was asked for may have happened although this error came back. Who appends tells the caller so.
    pub fn possibly_sent(&self) -> bool {
        !self.disposition().is_clean()
    }

    pub(crate) fn protocol(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Protocol { expected: expected.into(), found: found.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeAddress {
        "127.0.0.1:7000".parse().unwrap()
    }

    #[test]
    fn a_lost_answer_is_ambiguous_only_after_sending() {
        for sent in [true, false] {
            let expected = if sent { Disposition::Ambiguous } else { Disposition::Refresh };
            let timeout = Error::Timeout { node: node(), after: Duration::from_secs(2), sent };
            let closed = Error::Closed { node: node(), sent, reason: "reset".into() };
            for error in [timeout, closed] {
                assert_eq!(error.disposition(), expected, "{error:?}");
                assert_eq!(error.possibly_sent(), sent, "{error:?}");
            }
        }
    }

    #[test]
    fn wrong_credentials_and_a_single_server_are_fatal() {
        let refused =
            Error::Refused { node: node(), error: ServerError::parse("WRONGPASS invalid username-password pair") };
        assert_eq!(refused.disposition(), Disposition::Fatal);
        assert_eq!(refused.to_string(), "127.0.0.1:7000: login refused: WRONGPASS invalid username-password pair");
        assert_eq!(Error::NotCluster { node: node() }.disposition(), Disposition::Fatal);
    }
}
