//! Day keys are a function of the views: who stands on which day, and with which score.

use jiff::civil::Date;

use super::{Kind, Repair, Violation};
use crate::birthday::Birthday;
use crate::calendar::{Calendar, Window};
use crate::key::{Key, ShardKeys};

/// A key is given up this long before it expires.
const EXPIRY_MARGIN_MILLISECONDS: i64 = 60 * 1000;

/// One day of one shard.
#[derive(Clone, Debug)]
pub struct Day {
    pub date: Date,
    pub key: Key,
    calendar: Calendar,
}

/// What is known of a day and of one who may stand there, seen in one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight<'a> {
    /// The friend's date in the view.
    pub stored: Option<&'a str>,
    /// The zone in the user's profile.
    pub tz: Option<&'a str>,
    /// The member's score.
    pub found: Option<&'a str>,
    /// Server time, Unix milliseconds.
    pub now: u64,
    pub progress: Progress,
}

/// The fields of `state` that tell of its calendar.
pub const PROGRESS_FIELDS: [&str; 3] = ["first", "open", "rolled"];

/// How far the calendar of a shard has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The first and the last day that changes keep.
    pub first: Option<Date>,
    pub open: Option<Date>,
    /// The last day that must hold everybody who celebrates.
    pub rolled: Option<Date>,
}

/// How a member of a day stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Right,
    /// Missing, and allowed to be: the roll has not come to the day.
    NotRolled,
    Wrong(Violation),
}

impl Progress {
    /// From the fields of a shard's state that [`PROGRESS_FIELDS`] names. What is no date tells nothing.
    pub fn of([first, open, rolled]: [Option<&str>; 3]) -> Progress {
        let date = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        Progress { first: date(first), open: date(open), rolled: date(rolled) }
    }

    /// Whether changes keep the day.
    pub fn is_kept(&self, date: Date) -> bool {
        self.first.is_none_or(|first| first <= date) && self.open.is_some_and(|open| date <= open)
    }

    /// Whether all who celebrate on the day must stand there.
    pub fn is_complete(&self, date: Date) -> bool {
        self.rolled.is_some_and(|rolled| date <= rolled)
    }
}

impl Day {
    pub fn new(calendar: &Calendar, keys: &ShardKeys, date: Date) -> Day {
        Day { date, key: keys.day(date), calendar: calendar.clone() }
    }

    /// The days that changes keep at a moment.
    pub fn all(calendar: &Calendar, keys: &ShardKeys, window: Window) -> Vec<Day> {
        window.days().map(|date| Day::new(calendar, keys, date)).collect()
    }

    /// Whether somebody with this stored date celebrates on the day. A date that cannot be read counts as unknown.
    pub fn celebrates(&self, stored: &str) -> bool {
        let day = Window { first: self.date, last: self.date };
        Birthday::parse(stored).is_ok_and(|birthday| self.calendar.days(birthday, day).next().is_some())
    }

    /// The score that a friend with this stored date has on this day, where the user lives in this zone.
    pub fn score(&self, stored: Option<&str>, tz: Option<&str>) -> Option<i64> {
        stored.filter(|stored| self.celebrates(stored)).map(|_| self.calendar.due(&self.calendar.zone(tz), self.date))
    }

    /// Whether the key has expired, or is about to.
    fn is_over(&self, now: u64) -> bool {
        let ends = self.calendar.expires_at(self.date).saturating_mul(1000).saturating_sub(EXPIRY_MARGIN_MILLISECONDS);
        i64::try_from(now).is_ok_and(|now| now >= ends)
    }

    pub fn judge(&self, member: &str, sight: Sight<'_>) -> Standing {
        let window = self.calendar.window(sight.now);
        let expected = self.score(sight.stored, sight.tz).map(|due| due.to_string());
        let kept = sight.progress.is_kept(self.date);
        if expected.as_deref() == sight.found || !kept || self.date < window.first || self.is_over(sight.now) {
            return Standing::Right;
        }
        let (expected, found) = match (expected, sight.found) {
            (Some(_), None) if !sight.progress.is_complete(self.date) => return Standing::NotRolled,
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

    fn day(day: i8) -> Day {
        let keys = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0));
        Day::new(&Calendar::default(), &keys, date(2026, 12, day))
    }

    fn sight<'a>(stored: Option<&'a str>, found: Option<&'a str>) -> Sight<'a> {
        let progress = Progress::of([Some("2026-11-30"), Some("2026-12-08"), Some("2026-12-07")]);
        Sight { stored, found, now: NOW, progress, ..Sight::default() }
    }

    fn told(day: &Day, sight: Sight<'_>) -> String {
        match day.judge("a:b", sight) {
            Standing::Wrong(violation) => format!("expected {}, found {}", violation.expected, violation.found),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn members_stand_where_the_views_put_them() {
        let day = day(1);
        let due = Calendar::default().due(&jiff::tz::TimeZone::UTC, day.date).to_string();
        let told = |stored, found| told(&day, sight(stored, found));
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
    fn each_is_due_in_the_zone_of_the_user() {
        // 09:00 in Kathmandu is 03:15 in UTC.
        let found = (1_796_115_600 - 5 * 3600 - 45 * 60).to_string();
        let zoned = Sight { tz: Some("Asia/Kathmandu"), ..sight(Some("--12-01"), Some(&found)) };
        assert_eq!(told(&day(1), zoned), "Right");
        let expected = format!("expected a:b at 1796115600, found a:b at {found}");
        assert_eq!(told(&day(1), Sight { tz: None, ..zoned }), expected);
        assert_eq!(told(&day(1), Sight { tz: Some("no zone"), ..zoned }), expected, "it counts as none");
    }

    #[test]
    fn days_that_are_not_kept_are_not_looked_at() {
        let planted = sight(None, Some("1"));
        assert_eq!(told(&day(1), Sight { now: NOW + 120 * HOUR, ..planted }), "Right");
        assert_eq!(told(&day(9), planted), "Right", "it is not open yet");
        assert_eq!(told(&day(1), Sight { progress: Progress::default(), ..planted }), "Right");
        let later = Progress { first: Some(date(2026, 12, 2)), ..planted.progress };
        assert_eq!(
            told(&day(1), Sight { progress: later, ..planted }),
            "Right",
            "it was over before the clock went back"
        );
    }

    #[test]
    fn only_a_day_that_the_roll_has_reached_must_be_complete() {
        let missing = |at: i8| sight(Some(if at == 7 { "--12-07" } else { "--12-08" }), None);
        assert!(told(&day(7), missing(7)).starts_with("expected a:b"));
        assert_eq!(told(&day(8), missing(8)), "NotRolled");
        let unrolled = Progress { rolled: None, ..missing(7).progress };
        assert_eq!(told(&day(7), Sight { progress: unrolled, ..missing(7) }), "NotRolled");
        assert_eq!(
            told(&day(8), sight(None, Some("1"))),
            "expected no a:b, found a:b at 1",
            "there is no reason for more"
        );
    }
}
