//! `heyday dlq drop`.

use indicatif::ProgressBar;
use serde::Serialize;

use super::{Selection, open};
use crate::cli::cluster::block_on;
use crate::cli::output::{self, Format};
use crate::cli::{Context, Exit};
use crate::position::EntryId;
use crate::redis::dead_letters::DeadLetter;

/// Remove dead letters for good
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday dlq drop 5 1700000000000-0\n  \
    heyday dlq drop --reason unknown_type --older-than 30d --yes\n\n\
    Ctrl-C ends it between two steps, and it says how many were dropped.")]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    dropped: u64,
    /// Whether no letter is left that was to be dropped.
    finished: bool,
}

pub(super) fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    if !arguments.selection.confirm("drop")? {
        return Ok(Exit::Done);
    }
    let mut dropped = 0;
    let ended = block_on(async {
        let (letters, layout) = open(context).await?;
        let chosen = arguments.selection.choose(&letters, &layout).await?;
        let drop = async |page: Vec<DeadLetter>, _: &ProgressBar| {
            let ids: Vec<EntryId> = page.iter().map(|letter| letter.id).collect();
            dropped += letters.remove(page[0].shard, &ids).await?;
            Ok(())
        };
        chosen.each(drop).await
    })?;
    if arguments.format.json {
        output::print_json(&Answer { dropped, finished: ended.is_finished() })?;
    } else {
        output::print(&format!("{dropped} dropped\n"))?;
    }
    Ok(ended.tell(Exit::Done))
}
