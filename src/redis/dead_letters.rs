//! Dead letters, for whoever looks through them: in pages, from the oldest on; put back into the stream, or dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::query::{ask, command};
use super::reply::milliseconds;
use super::{encode::Pipeline, error::Error, pipes::Pipes, reply::Reply, topology::Topology};
use crate::change::Fields;
use crate::error::Disposition;
use crate::key::{Keys, ShardKeys};
use crate::position::EntryId;
use crate::shard::{Layout, Shard};

const REPLAY: &str = include_str!("lua/replay.lua");
/// What the names of the original fields begin with.
const FIELD_PREFIX: &[u8] = b"f.";
/// How long one request is tried while its slot's owner changes or memory is full, and the pause between two tries.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// An entry that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub shard: Shard,
    pub id: EntryId,
    pub reason: String,
    pub kind: String,
    /// The id that the entry had in the stream of changes.
    pub entry: String,
    /// What it held; empty where it was trimmed before anybody read it.
    pub fields: Fields,
}

impl DeadLetter {
    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let fields: usize = self.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        fields + self.reason.len() + self.kind.len() + self.entry.len()
    }
}

/// A shard's dead letters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survey {
    /// The time of the shard's node, Unix milliseconds.
    pub now: u64,
    pub count: u64,
    /// The youngest one.
    pub last: Option<EntryId>,
}

/// The dead letters of a layout. Every operation may be repeated without harm. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    topology: Arc<Topology>,
    pipes: Arc<Pipes>,
    keys: Keys,
    layout: Layout,
}

impl DeadLetters {
    pub fn new(topology: Arc<Topology>, pipes: Arc<Pipes>, keys: Keys, layout: Layout) -> Self {
        Self { topology, pipes, keys, layout }
    }

    /// How many there are in a shard, up to which one, and how late it is there.
    pub async fn survey(&self, shard: Shard) -> Result<Survey, Error> {
        let keys = self.keys(shard);
        let key = keys.dead_letters.as_str();
        let commands = [&["TIME"][..], &["XLEN", key], &["XREVRANGE", key, "+", "-", "COUNT", "1"]];
        let replies = self.all(&keys, commands.map(command).to_vec()).await?;
        let replies: Vec<Reply> = replies.into_iter().map(Reply::checked).collect::<Result<_, _>>()?;
        let [now, count, last] = &replies[..] else {
            return Err(Error::protocol("an answer to each command", "another number"));
        };
        let last = letters(shard, last)?.first().map(|letter| letter.id);
        Ok(Survey { now: milliseconds(now)?, count: count.as_u64()?, last })
    }

    /// At most `count` after one id and up to another, oldest first.
    pub async fn page(
        &self,
        shard: Shard,
        (after, last): (EntryId, EntryId),
        count: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        let keys = self.keys(shard);
        let (after, last) = (format!("({after}"), last.to_string());
        let key = keys.dead_letters.as_str();
        letters(shard, &self.one(&keys, command(&["XRANGE", key, &after, &last, "COUNT", &count.to_string()])).await?)
    }

    pub async fn get(&self, shard: Shard, id: EntryId) -> Result<Option<DeadLetter>, Error> {
        let keys = self.keys(shard);
        let id = id.to_string();
        let reply = self.one(&keys, command(&["XRANGE", keys.dead_letters.as_str(), &id, &id])).await?;
        Ok(letters(shard, &reply)?.pop())
    }

    /// Appends each letter's `fields`, which may differ from those it has, and removes the letter, all in one step and in
    /// this order. The fields must belong to this shard. Answers the new id of each, none for one that is gone: somebody
    /// else replayed or dropped it, or an earlier try did whose answer was lost.
    ///
    /// # Errors
    ///
    /// After a refusal each letter is where it was or is replayed; one that is replayed is gone at the next try.
    pub async fn replay(&self, shard: Shard, letters: &[(EntryId, Fields)]) -> Result<Vec<Option<EntryId>>, Error> {
        let keys = self.keys(shard);
        let reply = self.one(&keys, replay(&keys, letters)).await?;
        let answer = |reply: &Reply| match reply {
            Reply::Null => Ok(None),
            reply => entry_id(reply).map(Some),
        };
        reply.as_array()?.iter().map(answer).collect()
    }

