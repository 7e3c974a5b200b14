//! Which shards this worker owns: its fair share of them among the living workers, taken free and given up gracefully.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, error, info, warn};

use super::Context;
use super::maintenance::{Maintenance, News};
use super::shard::{self, Ended};
use crate::error::Disposition;
use crate::lease::{WorkerId, preference, share};
use crate::metrics::Readiness;
use crate::shard::Shard;
use crate::store::{self, MaintenanceLock, Store};
use crate::task::{self, JoinHandle};

pub(super) struct Ownership<S: Store> {
    context: Context<S>,
    held: BTreeMap<Shard, Held>,
    /// Shards not to be tried before a moment.
    resting: BTreeMap<Shard, Instant>,
    /// Why shards could not be served when they were tried last.
    failed: BTreeMap<Shard, &'static str>,
    /// Leases of workers that are not among the living, and when it was seen to that they last no longer than a lease.
    orphans: BTreeMap<Shard, (WorkerId, Instant)>,
    maintenance: Maintenance,
    living: Vec<WorkerId>,
    registered: bool,
    refreshed_at: Option<Instant>,
    /// Woken whenever a shard's task ends, however it ends.
    ended: Arc<Notify>,
    rounds: u64,
}

struct Held {
    stop: watch::Sender<bool>,
    task: JoinHandle<Ended>,
    since: Instant,
}

