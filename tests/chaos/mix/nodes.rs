//! Faults that take a primary and its replica apart.

use std::time::{Duration, Instant};

use heyday::local::NODES;

use super::schedule::PAIRS;
use super::stage::Stage;
use super::strike::{Done, Result};
use crate::support::lasts;

/// A failover that did not come about is asked for again after so long: the server gives up after 5 s.
const ASK_AGAIN: Duration = Duration::from_secs(6);
const PROMOTED_WAIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// No server of a scene asks for a password: a replica that gives one is sent away.
const WRONG_PASSWORD: &str = "nobody-asked";

pub async fn kill_primary(stage: &Stage, pair: usize, time: Duration) -> Result {
    let (primary, _) = stage.whole(pair).await?;
    let shards = stage.shards_of_pair(pair).await;
    stage.cluster.lock().await.kill(primary).map_err(|error| error.to_string())?;
    lasts(time).await;
    stage.cluster.lock().await.restart(primary).await.map_err(|error| error.to_string())?;
    let (leads, _) = stage.whole(pair).await?;
    Ok(Done::new(format!("node {primary} was killed, node {leads} leads"), shards))
}

pub async fn freeze_primary(stage: &Stage, pair: usize, time: Duration) -> Result {
    let (primary, _) = stage.whole(pair).await?;
    let shards = stage.shards_of_pair(pair).await;
    stage.cluster.lock().await.stop_process(primary).map_err(|error| error.to_string())?;
    lasts(time).await;
    stage.cluster.lock().await.cont(primary).map_err(|error| error.to_string())?;
    let (leads, _) = stage.whole(pair).await?;
    Ok(Done::new(format!("node {primary} was frozen, node {leads} leads"), shards))
}

pub async fn fail_over(stage: &Stage, pair: usize) -> Result {
    let (_, replica) = stage.whole(pair).await?;
    let shards = stage.shards_of_pair(pair).await;
    let took = promote(stage, replica, &["CLUSTER", "FAILOVER"]).await?;
    stage.whole(pair).await?;
    Ok(Done::new(format!("node {replica} leads after {took:?}"), shards))
}

/// The replica's link is cut, the primary goes on alone for a while, and then the replica takes over as it is.
pub async fn fail_over_with_loss(stage: &Stage, pair: usize, time: Duration) -> Result {
    let (_, replica) = stage.whole(pair).await?;
    let shards = stage.shards_of_pair(pair).await;
    stage.order(replica, &["CONFIG", "SET", "masterauth", WRONG_PASSWORD]).await?;
    stage.order(replica, &["CLIENT", "KILL", "TYPE", "master"]).await?;
    lasts(time).await;
    let promoted = promote(stage, replica, &["CLUSTER", "FAILOVER", "FORCE"]).await;
    stage.order(replica, &["CONFIG", "SET", "masterauth", ""]).await?;
    let took = promoted?;
    stage.whole(pair).await?;
    Ok(Done::new(format!("node {replica} leads after {took:?}, without what came in {time:?}"), shards))
}

/// Every server is killed, and started on what its file holds.
pub async fn restart_cluster(stage: &Stage) -> Result {
    let mut cluster = stage.cluster.lock().await;
    let started = Instant::now();
    for node in 0..NODES {
        cluster.kill(node).map_err(|error| error.to_string())?;
    }
    for node in 0..NODES {
        cluster.restart(node).await.map_err(|error| error.to_string())?;
    }
    drop(cluster);
    for pair in 0..PAIRS {
        stage.whole(pair).await?;
    }
    Ok(Done::new(format!("whole again after {:?}", started.elapsed()), stage.all_shards()))
}

async fn promote(stage: &Stage, replica: usize, words: &[&str]) -> std::result::Result<Duration, String> {
    let started = Instant::now();
    let mut asked: Option<Instant> = None;
    let mut refused = String::new();
    loop {
        if stage.attempt(replica, &["ROLE"]).await.is_ok_and(|role| role.starts_with("master")) {
            return Ok(started.elapsed());
        }
        if started.elapsed() > PROMOTED_WAIT {
            return Err(format!("node {replica} did not become a primary within {PROMOTED_WAIT:?}: {refused}"));
        }
        if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN) {
            match stage.attempt(replica, words).await {
                Ok(_) => asked = Some(Instant::now()),
                Err(error) => refused = error,
            }
        }
        lasts(LOOK_EVERY).await;
    }
}