    /// Removes letters for good; answers how many were there.
    pub async fn remove(&self, shard: Shard, ids: &[EntryId]) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let keys = self.keys(shard);
        let mut words = vec!["XDEL".to_owned(), keys.dead_letters.to_string()];
        words.extend(ids.iter().map(ToString::to_string));
        self.one(&keys, command(&words)).await?.as_u64()
    }

    fn keys(&self, shard: Shard) -> ShardKeys {
        self.keys.shard(&self.layout, shard)
    }

    async fn one(&self, keys: &ShardKeys, command: Pipeline) -> Result<Reply, Error> {
        let reply = self.all(keys, vec![command]).await?.pop();
        reply.ok_or_else(|| Error::protocol("an answer", "none"))?.checked()
    }

    /// One reply to each command, from whoever owns the shard by then. What was not done because the owner changed, or may
    /// have been done when the connection broke, is asked for again: all commands here bear that.
    async fn all(&self, keys: &ShardKeys, commands: Vec<Pipeline>) -> Result<Vec<Reply>, Error> {
        let end = Instant::now() + PATIENCE;
        let mut replies = vec![Reply::Null; commands.len()];
        let mut left: Vec<usize> = (0..commands.len()).collect();
        loop {
            let asked: Vec<Pipeline> = left.iter().map(|at| commands[*at].clone()).collect();
            let failure = match self.attempt(keys.slot, &asked).await {
                Ok(answers) => {
                    let answered: Vec<usize> = std::mem::take(&mut left);
                    for (at, answer) in answered.into_iter().zip(answers) {
                        if answer.error().is_some_and(|error| passes(error.disposition())) {
                            left.push(at);
                        }
                        replies[at] = answer;
                    }
                    None
                }
                Err(error) => Some(error),
            };
            if left.is_empty() {
                return Ok(replies);
            }
            let over = Instant::now() + PAUSE >= end;
            match failure {
                Some(error) if over || !passes(error.disposition()) => return Err(error),
                None if over => return Ok(replies),
                _ => {}
            }
            sleep_until(Instant::now() + PAUSE).await;
            // What this attempt finds out, the next one says.
            let _ = self.topology.refresh().await;
        }
    }

    async fn attempt(&self, slot: u16, commands: &[Pipeline]) -> Result<Vec<Reply>, Error> {
        let node = self.topology.node_of(slot)?;
        ask(&self.topology, &self.pipes, &node.address, commands).await
    }
}

/// Whether the same may succeed a moment later.
fn passes(disposition: Disposition) -> bool {
    match disposition {
        Disposition::Retry | Disposition::Refresh | Disposition::Ambiguous | Disposition::Full => true,
        Disposition::Fenced | Disposition::Poison | Disposition::Fatal => false,
    }
}

fn replay(keys: &ShardKeys, letters: &[(EntryId, Fields)]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    let mut command = pipeline.command("EVAL");
    command.arg(REPLAY).arg_u64(2).arg(keys.dead_letters.as_bytes()).arg(keys.changes.as_bytes());
    for (id, fields) in letters {
        command.arg(id.to_string()).arg_u64(2 * fields.len() as u64);
        for (name, value) in fields {
            command.arg(name).arg(value);
        }
    }
    drop(command);
    pipeline
}

fn letters(shard: Shard, entries: &Reply) -> Result<Vec<DeadLetter>, Error> {
    entries.as_array()?.iter().map(|entry| letter(shard, entry)).collect()
}

/// Whatever else stands in that stream is shown as it is: an operator has to be able to see and drop it.
fn letter(shard: Shard, entry: &Reply) -> Result<DeadLetter, Error> {
    let [id, fields] = entry.as_array()? else {
        return Err(Error::protocol("an id and fields", "another number"));
    };
    let mut letter = DeadLetter {
        shard,
        id: entry_id(id)?,
        reason: String::new(),
        kind: String::new(),
        entry: String::new(),
        fields: Fields::new(),
    };
    for (name, value) in fields.as_pairs()? {
        let (name, value): (&Bytes, &Bytes) = (name.as_bytes()?, value.as_bytes()?);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name.as_ref() {
            b"reason" => letter.reason = text(),
            b"kind" => letter.kind = text(),
            b"entry" => letter.entry = text(),
            name_bytes if name_bytes.starts_with(FIELD_PREFIX) => {
                letter.fields.push((name.slice(FIELD_PREFIX.len()..), value.clone()));
            }
            _ => {}
        }
    }
    Ok(letter)
}

fn entry_id(reply: &Reply) -> Result<EntryId, Error> {
    let text = reply.to_str()?;
    text.parse().map_err(|_| Error::protocol("an entry id", text))
}
