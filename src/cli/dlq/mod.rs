//! `heyday dlq`: the changes that could not be applied, and what to do with them.

mod list;
mod remove;
mod replay;
mod show;
mod walk;

use std::io::{BufRead, IsTerminal, Write};

use indicatif::ProgressBar;

use super::cluster::Cluster;
use super::exit::{self, Absent, Usage};
use super::signals::Signals;
use super::{Context, Exit, progress};
use crate::position::EntryId;
use crate::redis::dead_letters::{DeadLetter, DeadLetters};
use crate::shard::{Layout, Shard};
use walk::{Filter, Walk};

/// Look through the changes that could not be applied; replay or drop them
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    List(list::Arguments),
    Show(show::Arguments),
    Replay(replay::Arguments),
    Drop(remove::Arguments),
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    match arguments.action {
        Action::List(arguments) => list::run(arguments, context),
        Action::Show(arguments) => show::run(arguments, context),
        Action::Replay(arguments) => replay::run(arguments, context),
        Action::Drop(arguments) => remove::run(arguments, context),
    }
}

/// The letters that are to be replayed or dropped.
#[derive(Debug, clap::Args)]
struct Selection {
    /// The shard of the letters named by their ids
    #[arg(value_name = "SHARD", requires = "ids")]
    of_shard: Option<u32>,
    /// Letters as `heyday dlq list` shows them
    #[arg(value_name = "LETTER", conflicts_with_all = ["shard", "user", "reason", "older_than", "newer_than", "all"])]
    ids: Vec<EntryId>,
    #[command(flatten)]
    filter: Filter,
    /// Every dead letter there is
    #[arg(long)]
    all: bool,
    /// At most so many
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Do not ask first
    #[arg(long)]
    yes: bool,
}

/// Letters to be worked through, in pages.
struct Chosen {
    source: Source,
    limit: u64,
}

enum Source {
    Named(Vec<DeadLetter>),
    Walked(Walk),
}

impl Selection {
    /// Refuses to guess, and asks whoever sits at a terminal; a program says `--yes`. False where the answer is no.
    fn confirm(&self, what: &str) -> Result<bool, Usage> {
        if self.ids.is_empty() && !self.all && self.filter.is_empty() {
            return Err(Usage(
                "which letters? give SHARD and LETTER, or --shard, --user, --reason, --older-than, --newer-than or --all"
                    .to_owned(),
            ));
        }
        if self.yes {
            return Ok(true);
        }
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Usage(format!("no terminal to ask on: give --yes to {what} without being asked")));
        }
        let chosen = match self.ids.len() {
            0 if self.all => "every dead letter".to_owned(),
            0 => "the letters chosen".to_owned(),
            count => format!("{count} dead letters"),
        };
        Ok(agreed(&format!("{what} {chosen}?"), &mut std::io::stdin().lock(), &mut std::io::stderr()))
    }

    async fn choose(self, letters: &DeadLetters, layout: &Layout) -> anyhow::Result<Chosen> {
        let limit = self.limit.unwrap_or(u64::MAX);
        if let Some(shard) = self.of_shard {
            let named = named(letters, layout.shard(shard)?, &self.ids).await?;
            return Ok(Chosen { source: Source::Named(named), limit });
        }
        let walk = Walk::start(letters.clone(), layout, self.filter).await?;
        Ok(Chosen { source: Source::Walked(walk), limit })
    }
}

impl Chosen {
    /// Hands every page to `work`, until the last, a signal or a failure. A page that was begun is finished, so that what
    /// is counted is what was done.
    async fn each(
        mut self,
        mut work: impl AsyncFnMut(Vec<DeadLetter>, &ProgressBar) -> anyhow::Result<()>,
    ) -> anyhow::Result<Ended> {
        let mut signals = Signals::new()?;
        let bar = progress::of_items(self.progress().1);
        let ended = loop {
            let page = tokio::select! {
                biased;
                () = signals.next() => break Ended::Told,
                page = self.next() => page,
            };
            let worked = match page {
                Ok(Some(page)) => work(page, &bar).await,
                Ok(None) => break Ended::Finished,
                Err(error) => Err(error),
            };
            if let Err(error) = worked {
                break Ended::Failed(error);
            }
            progress::show(&bar, self.progress());
        };
        bar.finish_and_clear();
        Ok(ended)
    }

