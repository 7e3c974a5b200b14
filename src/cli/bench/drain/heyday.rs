//! heyday's own worker, in this process, one thread each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::ground::{Field, Ground};
use super::super::lane::Lane;
use super::super::rounds::{Contestant, Sample, Turn};
use super::super::servers::between;
use super::{Common, prove};
use crate::metrics::{Health, Metrics, Readiness};
use crate::redis::maintenance::{MaintenanceLocks, Taken};
use crate::redis::{Pipes, RedisStore, Topology};
use crate::worker;

/// How long workers may take to share the shards, to pause, or to work off the next change.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at how far they are.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Of the points of throughput over time.
const SLICE: Duration = Duration::from_millis(100);
/// The holder of the lock that keeps workers from beginning before everything is ready.
const HOLDER: &str = "bench";

/// So many workers share the shards.
pub struct Heyday {
    pub common: Common,
    pub workers: usize,
}

impl Contestant for Heyday {
    fn name(&self) -> String {
        self.common.name.clone()
    }

    fn turn(&mut self, round: usize) -> Turn<'_> {
        Box::pin(async move {
            let Common { ground, task, .. } = &self.common;
            let changes = super::changes(task, round);
            let field = ground.field(task.shards).await?;
            let team = Team::start(ground, &field, self.workers, task.batch).await?;
            let begun = team.paused(&field, task.shards).await?;
            field.append(&changes).await?;
            ground.settled().await?;
            let sample = team.drain(ground, begun, changes.len() as u64).await?;
            team.stop().await?;
            prove::views(&field, &changes).await?;
            ground.clear(field).await?;
            Ok(sample)
        })
    }
}

/// Workers at work, each on a thread of its own.
pub struct Team {
    members: Vec<Member>,
}

struct Member {
    lane: Lane,
    metrics: Metrics,
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<anyhow::Result<()>>,
}

impl Team {
    pub async fn start(ground: &Ground, field: &Field, workers: usize, batch: usize) -> anyhow::Result<Team> {
        Team::with_options(ground, field, workers, |options| options.batch_changes_max = batch)
    }

    /// The same with other options than the settings have.
    pub fn with_options(
        ground: &Ground,
        field: &Field,
        workers: usize,
        adapt: impl Fn(&mut worker::Options),
    ) -> anyhow::Result<Team> {
        let mut members = Vec::new();
        for _ in 0..workers {
            let settings = &ground.config.worker;
            let mut options = settings.options(settings.id());
            adapt(&mut options);
            members.push(Member::start(ground, field, options)?);
        }
        Ok(Team { members })
    }

    /// Waits until the workers own all shards.
    pub async fn ready(&self, shards: u32) -> anyhow::Result<()> {
        self.until("the workers do not own all shards", || self.owned() == i64::from(shards)).await
    }

    /// The same, and until all have paused.
    pub async fn paused(&self, field: &Field, shards: u32) -> anyhow::Result<Held> {
        self.ready(shards).await?;
        let topology = field.hub.topology().clone();
        let pipes = Arc::new(Pipes::new(topology.options().clone()));
        let locks = MaintenanceLocks::new(topology, pipes, field.hub.keys());
        let taken = locks.take(HOLDER, "bench", Duration::from_secs(3600)).await?;
        ensure!(matches!(taken, Taken::Mine(_)), "somebody else keeps the workers paused");
        let begun = Instant::now();
        while locks.look().await?.paused.len() < self.members.len() {
            ensure!(begun.elapsed() < PATIENCE, "the workers do not pause");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(Held { locks })
    }

    /// Lets the workers go and measures until they have settled so many changes more.
    pub async fn drain(&self, ground: &Ground, held: Held, changes: u64) -> anyhow::Result<Sample> {
        let (settled, cpu, servers) = (self.settled(), self.cpu().await?, ground.look().await?);
        held.locks.give_up(HOLDER, false).await?;
        let waited = Instant::now();
        while self.settled() == settled {
            ensure!(waited.elapsed() < PATIENCE, "the workers do not begin");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let begun = Instant::now();
        let (mut progress, mut seen_at, mut seen) = (Vec::new(), begun, settled);
        while self.settled() - settled < changes {
            let now = self.settled();
            if now > seen {
                (seen, seen_at) = (now, Instant::now());
            }
            ensure!(seen_at.elapsed() < PATIENCE, "the workers stopped at {} of {changes} changes", now - settled);
            if begun.elapsed() >= SLICE * (progress.len() as u32 + 1) {
                progress.push((begun.elapsed().as_secs_f64(), (now - settled) as f64));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let used = between(&servers, &ground.look().await?);
        let worker_cpu_seconds = (self.cpu().await? - cpu).as_secs_f64();
        progress.push((seconds, changes as f64));
        Ok(Sample { changes: changes as f64, seconds, worker_cpu_seconds, servers: used, progress })
    }

    /// Changes settled by all of them.
    pub fn settled(&self) -> u64 {
        self.members.iter().map(|member| member.metrics.settled()).sum()
    }

    /// What their threads have used so far.
    pub async fn cpu(&self) -> anyhow::Result<Duration> {
        let mut sum = Duration::ZERO;
        for member in &self.members {
            sum += member.lane.cpu().await?;
        }
        Ok(sum)
    }

    /// How often their threads have been woken so far.
    pub async fn wakeups(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for member in &self.members {
            sum += member.lane.wakeups().await?;
        }
        Ok(sum)
    }

    /// Lets all of them give up their shards in order.
    pub async fn stop(self) -> anyhow::Result<()> {
        for mut member in self.members {
            drop(member.stop.take());
            member.ended.await.context("a worker ended without a word")??;
        }
        Ok(())
    }

    fn owned(&self) -> i64 {
        self.members.iter().map(|member| member.metrics.shards_owned()).sum()
    }

    async fn until(&self, never: &str, condition: impl Fn() -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !condition() {
            ensure!(begun.elapsed() < PATIENCE, "{never}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }
}

/// The lock that keeps a team from beginning.
pub struct Held {
    locks: MaintenanceLocks,
}

impl Member {
    fn start(ground: &Ground, field: &Field, options: worker::Options) -> anyhow::Result<Member> {
        let metrics = Metrics::new(Health::new(options.lease_ttl));
        metrics.health().report(Readiness { preflight_passed: true, ..Readiness::default() });
        let (keys, layout) = (field.hub.keys().clone(), field.hub.layout().clone());
        let (connect, rules) = (Arc::new(ground.options.clone()), Arc::new(ground.config.rules()));
        let (stop, stopped) = oneshot::channel::<()>();
        let lane = Lane::start("bench worker")?;
        let reported = metrics.clone();
        let ended = lane.begin(async move {
            let topology = Arc::new(Topology::connect(connect).await?);
            let kept = topology.clone();
            crate::task::spawn("topology", async move { kept.keep_fresh().await });
            let store = RedisStore::new(topology, keys.clone(), layout.clone());
            let context = worker::Context { store, layout, keys, rules, options: Arc::new(options), metrics: reported };
            worker::run(context, async { drop(stopped.await) }).await;
            Ok(())
        });
        Ok(Member { lane, metrics, stop: Some(stop), ended })
    }
}
