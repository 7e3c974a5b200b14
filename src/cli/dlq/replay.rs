//! `heyday dlq replay`: dead letters back into the stream, mended on the way.

use std::str::FromStr;
use std::time::SystemTime;

use serde::Serialize;

use super::{Selection, open};
use crate::change::{Change, Fields, Limits};
use crate::cli::cluster::block_on;
use crate::cli::output::{self, Format};
use crate::cli::{Context, Exit, progress};
use crate::position::EntryId;
use crate::redis;
use crate::redis::dead_letters::{DeadLetter, DeadLetters, Replayed};
use crate::shard::Layout;

/// Letters that are kept and named, each in a line; of the others only their number is told.
const NAMED_MAX: u64 = 20;

/// Append dead letters to the stream again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday dlq replay 5 1700000000000-0 --set birthday=1990-05-01\n  heyday dlq replay --reason unknown_type --yes\n\n\
    A letter leaves the dead letters in the same step in which its change is appended, so that it is never \
    applied twice, even where this command is interrupted and run again. A letter that no worker would \
    apply as it is now is kept and named, and the exit code is 1: mend it with --set. A letter whose entry \
    was trimmed has no fields left to append. A producer's name and seq are left out, as the producer has gone \
    on since, unless --set names them."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    /// Give a field another value first; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<Set>,
    /// Leave a field out; may be repeated
    #[arg(long, value_name = "FIELD")]
    unset: Vec<String>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone)]
struct Set {
    name: String,
    value: String,
}

#[derive(Serialize, Default)]
struct Answer {
    replayed: u64,
    /// Not appended since no worker would apply them.
    kept: u64,
    /// Replayed or dropped by somebody else meanwhile.
    gone: u64,
}

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Set, String> {
        let (name, value) = text.split_once('=').ok_or("expected FIELD=VALUE")?;
        Ok(Set { name: name.to_owned(), value: value.to_owned() })
    }
}

pub(super) fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    if !arguments.selection.confirm("replay")? {
        return Ok(Exit::Done);
    }
    let limits = context.settings.config.limits();
    let answer = block_on(async {
        let (letters, layout) = open(context).await?;
        let mut chosen = arguments.selection.choose(&letters, &layout).await?;
        let mender = Mender { set: arguments.set, unset: arguments.unset, limits, layout };
        let bar = progress::of_items(chosen.count_max);
        let mut answer = Answer::default();
        while let Some(page) = chosen.next().await? {
            let ready = bar.suspend(|| answer.sort_out(&page, &mender));
            answer.replay(&letters, &page[0], ready).await?;
            bar.inc(page.len() as u64);
        }
        bar.finish_and_clear();
        Ok(answer)
    })?;
    if answer.kept > NAMED_MAX {
        eprintln!("heyday: and {} more kept", answer.kept - NAMED_MAX);
    }
    if arguments.format.json {
        output::print_json(&answer)?;
    } else {
        let gone = if answer.gone > 0 { format!(", {} gone meanwhile", answer.gone) } else { String::new() };
        output::print(&format!("{} replayed, {} kept{gone}\n", answer.replayed, answer.kept))?;
    }
    Ok(if answer.kept == 0 { Exit::Done } else { Exit::Found })
}

impl Answer {
    /// The letters that can be replayed, mended; the others are named.
    fn sort_out(&mut self, page: &[DeadLetter], mender: &Mender) -> Vec<(EntryId, Fields)> {
        let mut ready = Vec::with_capacity(page.len());
        for letter in page {
            match mender.mend(letter) {
                Ok(fields) => ready.push((letter.id, fields)),
                Err(reason) => {
                    self.kept += 1;
                    if self.kept <= NAMED_MAX {
                        eprintln!("heyday: shard {} letter {}: kept: {reason}", letter.shard, letter.id);
                    }
                }
            }
        }
        ready
    }

    async fn replay(
        &mut self,
        letters: &DeadLetters,
        first: &DeadLetter,
        ready: Vec<(EntryId, Fields)>,
    ) -> anyhow::Result<()> {
        if ready.is_empty() {
            return Ok(());
        }
        let outcomes = letters.replay(first.shard, &ready).await?;
        for (outcome, (id, _)) in outcomes.into_iter().zip(&ready) {
            match outcome {
                Replayed::Appended(_) => self.replayed += 1,
                Replayed::Gone => self.gone += 1,
                Replayed::Refused(error) => {
                    let done = format!("shard {} letter {id}, after {} were replayed", first.shard, self.replayed);
                    return Err(anyhow::Error::from(redis::Error::Server(error)).context(done));
                }
            }
        }
        Ok(())
    }
}

/// What is changed on the way, and what has to hold afterwards.
struct Mender {
    set: Vec<Set>,
    unset: Vec<String>,
    limits: Limits,
    layout: Layout,
}

impl Mender {
    fn mend(&self, letter: &DeadLetter) -> Result<Fields, String> {
        if letter.fields.is_empty() {
            return Err("its entry was trimmed, there is nothing to append".to_owned());
        }
        let mut fields = letter.fields.clone();
        fields.retain(|(name, _)| !self.unset.iter().any(|unset| unset.as_bytes() == name));
        // Its producer has gone on since: under the old number every worker would take it for a repetition.
        const NUMBER: [&str; 2] = ["producer", "seq"];
        if !self.set.iter().any(|set| NUMBER.contains(&set.name.as_str())) {
            fields.retain(|(name, _)| !NUMBER.iter().any(|number| number.as_bytes() == name));
        }
        for Set { name, value } in &self.set {
            let place = fields.iter().position(|(field, _)| name.as_bytes() == field).unwrap_or(fields.len());
            fields.retain(|(field, _)| name.as_bytes() != field);
            fields.insert(place.min(fields.len()), (name.clone().into(), value.clone().into()));
        }
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
        let change = Change::decode(&fields, &self.limits, now).map_err(|rejection| rejection.to_string())?;
        let shard = self.layout.shard_of(&change.user);
        if shard != letter.shard {
            return Err(format!("user {} belongs to shard {shard}: write it anew and drop the letter", change.user));
        }
        Ok(fields)
    }
}
