//! Which days have a key, when a celebration is due, and when a day's key may go: all from a moment and the settings.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

use crate::birthday::{Birthday, LeapDay};

/// The rules of the calendar, alike for every worker of a cluster.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// Days ahead of today that have a key.
    pub horizon_days: u16,
    pub time_zone: TimeZone,
    pub leap_day: LeapDay,
    /// The local time at which a celebration is due.
    pub notify_at: Time,
    /// How long a day's key outlives its day.
    pub day_grace: Duration,
}

/// The days that have a key at a moment: yesterday to the horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub first: Date,
    pub today: Date,
    pub last: Date,
}

impl Default for Calendar {
    fn default() -> Calendar {
        Calendar {
            horizon_days: 8,
            time_zone: TimeZone::UTC,
            leap_day: LeapDay::February28,
            notify_at: Time::constant(9, 0, 0, 0),
            day_grace: Duration::from_secs(25 * 3600),
        }
    }
}

impl Calendar {
    /// The local date at a moment in Unix milliseconds; moments outside the calendar's years are held at its ends.
    pub fn today(&self, milliseconds: u64) -> Date {
        let milliseconds = i64::try_from(milliseconds).unwrap_or(i64::MAX);
        let moment = Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX);
        moment.to_zoned_datetime(self.time_zone.clone()).date()
    }

    pub fn window(&self, milliseconds: u64) -> Window {
        let today = self.today(milliseconds);
        Window {
            first: today.yesterday().unwrap_or(today),
            today,
            last: today.saturating_add(jiff::Span::new().days(i64::from(self.horizon_days))),
        }
    }

    /// The days within the window on which a birthday is celebrated.
    pub fn days(&self, birthday: Birthday, window: Window) -> impl Iterator<Item = Date> {
        birthday.days_between(window.first, window.last, self.leap_day)
    }

    /// When a celebration on `date` is due, in Unix seconds.
    pub fn due(&self, date: Date) -> i64 {
        self.instant(date, self.notify_at)
    }

    /// When the key of `date` may expire, in Unix seconds: the end of the day and the grace after it.
    pub fn expires_at(&self, date: Date) -> i64 {
        let end = date.tomorrow().map_or(i64::MAX / 2, |tomorrow| self.instant(tomorrow, Time::midnight()));
        end.saturating_add(self.day_grace.as_secs().try_into().unwrap_or(i64::MAX / 2))
    }

    /// When `date` comes within the horizon, in Unix milliseconds: from then on changes keep its key.
    pub fn opens_at(&self, date: Date) -> i64 {
        let first = date.saturating_sub(jiff::Span::new().days(i64::from(self.horizon_days)));
        self.instant(first, Time::midnight()).saturating_mul(1000)
    }

    /// A local time that a clock change skips is taken as the time after the gap.
    fn instant(&self, date: Date, time: Time) -> i64 {
        date.to_datetime(time)
            .to_zoned_datetime(self.time_zone.clone())
            .map_or(i64::MAX / 2, |zoned| zoned.timestamp().as_second())
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn calendar(zone: &str) -> Calendar {
        Calendar { time_zone: TimeZone::get(zone).unwrap(), ..Calendar::default() }
    }

    /// 2026-11-29T19:00:00Z
    const EVENING: u64 = 1_795_978_800_000;

    #[test]
    fn today_is_the_day_of_the_zone() {
        assert_eq!(calendar("UTC").today(EVENING), date(2026, 11, 29));
        assert_eq!(calendar("Pacific/Kiritimati").today(EVENING), date(2026, 11, 30));
        assert_eq!(calendar("Etc/GMT+12").today(EVENING), date(2026, 11, 29));
        assert_eq!(calendar("Asia/Kathmandu").today(EVENING), date(2026, 11, 30));
    }

    #[test]
    fn the_window_reaches_from_yesterday_to_the_horizon() {
        let window = calendar("UTC").window(EVENING);
        assert_eq!(
            (window.first, window.today, window.last),
            (date(2026, 11, 28), date(2026, 11, 29), date(2026, 12, 7))
        );
    }

    #[test]
    fn due_is_the_local_notify_time_across_clock_changes() {
        let berlin = calendar("Europe/Berlin");
        assert_eq!(berlin.due(date(2026, 3, 28)), 1_774_684_800, "08:00 UTC in winter");
        assert_eq!(berlin.due(date(2026, 3, 29)), 1_774_767_600, "07:00 UTC in summer");
        let gap = Calendar { notify_at: Time::constant(2, 30, 0, 0), ..berlin };
        assert_eq!(gap.due(date(2026, 3, 29)), 1_774_747_800, "02:30 does not exist, 03:30 local follows");
    }

    #[test]
    fn a_day_key_outlives_its_day_by_the_grace() {
        let utc = calendar("UTC");
        assert_eq!(utc.expires_at(date(2026, 11, 29)), 1_795_996_800 + 25 * 3600);
    }

    #[test]
    fn moments_beyond_the_calendar_do_not_panic() {
        let window = calendar("UTC").window(u64::MAX);
        assert_eq!(window.last.year(), 9999);
        let _ = calendar("UTC").expires_at(window.last);
    }
}
