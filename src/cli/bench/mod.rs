//! `heyday bench`: what heyday costs and how fast it is, beside a floor measured in the same run.
//!
//! To add a chapter: give it a folder with `chapter`, a name in [`Subject`] and a line in [`study`].

mod drain;
mod faults;
mod ground;
mod growth;
mod highest;
mod idle;
mod lane;
mod latency;
mod machine;
mod pace;
mod peer;
mod quantile;
mod readers;
mod report;
mod rounds;
mod servers;
mod workload;

use std::path::PathBuf;
use std::rc::Rc;

use clap::ValueEnum;

use super::{Context, Exit, exit, output};
use ground::Ground;
use report::{Chapter, Report};

/// Measure throughput, cost and latency beside plain consumers of the same changes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday bench drain --rounds 3 --output target/bench\n\n\
    Runs on six servers of its own on this machine, or with --given on the cluster of the settings, under key \
    prefixes of its own that it clears. Build with --release. Exits with 1 where something could not be measured.")]
pub struct Arguments {
    /// What to measure; all of it where nothing is named
    #[arg(value_enum)]
    subjects: Vec<Subject>,
    /// Turns of each contestant [default: 5, or 1 with --smoke]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Changes of a turn [default: 200000, or 2000 with --smoke]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    changes: Option<u32>,
    /// Users that the changes are about [default: 32768, or 512 with --smoke]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    users: Option<u32>,
    /// Friendships of the largest data set that is loaded [default: 10000000, or 10000 with --given]
    #[arg(long)]
    friendships_max: Option<u64>,
    /// Decides the changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure on the cluster of the settings
    #[arg(long)]
    given: bool,
    /// Measure the programs of other libraries in this folder too: benches/peers
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Only show that everything runs: seconds instead of minutes, and figures that mean nothing
    #[arg(long)]
    smoke: bool,
    /// Write report.json, report.md and the plots into this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: output::Format,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// How fast a backlog is worked off, and at what cost
    Drain,
    /// How long a change takes until somebody hears of it and can read it
    Latency,
    /// Cost, memory, rolls and reads as data grows, and users with few and many friends
    Growth,
    /// What a worker and its servers cost while nothing changes
    Idle,
    /// How fast views are read, and at what cost
    Readers,
    /// What a killed worker, a replaced primary and a moved slot cost
    Faults,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub changes: usize,
    pub users: u32,
    /// Whether everything is to run in seconds.
    pub smoke: bool,
    /// Of the largest data set.
    pub friendships_max: u64,
}

impl Plan {
    /// Friendships of the data sets that are measured one after the other.
    pub fn friendships(&self) -> impl Iterator<Item = u64> {
        self.sizes().iter().copied().filter(|size| *size <= self.friendships_max)
    }

    /// Of those that are left out because they are too large.
    pub fn friendships_left_out(&self) -> impl Iterator<Item = u64> {
        self.sizes().iter().copied().filter(|size| *size > self.friendships_max)
    }

    fn sizes(&self) -> &'static [u64] {
        if self.smoke { &[1000, 3000] } else { &[10_000, 1_000_000, 10_000_000] }
    }
}

impl Arguments {
    fn plan(&self) -> Plan {
        let or = |given: Option<u32>, full: u32, smoke: u32| given.unwrap_or(if self.smoke { smoke } else { full });
        // Nobody knows how much room somebody else's servers have.
        let friendships_max = if self.given { 10_000 } else { 10_000_000 };
        Plan {
            rounds: or(self.rounds, 5, 1) as usize,
            changes: or(self.changes, 200_000, 2_000) as usize,
            users: or(self.users, 32_768, 512),
            smoke: self.smoke,
            friendships_max: self.friendships_max.unwrap_or(friendships_max),
        }
    }
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    super::cluster::block_on(measure(arguments, context))
}

async fn measure(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let plan = arguments.plan();
    let peers = arguments.peers.as_deref().map(peer::find).transpose();
    let peers = peers.map_err(|error| exit::Usage(format!("--peers: {error:#}")))?.unwrap_or_default();
    let ground = Rc::new(Ground::open(context, arguments.given, arguments.seed).await?);
    let mut report = Report { setting: machine::setting(&arguments, context, &ground).await?, chapters: Vec::new() };
    let named = &arguments.subjects;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    for subject in Subject::value_variants().iter().filter(|subject| named.is_empty() || named.contains(subject)) {
        let studied = tokio::select! {
            biased;
            _ = &mut interrupt => None,
            studied = study(*subject, &ground, &plan, &peers) => Some(studied),
        };
        // Whatever became of it: a given cluster keeps nothing of ours.
        ground.clear_left().await;
        let Some(studied) = studied else {
            eprintln!("heyday bench: interrupted");
            break;
        };
        let chapter = studied.unwrap_or_else(|error| failed(*subject, &error));
        if !arguments.format.json {
            report::print(&chapter)?;
        }
        report.chapters.push(chapter);
        // After each, so that a run that is interrupted leaves what it has.
        if let Some(folder) = &arguments.output {
            report::write(&report, folder)?;
        }
    }
    if arguments.format.json {
        output::print(&format!("{}\n", serde_json::to_string(&report)?))?;
    }
    let troubled = report.chapters.iter().any(|chapter| !chapter.troubles.is_empty());
    Ok(if troubled { Exit::Found } else { Exit::Done })
}

/// What stands in for a chapter that could not be had; the others are measured all the same.
fn failed(subject: Subject, error: &anyhow::Error) -> Chapter {
    eprintln!("heyday bench: {error:#}");
    let value = subject.to_possible_value();
    let name = value.as_ref().map(|value| value.get_name().to_owned()).unwrap_or_default();
    Chapter {
        title: format!("heyday bench {name}"),
        name,
        method: "Not measured: it failed.".to_owned(),
        troubles: vec![format!("{error:#}")],
        ..Chapter::default()
    }
}

async fn study(subject: Subject, ground: &Rc<Ground>, plan: &Plan, peers: &[peer::Program]) -> anyhow::Result<Chapter> {
    match subject {
        Subject::Drain => drain::chapter(ground, plan, peers).await,
        Subject::Latency => latency::chapter(ground, plan).await,
        Subject::Faults => faults::chapter(ground, plan).await,
        Subject::Growth => growth::chapter(ground, plan).await,
        Subject::Idle => idle::chapter(ground, plan).await,
        Subject::Readers => readers::chapter(ground, plan).await,
    }
}

/// Says on stderr whose turn it is.
fn tell(round: usize, name: &str) {
    eprintln!("round {}: {name}", round + 1);
}

fn now_milliseconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}
