//! Floor A without a client library: the same bytes, encoded before the clock starts, written to a bare socket, and answers
//! that are only counted. What is between this and the floor is what a client library costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::rounds::{Contestant, Turn};
use super::stopwatch::Stopwatch;
use super::work::{self, Days, Item, Way};
use super::{Common, field_days, prove};
use crate::change::Change;
use crate::key::ShardKeys;
use crate::position::EntryId;
use crate::redis::Pipeline;
use crate::shard::Shard;

/// Behind every request, so that its end is known without a look at what lies before.
const END: &[u8] = b"+PONG\r\n";
const READ_BYTES: usize = 64 * 1024;

pub struct Raw {
    pub common: Common,
}

impl Contestant for Raw {
    fn name(&self) -> String {
        self.common.name.clone()
    }

    fn turn(&mut self, round: usize) -> Turn<'_> {
        Box::pin(async move {
            let Common { ground, task, .. } = &self.common;
            let options = &ground.options;
            ensure!(
                options.password.is_none() && options.tls.is_none(),
                "raw bytes are for clusters without password and TLS"
            );
            let changes = super::changes(task, round);
            let field = ground.field(task.shards).await?;
            let ids = field.append(&changes).await?;
            let days = field_days(ground);
            let watch = Stopwatch::new(changes.len() as u64)?;
            let mut consumers = Vec::new();
            for (shard, items) in by_shard(&field.hub, &changes, &ids)? {
                let keys = field.hub.shard_keys(shard).clone();
                let node = field.hub.topology().node_of(keys.slot)?.address.clone();
                let mut stream = TcpStream::connect((node.host.as_str(), node.port)).await?;
                stream.set_nodelay(true)?;
                let mut group = Pipeline::new();
                work::create_group(&mut group, &keys);
                exchange(&mut stream, &ended(group), &mut vec![0; READ_BYTES]).await?;
                let batches =
                    items.chunks(task.batch).map(|items| Batch::of(&keys, &days, items, task.batch)).collect();
                consumers.push(Consumer { stream, batches, done: watch.done() });
            }
            ground.settled().await?;
            let sample = watch.measure(ground, consumers.into_iter().map(Consumer::run)).await?;
            prove::views(&field, &changes).await?;
            ground.clear(field).await?;
            Ok(sample)
        })
    }
}

fn by_shard(
    hub: &crate::client::Hub,
    changes: &[Change],
    ids: &BTreeMap<Shard, Vec<EntryId>>,
) -> anyhow::Result<BTreeMap<Shard, Vec<Item>>> {
    let mut items: BTreeMap<Shard, Vec<Item>> = BTreeMap::new();
    for change in changes {
        let shard = hub.layout().shard_of(&change.user);
        let items = items.entry(shard).or_default();
        let id = ids.get(&shard).and_then(|ids| ids.get(items.len())).context("every change has its id")?;
        items.push(Item::of(*id, change)?);
    }
    Ok(items)
}

/// All that is sent for one batch.
struct Batch {
    requests: [Vec<u8>; 3],
    changes: u64,
}

impl Batch {
    /// Each friend is new in this load, so that what is loaded is known beforehand.
    fn of(keys: &ShardKeys, days: &Days, items: &[Item], count: usize) -> Batch {
        let (mut read, mut loads, mut writes) = (Pipeline::new(), Pipeline::new(), Pipeline::new());
        work::read(&mut read, keys, count, (Way::Group, EntryId::ZERO));
        work::loads(&mut loads, keys, days, items);
        work::writes(&mut writes, keys, days, items, &vec![None; items.len()]);
        work::acknowledge(&mut writes, keys, items, Way::Group);
        Batch { requests: [read, loads, writes].map(ended), changes: items.len() as u64 }
    }
}

fn ended(mut pipeline: Pipeline) -> Vec<u8> {
    pipeline.command("PING");
    pipeline.bytes().to_vec()
}

struct Consumer {
    stream: TcpStream,
    batches: Vec<Batch>,
    done: Arc<AtomicU64>,
}

impl Consumer {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        for batch in &self.batches {
            for request in &batch.requests {
                exchange(&mut self.stream, request, &mut buffer).await?;
            }
            self.done.fetch_add(batch.changes, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Sends, and reads until the answer to the last command.
async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> anyhow::Result<()> {
    stream.write_all(request).await?;
    let mut held = 0;
    loop {
        let read = stream.read(&mut buffer[held..]).await?;
        ensure!(read > 0, "the server closed the connection");
        let whole = &buffer[..held + read];
        if whole.ends_with(END) {
            return Ok(());
        }
        // The end may come in pieces.
        held = whole.len().min(END.len());
        let from = whole.len() - held;
        buffer.copy_within(from..from + held, 0);
    }
}