    fn progress(&self) -> (u64, u64) {
        match &self.source {
            Source::Named(letters) => (0, letters.len() as u64),
            Source::Walked(walk) => walk.progress(),
        }
    }

    /// The next letters, all of one shard; none at the end.
    async fn next(&mut self) -> anyhow::Result<Option<Vec<DeadLetter>>> {
        if self.limit == 0 {
            return Ok(None);
        }
        let page = match &mut self.source {
            Source::Named(letters) => Some(std::mem::take(letters)).filter(|letters| !letters.is_empty()),
            Source::Walked(walk) => walk.next().await?,
        };
        let Some(mut page) = page else { return Ok(None) };
        page.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
        self.limit -= page.len() as u64;
        Ok(Some(page))
    }
}

/// How the way through the letters ended.
enum Ended {
    Finished,
    /// By a signal.
    Told,
    Failed(anyhow::Error),
}

impl Ended {
    fn is_finished(&self) -> bool {
        matches!(self, Ended::Finished)
    }

    /// Tells why not all letters were reached. The others are where they were: the same command goes on with them.
    fn tell(&self, done: Exit) -> Exit {
        match self {
            Ended::Finished => done,
            Ended::Told => {
                eprintln!("heyday: told to stop; the same command goes on from here");
                Exit::Found
            }
            Ended::Failed(error) => exit::report(error),
        }
    }
}

/// Only a clear yes is one. Whoever says no learns that it was heard.
pub(super) fn agreed(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> bool {
    drop(write!(output, "heyday: {question} [y/N] "));
    let mut answer = String::new();
    drop(input.read_line(&mut answer));
    if !answer.ends_with('\n') {
        drop(writeln!(output));
    }
    let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
    if !agreed {
        drop(writeln!(output, "heyday: nothing done"));
    }
    agreed
}

async fn named(letters: &DeadLetters, shard: Shard, ids: &[EntryId]) -> anyhow::Result<Vec<DeadLetter>> {
    let mut found = Vec::new();
    for id in ids {
        match letters.get(shard, *id).await? {
            Some(letter) => found.push(letter),
            None => return Err(no_such(shard, *id).into()),
        }
    }
    Ok(found)
}

fn no_such(shard: Shard, id: EntryId) -> Absent {
    Absent(format!("no dead letter {id} in shard {shard}"))
}

async fn open(context: &Context) -> anyhow::Result<(DeadLetters, Layout)> {
    let cluster = Cluster::open(context).await?;
    let pipes = cluster.pipes();
    Ok((DeadLetters::new(cluster.topology, pipes, cluster.keys, cluster.layout.clone()), cluster.layout))
}

/// A field as text: what is no UTF-8, and control characters, as `\xff` and `\n`.
fn shown(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character if character.is_control() => text.extend(character.escape_default()),
                character => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// The value of a field of the original entry.
fn field<'a>(letter: &'a DeadLetter, name: &str) -> Option<&'a [u8]> {
    letter.fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value.as_ref())
}

#[cfg(test)]
mod tests {
    use super::{agreed, shown};

    #[test]
    fn only_a_clear_yes_is_one() {
        let ask = |answer: &str| {
            let mut said = Vec::new();
            let agreed = agreed("drop every dead letter?", &mut answer.as_bytes(), &mut said);
            (agreed, String::from_utf8(said).unwrap())
        };
        let question = "heyday: drop every dead letter? [y/N] ";
        for yes in ["y\n", "Y\n", " yes \n"] {
            assert_eq!(ask(yes), (true, question.to_owned()), "{yes:?}");
        }
        for no in ["n\n", "\n", "yesterday\n"] {
            assert_eq!(ask(no), (false, format!("{question}heyday: nothing done\n")), "{no:?}");
        }
        assert_eq!(ask(""), (false, format!("{question}\nheyday: nothing done\n")), "the end of input");
    }

    #[test]
    fn any_bytes_can_be_shown_in_one_line() {
        let cases: [(&[u8], &str); 5] = [
            (b"1990-05-01", "1990-05-01"),
            ("Zoë 🎂".as_bytes(), "Zoë 🎂"),
            (b"a\xffb\xc3", "a\\xffb\\xc3"),
            (b"two\nlines\x1b[2J", "two\\nlines\\u{1b}[2J"),
            (b"\\xff", "\\\\xff"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(shown(bytes), expected);
        }
    }
}
