//! `heyday maintenance off`.

use super::state::Maintenance;
use super::{Desk, holder, holder_default};
use crate::cli::cluster::block_on;
use crate::cli::output::Format;
use crate::cli::{Context, Exit};
use crate::redis::maintenance::GivenUp;

/// End maintenance: workers go on at once
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday maintenance off\n\n\
    Exits with 1 where it is somebody else's and --force is not given. Where it is off already, nothing is done and \
    the exit code is 0.")]
pub(super) struct Arguments {
    /// End it whoever began it
    #[arg(long)]
    force: bool,
    /// Who began it; the user at this host unless given
    #[arg(long, value_name = "NAME", value_parser = holder)]
    holder: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let holder = arguments.holder.unwrap_or_else(holder_default);
    block_on(async {
        let desk = Desk::open(context).await?;
        let given_up = desk.locks.give_up(&holder, arguments.force).await?;
        desk.state().await?.show(arguments.format)?;
        match given_up {
            GivenUp::None | GivenUp::Done(_) => Ok(Exit::Done),
            GivenUp::Held(lock) => {
                let lock = Maintenance::new(Some(&lock)).sentence();
                eprintln!("heyday: {lock}; --force ends another's");
                Ok(Exit::Found)
            }
        }
    })
}
