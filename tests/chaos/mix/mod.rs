//! Faults of every kind, alone and mixed at random, from a seed: writers, workers and subscribers at work, a schedule of faults,
//! and the comparison of every key and of everything that anybody was told, once all is whole again.
//!
//! The schedule is the same for the same seed. When exactly a fault meets what the others do is not: that is the machine's.

mod moves;
mod nodes;
mod overflow;
mod pauses;
mod report;
mod round;
mod run;
mod schedule;
mod stage;
mod strike;

use std::time::Duration;

use run::{Run, rounds};
use schedule::Kind;

/// Seconds during which faults begin, in the rounds of a run of all tests.
const SHORT: Duration = Duration::from_secs(12);

async fn short(seed: u64, kinds: &[Kind]) {
    rounds(Run::once(seed, kinds, SHORT)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_die_freeze_and_leave_while_connections_break() {
    let kinds = [
        Kind::WorkerKilled,
        Kind::WorkerFrozen,
        Kind::WorkerRestarted,
        Kind::CutWithFin,
        Kind::CutWithReset,
        Kind::Stalled,
        Kind::ClientsKilled,
        Kind::WorkerClocksWrong,
    ];
    short(1, &kinds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_fill_up_forget_and_are_misconfigured_while_slots_move() {
    let kinds = [
        Kind::SlotMoved,
        Kind::FailedOver,
        Kind::MemoryFull,
        Kind::ScriptsFlushed,
        Kind::Configured,
        Kind::SubscriberOverflowed,
    ];
    short(2, &kinds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_die_and_take_their_last_moment_with_them() {
    let kinds = [
        Kind::PrimaryKilled,
        Kind::PrimaryFrozen,
        Kind::FailedOverWithLoss,
        Kind::ClusterRestarted,
        Kind::WorkerKilled,
    ];
    short(3, &kinds).await;
}

/// Every kind of fault. `make chaos` lets it run as long as it is told, from a seed that it names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_every_kind_at_random() {
    rounds(Run::asked()).await;
}
