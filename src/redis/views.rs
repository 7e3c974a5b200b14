//! Reading a user's view: all of it in one round trip, also while its slot is on the way to another node.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::{ClientLike, HashesInterface, StreamsInterface};
use fred::types::{CustomCommand, Value};
use tokio::time::Instant;

use super::topology::endpoint_address;
use super::{encode::Pipeline, error::Error, nodes::Nodes, options::NodeAddress, pipes::Pipes, reply::Reply};
use crate::change::UserId;
use crate::error::{ServerCode, ServerError};
use crate::key::{Key, ShardKeys};
use crate::position::EntryId;

/// The field of `state` that says up to where the views hold the stream.
const APPLIED_FIELD: &str = "applied";

/// What is stored of a user, and how far the shard had come at the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredView {
    /// Fields of `profile`.
    pub profile: Vec<(String, String)>,
    /// Fields of `birthdays`.
    pub birthdays: Vec<(String, String)>,
    /// The oldest entry of the stream whose effects the view may lack.
    pub unapplied: Option<EntryId>,
    /// The server's time, Unix milliseconds.
    pub now: u64,
}

/// Reads the view within `deadline`. A second round trip, only where the shard is behind, finds out how far.
pub async fn read_view(
    nodes: &Nodes,
    pipes: &Pipes,
    keys: &ShardKeys,
    user: &UserId,
    deadline: Duration,
) -> Result<StoredView, Error> {
    let end = Instant::now() + deadline;
    // The position comes first: what is applied between two of these commands makes the view newer than it says.
    let queries = [
        Query::HashField(keys.state.clone(), APPLIED_FIELD),
        Query::Hash(keys.profile(user)),
        Query::Hash(keys.birthdays(user)),
        Query::StreamTip(keys.changes.clone()),
        Query::Time,
    ];
    let source = Source { nodes, pipes, slot: keys.slot, deadline, end };
    let replies: [Reply; 5] = source.ask(&queries).await?;
    let [applied, profile, birthdays, tip, time] = replies;
    let applied = match applied.into_array()?.first().map(Reply::as_bytes_or_null).transpose()?.flatten() {
        Some(text) => entry_id(&String::from_utf8_lossy(text))?,
        None => EntryId::ZERO,
    };
    let mut unapplied = first_id(&tip)?.filter(|tip| *tip > applied);
    if unapplied.is_some() {
        let [oldest] = source.ask(&[Query::StreamAfter(keys.changes.clone(), applied)]).await?;
        unapplied = first_id(&oldest)?;
    }
    Ok(StoredView { profile: pairs(&profile)?, birthdays: pairs(&birthdays)?, unapplied, now: milliseconds(&time)? })
}

/// A read of one key.
#[derive(Clone)]
enum Query {
    HashField(Key, &'static str),
    Hash(Key),
    StreamTip(Key),
    StreamAfter(Key, EntryId),
    Time,
}

impl Query {
    async fn run(self, client: &Client) -> Result<Value, fred::error::Error> {
        match self {
            Query::HashField(key, field) => client.hmget(key.as_str(), vec![field]).await,
            Query::Hash(key) => client.hgetall(key.as_str()).await,
            Query::StreamTip(key) => client.xrevrange(key.as_str(), "+", "-", Some(1)).await,
            Query::StreamAfter(key, id) => client.xrange(key.as_str(), format!("({id}"), "+", Some(1)).await,
            Query::Time => client.custom(CustomCommand::new_static("TIME", None, false), Vec::<Value>::new()).await,
        }
    }

    fn write(&self, pipeline: &mut Pipeline) {
        match self {
            Query::HashField(key, field) => pipeline.push(&["HMGET", key.as_str(), field]),
            Query::Hash(key) => pipeline.push(&["HGETALL", key.as_str()]),
            Query::StreamTip(key) => pipeline.push(&["XREVRANGE", key.as_str(), "+", "-", "COUNT", "1"]),
            Query::StreamAfter(key, id) => {
                pipeline.push(&["XRANGE", key.as_str(), &format!("({id}"), "+", "COUNT", "1"]);
            }
            Query::Time => pipeline.push(&["TIME"]),
        }
    }
}

/// Where a shard's keys are read from.
struct Source<'a> {
    nodes: &'a Nodes,
    pipes: &'a Pipes,
    slot: u16,
    deadline: Duration,
    end: Instant,
}

