//! Day keys are a function of the views: who stands on which day, and with which score.

use jiff::civil::Date;

use super::{Kind, Repair, Violation};
use crate::birthday::Birthday;
use crate::calendar::{Calendar, Window};
use crate::key::{Key, ShardKeys};
use crate::position::CommitId;
use crate::signal::Signal;

/// How far the clocks of servers may be apart.
const CLOCK_MARGIN_MILLISECONDS: i64 = 2 * 60 * 60 * 1000;
/// A key is given up this long before it expires.
const EXPIRY_MARGIN_MILLISECONDS: i64 = 60 * 1000;

/// One day of one shard.
#[derive(Clone, Debug)]
pub struct Day {
    pub date: Date,
    pub key: Key,
    /// The score of everybody who stands there.
    due: i64,
    /// Whether all who celebrate must stand there, or only those whose date changed since the day opened.
    complete: bool,
    calendar: Calendar,
}

/// How a member of a day stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Right,
    /// Missing, and allowed to be: nothing has touched it since its day came within the horizon.
    NotRolled,
    Wrong(Violation),
}

/// Before this moment nothing was applied to a shard; none where nobody knows. `created_at` is the layout's, and `first` the
/// oldest commit that the log still has. The layout says nothing where it is younger than a commit: it was created anew.
pub fn began(created_at: Option<u64>, first: Option<&Signal>) -> Option<u64> {
    match first {
        Some(first) if first.previous == CommitId::ZERO => Some(first.at_milliseconds),
        Some(first) => created_at.filter(|created_at| *created_at <= first.at_milliseconds),
        None => created_at,
    }
}

/// Whether a day's key must hold everybody who celebrates. There is no daily roll yet: a day that comes within the horizon
/// begins empty and is filled by later changes only. So it is complete only where all changes are later. With the roll this
/// becomes true of every day that the roll has reached.
fn must_be_complete(calendar: &Calendar, date: Date, began: Option<u64>) -> bool {
    let began = began.and_then(|began| i64::try_from(began).ok());
    let opens_at = (calendar.expires_at(date) - calendar.day_grace.as_secs() as i64 - 26 * 3600) * 1000
        - i64::from(calendar.horizon_days + 1) * 86_400_000;
    began.is_some_and(|began| began >= opens_at.saturating_add(CLOCK_MARGIN_MILLISECONDS))
}

impl Day {
    pub fn new(calendar: &Calendar, keys: &ShardKeys, date: Date, began: Option<u64>) -> Day {
        Day {
            date,
            key: keys.day(date),
            due: calendar.due(&calendar.time_zone, date),
            complete: must_be_complete(calendar, date, began),
            calendar: calendar.clone(),
        }
    }

    /// The days that have a key at a moment.
    pub fn all(calendar: &Calendar, keys: &ShardKeys, window: Window, began: Option<u64>) -> Vec<Day> {
        let dates = window.first.series(jiff::Span::new().days(1)).take_while(|date| *date <= window.last);
        dates.map(|date| Day::new(calendar, keys, date, began)).collect()
    }

    /// Whether everybody who celebrates must stand there.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The score that a friend with this stored date has on this day. A date that cannot be read counts as unknown.
    pub fn score(&self, stored: Option<&str>) -> Option<i64> {
        let birthday = Birthday::parse(stored?).ok()?;
        let day = Window { first: self.date, last: self.date };
        self.calendar.days(birthday, day).next().map(|_| self.due)
    }

    /// Whether the key has expired, or is about to: a day with a change of clocks may be longer than the grace.
    fn is_over(&self, now: u64) -> bool {
        let ends = self.calendar.expires_at(self.date).saturating_mul(1000).saturating_sub(EXPIRY_MARGIN_MILLISECONDS);
        i64::try_from(now).is_ok_and(|now| now >= ends)
    }

