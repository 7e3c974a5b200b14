//! How much there is to be had at the most, for loads that are a part of it.

use std::rc::Rc;

use super::Plan;
use super::drain::heyday::Heyday;
use super::drain::{Common, Task};
use super::ground::Ground;
use super::rounds::Contestant as _;
use super::workload::{Kinds, Users, Workload};

/// Changes of the drain: enough for a second or two.
const CHANGES_MAX: usize = 60_000;
/// What is taken for the highest rate where nothing is to be measured.
const ASSUMED: f64 = 4_000.0;
const SHARDS: u32 = 16;

/// Changes a second that one worker applies while nobody appends: a short turn of the first chapter.
pub async fn drain(ground: &Rc<Ground>, plan: &Plan) -> anyhow::Result<f64> {
    if plan.smoke {
        return Ok(ASSUMED);
    }
    let (users, seed) = (plan.users, ground.seed);
    let workload = Workload { seed, users, order: Users::Distinct, kinds: Kinds::Add };
    let batch = ground.config.worker.batch_changes_max;
    let task = Task { workload, changes: plan.changes.min(CHANGES_MAX), shards: SHARDS, batch };
    let common = Common { ground: ground.clone(), task, name: "the highest rate".to_owned() };
    Ok(Heyday { common, workers: 1 }.turn(0).await?.rate())
}
