//! What Redis says to a commit.

use super::encode;
use crate::error::{ServerCode, ServerError};
use crate::key::ShardKeys;
use crate::redis::{Error, Reply};
use crate::reduce::Commit;
use crate::store::Committed;

/// A refused commit: which command, and why. Nothing of it happened.
pub(super) struct Refusal {
    pub command: String,
    pub error: Error,
}

/// `replies` belong to MULTI, the commit's commands and EXEC.
pub(super) fn outcome(keys: &ShardKeys, commit: &Commit, replies: Vec<Reply>) -> Result<Committed, Refusal> {
    let refusal = |command: String, error: Error| Refusal { command, error };
    let [begin, queued @ .., executed] = &replies[..] else {
        return Err(refusal("EXEC".to_owned(), Error::protocol("an answer to each command", "fewer")));
    };
    // Whatever Redis did with the commands without a MULTI in front of them, nobody knows.
    begin.expect_status("OK").map_err(|error| refusal("MULTI".to_owned(), unknown(error)))?;
    match executed {
        Reply::Null => Ok(Committed::Refused),
        Reply::Array(results) => Ok(Committed::Done { errors: errors(keys, commit, results) }),
        Reply::Error(error) => Err(abort(keys, commit, queued, error)),
        other => {
            let error = other.as_array().expect_err("an array was matched before");
            Err(refusal("EXEC".to_owned(), unknown(error)))
        }
    }
}

/// The first command that was not queued explains why nothing was executed.
fn abort(keys: &ShardKeys, commit: &Commit, queued: &[Reply], executed: &ServerError) -> Refusal {
    let first = queued.iter().enumerate().find_map(|(at, reply)| Some((at, reply.error()?)));
    match first {
        Some((at, error)) => {
            Refusal { command: encode::describe(keys, commit, at), error: Error::Server(error.clone()) }
        }
        None => Refusal { command: "EXEC".to_owned(), error: Error::Server(reason(executed)) },
    }
}

/// Where everything was queued and EXEC itself is refused, the reason stands behind EXECABORT.
fn reason(executed: &ServerError) -> ServerError {
    const BECAUSE: &str = "Transaction discarded because of: ";
    let inner = executed.message.split_once(BECAUSE).map(|(_, inner)| ServerError::parse(inner));
    match inner {
        Some(inner) if executed.code == ServerCode::ExecAbort && inner.code != ServerCode::Other => inner,
        _ => executed.clone(),
    }
}

fn errors(keys: &ShardKeys, commit: &Commit, results: &[Reply]) -> Vec<String> {
    let failed = results.iter().enumerate().filter_map(|(at, reply)| Some((at, reply.error()?)));
    failed.map(|(at, error)| format!("{}: {error}", encode::describe(keys, commit, at))).collect()
}

/// An answer that leaves open what happened.
fn unknown(error: Error) -> Error {
    match error {
        Error::Server(error) => Error::protocol("the answer to a transaction", error.to_string()),
        other => other,
    }
}
