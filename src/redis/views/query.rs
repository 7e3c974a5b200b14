//! The questions of a read, each about one key.

use fred::clients::Client;
use fred::interfaces::{ClientLike, HashesInterface, KeysInterface, SortedSetsInterface, StreamsInterface};
use fred::types::{CustomCommand, Value};

use crate::key::{GROUP, Key};
use crate::position::EntryId;
use crate::redis::encode::Pipeline;

/// A read of one key.
#[derive(Clone)]
pub(super) enum Query {
    HashFields(Key, &'static [&'static str]),
    Hash(Key),
    /// Members and scores, the highest score first.
    Ranking(Key),
    /// 1 or 0.
    Exists(Key),
    StreamTip(Key),
    StreamAfter(Key, EntryId),
    /// What the workers have read from a stream and not acknowledged, in short.
    Pending(Key),
    Time,
}

impl Query {
    pub(super) async fn run(self, client: &Client) -> Result<Value, fred::error::Error> {
        match self {
            Query::HashFields(key, fields) => client.hmget(key.as_str(), fields.to_vec()).await,
            Query::Hash(key) => client.hgetall(key.as_str()).await,
            Query::Ranking(key) => client.zrevrange(key.as_str(), 0, -1, true).await,
            Query::Exists(key) => client.exists(key.as_str()).await,
            Query::StreamTip(key) => client.xrevrange(key.as_str(), "+", "-", Some(1)).await,
            Query::StreamAfter(key, id) => client.xrange(key.as_str(), format!("({id}"), "+", Some(1)).await,
            Query::Pending(key) => client.xpending(key.as_str(), GROUP, ()).await,
            Query::Time => client.custom(CustomCommand::new_static("TIME", None, false), Vec::<Value>::new()).await,
        }
    }

    pub(super) fn write(&self, pipeline: &mut Pipeline) {
        match self {
            Query::HashFields(key, fields) => {
                let mut command = pipeline.command("HMGET");
                command.arg(key.as_bytes());
                for field in *fields {
                    command.arg(field);
                }
            }
            Query::Hash(key) => pipeline.push(&["HGETALL", key.as_str()]),
            Query::Ranking(key) => pipeline.push(&["ZREVRANGE", key.as_str(), "0", "-1", "WITHSCORES"]),
            Query::Exists(key) => pipeline.push(&["EXISTS", key.as_str()]),
            Query::StreamTip(key) => pipeline.push(&["XREVRANGE", key.as_str(), "+", "-", "COUNT", "1"]),
            Query::StreamAfter(key, id) => {
                pipeline.push(&["XRANGE", key.as_str(), &format!("({id}"), "+", "COUNT", "1"]);
            }
            Query::Pending(key) => pipeline.push(&["XPENDING", key.as_str(), GROUP]),
            Query::Time => pipeline.push(&["TIME"]),
        }
    }
}
