//! One round: a scene under load, its faults, and the verdict once everything is whole again.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use heyday::shard::Shard;
use tokio::time::interval;

use super::pauses::{Pause, longest};
use super::schedule::{Kind, Step, schedule};
use super::stage::{Stage, Strike, now_ms};
use super::strike::strike;
use crate::support::lasts;
use crate::support::scene::{Beats, Load, Plan, Scene, Snapshot, Written};

/// Writers whose changes are generated, users whom they write about, and how fast; beside one writer for each shard.
const WRITERS: u64 = 4;
const USERS: u32 = 1_000;
const PACE: u64 = 600;
const MUTUAL_PERCENT: u32 = 15;
/// Users who are compared with each other one by one.
const COMPARED: u32 = 100;
const SETTLE_WAIT: Duration = Duration::from_secs(60);
/// How much later than usual a subscriber may hear of a change here: what silences it lasts for seconds, and a server's clock may
/// be wrong. Other scenes look at how late it hears.
const LATE: Duration = Duration::from_secs(7_200);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a round is about.
#[derive(Clone, Debug)]
pub struct Round {
    pub seed: u64,
    pub kinds: Vec<Kind>,
    pub length: Duration,
}

/// How much of everything there was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub acknowledged: usize,
    pub refused: usize,
    pub unknown: usize,
    /// Of the unknown, those that were in a stream.
    pub unknown_appended: usize,
    pub applied: u64,
    pub dead: u64,
    /// Acknowledged, and gone with a server that had not passed them on.
    pub lost_by_redis: usize,
    pub lost: usize,
    pub doubled: usize,
    pub disordered: usize,
    pub heard: usize,
    pub resets: usize,
}

/// What came of it.
pub struct Outcome {
    pub steps: Vec<Step>,
    pub log: Vec<String>,
    pub strikes: Vec<Strike>,
    pub wrong: Vec<String>,
    pub counts: Counts,
    pub pauses: Vec<Pause>,
    pub took: Duration,
}

impl Round {
    /// Plays it. Whatever was wrong stands in the outcome, and `stage` can still be looked at.
    pub async fn play(&self, stage: &Stage) -> Outcome {
        let started = Instant::now();
        let steps = schedule(self.seed, &self.kinds, self.length);
        let begin_ms = now_ms();
        let playing = AssertUnwindSafe(play(stage, self, steps.clone())).catch_unwind();
        let (counts, pauses) = playing.await.unwrap_or_else(|panic| {
            stage.wrong(told(&panic));
            Default::default()
        });
        for kind in self.kinds.iter().copied().filter(|kind| kind.is_lasting()) {
            stage.struck(Strike { kind, begin_ms, end_ms: now_ms(), shards: BTreeSet::new() });
        }
        Outcome {
            steps,
            log: stage.noted(),
            strikes: stage.strikes(),
            wrong: stage.all_wrong(),
            counts,
            pauses,
            took: started.elapsed(),
        }
    }
}

/// What a panic had to say.
fn told(panic: &Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or("a panic".to_owned())
}

async fn play(stage: &Stage, round: &Round, steps: Vec<Step>) -> (Counts, Vec<Pause>) {
    let seed = round.seed;
    let plan = Plan {
        seed,
        writers: WRITERS,
        users: USERS,
        changes: u64::MAX,
        pace: Some(PACE),
        mutual_percent: MUTUAL_PERCENT,
    };
    let load = Load::through(&stage.writers, &stage.scene, plan);
    let beats = Beats::start(&stage.writers, &stage.scene);
    let began_ms = now_ms();
    strike_all(stage, steps).await;
    lasts(round.length.saturating_sub(stage.elapsed())).await;
    if let Err(error) = stage.heal().await {
        stage.wrong(error);
    }
    stage.note("healed");
    if let Err(error) = beats.go_on().await {
        stage.wrong(error);
    }
    let ended_ms = now_ms();
    let mut written = beats.stop().await;
    written.extend(load.stop().await);
    stage.look_after_workers();
    stage.note("writers stopped");
    stage.scene.settle(SETTLE_WAIT).await;
    for listener in &stage.listeners {
        listener.catch_up(&stage.scene).await;
    }
    stage.note("settled");
    let snapshot = Snapshot::take(&stage.scene).await;
    let counts = judge(stage, &snapshot, &written).await;
    let mut pauses = longest(&stage.scene, &snapshot, &stage.strikes(), (began_ms, ended_ms));
    if round.kinds.contains(&Kind::NodeClocksWrong) {
        // The log goes by the clocks of its nodes.
        pauses.clear();
    }
    for Pause { cause, shard, lasted, at_ms } in &pauses {
        let after = Duration::from_millis(at_ms - began_ms);
        stage.note(format!("longest pause by {cause:?}: shard {shard} for {lasted:?}, {after:?} after the beginning"));
    }
    (counts, pauses)
}

