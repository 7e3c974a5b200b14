//! What a killed worker, a replaced primary and a moved slot cost: for how long who hears nothing, and until when all is as
//! before.

mod analysis;
mod fate;
mod load;
mod play;

use std::rc::Rc;
use std::time::Duration;

use super::ground::Ground;
use super::report::{Axis, Chapter, Figure, Plot, Series, Table};
use super::{Plan, highest, tell};
use analysis::{SLICE, Slice, caught_up, longest_gap, slices, usual};
use play::{Fault, Run, Script};

/// Half of what a worker applies at the most, within this.
const RATE_MAX: f64 = 4_000.0;
/// A run takes most of a minute.
const ROUNDS_MAX: usize = 3;

const METHOD: &str = "On six servers of its own, two worker processes and a steady load through heyday's writer, each change \
    with a producer and of a user of its own; latency counts from the moment for which a change was planned. A pause is the \
    longest time between two signals of one and the same shard. As fast as before: five tenths of a second in a row whose 99th \
    percentile, by when changes were sent, is at most twice that of the two seconds before the fault.";

pub async fn chapter(ground: &Rc<Ground>, plan: &Plan) -> anyhow::Result<Chapter> {
    let mut chapter = Chapter {
        name: "faults".to_owned(),
        title: "Through faults".to_owned(),
        method: METHOD.to_owned(),
        ..Chapter::default()
    };
    if !ground.is_own() {
        chapter.method = "Not measured: this chapter kills nodes, which it does to servers of its own only.".to_owned();
        return Ok(chapter);
    }
    let script = script(plan, highest::drain(ground, plan).await?);
    let mut runs = Vec::new();
    for round in 0..plan.rounds.min(ROUNDS_MAX) {
        tell(round, &format!("faults at {:.0} changes/s", script.rate));
        match play::run(ground, script).await {
            Ok(run) => runs.push(run),
            Err(error) => {
                eprintln!("heyday bench: faults, round {}: {error:#}", round + 1);
                chapter.troubles.push(format!("round {}: {error:#}", round + 1));
            }
        }
    }
    let measured: Vec<Measured> = runs.iter().map(Measured::of).collect();
    chapter.tables = vec![pauses(&measured, script.rate), fates(&runs)];
    let keys = Figure::of(runs.iter().map(|run| run.keys_moved as f64));
    chapter.tables[0]
        .notes
        .push(format!("the slot that moved held {keys} keys, which MIGRATE took along 100 at a time"));
    if let (Some(run), Some(measured)) = (runs.last(), measured.last()) {
        chapter.plots = plots(run, &measured.slices);
    }
    Ok(chapter)
}

fn script(plan: &Plan, highest: f64) -> Script {
    let rate = (highest / 2.0).min(RATE_MAX);
    match plan.smoke {
        true => Script {
            rate: rate / 10.0,
            calm: Duration::from_millis(200),
            after: Duration::from_millis(200),
            mends: false,
        },
        false => Script { rate, calm: Duration::from_secs(4), after: Duration::from_secs(8), mends: true },
    }
}

/// A run in figures.
struct Measured {
    slices: Vec<Slice>,
    /// Before the first fault, then of each fault.
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    affected: Option<f64>,
    others: Option<f64>,
    caught_up: Option<f64>,
    usual: Option<f64>,
    slowest: Option<f64>,
}

impl Measured {
    fn of(run: &Run) -> Measured {
        let slices = slices(&run.heard);
        let slowest = |(from, until): (f64, f64)| {
            let within = run.heard.iter().filter(|one| one.planned > from - SLICE && one.planned < until);
            within.map(|one| one.heard - one.planned).max_by(f64::total_cmp)
        };
        let first = run.strikes.first().map_or(f64::MAX, |strike| strike.from);
        // The first changes find everything cold, and the last ones are still on their way when the first fault strikes.
        let calm = (first * 0.5, first * 0.9);
        let mut lines = vec![Line {
            others: longest_gap(&run.heard, |_| true, calm),
            usual: usual(&slices, first),
            slowest: slowest(calm),
            ..Line::default()
        }];
        for strike in &run.strikes {
            let window = (strike.from, strike.until);
            let usual = usual(&slices, strike.from);
            lines.push(Line {
                affected: longest_gap(&run.heard, |shard| strike.affected.contains(&shard), window),
                others: longest_gap(&run.heard, |shard| !strike.affected.contains(&shard), window),
                caught_up: usual.and_then(|usual| caught_up(&slices, window, usual)),
                usual,
                slowest: slowest(window),
            });
        }
        Measured { slices, lines }
    }
}

fn pauses(measured: &[Measured], rate: f64) -> Table {
    let headings = [
        "fault",
        "pause of its shards s",
        "pause of other shards s",
        "as fast as before after s",
        "p99 before ms",
        "slowest change s",
    ];
    let mut table = Table::new(&format!("through faults at {rate:.0} changes/s"), &headings);
    let names = std::iter::once("none").chain(Fault::ALL.map(Fault::name));
    for (at, name) in names.enumerate() {
        let of =
            |what: fn(&Line) -> Option<f64>| Figure::of(measured.iter().filter_map(|one| what(one.lines.get(at)?)));
        table.row(
            name,
            [
                of(|line| line.affected),
                of(|line| line.others),
                of(|line| line.caught_up),
                of(|line| Some(line.usual? * 1e3)),
                of(|line| line.slowest),
            ],
        );
    }
    table.notes = vec![
        "leases last 2 s here (worker.lease_ttl, by default 10 s): so long the shards of a killed worker wait at the least"
            .to_owned(),
        "a node is taken for dead after 1 s (cluster-node-timeout); its replica then has to be elected".to_owned(),
        "a dash: not until the next fault".to_owned(),
    ];
    table
}

fn fates(runs: &[Run]) -> Table {
    let headings = ["", "sent", "refused", "lost", "doubled", "subscriber resets"];
    let mut table = Table::new("what became of the changes", &headings);
    let of = |what: fn(&Run) -> u64| Figure::of(runs.iter().map(|run| what(run) as f64));
    table.row(
        "a run",
        [
            of(|run| run.fate.written.sent),
            of(|run| run.fate.written.refused.len() as u64),
            of(|run| run.fate.lost),
            of(|run| run.fate.doubled),
            of(|run| run.resets),
        ],
    );
    table.notes = vec![
        "lost: acknowledged to the writer and not in the views; only a killed primary can do that, with what its replica had \
         not been sent yet"
            .to_owned(),
    ];
    table
}

fn plots(run: &Run, slices: &[Slice]) -> Vec<Plot> {
    let marks: Vec<(f64, String)> =
        run.strikes.iter().map(|strike| (strike.from, strike.fault.mark().to_owned())).collect();
    let plot = |name: &str, title: &str, y: Axis, points: Vec<(f64, f64)>| Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis::linear("seconds"),
        y,
        series: vec![Series { name: "heyday, 2 workers".to_owned(), points }],
        marks: marks.clone(),
    };
    let rates = slices.iter().map(|slice| (slice.begin, slice.heard as f64 / SLICE)).collect();
    let latencies = slices.iter().filter_map(|slice| Some((slice.begin, slice.p99? * 1e3))).collect();
    vec![
        plot("faults-throughput", "Changes signalled, through faults", Axis::linear("changes/s"), rates),
        plot(
            "faults-latency",
            "99th percentile by when a change was sent, through faults",
            Axis::logarithmic("milliseconds"),
            latencies,
        ),
    ]
}
