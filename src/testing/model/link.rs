//! A link of the model: the shard's operations in strict sequence, with what may befall a request on its way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::server::{Delivery, Late, Served, ShardServer};
use super::{Model, Sabotage, World, lock, refusal};
use crate::lease::WorkerId;
use crate::position::{CommitId, EntryId};
use crate::reduce::{Commit, Entry, Job, Loaded, Plan, Progress, Roll, Survey, Surveyed};
use crate::shard::Shard;
use crate::store::{Backlog, Committed, Error, Read, ShardLink, Taken, Unfinished};

pub struct ModelLink {
    model: Model,
    shard: Shard,
    epoch: u64,
    dead: bool,
    /// The count of state writes at the last load.
    watched: Option<u64>,
    /// What its user believes, for the sabotages: generation and last commit, and the entries read.
    believed: Option<(u64, CommitId)>,
    read: BTreeSet<EntryId>,
    applied: EntryId,
}

type Effect<T> = Box<dyn FnOnce(&mut ShardServer) -> Result<T, Error> + Send>;

/// A request on its way. Where its sender is gone before it arrives, it may arrive all the same.
struct Flight<T: 'static> {
    world: Arc<World>,
    shard: Shard,
    epoch: u64,
    effect: Option<Effect<T>>,
    late: Option<Duration>,
}

impl<T: 'static> Flight<T> {
    fn land(mut self) -> Result<T, Error> {
        let (epoch, effect) = (self.epoch, self.effect.take().expect("a flight lands once"));
        self.world.at(self.shard, |server| if server.epoch == epoch { effect(server) } else { Err(refusal::lost()) })
    }

    /// It never arrives.
    fn vanish(mut self) {
        self.effect = None;
    }
}

impl<T: 'static> Drop for Flight<T> {
    fn drop(&mut self) {
        self.world.flights.fetch_sub(1, Ordering::SeqCst);
        let (Some(effect), Some(late)) = (self.effect.take(), self.late) else {
            return;
        };
        let at = self.world.now() + late.as_millis() as u64;
        let effect = Box::new(move |server: &mut ShardServer| drop(effect(server)));
        let epoch = self.epoch;
        self.world.at(self.shard, |server| {
            if server.epoch == epoch {
                server.inbox.push(Late { at, effect });
            }
        });
    }
}

/// A blocked read. When its client is gone the server may not notice.
struct Waiting<'a> {
    model: &'a Model,
    shard: Shard,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unnoticed = lock(&self.model.world.dice).arrives();
        if !unnoticed {
            self.model.world.at(self.shard, |server| server.forget(self.number));
        }
    }
}

impl ModelLink {
    pub(super) fn new(model: Model, shard: Shard, epoch: u64) -> ModelLink {
        ModelLink {
            model,
            shard,
            epoch,
            dead: false,
            watched: None,
            believed: None,
            read: BTreeSet::new(),
            applied: EntryId::ZERO,
        }
    }

    /// One request and its reply. The link is dead while it is under way, so that a dropped call leaves it so.
    async fn request<T: Send + 'static>(
        &mut self,
        writes: bool,
        effect: impl FnOnce(&mut ShardServer) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if std::mem::replace(&mut self.dead, true) {
            return Err(refusal::dead());
        }
        let fate = self.model.fate(self.shard);
        self.model.world.flights.fetch_add(1, Ordering::SeqCst);
        let flight = Flight {
            world: self.model.world.clone(),
            shard: self.shard,
            epoch: self.epoch,
            effect: Some(Box::new(effect)),
            late: fate.late,
        };
        self.model.client.pass(fate.before).await;
        if fate.cut {
            return Err(refusal::lost());
        }
        if let Some(disposition) =
            fate.refused.filter(|disposition| writes || *disposition != crate::error::Disposition::Full)
        {
            flight.vanish();
            self.dead = false;
            return Err(refusal::by_chance(disposition));
        }
        let answer = flight.land();
        if fate.reply_lost {
            return Err(refusal::lost());
        }
        self.model.client.pass(fate.after).await;
        self.dead = answer.as_ref().is_err_and(|error| !error.disposition.is_clean());
        answer
    }

    /// Waits for the reply of a blocked read.
    async fn wait(
        &mut self,
        number: u64,
        mut reply: tokio::sync::oneshot::Receiver<Served>,
        (block, from): (Duration, (EntryId, usize)),
    ) -> Result<Vec<Entry>, Error> {
        self.dead = true;
        let waiting = Waiting { model: &self.model, shard: self.shard, number };
        let served = tokio::time::timeout(block, &mut reply).await;
        self.model.client.pass(Duration::ZERO).await;
        self.model.world.at(self.shard, |server| server.forget(number));
        drop(waiting);
        let entries = match served {
            Ok(served) => served.unwrap_or_else(|_| Err(refusal::lost())),
            Err(_) => {
                let late = |server: &mut ShardServer| server.following(None, from.0, from.1);
                reply.try_recv().unwrap_or_else(|_| Ok(self.model.world.at(self.shard, late)))
            }
        };
        self.dead = entries.as_ref().is_err_and(|error| !error.disposition.is_clean());
        entries
    }

    fn sabotaged(&self, sabotage: Sabotage) -> bool {
        self.model.world.sabotage == Some(sabotage)
    }
}

