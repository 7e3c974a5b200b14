//! `heyday bench`: what heyday costs and how fast it is, beside a floor measured in the same run.

mod drain;
mod ground;
mod lane;
mod report;
mod rounds;
mod servers;
mod workload;

use std::rc::Rc;

use super::{Context, Exit, output};
use ground::Ground;
use report::Report;

/// Measure throughput, cost and latency beside plain consumers of the same changes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday bench --rounds 3\n\n\
    Runs on six servers of its own on this machine, or with --given on the cluster of the settings.")]
pub struct Arguments {
    /// Turns of each contestant
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Changes of a turn
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    changes: u32,
    /// Users that the changes are about
    #[arg(long, default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    users: u32,
    /// Decides the changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure on the cluster of the settings
    #[arg(long)]
    given: bool,
    #[command(flatten)]
    format: output::Format,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub changes: usize,
    pub users: u32,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    super::cluster::block_on(measure(arguments, context))
}

async fn measure(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let ground = Rc::new(Ground::open(context, arguments.given, arguments.seed).await?);
    let plan = Plan { rounds: arguments.rounds as usize, changes: arguments.changes as usize, users: arguments.users };
    let report = Report { setting: setting(&arguments), chapters: vec![drain::chapter(&ground, &plan).await?] };
    if arguments.format.json {
        output::print(&format!("{}\n", serde_json::to_string(&report)?))?;
        return Ok(Exit::Done);
    }
    for table in report.chapters.iter().flat_map(|chapter| &chapter.tables) {
        report::print(table)?;
    }
    Ok(Exit::Done)
}

fn setting(arguments: &Arguments) -> Vec<(String, String)> {
    let line = |name: &str, value: &dyn ToString| (name.to_owned(), value.to_string());
    vec![
        line("heyday", &env!("CARGO_PKG_VERSION")),
        line("seed", &arguments.seed),
        line("rounds", &arguments.rounds),
        line("changes a turn", &arguments.changes),
        line("users", &arguments.users),
    ]
}

/// Says on stderr whose turn it is.
fn tell(round: usize, name: &str) {
    eprintln!("round {}: {name}", round + 1);
}

fn now_milliseconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}
