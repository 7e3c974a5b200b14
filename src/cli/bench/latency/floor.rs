//! Floor B: XREAD BLOCK and SPUBLISH, one link a shard, and nothing else: no group, no views, no log, no fence. What an entry
//! says is passed on as the ids of its users, all of one read in one message, as heyday signals a batch.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::board::Board;
use crate::client::Hub;
use crate::key::ShardKeys;
use crate::redis::{Link, Pipeline, Reply};
use crate::task;

/// As long as a worker's block by default.
const BLOCK: Duration = Duration::from_secs(2);
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two users of a message.
pub const SEPARATOR: u8 = b' ';

/// Starts a consumer for each shard, on the thread that this runs on.
pub async fn start(hub: Hub, batch: usize, board: Arc<Board>) -> anyhow::Result<()> {
    for shard in hub.layout().shards() {
        let keys = hub.shard_keys(shard).clone();
        let node = hub.topology().node_of(keys.slot)?.address.clone();
        let link = Link::connect(&node, hub.topology().options()).await?;
        let (consumer, board) = (Consumer { link, keys, batch, last: "0".to_owned() }, board.clone());
        task::spawn("bench consumer", async move {
            if let Err(error) = consumer.run().await {
                board.failed(&error);
            }
        });
    }
    Ok(())
}

struct Consumer {
    link: Link,
    keys: ShardKeys,
    batch: usize,
    /// The id of the last entry read.
    last: String,
}

impl Consumer {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut pipeline = Pipeline::new();
        loop {
            let mut command = pipeline.command("XREAD");
            command.arg("COUNT").arg_u64(self.batch as u64).arg("BLOCK").arg_u64(BLOCK.as_millis() as u64);
            command.arg("STREAMS").arg(self.keys.changes.as_bytes()).arg(&self.last);
            drop(command);
            let read = self.link.request_blocking(&pipeline, BLOCK).await?.pop().context("no answer to a read")?;
            pipeline.clear();
            let users = self.users(&read.checked()?)?;
            if users.is_empty() {
                continue;
            }
            pipeline.command("SPUBLISH").arg(self.keys.push.as_bytes()).arg(&users);
            let published = self.link.request(&pipeline, REPLY_TIMEOUT).await?.pop();
            published.context("no answer to a message")?.checked()?;
            pipeline.clear();
        }
    }

    /// The users of the entries read, ready to be sent; empty where there were none.
    fn users(&mut self, read: &Reply) -> anyhow::Result<Vec<u8>> {
        let mut users = Vec::new();
        if read.is_null() {
            return Ok(users);
        }
        let [stream] = read.as_array()? else { anyhow::bail!("entries of one stream were asked for") };
        let [_, entries] = stream.as_array()? else { anyhow::bail!("a stream has a name and entries") };
        let entries = entries.as_array()?;
        for entry in entries {
            let [_, fields] = entry.as_array()? else { anyhow::bail!("an entry has an id and fields") };
            let pairs = fields.as_array()?.chunks_exact(2);
            let named = pairs.filter_map(|pair| Some((pair[0].as_bytes().ok()?, pair[1].as_bytes().ok()?)));
            let user = named.into_iter().find(|(name, _)| &name[..] == b"user");
            if !users.is_empty() {
                users.push(SEPARATOR);
            }
            users.extend_from_slice(user.context("an entry without a user")?.1);
        }
        let newest = entries.last().context("an answer without entries")?.as_array()?;
        self.last = newest.first().context("an entry without an id")?.to_str()?.to_owned();
        Ok(users)
    }
}
