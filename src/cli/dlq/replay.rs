//! `heyday dlq replay`: dead letters back into the stream, mended on the way.

use std::str::FromStr;
use std::time::SystemTime;

use anyhow::Context as _;
use indicatif::ProgressBar;
use serde::Serialize;

use super::{Selection, open};
use crate::change::{Change, Fields, Limits};
use crate::cli::cluster::block_on;
use crate::cli::output::{self, Format};
use crate::cli::{Context, Exit};
use crate::position::EntryId;
use crate::redis::dead_letters::{DeadLetter, DeadLetters};
use crate::shard::Layout;

/// Letters that are kept and named, each in a line; of the others only their number is told.
const NAMED_MAX: u64 = 20;

/// What becomes of a replayed letter.
pub(super) const WITH_VERSION: &str = "applied where nothing newer is known";
pub(super) const WITHOUT_VERSION: &str = "applied as if it happened now, also over later changes of the same user";

/// Append dead letters to the stream again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday dlq replay 5 1700000000000-0 --set birthday=1990-05-01\n  heyday dlq replay --reason unknown_type --yes\n\n\
    A letter leaves the dead letters in the same step in which its change is appended, so that it is never \
    applied twice, even where this command is interrupted and run again. A letter that no worker would \
    apply as it is now is kept and named, and the exit code is 1: mend it with --set. A letter whose entry \
    was trimmed has no fields left to append. A producer's name and seq are left out, as the producer has gone \
    on since, unless --set names them.\n\n\
    A letter with a version is applied where nothing newer is known of that friendship or profile field. One without \
    is applied as if it happened now, also over what the same user's later changes say: `dlq show` tells which \
    it is, and --set version=N gives it one.\n\n\
    Ctrl-C ends it between two steps, and it says how many were replayed."
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
    /// Of the replayed ones, those with a version.
    with_version: u64,
    without_version: u64,
    /// Whether no letter is left that was to be replayed.
    finished: bool,
}

/// A letter as it goes into the stream.
struct Ready {
    letter: EntryId,
    fields: Fields,
    versioned: bool,
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
    let mut answer = Answer::default();
    let ended = block_on(async {
        let (letters, layout) = open(context).await?;
        let chosen = arguments.selection.choose(&letters, &layout).await?;
        let mender = Mender { set: arguments.set, unset: arguments.unset, limits, layout };
        let replay = async |page: Vec<DeadLetter>, bar: &ProgressBar| {
            let ready = bar.suspend(|| answer.sort_out(&page, &mender));
            answer.replay(&letters, &page[0], ready).await
        };
        chosen.each(replay).await
    })?;
    answer.finished = ended.is_finished();
    if answer.kept > NAMED_MAX {
        eprintln!("heyday: and {} more kept", answer.kept - NAMED_MAX);
    }
    if arguments.format.json {
        output::print_json(&answer)?;
    } else {
        output::print(&answer.text())?;
    }
    Ok(ended.tell(if answer.kept == 0 { Exit::Done } else { Exit::Found }))
}

impl Answer {
    fn text(&self) -> String {
        let Answer { replayed, kept, gone, with_version, without_version, .. } = self;
        let gone = if *gone > 0 { format!(", {gone} gone meanwhile") } else { String::new() };
        let mut text = format!("{replayed} replayed, {kept} kept{gone}\n");
        if *with_version > 0 {
            text.push_str(&format!("{with_version} with a version: {WITH_VERSION}\n"));
        }
        if *without_version > 0 {
            text.push_str(&format!("{without_version} without a version: {WITHOUT_VERSION}\n"));
        }
        text
    }

    /// The letters that can be replayed, mended; the others are named.
    fn sort_out(&mut self, page: &[DeadLetter], mender: &Mender) -> Vec<Ready> {
        let mut ready = Vec::with_capacity(page.len());
        for letter in page {
            match mender.mend(letter) {
                Ok((fields, change)) => {
                    ready.push(Ready { letter: letter.id, fields, versioned: change.version.is_some() });
                }
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

    async fn replay(&mut self, letters: &DeadLetters, first: &DeadLetter, ready: Vec<Ready>) -> anyhow::Result<()> {
        if ready.is_empty() {
            return Ok(());
        }
        let (count, shard, id) = (ready.len(), first.shard, ready[0].letter);
        let versioned: Vec<bool> = ready.iter().map(|ready| ready.versioned).collect();
        let ready: Vec<(EntryId, Fields)> = ready.into_iter().map(|ready| (ready.letter, ready.fields)).collect();
        let stopped = || {
            format!("shard {shard}: letter {id} and those behind it, {count} at the most, may or may not be replayed")
        };
        let replayed = letters.replay(shard, &ready).await.with_context(stopped)?;
        for (entry, versioned) in replayed.into_iter().zip(versioned) {
            match entry {
                Some(_) => {
                    self.replayed += 1;
                    *(if versioned { &mut self.with_version } else { &mut self.without_version }) += 1;
                }
                None => self.gone += 1,
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
    fn mend(&self, letter: &DeadLetter) -> Result<(Fields, Change), String> {
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
        Ok((fields, change))
    }
}
