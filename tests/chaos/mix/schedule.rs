//! What is done to a scene and when: a pure function of a seed.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use heyday::local::NODES;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// Primaries with their replicas.
pub const PAIRS: usize = NODES / 2;
/// Worker processes of a round.
pub const WORKERS: usize = 3;
/// Before the first fault, so that everybody has begun.
const BEGINNING: Duration = Duration::from_secs(2);
const HOUR_SECONDS: i64 = 3_600;
/// Between the beginnings of two faults.
const BETWEEN_MS: std::ops::Range<u64> = 200..2_500;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    WorkerKilled,
    WorkerFrozen,
    WorkerRestarted,
    PrimaryKilled,
    PrimaryFrozen,
    FailedOver,
    FailedOverWithLoss,
    SlotMoved,
    SlotMovedAtomically,
    CutWithFin,
    CutWithReset,
    Stalled,
    MemoryFull,
    ClientsKilled,
    ScriptsFlushed,
    Configured,
    ClusterRestarted,
    SubscriberOverflowed,
    /// From the beginning of a round to its end.
    WorkerClocksWrong,
    NodeClocksWrong,
}

/// What every server can be made to stand.
pub const EVERYWHERE: [Kind; 19] = [
    Kind::WorkerKilled,
    Kind::WorkerFrozen,
    Kind::WorkerRestarted,
    Kind::PrimaryKilled,
    Kind::PrimaryFrozen,
    Kind::FailedOver,
    Kind::FailedOverWithLoss,
    Kind::SlotMoved,
    Kind::CutWithFin,
    Kind::CutWithReset,
    Kind::Stalled,
    Kind::MemoryFull,
    Kind::ClientsKilled,
    Kind::ScriptsFlushed,
    Kind::Configured,
    Kind::ClusterRestarted,
    Kind::SubscriberOverflowed,
    Kind::WorkerClocksWrong,
    Kind::NodeClocksWrong,
];

impl Kind {
    /// Whether Redis may lose acknowledged appends by it: replication is asynchronous, and files are synced once a second.
    pub fn loses(self) -> bool {
        matches!(self, Kind::PrimaryKilled | Kind::PrimaryFrozen | Kind::FailedOverWithLoss | Kind::ClusterRestarted)
    }

    /// Whether it is there for a whole round, and no step of its schedule.
    pub fn is_lasting(self) -> bool {
        matches!(self, Kind::WorkerClocksWrong | Kind::NodeClocksWrong)
    }

    /// How long one lasts, in milliseconds.
    fn lasts_ms(self) -> std::ops::Range<u64> {
        match self {
            Kind::WorkerFrozen => 500..5_000,
            Kind::WorkerKilled | Kind::PrimaryKilled | Kind::PrimaryFrozen => 100..4_500,
            Kind::FailedOverWithLoss => 200..1_500,
            Kind::Stalled | Kind::MemoryFull | Kind::Configured => 500..4_000,
            Kind::SlotMoved | Kind::SlotMovedAtomically | Kind::SubscriberOverflowed => 300..2_000,
            Kind::WorkerRestarted
            | Kind::FailedOver
            | Kind::CutWithFin
            | Kind::CutWithReset
            | Kind::ClientsKilled
            | Kind::ScriptsFlushed
            | Kind::ClusterRestarted
            | Kind::WorkerClocksWrong
            | Kind::NodeClocksWrong => 0..1,
        }
    }
}

/// Whose connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Workers,
    Writers,
    Subscribers,
}

/// Which bytes stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    Both,
    Requests,
    Answers,
}

/// A shard that is looked for when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The one with the longest stream.
    Busiest,
    /// The one with the most keys.
    Fullest,
}

/// What an operator sets by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `timeout`: connections that are silent for a second are closed.
    Timeout,
    /// `maxclients`: those that are there may stay, nobody new may come.
    ClientsMax,
    /// `min-replicas-to-write`: more than there are.
    ReplicasMin,
    /// `client-output-buffer-limit`: answers that are not small cost their connection.
    OutputBuffer,
}

/// One fault with what it is about. A pair is a primary and its replica, whichever is which when the time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    KillWorker { worker: usize },
    FreezeWorker { worker: usize },
    RestartWorker { worker: usize },
    KillPrimary { pair: usize },
    FreezePrimary { pair: usize },
    FailOver { pair: usize },
    FailOverWithLoss { pair: usize },
    MoveSlot { choice: Choice, further: usize, atomically: bool },
    Cut { side: Side, pair: usize, reset: bool },
    Stall { side: Side, pair: usize, silence: Silence, cut_after: bool },
    FillMemory { pair: usize },
    KillClients { pair: usize, subscribers: bool },
    FlushScripts,
    Configure { pair: usize, setting: Setting },
    RestartCluster,
    OverflowSubscriber { pair: usize },
}

/// How far each process's clock is ahead, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    pub workers: [i64; WORKERS],
    pub nodes: [i64; NODES],
}

/// A fault and when it begins; how long it lasts, besides the time that carrying it out takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Duration,
    pub lasts: Duration,
    pub kind: Kind,
    pub fault: Fault,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:>6.3} s for {:.3} s {:?}", self.at.as_secs_f64(), self.lasts.as_secs_f64(), self.fault)
    }
}

