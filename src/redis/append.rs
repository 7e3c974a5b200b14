//! Appending entries to one stream: a batch is one transaction, so that a refusal refuses all of it and the order
//! survives its being sent again.

use super::{encode::Pipeline, error::Error, pipe::Pipe, reply::Reply};
use crate::error::{ServerCode, ServerError};
use crate::key::Key;
use crate::position::EntryId;

/// How Redis says at EXEC, rather than when a command is queued, why it did nothing.
const ABORT_REASON: &str = "EXECABORT Transaction discarded because of: ";

/// One entry, encoded and ready to be sent as often as it takes.
#[derive(Debug, Clone)]
pub struct Append {
    command: Pipeline,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// Each on its own, in order. One that was refused is final.
    Settled(Vec<Result<EntryId, ServerError>>),
    /// None of them was appended.
    Refused(ServerError),
}

impl Append {
    pub fn new<N: AsRef<[u8]>, V: AsRef<[u8]>>(stream: &Key, fields: &[(N, V)]) -> Append {
        let mut pipeline = Pipeline::new();
        let mut command = pipeline.command("XADD");
        command.arg(stream.as_bytes()).arg("*");
        for (name, value) in fields {
            command.arg(name).arg(value);
        }
        drop(command);
        Append { command: pipeline }
    }

    /// Its length on the wire.
    pub fn bytes(&self) -> usize {
        self.command.bytes().len()
    }
}

/// Sends the batch, all of the same stream. `asking` is for the node that takes the slot over: it serves the keys that
/// have arrived to whoever asks in this way.
pub async fn append(
    pipe: &Pipe,
    batch: impl ExactSizeIterator<Item = &Append>,
    asking: bool,
) -> Result<Appended, Error> {
    let length = batch.len();
    if length == 0 {
        return Ok(Appended::Settled(Vec::new()));
    }
    let mut replies = pipe.submit(encode(batch, asking)).await?;
    if asking {
        replies.remove(0);
    }
    read(replies, length)
}

/// ASKING holds for the next command; where that is MULTI, up to EXEC.
fn encode<'a>(batch: impl ExactSizeIterator<Item = &'a Append>, asking: bool) -> Pipeline {
    let mut pipeline = Pipeline::new();
    if asking {
        pipeline.command("ASKING");
    }
    let transaction = batch.len() > 1;
    if transaction {
        pipeline.command("MULTI");
    }
    batch.for_each(|append| pipeline.append(&append.command));
    if transaction {
        pipeline.command("EXEC");
    }
    pipeline
}

fn read(mut replies: Vec<Reply>, length: usize) -> Result<Appended, Error> {
    if length == 1 {
        let reply = replies.pop().ok_or_else(|| Error::protocol("an answer", "none"))?;
        return Ok(match settled(reply)? {
            Ok(id) => Appended::Settled(vec![Ok(id)]),
            Err(error) => Appended::Refused(error),
        });
    }
    let (exec, multi) = (replies.pop(), replies.first().and_then(Reply::error).cloned());
    match exec {
        Some(Reply::Array(items)) if items.len() == length => {
            Ok(Appended::Settled(items.into_iter().map(settled).collect::<Result<_, _>>()?))
        }
        Some(Reply::Error(error)) => match multi {
            // Without MULTI each entry went on its own. Those that are in the stream stay, in their order.
            Some(multi) if replies[1..].iter().any(|reply| reply.error().is_none()) => {
                tracing::debug!(%multi, "a batch was not taken as a transaction");
                Ok(Appended::Settled(replies.drain(1..).map(settled).collect::<Result<_, _>>()?))
            }
            Some(multi) => Ok(Appended::Refused(multi)),
            None => Ok(Appended::Refused(reason(&replies, *error))),
        },
        other => Err(Error::protocol("the answer to EXEC", format!("{other:?}"))),
    }
}

/// The refusal that explains the whole: the first one while queueing, or else what EXEC itself says.
fn reason(queued: &[Reply], exec: ServerError) -> ServerError {
    if let Some(first) = queued.iter().find_map(Reply::error) {
        return first.clone();
    }
    match exec.message.strip_prefix(ABORT_REASON) {
        Some(reason) if exec.code == ServerCode::ExecAbort => ServerError::parse(reason),
        _ => exec,
    }
}

