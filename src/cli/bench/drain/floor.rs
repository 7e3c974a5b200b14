//! Floor A: the same reads and the same writes as plain pipelines over the same kind of link, one task a shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::super::rounds::{Contestant, Turn};
use super::work::{self, Days, Way};
use super::{Common, field_days, prove, stopwatch};
use crate::key::ShardKeys;
use crate::position::EntryId;
use crate::redis::{Link, Pipeline};

/// How long one answer may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Floor {
    pub common: Common,
    pub way: Way,
}

impl Contestant for Floor {
    fn name(&self) -> String {
        self.common.name.clone()
    }

    fn turn(&mut self, round: usize) -> Turn<'_> {
        Box::pin(async move {
            let (Common { ground, task, .. }, way) = (&self.common, self.way);
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
                let state = State { batch: task.batch, way, left: ids.len() };
                consumers.push(Consumer { link, keys, days, state, done });
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
    state: State,
    done: Arc<AtomicU64>,
}

struct State {
    batch: usize,
    way: Way,
    left: usize,
}

impl Consumer {
    async fn run(mut self) -> anyhow::Result<()> {
        let (mut pipeline, mut after) = (Pipeline::new(), EntryId::ZERO);
        let State { batch, way, mut left } = self.state;
        while left > 0 {
            work::read(&mut pipeline, &self.keys, batch, (way, after));
            let read = self.send(&mut pipeline).await?;
            let items = work::items(read.first().context("an answer to a read")?)?;
            ensure!(!items.is_empty(), "{left} entries are missing in shard {}", self.keys.shard);
            work::loads(&mut pipeline, &self.keys, &self.days, &items);
            let loaded = self.send(&mut pipeline).await?;
            let olds = work::olds(&self.days, &items, &loaded)?;
            work::writes(&mut pipeline, &self.keys, &self.days, &items, &olds);
            work::acknowledge(&mut pipeline, &self.keys, &items, way);
            after = items.last().map_or(after, |item| item.id);
            for reply in self.send(&mut pipeline).await? {
                reply.checked()?;
            }
            left -= items.len().min(left);
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
