//! Measures consumers that end by themselves, all on one lane.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use super::super::ground::Ground;
use super::super::lane::Lane;
use super::super::rounds::Sample;
use super::super::servers::between;
use crate::task;

/// How long consumers may do nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of the points of throughput over time.
const SLICE: Duration = Duration::from_millis(100);

pub struct Stopwatch {
    lane: Lane,
    done: Arc<AtomicU64>,
    changes: u64,
}

impl Stopwatch {
    pub fn new(changes: u64) -> anyhow::Result<Stopwatch> {
        Ok(Stopwatch { lane: Lane::start("bench floor")?, done: Arc::default(), changes })
    }

    /// Where consumers count what they have done.
    pub fn done(&self) -> Arc<AtomicU64> {
        self.done.clone()
    }

    /// Lets all of them run at once, until the last one has ended.
    pub async fn measure<F>(self, ground: &Ground, consumers: impl Iterator<Item = F>) -> anyhow::Result<Sample>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let consumers: Vec<F> = consumers.collect();
        let (cpu, servers) = (self.lane.cpu().await?, ground.look().await?);
        let begun = Instant::now();
        let mut ended = self.lane.begin(async move {
            let running: Vec<_> = consumers.into_iter().map(|one| task::spawn("bench consumer", one)).collect();
            for one in running {
                one.await??;
            }
            anyhow::Ok(begun.elapsed())
        });
        let (mut progress, mut seen, mut seen_at) = (Vec::new(), 0, begun);
        let took = loop {
            tokio::select! {
                biased;
                took = &mut ended => break took??,
                () = tokio::time::sleep(SLICE) => {}
            }
            let done = self.done.load(Ordering::Relaxed);
            if done > seen {
                (seen, seen_at) = (done, Instant::now());
            }
            ensure!(seen_at.elapsed() < PATIENCE, "consumers stopped at {done} of {} changes", self.changes);
            progress.push((begun.elapsed().as_secs_f64(), done as f64));
        };
        let done = self.done.load(Ordering::Relaxed);
        ensure!(done == self.changes, "{done} of {} changes were consumed", self.changes);
        let used = between(&servers, &ground.look().await?);
        let worker_cpu_seconds = (self.lane.cpu().await? - cpu).as_secs_f64();
        progress.push((took.as_secs_f64(), done as f64));
        Ok(Sample { changes: done as f64, seconds: took.as_secs_f64(), worker_cpu_seconds, servers: used, progress })
    }
}