/// Every fault at its time, while somebody looks after the workers.
async fn strike_all(stage: &Stage, steps: Vec<Step>) {
    let striking = steps.into_iter().enumerate();
    let striking = striking.map(|(number, step)| AssertUnwindSafe(strike(stage, number, step)).catch_unwind());
    let mut striking: FuturesUnordered<_> = striking.collect();
    let mut looks = interval(LOOK_EVERY);
    loop {
        tokio::select! {
            biased;
            ended = striking.next() => match ended {
                None => return,
                Some(Ok(())) => {}
                Some(Err(panic)) => stage.wrong(told(&panic)),
            },
            _ = looks.tick() => stage.look_after_workers(),
        }
    }
}

/// The shards that Redis may have lost something of.
async fn losing(stage: &Stage) -> BTreeSet<Shard> {
    let strikes = stage.strikes().into_iter().filter(|strike| strike.kind.loses());
    let mut losing: BTreeSet<Shard> = strikes.flat_map(|strike| strike.shards).collect();
    for pair in stage.pairs_promoted() {
        let shards = stage.shards_of_pair(pair).await;
        if !shards.is_subset(&losing) {
            stage.note(format!(
                "a replica of pair {pair} took over although nobody struck its primary: the machine is slow"
            ));
            losing.extend(shards);
        }
    }
    losing
}

/// Compares everything with everything.
async fn judge(stage: &Stage, snapshot: &Snapshot, written: &Written) -> Counts {
    let scene = &stage.scene;
    let told = scene.told(snapshot, written);
    let losing = losing(stage).await;
    let (excused, lost): (Vec<_>, Vec<_>) = told.lost.into_iter().partition(|(shard, _)| losing.contains(shard));
    let mut counts = Counts {
        acknowledged: written.acknowledged.len(),
        refused: written.refused.len(),
        unknown: written.unknown.len(),
        unknown_appended: told.unknown_appended,
        lost_by_redis: excused.len(),
        lost: lost.len(),
        doubled: told.doubled.len(),
        disordered: told.disordered.len(),
        heard: stage.listeners.iter().map(|listener| listener.changes()).sum(),
        resets: stage.listeners.iter().map(|listener| listener.resets()).sum(),
        ..Counts::default()
    };
    for shard in scene.layout.shards() {
        let state = snapshot.hash(scene.shard_keys(shard).state.as_str());
        let count = |name: &str| state.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        counts.applied += count("entries");
        counts.dead += count("dead");
    }
    let mut wrong: Vec<String> = lost.into_iter().map(|(_, line)| line).collect();
    wrong.extend([told.doubled, told.disordered, told.other].concat());
    wrong.extend(scene.judge(snapshot, &Default::default()).await);
    // What a server loses may be one side of a friendship.
    if losing.is_empty() {
        wrong.extend(between_shards(scene, snapshot));
    }
    for (number, listener) in stage.listeners.iter().enumerate() {
        let misled = listener.misled(scene, snapshot, LATE);
        wrong.extend(misled.into_iter().map(|line| format!("subscriber {number}: {line}")));
        let strangers: Vec<_> = listener.reset_shards().difference(&losing).copied().collect();
        if !strangers.is_empty() {
            wrong.push(format!(
                "subscriber {number} was told to begin anew with shards {strangers:?}, which lost nothing"
            ));
        }
    }
    wrong.into_iter().for_each(|line| stage.wrong(line));
    counts
}

/// What must be true between shards where nothing was lost.
fn between_shards(scene: &Scene, snapshot: &Snapshot) -> Vec<String> {
    let evidence = scene.evidence(snapshot);
    let users: Vec<_> = (0..COMPARED).map(|user| format!("u{user}").parse().expect("a good id")).collect();
    [evidence.relays(), evidence.friendships(&users)].concat()
}
