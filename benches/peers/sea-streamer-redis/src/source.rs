//! The stream of one shard as sea-streamer can read it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis::cluster_async::ClusterConnection;
use redis::streams::StreamRangeReply;
use sea_streamer_redis::{
    AutoCommit, AutoStreamReset, RedisConnectOptions, RedisConsumer, RedisConsumerOptions, RedisStreamer,
};
use sea_streamer_types::{
    ConnectOptions, Consumer, ConsumerGroup, ConsumerMode, ConsumerOptions, SharedMessage, StreamKey, Streamer,
};

use crate::settings::Settings;

const GROUP: &str = "peers";
const SLOTS: u16 = 16384;
/// How many entries are copied at once, before anything is measured.
const COPY: usize = 1000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Source {
    pub tag: String,
    pub stream: String,
    /// Entries that are not yet acknowledged.
    pub left: usize,
    consumer: RedisConsumer,
}

impl Source {
    /// Copies the shard's entries to a stream of sea-streamer's own and makes a consumer of a group that begins at 0.
    pub async fn open(settings: &Settings, mut connection: ClusterConnection, tag: &str) -> Result<Self> {
        let stream = stream_beside(&settings.prefix, tag);
        let left = copy(&mut connection, &format!("{}changes:{{{tag}}}", settings.prefix), &stream).await?;
        let owner = owner(&mut connection, &stream).await?;

        let mut connect = RedisConnectOptions::default();
        connect.set_timeout(CONNECT_TIMEOUT)?.set_password(settings.password.clone());
        let streamer = RedisStreamer::connect(format!("redis://{owner}").parse()?, connect).await?;
        let mut options = RedisConsumerOptions::new(ConsumerMode::Resumable);
        options.set_consumer_group(ConsumerGroup::new(GROUP))?;
        options
            .set_auto_stream_reset(AutoStreamReset::Earliest)
            .set_auto_commit(AutoCommit::Disabled)
            .set_mkstream(true)
            .set_batch_size(settings.batch);
        let consumer = streamer.create_consumer(&[StreamKey::new(&stream)?], options).await?;
        Ok(Self { tag: tag.to_owned(), stream, left, consumer })
    }

    /// The next entries, so many at most. It waits for no more than there are: a read without entries would block for 10 s.
    pub async fn batch(&mut self, most: usize) -> Result<Vec<SharedMessage>> {
        let count = most.min(self.left);
        let mut messages = Vec::with_capacity(count);
        while messages.len() < count {
            messages.push(self.consumer.next().await?);
        }
        Ok(messages)
    }

    pub async fn acknowledge(&mut self, messages: &[SharedMessage]) -> Result<()> {
        for message in messages {
            self.consumer.ack(message)?;
        }
        self.consumer.commit()?.await?;
        self.left -= messages.len();
        Ok(())
    }
}

/// The streams lie outside the prefix that whoever measures cleans up.
pub async fn remove(mut connection: ClusterConnection, streams: &[String]) -> Result<()> {
    for stream in streams {
        redis::cmd("UNLINK").arg(stream).query_async::<()>(&mut connection).await?;
    }
    Ok(())
}

/// A stream in the tag's slot. sea-streamer takes letters, digits, `.`, `_` and `-` only, hence no hash tag: the end of the name makes the slot.
fn stream_beside(prefix: &str, tag: &str) -> String {
    let usable = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let prefix: String = prefix.chars().map(usable).collect();
    let wanted = slot(tag);
    let mut number = 0_u64;
    loop {
        let name = format!("{prefix}sea-streamer.{tag}.{number}");
        if slot(&name) == wanted {
            return name;
        }
        number += 1;
    }
}

fn slot(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % SLOTS
}

async fn copy(connection: &mut ClusterConnection, from: &str, to: &str) -> Result<usize> {
    redis::cmd("DEL").arg(to).query_async::<()>(connection).await?;
    let (mut begin, mut copied) = ("-".to_owned(), 0);
    loop {
        let page: StreamRangeReply =
            redis::cmd("XRANGE").arg(from).arg(&begin).arg("+").arg("COUNT").arg(COPY).query_async(connection).await?;
        let Some(last) = page.ids.last() else { return Ok(copied) };
        begin = format!("({}", last.id);
        let mut pipeline = redis::pipe();
        for entry in &page.ids {
            let field = |name| entry.get::<String>(name).with_context(|| format!("{from} {}: no {name}", entry.id));
            let message = format!("{} {} {}", field("user")?, field("friend")?, field("birthday")?);
            pipeline.cmd("XADD").arg(to).arg("*").arg("msg").arg(message).ignore();
        }
        pipeline.query_async::<()>(connection).await?;
        copied += page.ids.len();
    }
}

/// The address of the primary that serves the key.
async fn owner(connection: &mut ClusterConnection, key: &str) -> Result<String> {
    type Node = (String, u16, String, HashMap<String, String>);
    let slot = slot(key);
    let ranges: Vec<Vec<redis::Value>> = redis::cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
    for range in ranges {
        let [first, last, primary, ..] = range.as_slice() else { bail!("CLUSTER SLOTS answers {range:?}") };
        let (first, last): (u16, u16) = (redis::from_redis_value_ref(first)?, redis::from_redis_value_ref(last)?);
        if (first..=last).contains(&slot) {
            let (host, port, ..): Node = redis::from_redis_value_ref(primary)?;
            return Ok(format!("{host}:{port}"));
        }
    }
    bail!("no node serves slot {slot}")
}