/// Tells that a task has ended, even by a panic.
struct Farewell(Arc<Notify>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl<S: Store> Ownership<S> {
    pub fn new(context: Context<S>) -> Ownership<S> {
        Ownership {
            maintenance: Maintenance::new(context.options.lease_ttl),
            context,
            held: BTreeMap::new(),
            resting: BTreeMap::new(),
            failed: BTreeMap::new(),
            orphans: BTreeMap::new(),
            living: Vec::new(),
            registered: false,
            refreshed_at: None,
            ended: Arc::new(Notify::new()),
            rounds: 0,
        }
    }

    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        let mut rounds = interval(self.context.options.heartbeat);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = self.ended.clone();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = ended.notified() => {}
                _ = rounds.tick() => {}
            }
            // A round in the middle of a shutdown would only take shards to give them up.
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = self.round() => {}
            }
        }
        self.leave().await;
    }

    async fn round(&mut self) {
        self.rounds += 1;
        self.reap().await;
        let (heard, (asked, seen)) = tokio::join!(self.beat(), self.look());
        let silent = heard.is_err() || seen.is_err();
        self.hear(heard);
        self.learn(seen, asked);
        if silent {
            self.refresh().await;
        }
        // Without a list of the living everyone keeps what they hold.
        if self.registered {
            self.give_up_surplus();
            self.take_free().await;
        }
        self.report();
    }

    /// Collects the tasks that ended.
    async fn reap(&mut self) {
        let done: Vec<Shard> =
            self.held.iter().filter(|(_, held)| held.task.is_finished()).map(|(shard, _)| *shard).collect();
        for shard in done {
            let Some(held) = self.held.remove(&shard) else { continue };
            let lasted = held.since.elapsed();
            let ended = held.task.await;
            let failed_before = self.failed.remove(&shard);
            let lease_ttl = self.context.options.lease_ttl;
            let rest = match ended {
                Ok(Ended::Stopped) => continue,
                Ok(Ended::Held(holder)) => {
                    debug!(shard = shard.0, %holder, "shard was taken first by another worker");
                    continue;
                }
                Ok(Ended::Fenced) => {
                    info!(shard = shard.0, "shard taken by another worker");
                    continue;
                }
                Ok(Ended::Failed(error)) => {
                    // Each further try that fails alike is no news.
                    if failed_before == Some(error.reason) && lasted < lease_ttl {
                        debug!(shard = shard.0, "shard given up again: {error}");
                    } else {
                        error!(shard = shard.0, rest = ?lease_ttl, "shard given up, to be tried again: {error}");
                    }
                    self.context.metrics.retried(error.reason);
                    self.failed.insert(shard, error.reason);
                    lease_ttl
                }
                // A bug. The lease runs out meanwhile, so that another worker can try.
                Err(_) => {
                    error!(shard = shard.0, "shard's task failed");
                    lease_ttl * 2
                }
            };
            self.resting.insert(shard, Instant::now() + rest);
        }
        self.resting.retain(|_, until| *until > Instant::now());
    }

    async fn beat(&self) -> Result<Vec<WorkerId>, store::Error> {
        let options = &self.context.options;
        let beat = self.context.store.heartbeat(&options.worker, options.lease_ttl);
        timeout(options.lease_ttl / 4, beat).await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// The maintenance lock, and when it was asked for.
    async fn look(&self) -> (Instant, Result<store::Maintenance, store::Error>) {
        let options = &self.context.options;
        let paused = self.maintenance.is_on() && self.maintenance.shards_paused() == self.held.len();
        let asked = Instant::now();
        let look = self.context.store.maintenance(&options.worker, paused);
        (asked, timeout(options.lease_ttl / 4, look).await.unwrap_or_else(|_| Err(no_answer())))
    }

    fn hear(&mut self, heard: Result<Vec<WorkerId>, store::Error>) {
        let registered = heard.is_ok();
        match heard {
            Ok(mut living) => {
                // They come by age of their heartbeats, which changes with every beat.
                living.sort();
                if living != self.living {
                    info!(workers = living.len(), "living workers: {}", names(&living));
                    self.living = living;
                }
                if !self.registered {
                    info!(worker = %self.context.options.worker, "registered");
                }
            }
            Err(error) if self.registered || self.rounds == 1 => {
                warn!("heartbeat failed, everyone keeps what they hold: {error}");
            }
            Err(_) => {}
        }
        self.registered = registered;
        self.context.metrics.health().beat();
    }

    fn learn(&mut self, seen: Result<store::Maintenance, store::Error>, asked: Instant) {
        let trouble = seen.as_ref().err().map(ToString::to_string);
        match self.maintenance.learn(seen, asked) {
            None => {}
            Some(News::Begun(MaintenanceLock { holder, reason, left, .. })) => {
                info!(%holder, reason, ?left, "maintenance: nothing is committed until it ends");
            }
            Some(News::GivenUp(MaintenanceLock { holder, reason, .. })) => {
                info!(%holder, reason, "maintenance is over");
            }
            Some(News::Expired(MaintenanceLock { holder, reason, .. })) => {
                self.context.metrics.maintenance_expired();
                warn!(%holder, reason, "maintenance is over: its lock ran out, nobody had ended it");
            }
            Some(News::Unknown) => {
                warn!("whether maintenance is on is not known, going on without: {}", trouble.unwrap_or_default());
            }
        }
    }

    /// The node that keeps the list of workers, or the lock, may have failed over, and no shard's task need have noticed.
    async fn refresh(&mut self) {
        let options = &self.context.options;
        if self.refreshed_at.is_none_or(|at| at.elapsed() >= options.backoff_max) {
            // What it finds, the next heartbeat tells.
            let _ = timeout(options.lease_ttl / 4, self.context.store.refresh()).await;
            self.refreshed_at = Some(Instant::now());
        }
    }

    /// One at a time: the next one goes when this one has gone, so few shards are ever between owners.
    fn give_up_surplus(&mut self) {
        let giving_up = self.held.values().any(|held| *held.stop.borrow());
        if giving_up || self.held.len() <= self.share() {
            return;
        }
        let order = preference(&self.context.options.worker, self.held.keys().copied());
        if let Some(held) = order.last().and_then(|least_wanted| self.held.get(least_wanted)) {
            held.stop.send_replace(true);
        }
    }

    async fn take_free(&mut self) {
        let wanted = self.share().saturating_sub(self.held.len());
        if wanted == 0 {
            return;
        }
        let others = self.context.layout.shards();
        let others = others.filter(|shard| !self.held.contains_key(shard) && !self.resting.contains_key(shard));
        let order = preference(&self.context.options.worker, others);
        let holders = self.context.store.holders(&order).await;
        // A lease of this very worker that no task stands behind is as good as free.
        let mine = &self.context.options.worker;
        let (mut free, mut orphans) = (Vec::new(), Vec::new());
        for (shard, holder) in order.into_iter().zip(holders) {
            match holder {
                Ok(None) => free.push(shard),
                Ok(Some(holder)) if holder == *mine => free.push(shard),
                Ok(Some(holder)) if !self.living.contains(&holder) => orphans.push((shard, holder)),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        for shard in free.into_iter().take(wanted) {
            self.spawn(shard);
        }
        self.shorten(orphans).await;
    }

    /// Whoever is not among the living renews no lease. One that lasts longer than a lease, because a failover went to a
    /// server whose clock is behind or because somebody planted it, is made to run out in time.
    async fn shorten(&mut self, leases: Vec<(Shard, WorkerId)>) {
        let ttl = self.context.options.lease_ttl;
        let seen_to = |orphans: &BTreeMap<_, (_, Instant)>, (shard, holder): &(Shard, WorkerId)| {
            orphans.get(shard).is_some_and(|(known, at)| known == holder && at.elapsed() < ttl)
        };
        self.orphans.retain(|shard, (known, _)| leases.iter().any(|(at, holder)| at == shard && holder == known));
        let new: Vec<_> = leases.into_iter().filter(|lease| !seen_to(&self.orphans, lease)).collect();
        if new.is_empty() {
            return;
        }
        let answers = self.context.store.shorten(&new, ttl).await;
        for ((shard, holder), answer) in new.into_iter().zip(answers) {
            match answer {
                Ok(long) => {
                    if long {
                        warn!(shard = shard.0, %holder, "the lease of a worker that is gone would have lasted too long");
                    }
                    self.orphans.insert(shard, (holder, Instant::now()));
                }
                Err(error) => debug!(shard = shard.0, "lease of a worker that is gone: {error}"),
            }
        }
    }

    fn share(&self) -> usize {
        share(self.context.layout.count(), &self.living, &self.context.options.worker)
    }

    fn spawn(&mut self, shard: Shard) {
        let (stop, stopped) = watch::channel(false);
        let (context, farewell) = (self.context.clone(), Farewell(self.ended.clone()));
        let pause = self.maintenance.pause();
        let task = task::spawn("shard", async move {
            let _farewell = farewell;
            shard::run(context, shard, stopped, pause).await
        });
        self.held.insert(shard, Held { stop, task, since: Instant::now() });
    }

    fn report(&self) {
        let health = self.context.metrics.health();
        health.report(Readiness {
            registered: self.registered,
            shards_owned: usize::try_from(self.context.metrics.shards_owned()).unwrap_or(0),
            shards_aimed: self.share(),
            maintenance: self.maintenance.reason(),
            ..health.readiness()
        });
    }

    /// Gives everything up: finishes the batches, releases the leases, leaves the list of the living.
    async fn leave(mut self) {
        let options = self.context.options.clone();
        info!(shards = self.held.len(), "giving up all shards");
        let goodbye = async {
            // First, so that the others already aim at a larger share when the leases come free.
            let farewell = timeout(options.shutdown_grace / 4, self.context.store.leave(&options.worker));
            let trouble = match farewell.await {
                Ok(left) => left.err().map(|error| error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            if let Some(trouble) = trouble {
                warn!("still listed as living until the heartbeat is old: {trouble}");
            }
            for held in self.held.values() {
                held.stop.send_replace(true);
            }
            for (shard, held) in &mut self.held {
                if (&mut held.task).await.is_err() {
                    error!(shard = shard.0, "shard's task failed");
                }
            }
        };
        if timeout(options.shutdown_grace, goodbye).await.is_err() {
            warn!(grace = ?options.shutdown_grace, "not every shard was given up in time; their leases run out");
        }
    }
}

impl<S: Store> Drop for Ownership<S> {
    /// Tasks of a worker that is no longer run must not outlive it.
    fn drop(&mut self) {
        self.held.values().for_each(|held| held.task.abort());
    }
}

fn no_answer() -> store::Error {
    store::Error { disposition: Disposition::Retry, reason: "timeout", message: "no answer in time".to_owned() }
}

fn names(living: &[WorkerId]) -> String {
    const SHOWN_MAX: usize = 8;
    let shown: Vec<&str> = living.iter().take(SHOWN_MAX).map(WorkerId::as_str).collect();
    let more = living.len().saturating_sub(SHOWN_MAX);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}
