//! `heyday write`: one change from the command line, or many from a file.

mod file;
mod ignored;
mod lines;
mod record;
mod tally;

use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use super::cluster::{self, block_on};
use super::output::{self, Format};
use super::{Context, Exit};
use crate::client::writer;
pub(super) use lines::{LINE_BYTES_MAX, Line, Lines};

/// Append one change, or those of a file
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday write add user=42 friend=77 birthday=1990-05-01\n  \
    heyday write profile user=42 profile.city=Kyiv\n  \
    heyday write activity user=42 category=music weight=3\n  \
    echo '{\"type\":\"remove\",\"user\":42,\"friend\":77}' | heyday write --file -\n\n\
    A file has a flat JSON object in each line; null stands for a field that is not there. Changes of one \
    user are appended in the order of their lines. A line that is no change is named on stderr, and the \
    exit code is 1; nothing of it is appended. Where Redis refuses or falls silent, the command stops, \
    names the lines that were not or may not have been appended, and exits with 69.\n\n\
    With --producer each change carries that name and its line's number, and workers drop what they have \
    applied of that producer: so the same command may be run again after a failure, and finishes what is \
    missing. Lines may be added at the end of the file, but not changed, moved or taken out.")]
pub struct Arguments {
    /// add, remove, update, birthday, profile, activity or forget
    #[arg(value_name = "TYPE", required_unless_present = "file")]
    kind: Option<String>,
    /// The fields of the change, such as user=42
    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<Field>,
    /// Read changes from this file; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "fields"])]
    file: Option<PathBuf>,
    /// What to do about a line that is no change
    #[arg(long, value_name = "ACTION", default_value = "stop")]
    on_error: OnError,
    /// Number the lines under this name, so that the file may be written again
    #[arg(long, value_name = "NAME", requires = "file")]
    producer: Option<String>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnError {
    /// Append nothing of the lines behind it
    Stop,
    /// Go on with the next line
    Skip,
}

#[derive(Debug, Clone)]
struct Field(String, String);

#[derive(Serialize)]
struct Answer {
    shard: u16,
    id: String,
}

impl FromStr for Field {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Field, &'static str> {
        let (name, value) = text.split_once('=').ok_or("expected FIELD=VALUE")?;
        Ok(Field(name.to_owned(), value.to_owned()))
    }
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    if let Some(path) = &arguments.file {
        let options = file::Options { on_error: arguments.on_error, producer: arguments.producer.clone() };
        let (tally, exit) = block_on(file::write(path, options, context))?;
        if arguments.format.json {
            output::print_json(&tally)?;
        }
        return Ok(exit);
    }
    let fields = arguments.fields.into_iter().map(|Field(name, value)| (name, value));
    let fields: Vec<_> = arguments.kind.map(|kind| ("type".to_owned(), kind)).into_iter().chain(fields).collect();
    let options = context.settings.config.writer();
    // A field that nobody knows was most likely misspelt by whoever typed it.
    let options = writer::Options { limits: crate::change::Limits { strict: true, ..options.limits }, ..options };
    let appended = block_on(async {
        let writer = cluster::hub(context).await?.writer(options);
        Ok(writer.append_fields(&fields).await?)
    })?;
    if arguments.format.json {
        output::print_json(&Answer { shard: appended.shard.0, id: appended.id.to_string() })?;
    } else {
        output::print(&format!("shard {} entry {}\n", appended.shard, appended.id))?;
    }
    Ok(Exit::Done)
}
