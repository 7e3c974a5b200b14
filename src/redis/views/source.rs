//! Asking whoever owns a slot several questions at once, also while the slot is on the way to another node.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use fred::clients::Client;
use fred::types::Value;
use tokio::time::Instant;

use super::query::Query;
use crate::error::{ServerCode, ServerError};
use crate::redis::topology::endpoint_address;
use crate::redis::{encode::Pipeline, error::Error, nodes::Nodes, options::NodeAddress, pipes::Pipes, reply::Reply};

/// Where a shard's keys are read from.
pub(super) struct Source<'a> {
    pub nodes: &'a Nodes,
    pub pipes: &'a Pipes,
    pub slot: u16,
    pub deadline: Duration,
    pub end: Instant,
    /// How often an answer was waited for.
    pub round_trips: AtomicU32,
}

impl<'a> Source<'a> {
    pub fn new(nodes: &'a Nodes, pipes: &'a Pipes, slot: u16, deadline: Duration) -> Source<'a> {
        Source { nodes, pipes, slot, deadline, end: Instant::now() + deadline, round_trips: AtomicU32::new(0) }
    }

    /// An answer to each query, all asked at once. What the owner no longer has, the node that is taking the slot over is
    /// asked for.
    pub async fn ask(&self, queries: &[Query]) -> Result<Vec<Reply>, Error> {
        let remaining = self.end.saturating_duration_since(Instant::now());
        let mut replies = self
            .nodes
            .read(self.slot, remaining, |client| {
                self.round_trips.fetch_add(1, Ordering::Relaxed);
                let queries = queries.to_vec();
                async move { run(&client, queries).await }
            })
            .await?;
        if let Some(endpoint) = replies.iter().find_map(asked) {
            let owner = self.nodes.topology().node_of(self.slot)?;
            let node =
                endpoint_address(endpoint, &owner.address).ok_or_else(|| Error::protocol("an address", endpoint))?;
            self.ask_arrived(&node, queries, &mut replies).await?;
        }
        Ok(replies)
    }

    pub async fn ask_one(&self, query: Query) -> Result<Reply, Error> {
        let answer = self.ask(&[query]).await?.pop();
        answer.ok_or_else(|| Error::protocol("an answer to the query", "none"))
    }

    async fn ask_arrived(&self, node: &NodeAddress, queries: &[Query], replies: &mut [Reply]) -> Result<(), Error> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
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
            replies[at] = match reply.error() {
                Some(error) if is_answer(error) => reply,
                _ => reply.checked()?,
            };
        }
        Ok(())
    }
}

/// Issued together, so that the client writes them together. Some refusals are answers; any other is one of all.
async fn run(client: &Client, queries: Vec<Query>) -> Result<Vec<Reply>, fred::error::Error> {
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
            refusal if asked_by(&refusal).is_some() || is_answer(&refusal) => Ok(Reply::Error(Box::new(refusal))),
            _ => Err(error),
        },
    })
    .collect()
}

enum Running<F> {
    Waiting(Pin<Box<F>>),
    Done(Result<Value, fred::error::Error>),
}

/// A stream that no worker has ever read has no group.
fn is_answer(refusal: &ServerError) -> bool {
    refusal.code == ServerCode::NoGroup
}

fn asked(reply: &Reply) -> Option<&str> {
    asked_by(reply.error()?)
}

fn asked_by(refusal: &ServerError) -> Option<&str> {
    match &refusal.code {
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
