//! Through the dead letters of some or all shards, page by page, however many there are.

use std::time::Duration;

use clap::builder::PossibleValuesParser;

use crate::change::{KINDS, UserId};
use crate::cli::flags;
use crate::position::EntryId;
use crate::redis::Error;
use crate::redis::dead_letters::{DeadLetter, DeadLetters, Survey};
use crate::shard::{self, Layout, Shard};

use super::field;

/// Letters read at once, at first and at most.
const PAGE_FIRST: usize = 32;
const PAGE_MAX: usize = 256;
/// About so many bytes of letters are read at once: of large ones fewer.
const PAGE_BYTES: usize = 1024 * 1024;

/// Which letters are wanted; all that is given must hold.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Filter {
    /// Only letters of this shard
    #[arg(long, value_name = "NUMBER")]
    shard: Option<u32>,
    /// Only changes of this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only letters of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(KINDS))]
    reason: Option<String>,
    /// Only letters at least this old, such as 2h, by the server's time
    #[arg(long, value_name = "DURATION", value_parser = flags::duration)]
    older_than: Option<Duration>,
    /// Only letters at most this old, such as 10m, by the server's time
    #[arg(long, value_name = "DURATION", value_parser = flags::duration)]
    newer_than: Option<Duration>,
}

/// A walk that began at some moment and does not see what comes in later, so that it ends even where replayed letters die
/// again.
pub(super) struct Walk {
    letters: DeadLetters,
    filter: Filter,
    left: Vec<Stretch>,
    page: usize,
    walked: u64,
}

/// What is left of a shard.
struct Stretch {
    shard: Shard,
    after: EntryId,
    last: EntryId,
    /// The most letters there can be.
    count_max: u64,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        let Filter { shard, user, reason, older_than, newer_than } = self;
        shard.is_none() && user.is_none() && reason.is_none() && older_than.is_none() && newer_than.is_none()
    }

    /// A user's changes are in the user's shard; of an id that cannot be one nobody knows where they are.
    fn shards(&self, layout: &Layout) -> Result<Vec<Shard>, shard::Error> {
        let user = self.user.as_ref().and_then(|user| user.parse::<UserId>().ok());
        match (self.shard, user) {
            (Some(shard), _) => Ok(vec![layout.shard(shard)?]),
            (None, Some(user)) => Ok(vec![layout.shard_of(&user)]),
            (None, None) => Ok(layout.shards().collect()),
        }
    }

    fn matches(&self, letter: &DeadLetter) -> bool {
        let user = |user: &String| field(letter, "user") == Some(user.as_bytes());
        self.user.as_ref().is_none_or(user) && self.reason.as_ref().is_none_or(|kind| *kind == letter.kind)
    }

    /// After which id and up to which the letters are of the wanted age; none where there can be none.
    fn ids(&self, survey: Survey) -> Option<(EntryId, EntryId)> {
        let ago = |age: Duration| survey.now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let until = |milliseconds: u64| EntryId::new(milliseconds, u64::MAX);
        let after = self.newer_than.and_then(|age| ago(age).checked_sub(1)).map_or(EntryId::ZERO, until);
        let last = survey.last?.min(self.older_than.map_or(until(u64::MAX), |age| until(ago(age))));
        (after < last).then_some((after, last))
    }
}

impl Walk {
    pub async fn start(letters: DeadLetters, layout: &Layout, filter: Filter) -> anyhow::Result<Walk> {
        let mut left = Vec::new();
        for shard in filter.shards(layout)? {
            let survey = letters.survey(shard).await?;
            if let Some((after, last)) = filter.ids(survey) {
                left.push(Stretch { shard, after, last, count_max: survey.count });
            }
        }
        left.reverse();
        Ok(Walk { letters, filter, left, page: PAGE_FIRST, walked: 0 })
    }

    /// Letters walked through so far, whether they match or not, and how many that can be in the end.
    pub fn progress(&self) -> (u64, u64) {
        (self.walked, self.walked + self.left.iter().map(|stretch| stretch.count_max).sum::<u64>())
    }

    /// The next letters that match, all of one shard; none at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<DeadLetter>>, Error> {
        while let Some(Stretch { shard, after, last, count_max }) = self.left.last_mut() {
            let mut page = self.letters.page(*shard, (*after, *last), self.page).await?;
            let Some(youngest) = page.last() else {
                self.left.pop();
                continue;
            };
            *after = youngest.id;
            *count_max = count_max.saturating_sub(page.len() as u64);
            self.walked += page.len() as u64;
            self.page = next_page(self.page, page.iter().map(DeadLetter::bytes).sum());
            page.retain(|letter| self.filter.matches(letter));
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }
}

/// How many letters to read next, after so many took so many bytes.
fn next_page(page: usize, bytes: usize) -> usize {
    match bytes {
        0..=PAGE_BYTES => (2 * page).min(PAGE_MAX),
        _ => (page.saturating_mul(PAGE_BYTES) / bytes).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn ages_bound_the_ids() {
        let survey = Survey { now: NOW, count: 3, last: Some(EntryId::new(NOW, 5)) };
        let hours = |hours: u64| Some(Duration::from_secs(3600 * hours));
        let ids = |older_than, newer_than| Filter { older_than, newer_than, ..Filter::default() }.ids(survey);
        let (hour, two) = (NOW - 3_600_000, NOW - 7_200_000);
        assert_eq!(ids(None, None), Some((EntryId::ZERO, EntryId::new(NOW, 5))));
        assert_eq!(ids(hours(1), None), Some((EntryId::ZERO, EntryId::new(hour, u64::MAX))));
        assert_eq!(ids(None, hours(1)), Some((EntryId::new(hour - 1, u64::MAX), EntryId::new(NOW, 5))));
        assert_eq!(ids(hours(1), hours(2)), Some((EntryId::new(two - 1, u64::MAX), EntryId::new(hour, u64::MAX))));
        assert_eq!(ids(hours(2), hours(1)), None, "nothing is older and newer");
        assert_eq!(ids(None, Some(Duration::MAX)), Some((EntryId::ZERO, EntryId::new(NOW, 5))));
        assert_eq!(Filter::default().ids(Survey { last: None, ..survey }), None);
    }

    #[test]
    fn of_large_letters_fewer_are_read_at_once() {
        assert_eq!(next_page(PAGE_FIRST, 10_000), 2 * PAGE_FIRST);
        assert_eq!(next_page(PAGE_MAX, 10_000), PAGE_MAX);
        assert_eq!(next_page(32, 32 * PAGE_BYTES), 1);
        assert_eq!(next_page(1, usize::MAX), 1);
        assert_eq!(next_page(64, 2 * PAGE_BYTES), 32);
    }
}
