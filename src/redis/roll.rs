//! Asking shards to fill all their open days again, and how far they have come.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;

use super::inspect::Source;
use super::query::command;
use super::{encode::Pipeline, error::Error, pipes::Pipes, reply::Reply, topology::Topology};
use crate::key::{Keys, ShardKeys};
use crate::reduce::{ROLL_ASKED_FIELD, ROLL_FIELD, ROLLED_AT_FIELD, Roll};
use crate::shard::{Layout, Shard};

/// How long a question is asked again while a slot's owner changes or nobody answers.
const PATIENCE: Duration = Duration::from_secs(15);

/// The fields that [`Progress::read`] takes, in its order.
pub(super) const FIELDS: [&str; 5] = ["open", "rolled", ROLL_FIELD, ROLLED_AT_FIELD, ROLL_ASKED_FIELD];

/// Notes that a roll is asked for; answers when, and 0 where nobody has ever owned the shard: its first owner rolls anyway.
const ASK: &str = "#!lua
if redis.call('EXISTS', KEYS[1]) == 0 then
    return 0
end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
redis.call('HSET', KEYS[1], ARGV[1], now)
return tonumber(now)";

/// How far the calendar of a shard has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last day that changes keep.
    pub open: Option<Date>,
    /// The last day that holds everybody who celebrates.
    pub rolled: Option<Date>,
    /// The roll under way.
    pub roll: Option<Roll>,
    /// When the last one ended, Unix milliseconds.
    pub rolled_at: Option<u64>,
    /// Since when another one is asked for, Unix milliseconds.
    pub asked_at: Option<u64>,
}

impl Progress {
    /// What cannot be read tells nothing here; `heyday check` names it.
    pub(super) fn read(fields: &[Reply]) -> Progress {
        fn field<T: FromStr>(fields: &[Reply], at: usize) -> Option<T> {
            fields.get(at)?.to_str().ok()?.parse().ok()
        }
        Progress {
            open: field(fields, 0),
            rolled: field(fields, 1),
            roll: field(fields, 2),
            rolled_at: field(fields, 3),
            asked_at: field(fields, 4),
        }
    }

    /// Whether a roll that was asked for at this moment has ended.
    pub fn is_done(&self, asked_at: u64) -> bool {
        self.asked_at.is_none() && self.roll.is_none() && self.rolled_at.is_some_and(|ended| ended >= asked_at)
    }

    /// Whether nothing is left of a request of this moment: a failover took it back.
    pub fn has_forgotten(&self, asked_at: u64) -> bool {
        self.asked_at.is_none() && self.roll.is_none() && !self.is_done(asked_at)
    }
}

/// The calendars of a layout's shards.
pub struct Calendars {
    source: Source,
    keys: Keys,
    layout: Layout,
}

impl Calendars {
    pub fn new((topology, pipes): (Arc<Topology>, Arc<Pipes>), (keys, layout): (Keys, Layout)) -> Calendars {
        Calendars { source: Source::new(topology, pipes, 1.0, PATIENCE), keys, layout }
    }

    /// Asks these shards to fill all their open days again. Answers when each was asked, by its node's clock in Unix
    /// milliseconds; 0 where nobody has ever owned the shard. Safe to repeat.
    ///
    /// # Errors
    ///
    /// Where a node does not answer, or refuses since its memory is full.
    pub async fn ask(&mut self, shards: &[Shard]) -> Result<Vec<u64>, Error> {
        let replies =
            self.each(shards, |keys| command(&["EVAL", ASK, "1", keys.state.as_str(), ROLL_ASKED_FIELD])).await?;
        replies.iter().map(Reply::as_u64).collect()
    }

    /// How far these shards have come.
    ///
    /// # Errors
    ///
    /// Where a node does not answer.
    pub async fn look(&mut self, shards: &[Shard]) -> Result<Vec<Progress>, Error> {
        let replies =
            self.each(shards, |keys| command(&[&["HMGET", keys.state.as_str()], &FIELDS[..]].concat())).await?;
        replies.iter().map(|fields| Ok(Progress::read(fields.as_array()?))).collect()
    }

    async fn each(&mut self, shards: &[Shard], question: impl Fn(&ShardKeys) -> Pipeline) -> Result<Vec<Reply>, Error> {
        let asked = |shard: &Shard| {
            let keys = self.keys.shard(&self.layout, *shard);
            (keys.slot, question(&keys))
        };
        let questions: Vec<_> = shards.iter().map(asked).collect();
        self.source.ask(&questions).await?.into_iter().map(Reply::checked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_done_under_way_or_forgotten() {
        let progress = |roll: Option<&str>, rolled_at, asked_at| Progress {
            roll: roll.map(|roll| roll.parse().unwrap()),
            rolled_at,
            asked_at,
            ..Progress::default()
        };
        let roll = Some("2026-12-08 2026-12-08");
        for (progress, done, forgotten) in [
            (progress(None, Some(3), Some(7)), false, false),
            (progress(roll, Some(3), None), false, false),
            (progress(None, Some(3), None), false, true),
            (progress(None, None, None), false, true),
            (progress(None, Some(7), None), true, false),
            (progress(roll, Some(9), None), false, false),
        ] {
            assert_eq!((progress.is_done(7), progress.has_forgotten(7)), (done, forgotten), "{progress:?}");
        }
    }
}
