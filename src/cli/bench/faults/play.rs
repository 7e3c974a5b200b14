//! One run: two worker processes, a steady load, and one fault after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::super::ground::{Field, Ground};
use super::super::lane::Lane;
use super::super::pace::Pace;
use super::analysis::Heard;
use super::fate::{self, Fate};
use super::load::{self, Audience, Written};
use crate::cli::stage::Stage;
use crate::client;
use crate::key::Keys;
use crate::redis::{Inspector, Pipes, Topology};
use crate::shard::Shard;

const SHARDS: u32 = 16;
const WORKERS: usize = 2;
/// How long a takeover, a promotion or a slot may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Nothing more is heard for so long: then what is missing does not come any more.
const QUIET: Duration = Duration::from_secs(10);
/// By then all of them were heard of, or none for that long.
const HEARD_PATIENCE: Duration = Duration::from_secs(120);
/// What is looked at while nothing is measured is looked at so often.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The pair that is failed over, the one that a slot leaves for it, and the one whose primary is killed: nodes as
/// `create.sh` lays them out, of which each is touched once.
const FAILED_OVER: Pair = Pair { primary: 0, replica: 3 };
const LEFT: Pair = Pair { primary: 1, replica: 4 };
const KILLED: Pair = Pair { primary: 2, replica: 5 };

#[derive(Clone, Copy)]
struct Pair {
    primary: usize,
    replica: usize,
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Changes a second.
    pub rate: f64,
    /// With nothing wrong, before each fault.
    pub calm: Duration,
    /// From a fault on, before anything is repaired.
    pub after: Duration,
    /// Whether it is waited until all is as at first.
    pub mends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    WorkerKilled,
    FailedOver,
    SlotMoved,
    PrimaryKilled,
}

/// A fault that was struck; moments are seconds since the first change was planned.
#[derive(Clone, Debug)]
pub struct Strike {
    pub fault: Fault,
    pub from: f64,
    /// When its time was over.
    pub until: f64,
    pub affected: BTreeSet<Shard>,
}

/// All that a run gave.
#[derive(Debug)]
pub struct Run {
    pub heard: Vec<Heard>,
    pub resets: u64,
    pub strikes: Vec<Strike>,
    /// Of the slot that was moved, when it set out.
    pub keys_moved: u64,
    pub fate: Fate,
}

impl Fault {
    pub const ALL: [Fault; 4] = [Fault::WorkerKilled, Fault::FailedOver, Fault::SlotMoved, Fault::PrimaryKilled];

    pub fn name(self) -> &'static str {
        match self {
            Fault::WorkerKilled => "a worker killed (SIGKILL)",
            Fault::FailedOver => "a primary failed over (CLUSTER FAILOVER)",
            Fault::SlotMoved => "a busy shard's slot moved",
            Fault::PrimaryKilled => "a primary killed (SIGKILL)",
        }
    }

    /// For plots, where marks stand side by side.
    pub fn mark(self) -> &'static str {
        match self {
            Fault::WorkerKilled => "worker killed",
            Fault::FailedOver => "failover",
            Fault::SlotMoved => "slot moved",
            Fault::PrimaryKilled => "primary killed",
        }
    }
}

pub async fn run(ground: &Ground, script: Script) -> anyhow::Result<Run> {
    let mut stage = Stage::open(&ground.settings, "bench").await?;
    let result = perform(&mut stage, ground.seed, script).await;
    if result.is_err() {
        stage.tell_worker_logs();
    }
    stage.stop_workers().await;
    result
}

async fn perform(stage: &mut Stage, seed: u64, script: Script) -> anyhow::Result<Run> {
    let options = stage.connect_options()?;
    let topology = Topology::connect(Arc::new(options.clone())).await?;
    let field = Field::create(&topology, &options, "", SHARDS).await?;
    for _ in 0..WORKERS {
        stage.start_worker().await?;
    }
    let hub = &field.hub;
    let pipes = Arc::new(Pipes::new(hub.topology().options().clone()));
    let inspector = Inspector::new(hub.topology().clone(), pipes, Keys::new("")?, hub.layout().clone());
    let mut play = Play {
        stage,
        field: &field,
        inspector,
        script,
        pace: Pace::soon(script.rate),
        strikes: Vec::new(),
        keys_moved: 0,
    };
    play.shared_by(WORKERS).await?;

    let lane = Lane::start("bench audience")?;
    play.pace = Pace::soon(script.rate);
    let (pace, audience) = (play.pace, Arc::new(Audience::new(play.pace)));
    let (stop, stopped) = watch::channel(false);
    let listener = audience.clone();
    let load = async move {
        let hub = client::connect(options, "").await?;
        listener.listen(hub.clone()).await?;
        load::write(hub, seed, pace, stopped).await
    };
    let writing = lane.begin(load);
    for fault in Fault::ALL {
        sleep(script.calm).await;
        play.strike(fault).await?;
    }
    sleep(script.calm).await;
    stop.send_replace(true);
    let written: Written = writing.await.context("the load ended without a word")??;
    let acknowledged = written.sent - written.refused.len() as u64;
    let done = async {
        while !audience.is_done(acknowledged, QUIET) {
            sleep(LOOK_INTERVAL).await;
        }
    };
    timeout(HEARD_PATIENCE, done).await.context("signals neither come for all changes nor end")?;
    play.applied().await?;
    let (strikes, keys_moved) = (play.strikes, play.keys_moved);
    let (heard, resets) = audience.heard();
    Ok(Run { heard, resets, strikes, keys_moved, fate: fate::tell(&field, seed, written).await? })
}

