//! Through the dead letters of some or all shards, page by page, however many there are.

use clap::builder::PossibleValuesParser;

use crate::change::{KINDS, UserId};
use crate::position::EntryId;
use crate::redis::Error;
use crate::redis::dead_letters::{DeadLetter, DeadLetters};
use crate::shard::{self, Layout, Shard};

use super::field;

/// Letters read at once.
const PAGE: usize = 200;

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
}

/// A walk that began at some moment and does not see what comes in later, so that it ends even where replayed letters die
/// again.
pub(super) struct Walk {
    letters: DeadLetters,
    filter: Filter,
    left: Vec<(Shard, EntryId, EntryId)>,
    count_max: u64,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.shard.is_none() && self.user.is_none() && self.reason.is_none()
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
}

impl Walk {
    pub async fn start(letters: DeadLetters, layout: &Layout, filter: Filter) -> anyhow::Result<Walk> {
        let (mut left, mut count_max) = (Vec::new(), 0);
        for shard in filter.shards(layout)? {
            if let Some(last) = letters.last(shard).await? {
                count_max += letters.count(shard).await?;
                left.push((shard, EntryId::ZERO, last));
            }
        }
        left.reverse();
        Ok(Walk { letters, filter, left, count_max })
    }

    /// Letters in the shards walked through, whether they match or not.
    pub fn count_max(&self) -> u64 {
        self.count_max
    }

    /// The next letters that match, all of one shard; none at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<DeadLetter>>, Error> {
        while let Some((shard, after, last)) = self.left.last_mut() {
            let mut page = self.letters.page(*shard, (*after, *last), PAGE).await?;
            match page.last() {
                Some(letter) => *after = letter.id,
                None => {
                    self.left.pop();
                    continue;
                }
            }
            page.retain(|letter| self.filter.matches(letter));
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }
}
