//! Users whom an authoritative snapshot does not have.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use tokio::io::BufReader;

use super::load::{Load, READ_BYTES, Stopped};
use super::parts::Form;
use super::source::Source;
use super::way::Way;
use crate::change::{Change, UserId};
use crate::cli::signals::Signals;
use crate::cli::write::Lines;
use crate::redis::rebuild::Shards;
use crate::shard::Shard;

/// Users looked at, and sent, in one step.
pub(super) const PAGE: usize = 1000;
/// The users of the file, by a number of 64 bits each: two that have the same one pass for one.
#[derive(Debug, Default)]
pub(super) struct Ids(HashSet<u64>);

impl Ids {
    /// Whether it was not there before.
    pub fn add(&mut self, user: &str) -> bool {
        self.0.insert(number(user))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn has(&self, user: &str) -> bool {
        self.0.contains(&number(user))
    }
}

fn number(user: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish()
}

/// What an earlier run has read.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    pub ids: Ids,
    /// Lines that are no users, and lines of users who were there before.
    pub bad: u64,
    pub repeated: u64,
}

/// The lines that an earlier run has applied or passed over: what is wrong there counts in every run.
pub(super) async fn read_again(file: &Path, end: u64, form: &Form) -> anyhow::Result<Earlier> {
    let mut earlier = Earlier::default();
    if end == 0 {
        return Ok(earlier);
    }
    let file = tokio::fs::File::open(file).await?;
    let mut lines = Lines::new(BufReader::with_capacity(READ_BYTES, file));
    while lines.bytes() < end {
        let Some(line) = lines.next().await? else { break };
        match form.read(&line) {
            Ok(None) => {}
            Ok(Some(user)) => earlier.repeated += u64::from(!earlier.ids.add(user.id())),
            Err(_) => earlier.bad += 1,
        }
    }
    Ok(earlier)
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

/// Why a user whom the file does not name may be in the snapshot nevertheless.
pub(super) fn doubt(source: &Source, bad: u64, repeated: u64) -> std::io::Result<Option<&'static str>> {
    if bad > 0 {
        return Ok(Some("a bad line may be about one of them"));
    }
    if repeated > 0 {
        return Ok(Some("a user is in several lines, so one of them may be about another user"));
    }
    source.doubt()
}

/// Says of each of them that nobody was there, through the streams too: who was told of since stays.
pub(super) async fn remove(load: &mut Load, way: &Way, signals: &mut Signals) -> Stopped {
    match doubt(&load.source, load.tally.bad, load.tally.repeated) {
        Ok(None) => {}
        Ok(Some(why)) => return Stopped::Doubt(why),
        Err(error) => return Stopped::Failure(error.into()),
    }
    match walk(load, way, signals).await {
        Ok(stopped) => stopped,
        Err(error) => Stopped::Failure(error),
    }
}

async fn walk(load: &mut Load, way: &Way, signals: &mut Signals) -> anyhow::Result<Stopped> {
    let mut number = 1;
    let form = Form { producer: format!("{}:gone", load.form.producer), ..load.form.clone() };
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
            let stopped = load.send_all(&entries, signals).await;
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
        assert!((0..1000).all(|user| ids.add(&format!("u{user}"))) && !ids.add("u7"));
        assert_eq!(ids.len(), 1000);
        assert!((0..1000).all(|user| ids.has(&format!("u{user}"))) && !ids.has("u1000") && !ids.has(""));
    }

    #[tokio::test]
    async fn what_is_wrong_in_lines_that_were_read_before_counts_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.ndjson");
        let long = "x".repeat(crate::cli::write::LINE_BYTES_MAX + 1);
        let read = format!("{{\"user\":1}}\n\n{{\n{long}\n{{\"user\":\"1\"}}\n");
        std::fs::write(&path, format!("{read}{{\n")).unwrap();
        let form = Form::new(7, true, crate::change::Limits::default());
        let earlier = read_again(&path, read.len() as u64, &form).await.unwrap();
        assert_eq!((earlier.ids.len(), earlier.bad, earlier.repeated), (1, 2, 1));
    }
}
