//! Users whom an authoritative snapshot does not have.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use tokio::io::BufReader;

use super::load::{Load, READ_BYTES, Stopped};
use super::record;
use super::way::Way;
use crate::change::{Change, UserId};
use crate::cli::signals::Signals;
use crate::cli::write::Lines;
use crate::redis::rebuild::Shards;
use crate::shard::Shard;

/// Users looked at, and sent, in one step.
pub(super) const PAGE: usize = 1000;
/// A run's own numbers leave room for so many entries.
const NUMBER_BITS: u32 = 20;

/// The users of the file, eight bytes each: two that have the same number of 64 bits pass for one, so that a user who is gone
/// would stay, about once in a thousand million files of ten million users.
#[derive(Debug, Default)]
pub(super) struct Ids {
    numbers: Vec<u64>,
    sorted: bool,
}

impl Ids {
    pub fn add(&mut self, user: &str) {
        self.numbers.push(number(user));
        self.sorted = false;
    }

    pub fn sort(&mut self) {
        self.numbers.sort_unstable();
        self.sorted = true;
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn has(&self, user: &str) -> bool {
        debug_assert!(self.sorted, "asked before all were there");
        self.numbers.binary_search(&number(user)).is_ok()
    }
}

fn number(user: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish()
}

/// The users of the lines that an earlier run has applied.
pub(super) async fn read_again(file: &Path, end: u64) -> anyhow::Result<Ids> {
    let mut ids = Ids::default();
    let file = tokio::fs::File::open(file).await?;
    let mut lines = Lines::new(BufReader::with_capacity(READ_BYTES, file));
    while lines.bytes() < end {
        let Some(line) = lines.next().await? else { break };
        // A bad line was told of by the run that came to it.
        let user = line.text.and_then(|text| record::record(text).ok()?.user);
        user.into_iter().for_each(|user| ids.add(user.as_str()));
    }
    Ok(ids)
}

/// The users of a shard, a page at a time, whom the file does not have.
pub(super) struct Walk<'a> {
    shards: &'a Shards,
    shard: Shard,
    last: Option<String>,
    done: bool,
}

impl<'a> Walk<'a> {
    pub fn new(shards: &'a Shards, shard: Shard) -> Walk<'a> {
        Walk { shards, shard, last: None, done: false }
    }

    /// None at the end. A page may be empty.
    pub async fn next(&mut self, ids: &Ids) -> Result<Option<Vec<UserId>>, crate::redis::Error> {
        if self.done {
            return Ok(None);
        }
        let page = self.shards.users(self.shard, self.last.as_deref(), PAGE).await?;
        self.done = page.len() < PAGE;
        self.last = page.last().cloned();
        let gone = page.iter().filter(|user| !ids.has(user)).filter_map(|user| user.parse().ok());
        Ok(Some(gone.collect()))
    }
}

/// Says of each of them that nobody was there, through the streams too: who was told of since stays.
pub(super) async fn remove(load: &mut Load, way: &Way) -> Stopped {
    if load.tally.bad > 0 {
        let why = "no users are removed: a bad line may be about one of them; mend the file and run again";
        return Stopped::Failure(crate::cli::exit::Usage(why.to_owned()).into());
    }
    load.seen.sort();
    match walk(load, way).await {
        Ok(stopped) => stopped,
        Err(error) => Stopped::Failure(error),
    }
}

async fn walk(load: &mut Load, way: &Way) -> anyhow::Result<Stopped> {
    let mut signals = Signals::new()?;
    // A later run numbers on from here, and says the same once more: that does no harm.
    let mut number = way.shards.now().await? << NUMBER_BITS;
    let form = super::parts::Form { producer: format!("{}:gone", load.form.producer), ..load.form.clone() };
    for shard in way.shards.layout().shards() {
        let mut pages = Walk::new(&way.shards, shard);
        while let Some(gone) = pages.next(&load.seen).await? {
            if gone.is_empty() {
                continue;
            }
            let entries = gone.into_iter().zip(number..).map(|(user, number)| form.nobody(user, number));
            let entries: Vec<Change> = entries.collect();
            number += entries.len() as u64;
            load.tally.unnamed += entries.len() as u64;
            load.show.users_left(shard, load.tally.unnamed);
            let stopped = load.send_all(&entries, &mut signals).await;
            if !matches!(stopped, Stopped::End) {
                return Ok(stopped);
            }
        }
    }
    Ok(Stopped::End)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_file_are_known_again() {
        let mut ids = Ids::default();
        (0..1000).for_each(|user| ids.add(&format!("u{user}")));
        ids.sort();
        assert!((0..1000).all(|user| ids.has(&format!("u{user}"))) && !ids.has("u1000") && !ids.has(""));
    }
}
