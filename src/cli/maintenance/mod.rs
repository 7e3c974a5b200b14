//! `heyday maintenance`: keeps all workers from committing for a while, for a reason that everybody can read.

mod off;
mod on;
mod state;

use std::time::Duration;

use super::cluster::{Cluster, block_on};
use super::output::Format;
use super::{Context, Exit};
use crate::redis::Inspector;
use crate::redis::maintenance::MaintenanceLocks;

pub(super) use state::Maintenance;
use state::State;

/// The longest wait for who lives and who has paused.
const DEADLINE: Duration = Duration::from_secs(3);
/// The longest name of a holder.
const HOLDER_BYTES_MAX: usize = 128;

/// Keep all workers from committing for a while; they keep their shards
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    On(on::Arguments),
    Off(off::Arguments),
    Status(Status),
}

/// Show whether maintenance is on, whose it is and why, and who has paused
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday maintenance status --json | jq .left_ms")]
struct Status {
    #[command(flatten)]
    format: Format,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    match arguments.action {
        Action::On(arguments) => on::run(arguments, context),
        Action::Off(arguments) => off::run(arguments, context),
        Action::Status(arguments) => block_on(async {
            let desk = Desk::open(context).await?;
            desk.state().await?.show(arguments.format)?;
            Ok(Exit::Done)
        }),
    }
}

/// What all three ask.
struct Desk {
    locks: MaintenanceLocks,
    inspector: Inspector,
    /// A worker that is silent for longer is not waited for.
    silent_max: Duration,
}

impl Desk {
    async fn open(context: &Context) -> anyhow::Result<Desk> {
        let cluster = Cluster::open(context).await?;
        let pipes = cluster.pipes();
        let locks = MaintenanceLocks::new(cluster.topology.clone(), pipes.clone(), &cluster.keys);
        let inspector = Inspector::new(cluster.topology, pipes, cluster.keys, cluster.layout);
        Ok(Desk { locks, inspector, silent_max: context.settings.config.worker.lease_ttl })
    }

    /// The lock, the living, and which of them have paused.
    async fn state(&self) -> anyhow::Result<State> {
        let status = self.inspector.look(&[], DEADLINE).await;
        let (Some(workers), Some(found)) = (status.workers, status.maintenance) else {
            anyhow::bail!(Silent(status.troubles.join("; ")));
        };
        let living = workers.into_iter().filter(|worker| worker.heartbeat_age <= self.silent_max);
        Ok(State::new(&found, living.map(|worker| worker.worker)))
    }
}

/// Who lives or who has paused is not known.
#[derive(Debug, thiserror::Error)]
#[error("how maintenance stands is not known: {0}")]
pub struct Silent(String);

/// Who asks, unless told otherwise: the user at the host.
fn holder_default() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).ok().flatten().map(|user| user.name);
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    format!("{}@{}", user.as_deref().unwrap_or("unknown"), host.as_deref().unwrap_or("unknown"))
}

/// A holder's name from the command line.
fn holder(text: &str) -> Result<String, String> {
    let good = (1..=HOLDER_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control);
    let expected = format!("expected 1 to {HOLDER_BYTES_MAX} bytes without control characters");
    good.then(|| text.to_owned()).ok_or(expected)
}
