//! `heyday dlq drop`.

use serde::Serialize;

use super::{Selection, open};
use crate::cli::cluster::block_on;
use crate::cli::output::{self, Format};
use crate::cli::{Context, Exit, progress};
use crate::position::EntryId;

/// Remove dead letters for good
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday dlq drop 5 1700000000000-0\n  heyday dlq drop --reason unknown_type --yes")]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    dropped: u64,
}

pub(super) fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    if !arguments.selection.confirm("drop")? {
        return Ok(Exit::Done);
    }
    let dropped = block_on(async {
        let (letters, layout) = open(context).await?;
        let mut chosen = arguments.selection.choose(&letters, &layout).await?;
        let bar = progress::of_items(chosen.count_max);
        let mut dropped = 0;
        while let Some(page) = chosen.next().await? {
            let ids: Vec<EntryId> = page.iter().map(|letter| letter.id).collect();
            dropped += letters.remove(page[0].shard, &ids).await?;
            bar.inc(ids.len() as u64);
        }
        bar.finish_and_clear();
        Ok(dropped)
    })?;
    if arguments.format.json {
        output::print_json(&Answer { dropped })?;
    } else {
        output::print(&format!("{dropped} dropped\n"))?;
    }
    Ok(Exit::Done)
}
