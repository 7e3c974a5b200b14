//! `heyday dlq show`.

use super::list::Row;
use super::replay::{WITH_VERSION, WITHOUT_VERSION};
use super::{field, no_such, open, shown};
use crate::cli::cluster::block_on;
use crate::cli::output::{self, Format};
use crate::cli::{Context, Exit};
use crate::position::EntryId;
use crate::redis::dead_letters::DeadLetter;

/// Show everything about one dead letter
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday dlq show 5 1700000000000-0")]
pub(super) struct Arguments {
    /// The shard, as `heyday dlq list` shows it
    shard: u32,
    /// Its id, as `heyday dlq list` shows it
    letter: EntryId,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let letter = block_on(async {
        let (letters, layout) = open(context).await?;
        let shard = layout.shard(arguments.shard)?;
        let letter = letters.get(shard, arguments.letter).await?;
        Ok(letter.ok_or_else(|| no_such(shard, arguments.letter))?)
    })?;
    if arguments.format.json {
        output::print_json(&Row::new(&letter))?;
    } else {
        print(&letter)?;
    }
    Ok(Exit::Done)
}

/// What a replay would do.
fn replayed(letter: &DeadLetter) -> String {
    match field(letter, "version") {
        Some(version) => format!("with version {}: {WITH_VERSION}", shown(version)),
        None => format!("without a version: {WITHOUT_VERSION}"),
    }
}

fn print(letter: &DeadLetter) -> std::io::Result<()> {
    let mut table = output::plain();
    table.add_row(["shard", &letter.shard.to_string()]);
    table.add_row(["letter", &letter.id.to_string()]);
    table.add_row(["since", &output::moment(letter.id.milliseconds)]);
    table.add_row(["entry", &letter.entry]);
    table.add_row(["kind", &letter.kind]);
    table.add_row(["reason", &letter.reason]);
    if !letter.fields.is_empty() {
        table.add_row(["replayed", &replayed(letter)]);
    }
    output::print_table(&table)?;
    output::print("\n")?;
    if letter.fields.is_empty() {
        return output::print("no fields: the entry was trimmed before it was read\n");
    }
    let mut table = output::table(&["field", "value"]);
    for (name, value) in &letter.fields {
        table.add_row([shown(name), shown(value)]);
    }
    output::print_table(&table)
}
