//! How long a change takes from just before it is appended until somebody hears of it and can read it, beside the shortest way
//! that a stream and a channel allow.

mod board;
mod floor;
mod listen;
mod rig;
mod tables;

use std::rc::Rc;

use super::ground::Ground;
use super::report::Chapter;
use super::{Plan, highest, tell};
use board::Recording;
use rig::{Drive, Rig};

/// The part of the highest rate at which is measured too.
const PART_OF_HIGHEST: f64 = 0.7;
/// A load by which batches and connections are warm.
const WARM: Drive = Drive { rate: 500.0, seconds: 0.5, reads: true };

const METHOD: &str = "An open loop: changes are planned by the rate alone, each of a user of its own, and latency is counted \
    from the planned moment, so that whoever is late makes no change later. Floor B is XADD, XREAD BLOCK, SPUBLISH and \
    SSUBSCRIBE and nothing else, over the same links: one reader a shard, one subscription a node, all entries of one read in \
    one message; sharded Pub/Sub, since heyday uses it. Generator, subscriber and reader run on one thread and what is between \
    them on another. The view is read as soon as the signal is heard and repeated until it shows the change; the latency ends \
    with that answer, so it contains the read. Floor B and heyday take turns at each rate, and the other one stays connected.";

/// One rate, and what came of it round by round.
pub struct Step {
    pub name: String,
    pub drive: Drive,
    pub floor: Vec<Recording>,
    pub heyday: Vec<Recording>,
}

pub async fn chapter(ground: &Rc<Ground>, plan: &Plan) -> anyhow::Result<Chapter> {
    let mut chapter = Chapter {
        name: "latency".to_owned(),
        title: "From an append to who hears of it".to_owned(),
        method: METHOD.to_owned(),
        ..Chapter::default()
    };
    let drained = highest::drain(ground, plan).await?;
    let highest = sustained(ground, plan, drained).await?;
    let mut steps = steps(plan, highest);
    for round in 0..plan.rounds {
        if let Err(error) = play(ground, round, &mut steps).await {
            eprintln!("heyday bench: latency, round {}: {error:#}", round + 1);
            chapter.troubles.push(format!("round {}: {error:#}", round + 1));
        }
    }
    chapter.tables = tables::all(&steps, (drained, highest));
    chapter.plots = tables::plots(&steps);
    Ok(chapter)
}

/// Changes a second that are heard of where as many are appended as a drain works off: generator, subscriber and servers take
/// their part of the machine too.
async fn sustained(ground: &Ground, plan: &Plan, drained: f64) -> anyhow::Result<f64> {
    let mut rig = Rig::heyday(ground).await?;
    let seconds = if plan.smoke { 0.2 } else { 2.0 };
    let found = rig.measure(ground, Drive { rate: drained, seconds, reads: false }).await?;
    rig.close(ground).await?;
    Ok(found.signal.len() as f64 / found.seconds)
}

fn steps(plan: &Plan, highest: f64) -> Vec<Step> {
    // In a hurry a tenth of the changes in a tenth of the time.
    let (scale, seconds) = if plan.smoke { (0.1, 0.2) } else { (1.0, 4.0) };
    let step = |name: &str, rate: f64| Step {
        name: name.to_owned(),
        drive: Drive { rate, seconds, reads: true },
        floor: Vec::new(),
        heyday: Vec::new(),
    };
    let mut steps = vec![step("a lone change, each 100 ms", 10.0)];
    for rate in [100.0, 1_000.0, 5_000.0] {
        steps.push(step(&format!("{:.0}/s", rate * scale), rate * scale));
    }
    let most = highest * PART_OF_HIGHEST * scale;
    steps.push(step(&format!("{most:.0}/s, {:.0} % of the highest", PART_OF_HIGHEST * scale * 100.0), most));
    steps
}

/// Both at each rate, who begins changing from round to round and from rate to rate.
async fn play(ground: &Ground, round: usize, steps: &mut [Step]) -> anyhow::Result<()> {
    let (mut floor, mut heyday) = (Rig::floor(ground).await?, Rig::heyday(ground).await?);
    floor.measure(ground, WARM).await?;
    heyday.measure(ground, WARM).await?;
    for (at, step) in steps.iter_mut().enumerate() {
        tell(round, &format!("latency at {}", step.name));
        let (of_floor, of_heyday);
        if (round + at).is_multiple_of(2) {
            of_floor = floor.measure(ground, step.drive).await?;
            of_heyday = heyday.measure(ground, step.drive).await?;
        } else {
            of_heyday = heyday.measure(ground, step.drive).await?;
            of_floor = floor.measure(ground, step.drive).await?;
        }
        // Both or neither, so that the rounds of one stand beside the same rounds of the other.
        step.floor.push(of_floor);
        step.heyday.push(of_heyday);
    }
    heyday.close(ground).await?;
    floor.close(ground).await
}