/// Faults of these kinds, each at least once, until the time is over. The same arguments give the same schedule.
pub fn schedule(seed: u64, kinds: &[Kind], length: Duration) -> Vec<Step> {
    let mut random = SmallRng::seed_from_u64(seed);
    let kinds: Vec<Kind> = kinds.iter().copied().filter(|kind| !kind.is_lasting()).collect();
    let mut first = kinds.clone();
    first.shuffle(&mut random);
    if first.is_empty() {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut at = BEGINNING;
    while !first.is_empty() || at < length {
        let kind = first.pop().unwrap_or_else(|| pick(&mut random, &kinds));
        let lasts = Duration::from_millis(random.random_range(kind.lasts_ms()));
        steps.push(Step { at, lasts, kind, fault: fault(&mut random, kind) });
        at += Duration::from_millis(random.random_range(BETWEEN_MS));
    }
    steps
}

/// The clocks of a round: an hour ahead, an hour behind or right, where they may be wrong.
pub fn clocks(seed: u64, kinds: &[Kind]) -> Clocks {
    let mut random = SmallRng::seed_from_u64(seed ^ 0x636c_6f63);
    let mut clocks = Clocks::default();
    let mut set = |clocks: &mut [i64], kind| {
        for clock in clocks {
            let skew = HOUR_SECONDS * random.random_range(-1..=1);
            *clock = if kinds.contains(&kind) { skew } else { 0 };
        }
    };
    set(&mut clocks.workers, Kind::WorkerClocksWrong);
    set(&mut clocks.nodes, Kind::NodeClocksWrong);
    clocks
}

/// One kind alone, several, or all: what a round of a long run is about.
pub fn kinds_of_round(seed: u64, all: &[Kind]) -> Vec<Kind> {
    let mut random = SmallRng::seed_from_u64(seed ^ 0x6b69_6e64);
    let count = match random.random_range(0..4) {
        0 => 1,
        1 => random.random_range(1..=all.len().min(4)),
        _ => random.random_range(all.len().min(5)..=all.len()),
    };
    let mut kinds = all.to_vec();
    kinds.shuffle(&mut random);
    kinds.truncate(count);
    let sorted: BTreeSet<Kind> = kinds.into_iter().collect();
    sorted.into_iter().collect()
}

fn pick<T: Copy>(random: &mut SmallRng, choices: &[T]) -> T {
    choices[random.random_range(0..choices.len())]
}

fn fault(random: &mut SmallRng, kind: Kind) -> Fault {
    let pair = random.random_range(0..PAIRS);
    let worker = random.random_range(0..WORKERS);
    let side = pick(random, &[Side::Workers, Side::Writers, Side::Subscribers]);
    match kind {
        Kind::WorkerKilled => Fault::KillWorker { worker },
        Kind::WorkerFrozen => Fault::FreezeWorker { worker },
        Kind::WorkerRestarted => Fault::RestartWorker { worker },
        Kind::PrimaryKilled => Fault::KillPrimary { pair },
        Kind::PrimaryFrozen => Fault::FreezePrimary { pair },
        Kind::FailedOver => Fault::FailOver { pair },
        Kind::FailedOverWithLoss => Fault::FailOverWithLoss { pair },
        Kind::SlotMoved | Kind::SlotMovedAtomically => Fault::MoveSlot {
            choice: pick(random, &[Choice::Busiest, Choice::Fullest]),
            further: random.random_range(1..PAIRS),
            atomically: kind == Kind::SlotMovedAtomically,
        },
        Kind::CutWithFin => Fault::Cut { side, pair, reset: false },
        Kind::CutWithReset => Fault::Cut { side, pair, reset: true },
        Kind::Stalled => Fault::Stall {
            side,
            pair,
            silence: pick(random, &[Silence::Both, Silence::Requests, Silence::Answers]),
            cut_after: random.random_bool(0.5),
        },
        Kind::MemoryFull => Fault::FillMemory { pair },
        Kind::ClientsKilled => Fault::KillClients { pair, subscribers: random.random_bool(0.5) },
        Kind::ScriptsFlushed => Fault::FlushScripts,
        Kind::Configured => {
            let settings = [Setting::Timeout, Setting::ClientsMax, Setting::ReplicasMin, Setting::OutputBuffer];
            Fault::Configure { pair, setting: pick(random, &settings) }
        }
        Kind::ClusterRestarted => Fault::RestartCluster,
        Kind::SubscriberOverflowed => Fault::OverflowSubscriber { pair },
        Kind::WorkerClocksWrong | Kind::NodeClocksWrong => unreachable!("{kind:?} is no step"),
    }
}

#[test]
fn a_seed_gives_the_same_schedule_and_every_kind() {
    let of = |seed| schedule(seed, &EVERYWHERE, Duration::from_secs(60));
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    for seed in 0..100 {
        let steps = of(seed);
        let kinds: BTreeSet<Kind> = steps.iter().map(|step| step.kind).collect();
        let lasting = EVERYWHERE.iter().filter(|kind| kind.is_lasting()).count();
        assert_eq!(kinds.len(), EVERYWHERE.len() - lasting, "seed {seed}");
        assert!(steps.is_sorted_by_key(|step| step.at), "seed {seed}");
        let kinds = kinds_of_round(seed, &EVERYWHERE);
        assert_eq!(kinds, kinds_of_round(seed, &EVERYWHERE));
        assert!(schedule(seed, &kinds, Duration::from_secs(5)).iter().all(|step| kinds.contains(&step.kind)));
    }
    assert_eq!(clocks(7, &EVERYWHERE), clocks(7, &EVERYWHERE));
    assert_ne!(clocks(7, &EVERYWHERE), clocks(8, &EVERYWHERE));
    assert_eq!(clocks(7, &[Kind::FailedOver]), Clocks::default());
    assert_eq!(kinds_of_round(7, &[Kind::FailedOver]), [Kind::FailedOver]);
    let rounds: BTreeSet<Kind> = (0..100).flat_map(|seed| kinds_of_round(seed, &EVERYWHERE)).collect();
    assert_eq!(rounds.len(), EVERYWHERE.len());
}