impl ShardLink for ModelLink {
    async fn take(&mut self, worker: &WorkerId, ttl: Duration) -> Result<Taken, Error> {
        let worker = worker.clone();
        let taken = self.request(true, move |server| server.take(&worker, ttl)).await?;
        if let Taken::Mine(state, _) = &taken {
            self.applied = state.applied;
            self.believed = Some((state.generation, state.last));
        }
        Ok(taken)
    }

    async fn renew(&mut self, worker: &WorkerId, ttl: Duration) -> Result<bool, Error> {
        let worker = worker.clone();
        self.request(false, move |server| server.renew(&worker, ttl)).await
    }

    async fn read(&mut self, which: Read, count: usize) -> Result<Vec<Entry>, Error> {
        let applied = match self.read.last() {
            Some(read) if self.sabotaged(Sabotage::Position) => self.applied.max(*read),
            _ => self.applied,
        };
        let entries = match which {
            Read::Pending => self.request(false, move |server| server.read_pending(applied, count)).await?,
            Read::Head => {
                let mut head = self.request(false, move |server| server.read_pending(applied, 1)).await?;
                head.iter_mut().for_each(|entry| entry.fields = None);
                head
            }
            Read::New { block } => {
                match self.request(false, move |server| server.read_new(applied, count, block)).await? {
                    Delivery::Now(entries) => entries,
                    Delivery::Blocked(number, reply) => self.wait(number, reply, (block, (applied, count))).await?,
                }
            }
        };
        self.read.extend(entries.iter().map(|entry| entry.id));
        Ok(entries)
    }

    async fn load(&mut self, plan: &Plan) -> Result<Loaded, Error> {
        let plan = plan.clone();
        self.watched = None;
        let (mut loaded, writes) = self.request(false, move |server| server.load(&plan)).await?;
        self.watched = Some(writes);
        if self.sabotaged(Sabotage::Fence) {
            (loaded.generation, loaded.last) = self.believed.unwrap_or((loaded.generation, loaded.last));
        }
        if self.sabotaged(Sabotage::Order) {
            (loaded.pending, loaded.pending_first) = (u64::MAX, None);
        }
        Ok(loaded)
    }

    async fn commit(&mut self, commit: &Commit) -> Result<Committed, Error> {
        let Some(watched) = self.watched.take() else {
            // Nothing proves that the state is the one this commit was made from.
            return Ok(Committed::Refused);
        };
        let executed = commit.clone();
        let committed = self.request(true, move |server| server.commit(watched, &executed)).await?;
        if let Committed::Done { .. } = committed {
            self.believed = Some((commit.state.generation, commit.state.last));
            self.applied = commit.state.applied;
        }
        Ok(committed)
    }

    async fn trim(&mut self, retention: Duration) -> Result<u64, Error> {
        self.request(false, move |server| server.trim(retention)).await
    }

    async fn unfinished(&mut self, jobs_max: usize) -> Result<Unfinished, Error> {
        self.request(false, move |server| server.unfinished(jobs_max)).await
    }

    async fn survey(&mut self, job: &Job, progress: &Progress, count: usize) -> Result<Survey, Error> {
        let (job, progress) = (job.clone(), progress.clone());
        self.request(false, move |server| server.survey(&job, &progress, count)).await
    }

    async fn survey_days(&mut self, roll: &Roll, count: usize) -> Result<Surveyed, Error> {
        let roll = roll.clone();
        self.request(false, move |server| server.survey_days(&roll, count)).await
    }

    async fn replicated(&mut self, replicas: u32, _: Duration) -> Result<bool, Error> {
        self.request(false, move |server| Ok(server.replicated(replicas))).await
    }

    async fn backlog(&mut self) -> Result<Backlog, Error> {
        self.request(false, ShardServer::backlog).await
    }
}
