//! The comparisons of this chapter and their tables.

use std::rc::Rc;

use super::super::ground::Ground;
use super::super::peer::Program;
use super::super::report::{Axis, Chapter, Figure, Plot, Series, Table};
use super::super::rounds::{Contestant, Outcome, Sample, interleave};
use super::super::workload::{Kinds, Users, Workload};
use super::super::{Plan, tell};
use super::floor::Floor;
use super::heyday::Heyday;
use super::peer::{Peer, prepare};
use super::raw::Raw;
use super::work::Way;
use super::{Common, Task};

/// What is measured of each contestant.
const HEADINGS: [&str; 10] = [
    "consumer",
    "changes/s",
    "server CPU us/change",
    "worker CPU us/change",
    "sum us/change",
    "replica CPU us/change",
    "bytes/change",
    "commands/change",
    "sum beside floor A",
    "beside it without a group",
];

const FLOOR: &str = "floor A";
const FLOOR_ALONE: &str = "floor A without a group";
/// Where nothing else is said.
const SHARDS: u32 = 16;
const SHARDS_SMOKE: u32 = 4;

pub async fn chapter(ground: &Rc<Ground>, plan: &Plan, peers: &[Program]) -> anyhow::Result<Chapter> {
    let mut chapter = Chapter {
        name: "drain".to_owned(),
        title: "A backlog worked off".to_owned(),
        method: "Every turn begins with an empty layout, the changes appended and replicated, and the consumers connected and \
                 waiting. Measured from the first batch to the last acknowledgement. CPU of the servers by INFO, of the \
                 consumer by getrusage of its thread; peers are processes of their own and count theirs themselves."
            .to_owned(),
        ..Chapter::default()
    };
    let peers = prepare(peers, plan.changes).await;
    for order in [Users::Distinct, Users::Five, Users::Zipf] {
        let task = task(ground, plan, order, Kinds::Add);
        let common = |name: &str| Common { ground: ground.clone(), task, name: name.to_owned() };
        let mut contestants: Vec<Box<dyn Contestant>> = vec![
            Box::new(Raw { common: common("floor A, raw bytes") }),
            Box::new(Floor { common: common(FLOOR), way: Way::Group }),
            Box::new(Floor { common: common(FLOOR_ALONE), way: Way::Position }),
            heyday(common("heyday, 1 worker"), 1),
            heyday(common("heyday, 2 workers"), 2),
        ];
        for prepared in &peers {
            let common = common(&prepared.program.name);
            contestants.push(Box::new(Peer { common, prepared: prepared.clone() }));
        }
        chapter.compare(plan, &format!("add only, users {}", order.name()), &mut contestants).await;
    }
    let task = task(ground, plan, Users::Zipf, Kinds::Mixed);
    let common = Common { ground: ground.clone(), task, name: "heyday, 1 worker".to_owned() };
    chapter.compare(plan, "mixed changes, users by Zipf", &mut [heyday(common, 1)]).await;
    chapter.vary(ground, plan).await;
    Ok(chapter)
}

impl Chapter {
    async fn compare(&mut self, plan: &Plan, title: &str, contestants: &mut [Box<dyn Contestant>]) {
        let outcomes = interleave(plan.rounds, contestants, tell).await;
        self.failed(title, &outcomes);
        self.tables.push(table(title, &outcomes));
        self.plots.push(over_time(self.plots.len(), title, &outcomes));
    }

    /// heyday alone: what the number of shards and the size of a batch do.
    async fn vary(&mut self, ground: &Rc<Ground>, plan: &Plan) {
        let basis = task(ground, plan, Users::Distinct, Kinds::Add);
        let common = |task: Task, name: String| Common { ground: ground.clone(), task, name };
        let shards: &[u32] = if plan.smoke { &[4, 16] } else { &[16, 64, 256] };
        let shards = shards.iter().map(|&shards| {
            let name = format!("{shards} shards");
            heyday(common(Task { shards, ..basis }, name), 1)
        });
        self.compare(plan, "heyday by the number of shards", &mut shards.collect::<Vec<_>>()).await;
        let batches: &[usize] = if plan.smoke { &[64, 512] } else { &[64, 128, 256, 512, 1024] };
        let batches = batches.iter().map(|&batch| {
            let name = format!("batches of at most {batch}");
            heyday(common(Task { batch, ..basis }, name), 1)
        });
        self.compare(plan, "heyday by the size of a batch", &mut batches.collect::<Vec<_>>()).await;
    }
}

fn heyday(common: Common, workers: usize) -> Box<dyn Contestant> {
    Box::new(Heyday { common, workers })
}

fn task(ground: &Ground, plan: &Plan, order: Users, kinds: Kinds) -> Task {
    let workload = Workload { seed: ground.seed, users: plan.users, order, kinds };
    Task {
        workload,
        changes: plan.changes,
        shards: if plan.smoke { SHARDS_SMOKE } else { SHARDS },
        batch: ground.config.worker.batch_changes_max,
    }
}

/// Changes a second in each slice of time, of the last round.
fn over_time(number: usize, title: &str, outcomes: &[Outcome]) -> Plot {
    let rates = |sample: &Sample| {
        let mut before = (0.0, 0.0);
        let rate = |&(at, done): &(f64, f64)| {
            let (from, earlier) = std::mem::replace(&mut before, (at, done));
            (at, (done - earlier) / (at - from))
        };
        sample.progress.iter().map(rate).filter(|(_, rate)| rate.is_finite()).collect()
    };
    let series = |outcome: &Outcome| {
        let points: Vec<_> = outcome.samples.last().map(rates)?;
        // A peer says only when it has ended.
        (!points.is_empty()).then(|| Series { name: outcome.name.clone(), points })
    };
    Plot {
        name: format!("drain-{number}"),
        title: title.to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("changes/s"),
        series: outcomes.iter().filter_map(series).collect(),
        marks: Vec::new(),
    }
}

fn table(title: &str, outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(title, &HEADINGS);
    let sum = |sample: &Sample| sample.server_cpu() + sample.worker_cpu();
    // Round by round, since the machine is not the same in every round.
    let beside = |floor: &str, outcome: &Outcome| {
        let floor = outcomes.iter().find(|outcome| outcome.name == floor);
        let pairs = floor.map(|floor| floor.samples.iter().zip(&outcome.samples)).into_iter().flatten();
        Figure::of(pairs.map(|(floor, sample)| sum(sample) / sum(floor)))
    };
    for outcome in outcomes {
        let of = |what: fn(&Sample) -> f64| Figure::of(outcome.samples.iter().map(what));
        table.row(
            outcome.name.clone(),
            [
                of(Sample::rate),
                of(Sample::server_cpu),
                of(Sample::worker_cpu),
                of(sum),
                of(Sample::replica_cpu),
                of(Sample::wire_bytes),
                of(Sample::commands),
                beside(FLOOR, outcome),
                beside(FLOOR_ALONE, outcome),
            ],
        );
    }
    if outcomes.iter().any(|outcome| outcome.name == FLOOR_ALONE) {
        table.notes.push(
            "A floor with a group has every entry delivered and acknowledged by it, as consumers do; the one without keeps the \
             id of the last entry itself. heyday sends the first entry of each batch through its group."
                .to_owned(),
        );
    }
    table
}
