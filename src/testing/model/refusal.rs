//! The errors that the model answers, as the real store words them.

use crate::error::Disposition;
use crate::store::Error;

fn error(disposition: Disposition, reason: &'static str, message: &str) -> Error {
    Error { disposition, reason, message: format!("model: {message}") }
}

pub(super) fn by_chance(disposition: Disposition) -> Error {
    error(disposition, "fault", &format!("refused by a seeded fault: {disposition:?}"))
}

pub(super) fn full() -> Error {
    error(Disposition::Full, "out_of_memory", "OOM command not allowed when used memory > 'maxmemory'.")
}

pub(super) fn no_group() -> Error {
    error(Disposition::Refresh, "no_group", "NOGROUP No such key or consumer group")
}

pub(super) fn unblocked() -> Error {
    error(Disposition::Refresh, "unblocked", "UNBLOCKED the key or its node is gone")
}

pub(super) fn away() -> Error {
    error(Disposition::Refresh, "unreachable", "nobody answers for this shard")
}

pub(super) fn lost() -> Error {
    error(Disposition::Ambiguous, "connection_lost", "the connection ended before the reply")
}

pub(super) fn dead() -> Error {
    error(Disposition::Refresh, "dead_link", "this link is dead since an earlier error")
}

pub(super) fn poison(message: String) -> Error {
    error(Disposition::Poison, "refused", &message)
}

/// A shard that only a person can mend.
pub(super) fn foreign_shard(message: String) -> Error {
    error(Disposition::Fatal, "foreign_key", &message)
}

/// One of the shard's own keys is of another type: no entry is to blame.
pub(super) fn foreign(message: String) -> Error {
    error(Disposition::Refresh, "foreign_key", &message)
}
