//! Where a walk through a day has come to, as text that can be kept.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use jiff::civil::Date;

use crate::redis::day::{Member, Place};
use crate::shard::Shard;

/// A place in the celebrations of one day.
///
/// As text it is `DATE:SHARD` at the beginning of a shard, and `DATE:SHARD:SCORE:USER:FRIEND` behind the last member of a day
/// key that was read: `2026-11-30:3:1796029200:42:77`. It stays valid whatever happens to that member, to the cluster and to
/// this library; it is one of the public formats.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    date: Date,
    shard: Shard,
    /// The score and the name of the last member.
    last: Option<(f64, String)>,
}

/// A text that is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cursor {0:?}: expected DATE:SHARD or DATE:SHARD:SCORE:USER:FRIEND, as heyday printed it")]
pub struct CursorError(pub String);

impl Cursor {
    /// The beginning of a shard. Where the shard is one more than there are, that is the end of the day.
    pub fn of_shard(date: Date, shard: Shard) -> Cursor {
        Cursor { date, shard, last: None }
    }

    pub(super) fn behind(date: Date, shard: Shard, score: f64, member: &str) -> Cursor {
        Cursor { date, shard, last: Some((score, member.to_owned())) }
    }

    pub fn date(&self) -> Date {
        self.date
    }

    pub fn shard(&self) -> Shard {
        self.shard
    }

    pub(super) fn place(&self) -> Place {
        match &self.last {
            None => Place::Begin,
            Some((score, name)) => Place::After(Member { score: *score, name: Bytes::from(name.clone()) }),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.date, self.shard)?;
        match &self.last {
            None => Ok(()),
            Some((score, member)) => write!(f, ":{score}:{member}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Cursor, CursorError> {
        parse(text).ok_or_else(|| CursorError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Cursor> {
    let mut parts = text.splitn(4, ':');
    // Only the one form that is printed: other ways to write a date are no cursors.
    let date = parts.next().filter(|date| date.len() == "YYYY-MM-DD".len())?.parse().ok()?;
    let shard = Shard(parts.next()?.parse().ok()?);
    let last = match (parts.next(), parts.next()) {
        (None, None) => None,
        (Some(score), Some(member)) => {
            let (user, friend) = member.split_once(':')?;
            let whole = !user.is_empty() && !friend.is_empty();
            let score: f64 = score.parse().ok().filter(|score: &f64| whole && !score.is_nan())?;
            Some((score, member.to_owned()))
        }
        _ => return None,
    };
    let cursor = Cursor { date, shard, last };
    // Another way to write a number is none that was printed.
    (cursor.to_string() == text).then_some(cursor)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn cursors_are_public_and_keep_their_form() {
        let behind = Cursor::behind(date(2026, 11, 30), Shard(3), 1_796_029_200.0, "42:a/b");
        assert_eq!(behind.to_string(), "2026-11-30:3:1796029200:42:a/b");
        assert_eq!(behind.to_string().parse(), Ok(behind));
        let begin = Cursor::of_shard(date(2026, 11, 30), Shard(256));
        assert_eq!(begin.to_string(), "2026-11-30:256");
        assert_eq!(begin.to_string().parse(), Ok(begin));
        let odd = Cursor::behind(date(2026, 1, 2), Shard(0), -1.5, "ключ:я");
        assert_eq!(odd.to_string().parse(), Ok(odd));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2026-11-30",
            "2026-11-30:",
            "2026-11-30:-1",
            "2026-11-30:65536",
            "2026-11-31:1",
            "20261130:1",
            "2026-11-30:1:5",
            "2026-11-30:1:5:",
            "2026-11-30:1:5:42",
            "2026-11-30:1:5::77",
            "2026-11-30:1:5:42:",
            "2026-11-30:1:soon:42:77",
            "2026-11-30:1:NaN:42:77",
        ] {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError(text.to_owned())));
        }
    }
}
