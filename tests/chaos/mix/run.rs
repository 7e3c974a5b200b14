//! Round after round until the time is over or something is wrong, what is told of each, and what is kept of the one that failed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::report::Report;
use super::round::{Outcome, Round};
use super::schedule::{EVERYWHERE, Kind, clocks, kinds_of_round};
use super::stage::Stage;

/// Set by `make chaos`: how long to run, from which seed, and the kinds of faults where it shall not be all.
const MINUTES: &str = "HEYDAY_CHAOS_MINUTES";
const SEED: &str = "HEYDAY_CHAOS_SEED";
const KINDS: &str = "HEYDAY_CHAOS_KINDS";
const ALL: &str = "all";
/// The seed of a run that names none.
const SEED_USUAL: u64 = 4;
/// Seconds during which faults begin, in a round of a long run.
const LONG: Duration = Duration::from_secs(40);
const SHORT: Duration = Duration::from_secs(15);

/// How many rounds of what.
pub struct Run {
    seed: u64,
    kinds: Vec<Kind>,
    length: Duration,
    /// None: one round with all kinds.
    time: Option<Duration>,
}

impl Run {
    pub fn once(seed: u64, kinds: &[Kind], length: Duration) -> Run {
        Run { seed, kinds: kinds.to_vec(), length, time: None }
    }

    /// What the environment asks for; a short round where it asks for nothing.
    pub fn asked() -> Run {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<f64>().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
        };
        let time = number(MINUTES).map(|minutes| Duration::from_secs_f64(minutes * 60.0));
        let seed = std::env::var(SEED).map_or(SEED_USUAL, |text| {
            text.parse().unwrap_or_else(|_| panic!("{SEED}={text}: expected a whole number from 0"))
        });
        let kinds = std::env::var(KINDS).map_or(EVERYWHERE.to_vec(), |text| kinds(&text));
        Run { seed, kinds, length: if time.is_some() { LONG } else { SHORT }, time }
    }

    /// The rounds of a run with a time of its own are about some of the kinds each.
    fn round(&self, number: u64) -> Round {
        let seed = self.seed.wrapping_add(number);
        let kinds = match self.time {
            Some(_) => kinds_of_round(seed, &self.kinds),
            None => self.kinds.clone(),
        };
        Round { seed, kinds, length: self.length }
    }
}

fn kinds(text: &str) -> Vec<Kind> {
    let named = |name: &str| {
        if name == ALL {
            return EVERYWHERE.to_vec();
        }
        let kind = EVERYWHERE.into_iter().chain([Kind::SlotMovedAtomically]).find(|kind| format!("{kind:?}") == name);
        vec![kind.unwrap_or_else(|| panic!("{KINDS}={text}: {name} is neither {ALL} nor one of {EVERYWHERE:?}"))]
    };
    text.split(',').flat_map(named).collect()
}

/// Plays them, ends the test where one found something, and leaves the report in `target/chaos`.
pub async fn rounds(run: Run) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("chaos");
    fs::create_dir_all(&folder).expect("a folder for reports");
    let (started, mut report) = (Instant::now(), Report::default());
    let mut failed = None;
    for number in 0.. {
        let round = run.round(number);
        let stage = Stage::open(clocks(round.seed, &round.kinds)).await;
        let outcome = round.play(&stage).await;
        report.add(&outcome);
        println!("{}", line(number, &round, &outcome));
        if !outcome.wrong.is_empty() {
            let kept = keep(&folder, &round, &outcome, &stage).await;
            failed = Some(tell(&round, &outcome, &kept));
        }
        if failed.is_some() || run.time.is_none_or(|time| started.elapsed() >= time) {
            break;
        }
    }
    println!("{}", report.text());
    let name = format!("report-{}", run.seed);
    fs::write(folder.join(format!("{name}.json")), format!("{:#}\n", report.json())).expect("the report");
    fs::write(folder.join(format!("{name}.txt")), format!("{}\n", report.text())).expect("the report");
    if let Some(told) = failed {
        panic!("{told}");
    }
}

fn line(number: u64, round: &Round, outcome: &Outcome) -> String {
    let counts = &outcome.counts;
    format!(
        "round {number}: seed {}, {:?}, {} faults in {:.0} s, {} acknowledged, {} applied, lost {} (by Redis {}), \
         doubled {}, out of order {}, resets {}, {} wrong",
        round.seed,
        round.kinds,
        outcome.strikes.len(),
        outcome.took.as_secs_f64(),
        counts.acknowledged,
        counts.applied,
        counts.lost,
        counts.lost_by_redis,
        counts.doubled,
        counts.disordered,
        counts.resets,
        outcome.wrong.len(),
    )
}

/// Everything that one has to know of a round that failed.
fn tell(round: &Round, outcome: &Outcome, kept: &Path) -> String {
    let steps: Vec<String> = outcome.steps.iter().map(|step| format!("  {step}")).collect();
    let clocks = clocks(round.seed, &round.kinds);
    format!(
        "seed {} with {:?}: {} things are wrong:\n  {}\nthe schedule, with {clocks:?}:\n{}\nwhat happened:\n  {}\nlogs of servers and workers: {}",
        round.seed,
        round.kinds,
        outcome.wrong.len(),
        outcome.wrong.join("\n  "),
        steps.join("\n"),
        outcome.log.join("\n  "),
        kept.display()
    )
}

/// Copies what servers and workers logged, since both go with the stage.
async fn keep(folder: &Path, round: &Round, outcome: &Outcome, stage: &Stage) -> PathBuf {
    let kept = folder.join(format!("failed-{}-{}", round.seed, std::process::id()));
    let copy = |from: PathBuf, name: String| {
        // Some files are there only now and then.
        let _ = fs::copy(from, kept.join(name));
    };
    fs::create_dir_all(&kept).expect("a folder for what is kept");
    for node in 1..=heyday::local::NODES {
        for name in ["redis.log", "redis.conf", "nodes.conf"] {
            copy(stage.folder.join(node.to_string()).join(name), format!("node-{node}-{name}"));
        }
    }
    let workers = stage.workers.lock().await;
    for number in 0..workers.count() {
        let name = format!("worker-{number}.log");
        copy(workers.folder().join(&name), name);
    }
    fs::write(kept.join("told.txt"), tell(round, outcome, &kept)).expect("what is kept");
    kept
}
