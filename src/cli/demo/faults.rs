//! What goes wrong on purpose: a worker is killed, a primary is failed over.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

use super::screen::Screen;
use crate::cli::stage::Stage;

/// A takeover waits for the lease of the dead to run out.
const TAKEOVER_WAIT: Duration = Duration::from_secs(15);
const FAILOVER_WAIT: Duration = Duration::from_secs(20);
/// The node that is failed over, and its replica, as `create.sh` lays them out.
const PRIMARY: usize = 0;
const REPLICA: usize = 3;

/// Plays every fault and returns once each was survived.
pub async fn play(stage: &mut Stage, screen: &Screen, after: Duration) -> anyhow::Result<()> {
    tokio::time::sleep(after).await;
    let (workers, all) = (stage.workers(), screen.shards());
    let whole = |workers: u64| {
        let figures = screen.figures();
        figures.workers == workers && figures.owned == all
    };
    wait(TAKEOVER_WAIT, "all workers were listed and all shards owned", || whole(workers)).await?;
    let killed = stage.kill_worker()?;
    let started = Instant::now();
    screen.tell(&format!("worker {killed} killed (SIGKILL): its shards wait for their leases to run out"));
    // The dead worker is listed until its last heartbeat is as old as its leases.
    wait(TAKEOVER_WAIT, "the killed worker's shards were taken over", || whole(workers - 1)).await?;
    screen.tell(&format!("all shards owned again {:.1} s after the kill", started.elapsed().as_secs_f64()));
    let number = stage.start_worker().await?;
    screen.tell(&format!("worker {number} started: it gets its share"));
    wait(TAKEOVER_WAIT, "the new worker was listed", || screen.figures().workers == workers).await?;
    fail_over(stage, screen).await
}

async fn fail_over(stage: &Stage, screen: &Screen) -> anyhow::Result<()> {
    let started = Instant::now();
    let cluster = stage.cluster();
    screen.tell(&format!("primary on port {} is failed over to its replica", cluster.nodes()[PRIMARY].1));
    tokio::time::timeout(FAILOVER_WAIT, cluster.promote(REPLICA)).await.context("the replica was not promoted")??;
    screen.tell(&format!("replica promoted after {:.0} ms", started.elapsed().as_secs_f64() * 1e3));
    Ok(())
}

async fn wait(deadline: Duration, never: &str, condition: impl Fn() -> bool) -> anyhow::Result<()> {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(deadline, met).await;
    waited.map_err(|_| anyhow::anyhow!("within {deadline:?} it never happened that {never}"))
}
