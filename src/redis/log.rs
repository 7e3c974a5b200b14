//! Reading the change logs of many shards on one node, a pipeline for all of them.

use bytes::Bytes;

use super::{encode::Pipeline, error::Error, pipe::Pipe, reply::Reply};
use crate::error::ServerError;
use crate::key::Key;
use crate::position::CommitId;

/// The field of a log entry that holds the signal.
pub const SIGNAL_FIELD: &[u8] = b"s";

/// A log entry: the commit that its stream id names, and the signal's bytes where the entry has them.
pub type LogEntry = (CommitId, Option<Bytes>);

/// One log's answer, or why the node does not give it: other logs have theirs all the same.
pub type LogAnswer<T> = Result<T, ServerError>;

/// The newest commit in each log; [`CommitId::ZERO`] where a log is empty. `asking`: see [`super::append`].
pub async fn tips(pipe: &Pipe, logs: &[&Key], asking: bool) -> Result<Vec<LogAnswer<CommitId>>, Error> {
    let mut pipeline = Pipeline::new();
    for log in logs {
        ask(&mut pipeline, asking);
        pipeline.command("XREVRANGE").arg(log.as_bytes()).arg("+").arg("-").arg("COUNT").arg_u64(1);
    }
    answers(pipe, pipeline, asking, |reply| {
        let entries = entries(reply)?;
        Ok(entries.first().map_or(CommitId::ZERO, |(id, _)| *id))
    })
    .await
}

/// At most `count` entries of each log after a position.
pub async fn after(
    pipe: &Pipe,
    reads: &[(&Key, CommitId)],
    count: usize,
    asking: bool,
) -> Result<Vec<LogAnswer<Vec<LogEntry>>>, Error> {
    let mut pipeline = Pipeline::new();
    for (log, position) in reads {
        ask(&mut pipeline, asking);
        let mut command = pipeline.command("XRANGE");
        command.arg(log.as_bytes()).arg(format!("({position}")).arg("+");
        command.arg("COUNT").arg_u64(count as u64);
    }
    answers(pipe, pipeline, asking, entries).await
}

fn ask(pipeline: &mut Pipeline, asking: bool) {
    if asking {
        pipeline.command("ASKING");
    }
}

async fn answers<T>(
    pipe: &Pipe,
    pipeline: Pipeline,
    asking: bool,
    read: impl Fn(&Reply) -> Result<T, Error>,
) -> Result<Vec<LogAnswer<T>>, Error> {
    let step = if asking { 2 } else { 1 };
    let replies = pipe.submit(pipeline).await?;
    let answers = replies.iter().skip(step - 1).step_by(step);
    answers
        .map(|reply| match reply {
            Reply::Error(error) => Ok(Err((**error).clone())),
            reply => read(reply).map(Ok),
        })
        .collect()
}

fn entries(reply: &Reply) -> Result<Vec<LogEntry>, Error> {
    reply.as_array()?.iter().map(entry).collect()
}

fn entry(reply: &Reply) -> Result<LogEntry, Error> {
    let [id, fields] = reply.as_array()? else {
        return Err(Error::protocol("an id and fields", "another number"));
    };
    let text = id.to_str()?;
    let id = text.parse().map_err(|_| Error::protocol("a commit id", text))?;
    let mut signal = None;
    for (name, value) in fields.as_pairs()? {
        if name.as_bytes()?.as_ref() == SIGNAL_FIELD {
            signal = Some(value.as_bytes()?.clone());
        }
    }
    Ok((id, signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Reply {
        Reply::Bytes(text.as_bytes().into())
    }

    #[test]
    fn entries_carry_their_commit_and_their_signal() {
        let told =
            Reply::Array(vec![bytes("7-1"), Reply::Array(vec![bytes("x"), bytes("y"), bytes("s"), bytes("abc")])]);
        let bare = Reply::Array(vec![bytes("7-2"), Reply::Array(vec![bytes("x"), bytes("y")])]);
        let expected = vec![(CommitId::new(7, 1), Some(Bytes::from("abc"))), (CommitId::new(7, 2), None)];
        assert_eq!(entries(&Reply::Array(vec![told, bare])).unwrap(), expected);
        assert!(entries(&Reply::Array(vec![Reply::Array(vec![bytes("7")])])).is_err());
    }
}