impl Source<'_> {
    /// All queries at once. What the owner no longer has, the node that is taking the slot over is asked for.
    async fn ask<const N: usize>(&self, queries: &[Query; N]) -> Result<[Reply; N], Error> {
        let remaining = self.end.saturating_duration_since(Instant::now());
        let mut replies = self
            .nodes
            .read(self.slot, remaining, |client| {
                let queries = queries.clone();
                async move { run(&client, queries).await }
            })
            .await?;
        if let Some(endpoint) = replies.iter().find_map(asked) {
            let owner = self.nodes.topology().node_of(self.slot)?;
            let node =
                endpoint_address(endpoint, &owner.address).ok_or_else(|| Error::protocol("an address", endpoint))?;
            self.ask_arrived(&node, queries, &mut replies).await?;
        }
        replies.try_into().map_err(|_| Error::protocol("an answer to each query", "another number"))
    }

    async fn ask_arrived(&self, node: &NodeAddress, queries: &[Query], replies: &mut [Reply]) -> Result<(), Error> {
        let mut pipeline = Pipeline::new();
        let moved: Vec<usize> = (0..replies.len()).filter(|at| asked(&replies[*at]).is_some()).collect();
        for at in &moved {
            pipeline.command("ASKING");
            queries[*at].write(&mut pipeline);
        }
        let exchange = async { self.pipes.get(node).await?.submit(pipeline).await };
        let late = |_| Error::Timeout { node: node.clone(), after: self.deadline, sent: true };
        let arrived = tokio::time::timeout_at(self.end, exchange).await.map_err(late)??;
        for (at, reply) in moved.into_iter().zip(arrived.into_iter().skip(1).step_by(2)) {
            replies[at] = reply.checked()?;
        }
        Ok(())
    }
}

/// Issued together, so that the client writes them together. An ASK is an answer; any other refusal is one of all.
async fn run<const N: usize>(client: &Client, queries: [Query; N]) -> Result<Vec<Reply>, fred::error::Error> {
    let mut running: Vec<_> = queries.into_iter().map(|query| Running::Waiting(Box::pin(query.run(client)))).collect();
    poll_fn(|context| {
        let mut pending = false;
        for slot in &mut running {
            if let Running::Waiting(future) = slot {
                match future.as_mut().poll(context) {
                    Poll::Ready(result) => *slot = Running::Done(result),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let done = running.into_iter().filter_map(|slot| match slot {
        Running::Done(result) => Some(result),
        Running::Waiting(_) => None,
    });
    done.map(|result| match result {
        Ok(value) => Ok(reply(value)),
        Err(error) => match ServerError::parse(error.details()) {
            ask @ ServerError { code: ServerCode::Ask { .. }, .. } => Ok(Reply::Error(Box::new(ask))),
            _ => Err(error),
        },
    })
    .collect()
}

enum Running<F> {
    Waiting(Pin<Box<F>>),
    Done(Result<Value, fred::error::Error>),
}

fn asked(reply: &Reply) -> Option<&str> {
    match &reply.error()?.code {
        ServerCode::Ask { endpoint, .. } => Some(endpoint),
        _ => None,
    }
}

/// The client library's value as one of our replies.
fn reply(value: Value) -> Reply {
    match value {
        Value::Null => Reply::Null,
        Value::Integer(number) => Reply::Integer(number),
        Value::Array(items) => Reply::Array(items.into_iter().map(reply).collect()),
        Value::Map(map) => {
            let pairs = map.inner().into_iter();
            Reply::Array(pairs.flat_map(|(name, value)| [Reply::Bytes(name.into_bytes()), reply(value)]).collect())
        }
        other => other.into_bytes().map_or(Reply::Null, Reply::Bytes),
    }
}

fn pairs(reply: &Reply) -> Result<Vec<(String, String)>, Error> {
    let text = |reply: &Reply| reply.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    reply.as_pairs()?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
}

fn first_id(entries: &Reply) -> Result<Option<EntryId>, Error> {
    let Some(entry) = entries.as_array()?.first() else {
        return Ok(None);
    };
    let id = entry.as_array()?.first().ok_or_else(|| Error::protocol("an entry id", "nothing"))?;
    entry_id(id.to_str()?).map(Some)
}

fn entry_id(text: &str) -> Result<EntryId, Error> {
    text.parse().map_err(|_| Error::protocol("an entry id", text))
}

fn milliseconds(time: &Reply) -> Result<u64, Error> {
    match time.as_array()? {
        [seconds, microseconds] => Ok(seconds.as_u64()? * 1000 + microseconds.as_u64()? / 1000),
        _ => Err(Error::protocol("seconds and microseconds", "another number")),
    }
}