struct Play<'a> {
    stage: &'a mut Stage,
    field: &'a Field,
    inspector: Inspector,
    script: Script,
    pace: Pace,
    strikes: Vec<Strike>,
    keys_moved: u64,
}

impl Play<'_> {
    /// Strikes, lets it last, and repairs what is broken.
    async fn strike(&mut self, fault: Fault) -> anyhow::Result<()> {
        let affected = self.affected(fault).await?;
        eprintln!("heyday bench: {}, {} of {SHARDS} shards", fault.name(), affected.len());
        let (from, begun) = (self.seconds(), Instant::now());
        match fault {
            Fault::WorkerKilled => drop(self.stage.kill_worker()?),
            Fault::FailedOver => self.promoted(FAILED_OVER).await?,
            Fault::SlotMoved => self.slot_moved(&affected).await?,
            Fault::PrimaryKilled => self.primary_killed().await?,
        }
        sleep(self.script.after.saturating_sub(begun.elapsed())).await;
        self.strikes.push(Strike { fault, from, until: self.seconds(), affected });
        self.mend(fault).await
    }

    async fn affected(&self, fault: Fault) -> anyhow::Result<BTreeSet<Shard>> {
        self.field.hub.topology().refresh().await?;
        match fault {
            Fault::WorkerKilled => {
                let owners = self.owners().await.into_iter();
                Ok(owners.filter(|(_, owner)| self.stage.is_named(1, owner)).map(|(shard, _)| shard).collect())
            }
            Fault::FailedOver => self.shards_on(FAILED_OVER.primary),
            Fault::SlotMoved => Ok(self.shards_on(LEFT.primary)?.into_iter().take(1).collect()),
            Fault::PrimaryKilled => self.shards_on(KILLED.primary),
        }
    }

    /// The shards whose slots this node owns. All of them are equally busy.
    fn shards_on(&self, node: usize) -> anyhow::Result<BTreeSet<Shard>> {
        let port = self.stage.cluster().nodes()[node].1;
        let mut found = BTreeSet::new();
        for shard in self.field.hub.layout().shards() {
            let owner = self.field.hub.topology().node_of(self.field.hub.layout().slot(shard))?;
            if owner.address.port == port {
                found.insert(shard);
            }
        }
        Ok(found)
    }

    async fn slot_moved(&mut self, affected: &BTreeSet<Shard>) -> anyhow::Result<()> {
        let shard = affected.first().context("no shard lives on the node that is to give one away")?;
        let slot = self.field.hub.layout().slot(*shard);
        let cluster = self.stage.cluster();
        let keys = cluster.cli(LEFT.primary, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).await?;
        self.keys_moved = keys.parse().with_context(|| format!("no number of keys but {keys:?}"))?;
        let moved = cluster.move_slot(slot, LEFT.primary, FAILED_OVER.replica);
        Ok(timeout(PATIENCE, moved).await.context("the slot did not move")??)
    }

    async fn promoted(&self, pair: Pair) -> anyhow::Result<()> {
        let promoted = self.stage.cluster().promote(pair.replica);
        Ok(timeout(PATIENCE, promoted).await.context("the replica was not promoted")??)
    }

    async fn primary_killed(&mut self) -> anyhow::Result<()> {
        self.stage.cluster_mut().kill(KILLED.primary)?;
        let cluster = self.stage.cluster();
        let taken_over = async {
            while !cluster.is_primary(KILLED.replica).await {
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(PATIENCE, taken_over).await.context("the replica of a killed primary did not take over")
    }

    /// As many workers and nodes as at first.
    async fn mend(&mut self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::WorkerKilled => {
                self.stage.start_worker().await?;
                if self.script.mends {
                    self.shared_by(WORKERS).await?;
                }
            }
            Fault::PrimaryKilled => {
                self.stage.cluster_mut().restart(KILLED.primary).await?;
                if self.script.mends {
                    let in_step = self.stage.cluster().in_step(KILLED.primary);
                    timeout(PATIENCE, in_step).await.context("the restarted node does not catch up")?;
                }
            }
            Fault::FailedOver | Fault::SlotMoved => {}
        }
        Ok(())
    }

    /// Waits until so many workers own all shards together.
    async fn shared_by(&self, workers: usize) -> anyhow::Result<()> {
        let shared = async {
            loop {
                let owners = self.owners().await;
                let different: BTreeSet<&String> = owners.values().collect();
                if owners.len() == SHARDS as usize && different.len() == workers {
                    return;
                }
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(PATIENCE, shared).await.context("the workers do not share the shards")
    }

    /// Waits until nothing that was appended still waits for a worker: it would pass for lost.
    async fn applied(&self) -> anyhow::Result<()> {
        let shards: Vec<Shard> = self.inspector.layout().shards().collect();
        let applied = async {
            loop {
                let status = self.inspector.look(&shards, Duration::from_secs(1)).await;
                let figures = status.shards.iter().filter_map(|shard| shard.figures.as_ref());
                if figures.filter(|figures| figures.backlog.oldest_milliseconds.is_none()).count() == shards.len() {
                    return;
                }
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(PATIENCE, applied).await.context("changes still wait to be applied")
    }

    async fn owners(&self) -> BTreeMap<Shard, String> {
        let shards: Vec<Shard> = self.inspector.layout().shards().collect();
        let status = self.inspector.look(&shards, Duration::from_secs(1)).await;
        let owned = status.shards.into_iter().filter_map(|shard| Some((shard.shard, shard.figures?.owner?)));
        owned.collect()
    }

    fn seconds(&self) -> f64 {
        self.pace.begin.elapsed().as_secs_f64()
    }
}
