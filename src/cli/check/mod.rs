//! `heyday check`: whether everything stored is as it must be, and the repair of what is derived.

mod answer;

use std::io::IsTerminal;

use super::cluster::{Cluster, block_on};
use super::exit::Usage;
use super::output::{self, Format};
use super::{Context, Exit, dlq, progress, status};
use crate::redis::inspect::{Check, Findings, Options};
use answer::Answer;

/// Prove that everything stored is as it must be; repair what is derived
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday check\n  heyday check --json | jq .violations_total\n  heyday check --repair --yes\n\n\
    Reads all keys in small steps, with pauses that leave each node three quarters of its time, and is safe \
    while everybody works: what changes meanwhile is read again, in one transaction. Each violation is one \
    line, and the exit code is 1. --repair makes day keys and the index of users anew where they are not what the \
    views make of them; views, log and state are never written. Give it the calendar settings of the workers."
)]
pub struct Arguments {
    /// Only these shards
    #[arg(long, value_name = "NUMBER")]
    shard: Vec<u32>,
    /// Make anew what is derived from the views where it is wrong
    #[arg(long)]
    repair: bool,
    /// Do not ask before repairing
    #[arg(long, requires = "repair")]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    if arguments.repair && !consent(arguments.yes)? {
        return Ok(Exit::Done);
    }
    block_on(async {
        let cluster = Cluster::open(context).await?;
        let shards = status::shards(&arguments.shard, &cluster.layout)?;
        let pipes = cluster.pipes();
        let options = Options { repair: arguments.repair, ..Options::default() };
        let rules = context.settings.config.rules();
        let bar = progress::of_items(0);
        let check = Check::new((cluster.topology, pipes), (cluster.keys, cluster.layout), rules, options);
        let mut check = check.telling(|done| bar.inc(done));
        let done = async {
            bar.set_length(check.extent(&shards).await?);
            check.run(&shards).await
        };
        let done = done.await;
        bar.finish_and_clear();
        let findings = std::mem::take(&mut check.findings);
        let answer = Answer::new(&findings, done.is_ok());
        if arguments.format.json {
            output::print_json(&answer)?;
        } else {
            answer.print()?;
            tell_what_to_do(&findings, arguments.repair);
        }
        done?;
        Ok(if findings.violations.count() == 0 { Exit::Done } else { Exit::Found })
    })
}

/// Asks whoever sits at a terminal; a program says `--yes`.
fn consent(yes: bool) -> Result<bool, Usage> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Usage("no terminal to ask on: give --yes to repair without being asked".to_owned()));
    }
    let question = "make day keys and the index of users anew where they are wrong?";
    Ok(dlq::agreed(question, &mut std::io::stdin().lock(), &mut std::io::stderr()))
}

/// One line for each kind of violation.
fn tell_what_to_do(findings: &Findings, repair: bool) {
    let mut kinds: Vec<_> = findings.violations.list.iter().map(|violation| violation.kind).collect();
    kinds.dedup();
    for kind in kinds {
        let row = kind.row();
        eprintln!("heyday: {}: {}; {}", row.name, row.meaning, row.hint);
    }
    if repair && findings.violations.list.iter().any(|violation| violation.repair.is_some()) {
        eprintln!("heyday: some repairs did not come about since commits kept coming in between: run it again");
    }
}
