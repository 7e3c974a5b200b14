//! `heyday maintenance on`.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::state::Maintenance;
use super::{Desk, holder, holder_default};
use crate::cli::cluster::block_on;
use crate::cli::output::Format;
use crate::cli::{Context, Exit, flags};
use crate::redis::maintenance::Taken;

const FOR_MIN: Duration = Duration::from_secs(1);
const FOR_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);
const REASON_BYTES_MAX: usize = 256;
/// Between two looks at who has paused.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Begin maintenance, or change its reason and time; returns once every worker has paused
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday maintenance on --reason \"moving to new nodes\" --for 30m\n\n\
    Workers finish the batch they have in hand, then read and commit nothing; they keep their shards, and writers \
    go on. It ends with `heyday maintenance off`, or by itself after --for: then every worker warns that nobody ended \
    it. Exits with 1 where somebody else has begun it already, and where a worker has not paused in time: then it \
    is on all the same, and each worker pauses as soon as it can.")]
pub(super) struct Arguments {
    /// Why, for whoever wonders
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// When it ends by itself
    #[arg(long = "for", value_name = "DURATION", default_value = "10m", value_parser = span)]
    span: Duration,
    /// Who does it; the user at this host unless given
    #[arg(long, value_name = "NAME", value_parser = holder)]
    holder: Option<String>,
    /// How long to wait for the workers; 0s looks once
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = wait)]
    wait: Duration,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let holder = arguments.holder.clone().unwrap_or_else(holder_default);
    block_on(async {
        let desk = Desk::open(context).await?;
        match desk.locks.take(&holder, &arguments.reason, arguments.span).await? {
            Taken::Mine(_) => wait_for_workers(&desk, &holder, &arguments).await,
            Taken::Held(lock) => {
                if arguments.format.json {
                    desk.state().await?.show(arguments.format)?;
                }
                let lock = Maintenance::new(Some(&lock)).sentence();
                eprintln!("heyday: {lock}; --holder {holder:?} cannot change it");
                Ok(Exit::Found)
            }
        }
    })
}

async fn wait_for_workers(desk: &Desk, holder: &str, arguments: &Arguments) -> anyhow::Result<Exit> {
    let end = Instant::now() + arguments.wait;
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let state = match desk.state().await {
            Ok(state) => state,
            // The lock is on by now; a node that is away for a moment may come back in time.
            Err(_) if Instant::now() < end => continue,
            Err(error) => return Err(error.context("maintenance is on, whether the workers have paused is not known")),
        };
        if !state.is_held_by(holder) {
            state.show(arguments.format)?;
            eprintln!("heyday: it was ended before every worker had paused");
            return Ok(Exit::Found);
        }
        let unpaused = state.unpaused();
        if !unpaused.is_empty() && Instant::now() < end {
            continue;
        }
        state.show(arguments.format)?;
        if unpaused.is_empty() {
            return Ok(Exit::Done);
        }
        let wait = humantime::format_duration(arguments.wait);
        eprintln!("heyday: not paused within {wait}, and not stopped from committing: {}", unpaused.join(", "));
        return Ok(Exit::Found);
    }
}

fn reason(text: &str) -> Result<String, String> {
    let good = (1..=REASON_BYTES_MAX).contains(&text.trim().len()) && !text.contains(char::is_control);
    let expected = format!("expected 1 to {REASON_BYTES_MAX} bytes in one line");
    good.then(|| text.trim().to_owned()).ok_or(expected)
}

fn span(text: &str) -> Result<Duration, String> {
    let span = flags::duration(text)?;
    let expected = || "expected 1s to 24h".to_owned();
    (FOR_MIN..=FOR_MAX).contains(&span).then_some(span).ok_or_else(expected)
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = flags::duration(text)?;
    (wait <= WAIT_MAX).then_some(wait).ok_or_else(|| "expected 0s to 1h".to_owned())
}
