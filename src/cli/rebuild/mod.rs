//! `heyday rebuild`: the views as a snapshot of all users has them, with what has changed since.

mod diff;
mod gone;
mod load;
mod mark;
mod parts;
mod position;
mod record;
mod source;
mod tell;
mod way;

use std::path::PathBuf;

use super::cluster::block_on;
use super::output::Format;
use super::{Context, Exit};

/// Load a snapshot of all users, while changes go on
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday rebuild --begin   # then take the snapshot\n  \
    heyday rebuild --file users.ndjson --dry-run\n  heyday rebuild --file users.ndjson\n\n\
    A file has a user in each line: {\"user\":\"42\",\"birthday\":\"1990-05-01\",\"profile\":{\"city\":\"Kyiv\"},\
    \"friends\":{\"77\":\"1990-12-01\",\"78\":\"\",\"79\":{\"birthday\":\"--05-01\",\"version\":7}}}. What is written goes \
    through the streams and the workers like any change. What has changed since --begin stays as it is; what has changed \
    before is as the file has it. --begin together with --file takes this very moment, for a snapshot that nothing has \
    changed since.\n\n\
    Run again, the same command goes on where it was. It ends the rebuild when all is applied. docs/rebuild.md says what \
    wins in which case.")]
pub struct Arguments {
    /// Remember from now on when what changes was changed, and say which moment that is
    #[arg(long, conflicts_with_all = ["abort", "dry_run"])]
    begin: bool,
    /// The snapshot, taken after --begin
    #[arg(long, value_name = "FILE", required_unless_present_any = ["begin", "abort"])]
    file: Option<PathBuf>,
    /// End a rebuild that is not to be finished; what was not applied yet is left out
    #[arg(long, conflicts_with = "file")]
    abort: bool,
    /// Remove what the snapshot does not have: friends, profile fields and users
    #[arg(long, requires = "file")]
    authoritative: bool,
    /// Say what would change, and change nothing
    #[arg(long, requires = "file")]
    dry_run: bool,
    /// Pass over lines that are no users, instead of stopping at the first
    #[arg(long, requires = "file")]
    keep_going: bool,
    /// Do not ask before anything is removed
    #[arg(long, requires = "authoritative")]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let json = arguments.format.json;
    let Some(file) = arguments.file else {
        return block_on(async {
            let way = way::Way::open(context).await?;
            if arguments.abort { mark::abort(&way, json).await } else { mark::begin(&way, json).await }
        });
    };
    let Arguments { begin, authoritative, keep_going, .. } = arguments;
    let options = load::Options { file, begin, authoritative, keep_going, json };
    if arguments.dry_run {
        return block_on(diff::run(options, context));
    }
    if options.authoritative && !mark::consent(arguments.yes)? {
        return Ok(Exit::Done);
    }
    block_on(load::run(options, context))
}
