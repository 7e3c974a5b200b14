//! The moment of a rebuild: from then on workers remember when what they change was changed.

use std::io::IsTerminal;

use jiff::Timestamp;
use serde::Serialize;

use super::way::Way;
use crate::cli::dlq::agreed;
use crate::cli::exit::Usage;
use crate::cli::{Exit, output};
use crate::redis::rebuild::Mark;
use crate::shard::Shard;

#[derive(Serialize)]
struct Answer {
    /// Unix milliseconds; null where no rebuild is on.
    moment: Option<u64>,
}

/// `--begin`: the moment that is set already, where a rebuild is on.
pub(super) async fn begin(way: &Way, json: bool) -> anyhow::Result<Exit> {
    let (at, begun) = match Mark::of(&way.shards.look().await?) {
        Mark::On(at) => (at, false),
        // What a torn mark stood for was lost with it: nobody can have taken a snapshot since a new one.
        Mark::None | Mark::Torn(_) => (set(way).await?, true),
    };
    if json {
        output::print_json(&Answer { moment: Some(at) })?;
    } else if begun {
        output::print(&format!("rebuild begun at {}; take the snapshot now\n", shown(at)))?;
    } else {
        output::print(&format!("a rebuild is on since {}\n", shown(at)))?;
    }
    Ok(Exit::Done)
}

pub(super) async fn abort(way: &Way, json: bool) -> anyhow::Result<Exit> {
    let before = Mark::of(&way.shards.look().await?);
    way.shards.unmark(None).await?;
    if json {
        output::print_json(&Answer { moment: None })?;
    } else if before == Mark::None {
        output::print("no rebuild was on\n")?;
    } else {
        output::print("rebuild ended; what it has not applied yet is left out\n")?;
    }
    Ok(Exit::Done)
}

/// The moment that is on.
pub(super) async fn on(way: &Way) -> anyhow::Result<Option<u64>> {
    match Mark::of(&way.shards.look().await?) {
        Mark::On(at) => Ok(Some(at)),
        Mark::None => Ok(None),
        Mark::Torn(shards) => Err(torn(&shards).into()),
    }
}

/// Why no file is loaded without a moment.
pub(super) fn none() -> Usage {
    let why = "no rebuild is on, so nobody knows what has changed since the snapshot, and it would be overwritten: take \
        the snapshot after heyday rebuild --begin; or give --begin together with --file to take this very moment";
    Usage(why.to_owned())
}

/// The same for a mark that is not alike everywhere.
pub(super) fn torn(shards: &[Shard]) -> Usage {
    lost(&shards.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// Why a rebuild cannot go on whose moment is not that of these shards any more.
pub(super) fn lost(shards: &[String]) -> Usage {
    let (named, more) = (&shards[..shards.len().min(5)], if shards.len() > 5 { ", …" } else { "" });
    Usage(format!(
        "the moment of the rebuild was lost on shards {}{more}, so nobody knows what has changed there since the \
         snapshot: run heyday rebuild --begin, take a new snapshot and load that",
        named.join(", ")
    ))
}

/// Before any shard has heard of it, so that no change is taken for older than it is.
pub(super) async fn set(way: &Way) -> anyhow::Result<u64> {
    let at = way.shards.now().await?;
    way.shards.mark(at).await?;
    Ok(at)
}

pub(super) fn shown(at: u64) -> String {
    let moment = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    moment.map_or_else(|| at.to_string(), |moment| format!("{moment:.3}"))
}

/// Asks whoever sits at a terminal; a program says `--yes`.
pub(super) fn consent(yes: bool) -> Result<bool, Usage> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(Usage("no terminal to ask on: give --yes to remove without being asked".to_owned()));
    }
    let question = "remove all friends, profile fields and users that the snapshot does not have?";
    Ok(agreed(question, &mut std::io::stdin().lock(), &mut std::io::stderr()))
}
