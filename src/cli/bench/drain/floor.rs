//! Floor A: the same reads and the same writes as plain pipelines over the same kind of link, one task a shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::super::rounds::{Contestant, Turn};
use super::work::{self, Days};
use super::{Common, field_days, prove, stopwatch};
use crate::key::ShardKeys;
use crate::redis::{Link, Pipeline};

/// How long one answer may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Floor {
    pub common: Common,
}

impl Contestant for Floor {
    fn name(&self) -> String {
        self.common.name.clone()
    }

    fn turn(&mut self, round: usize) -> Turn<'_> {
        Box::pin(async move {
            let Common { ground, task, .. } = &self.common;
            let changes = super::changes(task, round);
            let field = ground.field(task.shards).await?;
            let counts = field.append(&changes).await?;
            let days = field_days(ground);
            let watch = stopwatch::Stopwatch::new(changes.len() as u64)?;
            let mut consumers = Vec::new();
            for (shard, ids) in counts {
                let keys = field.hub.shard_keys(shard).clone();
                let node = field.hub.topology().node_of(keys.slot)?.address.clone();
                let mut link = Link::connect(&node, &ground.options).await?;
                let mut group = Pipeline::new();
                work::create_group(&mut group, &keys);
                link.request(&group, REPLY_TIMEOUT).await?.remove(0).checked()?;
                let (done, days) = (watch.done(), days.clone());
                consumers.push(Consumer { link, keys, days, batch: task.batch, left: ids.len(), done });
            }
            ground.settled().await?;
            let sample = watch.measure(ground, consumers.into_iter().map(Consumer::run)).await?;
            prove::views(&field, &changes).await?;
            ground.clear(field).await?;
            Ok(sample)
        })
    }
}

struct Consumer {
    link: Link,
    keys: ShardKeys,
    days: Days,
    batch: usize,
    left: usize,
    done: Arc<AtomicU64>,
}

impl Consumer {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut pipeline = Pipeline::new();
        while self.left > 0 {
            work::read(&mut pipeline, &self.keys, self.batch);
            let read = self.send(&mut pipeline).await?;
            let items = work::items(read.first().context("an answer to a read")?)?;
            ensure!(!items.is_empty(), "{} entries are missing in shard {}", self.left, self.keys.shard);
            work::loads(&mut pipeline, &self.keys, &self.days, &items);
            let loaded = self.send(&mut pipeline).await?;
            let olds = work::olds(&self.days, &items, &loaded)?;
            work::writes(&mut pipeline, &self.keys, &self.days, &items, &olds);
            for reply in self.send(&mut pipeline).await? {
                reply.checked()?;
            }
            self.left -= items.len().min(self.left);
            self.done.fetch_add(items.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn send(&mut self, pipeline: &mut Pipeline) -> anyhow::Result<Vec<crate::redis::Reply>> {
        let replies = self.link.request(pipeline, REPLY_TIMEOUT).await;
        pipeline.clear();
        Ok(replies?)
    }
}
