//! `heyday init`: creates the layout.

use serde::Serialize;

use super::cluster::{block_on, reach};
use super::output::{self, Format};
use super::{Context, Exit};
use crate::redis::layout::create_layout;
use crate::shard::{Layout, SHARDS_DEFAULT};

/// Create the layout: how many shards there are; safe to run again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday --redis 127.0.0.1:17100 init --shards 64\n\n\
    The number of shards never changes once the layout is created; another number is refused.")]
pub struct Arguments {
    /// A power of two from 1 to 16384
    #[arg(long, value_name = "COUNT", default_value_t = SHARDS_DEFAULT, value_parser = shards)]
    shards: u32,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    key: String,
    shards: u32,
    created: bool,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let answer = block_on(async {
        let (topology, keys) = reach(context).await?;
        let (layout, created) = create_layout(&topology, &keys, arguments.shards).await?;
        Ok(Answer { key: keys.layout().to_string(), shards: layout.count(), created })
    })?;
    if arguments.format.json {
        output::print_json(&answer)?;
    } else {
        let what = if answer.created { "created" } else { "already there" };
        output::print(&format!("{}: {}, {what}\n", answer.key, output::counted(answer.shards.into(), "shard")))?;
    }
    Ok(Exit::Done)
}

/// A number of shards from the command line.
pub(super) fn shards(text: &str) -> Result<u32, String> {
    let expected = || "expected a power of two from 1 to 16384".to_owned();
    let count = text.parse().map_err(|_| expected())?;
    Layout::new(count).map(|layout| layout.count()).map_err(|_| expected())
}
