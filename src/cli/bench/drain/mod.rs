//! How fast a backlog is worked off, and at what cost: heyday beside consumers that do the same reads and writes without
//! any of its guarantees.

pub mod floor;
pub mod heyday;
pub mod peer;
pub mod prove;
pub mod raw;
mod stopwatch;
mod tables;
mod work;

use std::rc::Rc;

use super::ground::Ground;
use super::workload::Workload;
use crate::change::Change;
use work::Days;

pub use tables::chapter;

/// What all contestants of one comparison do.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub workload: Workload,
    pub changes: usize,
    pub shards: u32,
    /// Most changes of a batch.
    pub batch: usize,
}

/// What a contestant has in its hands.
#[derive(Clone)]
pub struct Common {
    pub ground: Rc<Ground>,
    pub task: Task,
    pub name: String,
}

/// The changes of a round: alike for all contestants, others in the next round.
fn changes(task: &Task, round: usize) -> Vec<Change> {
    let seed = task.workload.seed.wrapping_add(round as u64);
    Workload { seed, ..task.workload }.changes(task.changes)
}

/// The days that are kept now, by the rules of the settings.
fn field_days(ground: &Ground) -> Days {
    let calendar = ground.config.rules().calendar;
    let window = calendar.window(super::now_milliseconds());
    Days { calendar, window }
}