fn settled(reply: Reply) -> Result<Result<EntryId, ServerError>, Error> {
    match reply {
        Reply::Error(error) => Ok(Err(*error)),
        reply => {
            let text = reply.to_str()?;
            let id = text.parse().map_err(|_| Error::protocol("an entry id", text))?;
            Ok(Ok(id))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Keys;
    use crate::shard::{Layout, Shard};

    fn entry() -> Append {
        let keys = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0));
        Append::new(&keys.changes, &[("type", "remove")])
    }

    fn text(pipeline: &Pipeline) -> Vec<String> {
        let text = String::from_utf8(pipeline.bytes().to_vec()).unwrap();
        text.split("\r\n")
            .filter(|line| line.bytes().all(|byte| byte.is_ascii_uppercase()))
            .map(str::to_owned)
            .collect()
    }

    fn bytes(text: &'static str) -> Reply {
        Reply::Bytes(text.as_bytes().into())
    }

    fn status(text: &'static str) -> Reply {
        Reply::Status(text.as_bytes().into())
    }

    fn error(text: &str) -> Reply {
        Reply::Error(Box::new(ServerError::parse(text)))
    }

    #[test]
    fn one_goes_alone_and_many_go_together() {
        let (one, two) = ([entry()], [entry(), entry()]);
        assert_eq!(text(&encode(one.iter(), false)).join(" ").trim(), "XADD");
        assert_eq!(text(&encode(two.iter(), true)).join(" ").trim(), "ASKING MULTI XADD XADD EXEC");
        assert_eq!(encode(two.iter(), true).len(), 5);
    }

    #[test]
    fn ids_come_back_in_order() {
        let ids = Reply::Array(vec![bytes("5-0"), bytes("5-1")]);
        let replies = vec![status("OK"), status("QUEUED"), status("QUEUED"), ids];
        let expected = Appended::Settled(vec![Ok(EntryId::new(5, 0)), Ok(EntryId::new(5, 1))]);
        assert_eq!(read(replies, 2).unwrap(), expected);
        assert_eq!(read(vec![bytes("7-1")], 1).unwrap(), Appended::Settled(vec![Ok(EntryId::new(7, 1))]));
    }

    #[test]
    fn a_refusal_of_any_is_one_of_all_and_says_why() {
        let oom = "OOM command not allowed when used memory > 'maxmemory'.";
        let aborted = "EXECABORT Transaction discarded because of previous errors.";
        let cases = [
            (vec![error(oom)], 1, oom),
            (vec![status("OK"), error(oom), error(oom), error(aborted)], 2, oom),
            (vec![status("OK"), status("QUEUED"), error("MOVED 1 h:1"), error(aborted)], 2, "MOVED 1 h:1"),
            (vec![status("OK"), status("QUEUED"), status("QUEUED"), error("MOVED 1 h:1")], 2, "MOVED 1 h:1"),
            (vec![status("OK"), status("QUEUED"), status("QUEUED"), error(&[ABORT_REASON, oom].concat())], 2, oom),
            (vec![error("NOAUTH x"), error("NOAUTH y"), error("NOAUTH z"), error("NOAUTH q")], 2, "NOAUTH x"),
        ];
        for (replies, length, why) in cases {
            assert_eq!(read(replies, length).unwrap(), Appended::Refused(ServerError::parse(why)));
        }
    }

    #[test]
    fn entries_that_went_without_their_transaction_are_told_one_by_one() {
        let replies = vec![error("NOPERM no multi"), bytes("5-0"), error("OOM full"), error("ERR EXEC without MULTI")];
        let expected = vec![Ok(EntryId::new(5, 0)), Err(ServerError::parse("OOM full"))];
        assert_eq!(read(replies, 2).unwrap(), Appended::Settled(expected));
    }

    #[test]
    fn an_answer_of_another_shape_is_ambiguous() {
        let short = vec![status("OK"), status("QUEUED"), status("QUEUED"), Reply::Array(vec![bytes("5-0")])];
        for replies in [short, vec![status("OK"), status("QUEUED"), status("QUEUED"), Reply::Null]] {
            assert!(read(replies, 2).unwrap_err().possibly_sent());
        }
    }
}