    /// `stored` is the date in the view, `found` the member's score, both seen in one moment, `now`.
    pub fn judge(&self, member: &str, stored: Option<&str>, found: Option<&str>, now: u64) -> Standing {
        let window = self.calendar.window(now);
        let expected = self.score(stored).map(|due| due.to_string());
        let held = window.first <= self.date && self.date <= window.last && !self.is_over(now);
        if expected.as_deref() == found || !held {
            return Standing::Right;
        }
        let (expected, found) = match (expected, found) {
            (Some(_), None) if !self.complete => return Standing::NotRolled,
            (Some(due), None) => (format!("{member} at {due}"), format!("no {member}")),
            (Some(due), Some(found)) => (format!("{member} at {due}"), format!("{member} at {found}")),
            (None, found) => (format!("no {member}"), format!("{member} at {}", found.unwrap_or_default())),
        };
        let repair = Repair::Member { date: self.date, member: member.to_owned() };
        Standing::Wrong(Violation::new(Kind::Day, &self.key, expected, found).with(repair))
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::key::Keys;
    use crate::shard::{Layout, Shard};

    /// 2026-11-29T19:00:00Z
    const NOW: u64 = 1_795_978_800_000;
    const HOUR: u64 = 3_600_000;

    fn day(day: i8, began: Option<u64>) -> Day {
        let keys = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0));
        Day::new(&Calendar::default(), &keys, date(2026, 12, day), began)
    }

    #[test]
    fn members_stand_where_the_views_put_them() {
        let day = day(1, Some(NOW));
        let due = Calendar::default().due(&jiff::tz::TimeZone::UTC, day.date).to_string();
        let told = |stored, found| match day.judge("a:b", stored, found, NOW) {
            Standing::Wrong(violation) => format!("expected {}, found {}", violation.expected, violation.found),
            other => format!("{other:?}"),
        };
        assert_eq!(told(Some("1990-12-01"), Some(&*due)), "Right");
        assert_eq!(told(Some("--12-01"), Some(&*due)), "Right");
        assert_eq!(told(Some("--12-02"), None), "Right");
        assert_eq!(told(None, None), "Right");
        assert_eq!(told(Some("spoilt"), None), "Right");
        assert_eq!(told(Some("--12-01"), None), format!("expected a:b at {due}, found no a:b"));
        assert_eq!(told(Some("--12-01"), Some("1")), format!("expected a:b at {due}, found a:b at 1"));
        assert_eq!(told(Some("--12-02"), Some("1")), "expected no a:b, found a:b at 1");
        assert_eq!(told(None, Some("1")), "expected no a:b, found a:b at 1");
        // Not born yet.
        assert_eq!(told(Some("2026-12-01"), None), "Right");
    }

    #[test]
    fn days_outside_the_window_are_not_looked_at() {
        assert_eq!(day(1, Some(NOW)).judge("a:b", None, Some("1"), NOW + 120 * HOUR), Standing::Right);
        assert_eq!(day(9, Some(NOW)).judge("a:b", None, Some("1"), NOW), Standing::Right);
    }

    #[test]
    fn only_a_day_that_opened_before_everything_else_must_be_complete() {
        // Eight days ahead opened at the first midnight of today anywhere, 33 hours ago.
        let missing = |began| day(7, began).judge("a:b", Some("--12-07"), None, NOW);
        assert!(matches!(missing(Some(NOW)), Standing::Wrong(_)));
        assert!(matches!(missing(Some(NOW - 31 * HOUR)), Standing::Wrong(_)));
        assert_eq!(missing(Some(NOW - 32 * HOUR)), Standing::NotRolled, "clocks may differ");
        assert_eq!(missing(Some(NOW - 34 * HOUR)), Standing::NotRolled);
        assert_eq!(missing(None), Standing::NotRolled);
        assert!(
            matches!(day(7, None).judge("a:b", None, Some("1"), NOW), Standing::Wrong(_)),
            "there is no reason for more"
        );
    }

    #[test]
    fn a_shard_begins_with_its_first_commit_or_with_its_layout() {
        let signal = |previous, at_milliseconds| Signal {
            id: CommitId::new(9, 1),
            previous,
            at_milliseconds,
            users: Vec::new(),
        };
        let trimmed = CommitId::new(8, 1);
        assert_eq!(began(Some(5), None), Some(5));
        assert_eq!(began(Some(5), Some(&signal(CommitId::ZERO, 7))), Some(7));
        assert_eq!(began(Some(9), Some(&signal(CommitId::ZERO, 7))), Some(7));
        assert_eq!(began(Some(5), Some(&signal(trimmed, 7))), Some(5));
        assert_eq!(began(Some(9), Some(&signal(trimmed, 7))), None, "the layout was created anew");
    }
}
