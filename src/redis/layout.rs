//! The layout as it is stored: created once, read by everybody.

use crate::error::{Disposition, ServerCode};
use crate::key::{Key, Keys};
use crate::redis::{self, Link, Pipeline, Reply, Topology};
use crate::shard::{self, FORMAT, Layout};

/// How often a redirect is followed: a slot on its way may be answered for by two nodes in turn.
const REDIRECTS_MAX: usize = 5;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("no layout at {key}: run `heyday init` first")]
    Missing { key: Key },
    #[error("the layout at {key} has {stored} shards, not {asked}: their number never changes once it is created")]
    Count { key: Key, stored: u32, asked: u32 },
    #[error("the layout at {key} is damaged: {reason}")]
    Damaged { key: Key, reason: String },
    #[error(transparent)]
    Layout(#[from] shard::Error),
    // The cause is part of the message, so it is no source besides: a chain would say it twice.
    #[error("layout: {0}")]
    Redis(redis::Error),
}

impl From<redis::Error> for Error {
    fn from(error: redis::Error) -> Error {
        Error::Redis(error)
    }
}

impl Error {
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Redis(error) => error.disposition(),
            Self::Missing { .. } | Self::Count { .. } | Self::Damaged { .. } | Self::Layout(_) => Disposition::Fatal,
        }
    }
}

/// Creates the layout where there is none; tells whether it did. One of several callers at once creates it, and the
/// others find it; another number of shards than the stored one is refused.
pub async fn create_layout(topology: &Topology, keys: &Keys, shards: u32) -> Result<(Layout, bool), Error> {
    let key = keys.layout();
    let layout = Layout::new(shards)?;
    let tags = rmp_serde::to_vec(&layout.tags()).map_err(|error| damaged(&key, error.to_string()))?;
    let mut pipeline = Pipeline::new();
    pipeline
        .command("EVAL")
        .arg(include_str!("lua/create_layout.lua"))
        .arg_u64(1)
        .arg(key.as_bytes())
        .arg_u64(u64::from(shards))
        .arg_u64(u64::from(FORMAT))
        .arg(&tags);
    let reply = ask(topology, &key, &pipeline).await?;
    let (created, stored) = match reply.as_array()? {
        [created, stored @ ..] => (created.as_u64()? == 1, stored),
        [] => return Err(redis::Error::protocol("a layout", "nothing").into()),
    };
    let stored = read(&key, stored)?;
    if stored.count() != shards {
        return Err(Error::Count { key, stored: stored.count(), asked: shards });
    }
    Ok((stored, created))
}

/// The stored layout, proven to be the one that this build computes.
pub async fn read_layout(topology: &Topology, keys: &Keys) -> Result<Layout, Error> {
    let key = keys.layout();
    let mut pipeline = Pipeline::new();
    pipeline.push(&["HMGET", key.as_str(), "shards", "format", "tags"]);
    let reply = match ask(topology, &key, &pipeline).await {
        Err(Error::Redis(error)) => ask_replicas(topology, &key, &pipeline).await.ok_or(error)?,
        reply => reply?,
    };
    read(&key, reply.as_array()?)
}

/// The layout never changes, so a replica knows it as well where its primary does not answer. Nodes that have another
/// slot refuse; the first answer counts.
async fn ask_replicas(topology: &Topology, key: &Key, pipeline: &Pipeline) -> Option<Reply> {
    let mut reading = Pipeline::new();
    reading.command("READONLY");
    reading.append(pipeline);
    let (options, silent) = (topology.options(), topology.node_of(key.slot()).ok());
    for node in
        topology.all().into_iter().filter(|node| silent.as_ref().is_none_or(|silent| silent.address != node.address))
    {
        let Ok(mut link) = Link::connect(&node.address, options).await else { continue };
        let answer = link.request(&reading, options.reply_timeout).await;
        if let Ok(Some(reply)) = answer.map(|mut replies| replies.pop())
            && let Ok(reply) = reply.checked()
        {
            return Some(reply);
        }
    }
    None
}

/// `stored` is shards, format and tags.
fn read(key: &Key, stored: &[Reply]) -> Result<Layout, Error> {
    let [shards, format, tags] = stored else {
        return Err(redis::Error::protocol("shards, format and tags", format!("{} values", stored.len())).into());
    };
    if stored.iter().all(Reply::is_null) {
        return Err(Error::Missing { key: key.clone() });
    }
    // The format first: a foreign one may hold anything else.
    let format = text(key, "format", format)?;
    if format != FORMAT.to_string() {
        return Err(shard::Error::Format { stored: format }.into());
    }
    let shards = text(key, "shards", shards)?;
    let count = shards.parse().map_err(|_| damaged(key, format!("shards is {shards:?}, expected a number")))?;
    let layout = Layout::new(count)?;
    let tags = tags.as_bytes().map_err(|_| damaged(key, "tags is missing".to_owned()))?;
    let tags: Vec<String> = rmp_serde::from_slice(tags).map_err(|error| damaged(key, format!("tags: {error}")))?;
    layout.verify_tags(&tags)?;
    Ok(layout)
}

fn text(key: &Key, field: &str, reply: &Reply) -> Result<String, Error> {
    let bytes = reply.as_bytes().map_err(|_| damaged(key, format!("{field} is missing")))?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn damaged(key: &Key, reason: String) -> Error {
    Error::Damaged { key: key.clone(), reason }
}

/// One command, harmless to repeat, to the owner of `key`, wherever that is by now.
async fn ask(topology: &Topology, key: &Key, pipeline: &Pipeline) -> Result<Reply, Error> {
    let slot = key.slot();
    let mut followed = 0;
    loop {
        let node = topology.node_of(slot)?;
        let options = topology.options();
        let mut link = Link::connect(&node.address, options).await?;
        let reply = link.request(pipeline, options.reply_timeout).await?.pop();
        let reply = reply.ok_or_else(|| redis::Error::protocol("an answer", "none"))?;
        match reply.error().map(|error| &error.code) {
            Some(ServerCode::Moved { slot, endpoint }) if followed < REDIRECTS_MAX => {
                topology.learn_moved(*slot, endpoint, &node.address);
            }
            Some(ServerCode::Ask { .. } | ServerCode::TryAgain) if followed < REDIRECTS_MAX => {
                topology.refresh().await?
            }
            Some(ServerCode::WrongType) => return Err(damaged(key, "it is not a hash".to_owned())),
            _ => return Ok(reply.checked()?),
        }
        followed += 1;
    }
}
