//! Each fault carried out: struck, left so for a while, and taken back.

use std::collections::BTreeSet;
use std::time::Duration;

use heyday::local::NODES;
use heyday::shard::Shard;

use tokio::sync::MutexGuard;

use super::schedule::{Fault, PAIRS, Setting, Side, Silence, Step};
use super::stage::{Stage, Strike, now_ms};
use crate::support::lasts;
use crate::support::proxy::{Cut, Proxy};

/// What came of a fault, and the shards that it could touch.
pub struct Done {
    pub what: String,
    pub shards: BTreeSet<Shard>,
}

pub type Result = std::result::Result<Done, String>;

/// A fault whose turn comes so much later than its time is left out: others of its kind took too long.
const TURN_WAIT: Duration = Duration::from_secs(20);
/// How many bytes a full server has left.
const MEMORY_LEFT_BYTES: u64 = 50_000;
/// A node with no more clients than this keeps its bound: those of the cluster's bus count too, so that nobody could raise it again
/// once it was lowered, however many clients went.
const CLIENTS_FEW: u64 = 16;
/// What the servers of a scene have unless a fault sets it; all but the first three are the servers' defaults.
const BUFFER_NORMAL: &str = "normal 0 0 0";

impl Done {
    pub fn new(what: impl Into<String>, shards: BTreeSet<Shard>) -> Done {
        Done { what: what.into(), shards }
    }
}

/// What a fault takes apart is taken apart by no other at the same time.
async fn claim<'a>(stage: &'a Stage, fault: &Fault) -> Vec<MutexGuard<'a, ()>> {
    match *fault {
        Fault::KillWorker { worker } | Fault::FreezeWorker { worker } | Fault::RestartWorker { worker } => {
            vec![stage.seats[worker].lock().await]
        }
        Fault::KillPrimary { pair }
        | Fault::FreezePrimary { pair }
        | Fault::FailOver { pair }
        | Fault::FailOverWithLoss { pair } => vec![stage.pairs[pair].lock().await],
        Fault::RestartCluster => stage.all_pairs().await,
        // It takes pairs only while the slot is on its way.
        Fault::MoveSlot { .. } => vec![stage.moving.lock().await],
        Fault::Cut { .. }
        | Fault::Stall { .. }
        | Fault::FillMemory { .. }
        | Fault::KillClients { .. }
        | Fault::FlushScripts
        | Fault::Configure { .. }
        | Fault::OverflowSubscriber { .. } => Vec::new(),
    }
}

/// Waits for the fault's time, carries it out and writes down what came of it.
pub async fn strike(stage: &Stage, number: usize, step: Step) {
    lasts(step.at.saturating_sub(stage.elapsed())).await;
    let _claim = claim(stage, &step.fault).await;
    if stage.elapsed() > step.at + TURN_WAIT {
        stage.note(format!("#{number} is left out, its turn came too late: {step}"));
        return;
    }
    let begin_ms = now_ms();
    stage.note(format!("#{number} begins: {step}"));
    let outcome = carry_out(stage, &step).await;
    match outcome {
        Ok(done) => {
            stage.note(format!("#{number} is over: {}", done.what));
            stage.struck(Strike { kind: step.kind, begin_ms, end_ms: now_ms(), shards: done.shards });
        }
        Err(error) => stage.wrong(format!("#{number}, {step}, could not be carried out or taken back: {error}")),
    }
}

async fn carry_out(stage: &Stage, step: &Step) -> Result {
    let time = step.lasts;
    match step.fault {
        Fault::KillWorker { worker } => kill_worker(stage, worker, time).await,
        Fault::FreezeWorker { worker } => freeze_worker(stage, worker, time).await,
        Fault::RestartWorker { worker } => restart_worker(stage, worker).await,
        Fault::KillPrimary { pair } => super::nodes::kill_primary(stage, pair, time).await,
        Fault::FreezePrimary { pair } => super::nodes::freeze_primary(stage, pair, time).await,
        Fault::FailOver { pair } => super::nodes::fail_over(stage, pair).await,
        Fault::FailOverWithLoss { pair } => super::nodes::fail_over_with_loss(stage, pair, time).await,
        Fault::MoveSlot { choice, further, atomically } => {
            super::moves::there_and_back(stage, (choice, further), atomically, time).await
        }
        Fault::Cut { side, pair, reset } => {
            let how = if reset { Cut::Reset } else { Cut::Fin };
            stage.proxies(side, pair).iter().for_each(|proxy| proxy.cut(how));
            Ok(Done::new(format!("{how:?}"), touched(stage, side, pair).await))
        }
        Fault::Stall { side, pair, silence, cut_after } => stall(stage, (side, pair), (silence, cut_after), time).await,
        Fault::FillMemory { pair } => fill_memory(stage, pair, time).await,
        Fault::KillClients { pair, subscribers } => kill_clients(stage, pair, subscribers).await,
        Fault::FlushScripts => {
            for node in 0..NODES {
                let _ = stage.attempt(node, &["SCRIPT", "FLUSH"]).await;
            }
            Ok(Done::new("flushed", BTreeSet::new()))
        }
        Fault::Configure { pair, setting } => configure(stage, pair, setting, time).await,
        Fault::RestartCluster => super::nodes::restart_cluster(stage).await,
        Fault::OverflowSubscriber { pair } => super::overflow::overflow(stage, pair, time).await,
    }
}

async fn kill_worker(stage: &Stage, worker: usize, time: Duration) -> Result {
    let shards = stage.shards_of_worker(worker).await;
    stage.workers.lock().await.kill(worker);
    lasts(time).await;
    let mut workers = stage.workers.lock().await;
    if !workers.is_running(worker) {
        workers.restart(worker);
    }
    Ok(Done::new("started again", shards))
}

async fn freeze_worker(stage: &Stage, worker: usize, time: Duration) -> Result {
    let shards = stage.shards_of_worker(worker).await;
    stage.workers.lock().await.freeze(worker);
    lasts(time).await;
    stage.workers.lock().await.thaw(worker);
    Ok(Done::new("goes on", shards))
}

async fn restart_worker(stage: &Stage, worker: usize) -> Result {
    let shards = stage.shards_of_worker(worker).await;
    let mut workers = stage.workers.lock().await;
    let status = workers.stop(worker).await;
    workers.restart(worker);
    Ok(Done::new(format!("{status}, started again"), shards))
}

/// What hears or says nothing over there; nobody waits for a subscriber.
async fn touched(stage: &Stage, side: Side, pair: usize) -> BTreeSet<Shard> {
    match side {
        Side::Workers | Side::Writers => stage.shards_of_pair(pair).await,
        Side::Subscribers => BTreeSet::new(),
    }
}

async fn stall(stage: &Stage, (side, pair): (Side, usize), how: (Silence, bool), time: Duration) -> Result {
    let shards = touched(stage, side, pair).await;
    let (silence, cut_after) = how;
    let proxies = stage.proxies(side, pair);
    let act = match silence {
        Silence::Both => Proxy::stall,
        Silence::Requests => Proxy::stall_requests,
        Silence::Answers => Proxy::stall_answers,
    };
    proxies.iter().for_each(|proxy| act(proxy));
    lasts(time).await;
    if cut_after {
        proxies.iter().for_each(|proxy| proxy.cut(Cut::Reset));
    }
    proxies.iter().for_each(|proxy| proxy.pass());
    Ok(Done::new("flows again", shards))
}

async fn fill_memory(stage: &Stage, pair: usize, time: Duration) -> Result {
    let shards = stage.shards_of_pair(pair).await;
    let mut filled = Vec::new();
    for node in [pair, pair + PAIRS] {
        let Ok(memory) = stage.attempt(node, &["INFO", "memory"]).await else { continue };
        let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).ok_or("no used_memory")?;
        let bytes = used.trim().parse::<u64>().map_err(|error| error.to_string())? + MEMORY_LEFT_BYTES;
        if stage.attempt(node, &["CONFIG", "SET", "maxmemory", &bytes.to_string()]).await.is_ok() {
            filled.push(node);
        }
    }
    lasts(time).await;
    for node in [pair, pair + PAIRS] {
        stage.order(node, &["CONFIG", "SET", "maxmemory", "0"]).await?;
    }
    Ok(Done::new(format!("nodes {filled:?} were full"), shards))
}

async fn kill_clients(stage: &Stage, pair: usize, subscribers: bool) -> Result {
    let shards = stage.shards_of_pair(pair).await;
    let class = if subscribers { "pubsub" } else { "normal" };
    let mut killed = Vec::new();
    for node in [pair, pair + PAIRS] {
        killed.push(stage.attempt(node, &["CLIENT", "KILL", "TYPE", class]).await);
    }
    Ok(Done::new(format!("{killed:?}"), if subscribers { BTreeSet::new() } else { shards }))
}

async fn configure(stage: &Stage, pair: usize, setting: Setting, time: Duration) -> Result {
    let shards = stage.shards_of_pair(pair).await;
    let mut set = Vec::new();
    for node in [pair, pair + PAIRS] {
        let (name, value, _) = match setting {
            Setting::ClientsMax => match clients(stage, node).await {
                count if count > CLIENTS_FEW => ("maxclients", count.to_string(), ""),
                _ => continue,
            },
            other => values(other),
        };
        set.push((node, stage.attempt(node, &["CONFIG", "SET", name, &value]).await));
    }
    lasts(time).await;
    let (name, _, usual) = values(setting);
    for node in [pair, pair + PAIRS] {
        if setting == Setting::ClientsMax && stage.attempt(node, &["CONFIG", "SET", name, usual]).await.is_err() {
            make_room(stage, node, &["CONFIG", "SET", name, usual]).await?;
        }
        stage.order(node, &["CONFIG", "SET", name, usual]).await?;
    }
    Ok(Done::new(format!("{set:?}"), shards))
}

/// Name, a value that hurts, and the usual one.
fn values(setting: Setting) -> (&'static str, String, &'static str) {
    match setting {
        Setting::Timeout => ("timeout", "1".to_owned(), "0"),
        Setting::ClientsMax => ("maxclients", "1".to_owned(), "10000"),
        Setting::ReplicasMin => ("min-replicas-to-write", "2".to_owned(), "0"),
        Setting::OutputBuffer => ("client-output-buffer-limit", "normal 100000 0 0".to_owned(), BUFFER_NORMAL),
    }
}

async fn clients(stage: &Stage, node: usize) -> u64 {
    let said = stage.attempt(node, &["INFO", "clients"]).await.unwrap_or_default();
    let count = said.lines().find_map(|line| line.strip_prefix("connected_clients:")?.trim().parse().ok());
    count.unwrap_or(0)
}

/// A server that takes no more connections hears no order either: those that come through the proxies go first.
async fn make_room(stage: &Stage, node: usize, words: &[&str]) -> std::result::Result<(), String> {
    let before = [Side::Workers, Side::Writers, Side::Subscribers].map(|side| {
        let [one, other] = stage.proxies(side, node % PAIRS);
        if node < PAIRS { one } else { other }
    });
    before.iter().for_each(|proxy| proxy.refuse(true));
    before.iter().for_each(|proxy| proxy.cut(Cut::Fin));
    let made = stage.order(node, words).await;
    before.iter().for_each(|proxy| proxy.refuse(false));
    made.map(drop)
}
