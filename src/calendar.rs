//! Which days have a key, when a celebration is due, and when a day's key may go: all from a moment and the settings.
//!
//! A day is a day in the user's own zone. At any moment two dates, and for an hour of the day three, are "today" somewhere, so
//! the days that have a key are counted from the earliest and the latest of them: then nobody's yesterday or horizon is missing.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::birthday::{Birthday, LeapDay};

/// How far a zone is behind UTC at most, and how far ahead.
const ZONE_BEHIND_MAX: SignedDuration = SignedDuration::from_hours(12);
pub const ZONE_AHEAD_MAX: SignedDuration = SignedDuration::from_hours(14);

/// The zones as this build knows them, whatever the machine has: so all workers of a cluster agree.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The rules of the calendar, alike for every worker of a cluster.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// Days ahead of today that have a key.
    pub horizon_days: u16,
    /// The zone of users who have told none.
    pub time_zone: TimeZone,
    pub leap_day: LeapDay,
    /// The local time at which a celebration is due.
    pub notify_at: Time,
    /// How long a day's key outlives its day.
    pub day_grace: Duration,
}

/// The days that have a key at a moment: from yesterday where it is earliest to the horizon where it is latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub first: Date,
    pub last: Date,
}

/// The zone of an IANA name, in capitals or not; none for a name that is none.
pub fn zone_named(name: &str) -> Option<TimeZone> {
    ZONES.get(name).ok().filter(|zone| zone.iana_name().is_some())
}

impl Window {
    pub fn holds(&self, date: Date) -> bool {
        self.first <= date && date <= self.last
    }

    pub fn days(&self) -> impl Iterator<Item = Date> {
        let last = self.last;
        self.first.series(jiff::Span::new().days(1)).take_while(move |date| *date <= last)
    }
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
    /// The zone of a user whose profile says this; the calendar's where it says nothing, or nothing that is a zone.
    pub fn zone(&self, tz: Option<&str>) -> TimeZone {
        tz.and_then(zone_named).unwrap_or_else(|| self.time_zone.clone())
    }

    /// The date in the calendar's own zone at a moment in Unix milliseconds.
    pub fn today(&self, milliseconds: u64) -> Date {
        Calendar::today_in(&self.time_zone, milliseconds)
    }

    /// The date in a zone at a moment in Unix milliseconds; moments outside the calendar's years are held at its ends.
    pub fn today_in(zone: &TimeZone, milliseconds: u64) -> Date {
        zone.to_datetime(moment(milliseconds)).date()
    }

    pub fn window(&self, milliseconds: u64) -> Window {
        let date = |moment: Timestamp| TimeZone::UTC.to_datetime(moment).date();
        let now = moment(milliseconds);
        let earliest = date(now.saturating_sub(ZONE_BEHIND_MAX).unwrap_or(now));
        let latest = date(now.saturating_add(ZONE_AHEAD_MAX).unwrap_or(now));
        Window {
            first: earliest.yesterday().unwrap_or(earliest),
            last: latest.saturating_add(jiff::Span::new().days(i64::from(self.horizon_days))),
        }
    }

    /// The days within the window on which a birthday is celebrated.
    pub fn days(&self, birthday: Birthday, window: Window) -> impl Iterator<Item = Date> {
        birthday.days_between(window.first, window.last, self.leap_day)
    }

    /// The same by whichever rule for 29 February.
    pub fn all_days(&self, birthday: Birthday, window: Window) -> impl Iterator<Item = Date> {
        let by = move |leap_day| birthday.days_between(window.first, window.last, leap_day);
        let own = by(self.leap_day);
        let other = if birthday.is_leap_day() { Some(by(self.leap_day.other())) } else { None };
        own.chain(other.into_iter().flatten())
    }

    /// When a celebration on `date` is due in a zone, in Unix seconds. A local time that a clock change skips is taken as the
    /// time after the gap.
    pub fn due(&self, zone: &TimeZone, date: Date) -> i64 {
        zone.to_timestamp(date.to_datetime(self.notify_at)).map_or(i64::MAX / 2, |due| due.as_second())
    }

    /// When the key of `date` may expire, in Unix seconds: the end of the day where it ends last, and the grace after it.
    pub fn expires_at(&self, date: Date) -> i64 {
        let end = date.tomorrow().ok().and_then(|tomorrow| TimeZone::UTC.to_timestamp(tomorrow.at(0, 0, 0, 0)).ok());
        let end = end.map_or(i64::MAX / 2, |end| end.as_second() + ZONE_BEHIND_MAX.as_secs());
        end.saturating_add(self.day_grace.as_secs().try_into().unwrap_or(i64::MAX / 2))
    }
}

fn moment(milliseconds: u64) -> Timestamp {
    let milliseconds = i64::try_from(milliseconds).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod walk;

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
    fn the_window_reaches_from_the_earliest_yesterday_to_the_latest_horizon() {
        // 07:00 in the west, 09:00 of the next day in the east.
        let window = calendar("UTC").window(EVENING);
        assert_eq!(window, Window { first: date(2026, 11, 28), last: date(2026, 12, 8) });
        assert_eq!(calendar("Pacific/Kiritimati").window(EVENING), window, "whatever the calendar's own zone");
        assert_eq!(window.days().count(), 11);
        assert!(window.holds(date(2026, 12, 8)) && !window.holds(date(2026, 12, 9)));
        // 22:00 of the day before, and 00:00 of the day after: three dates at once.
        let window = calendar("UTC").window(EVENING - 9 * 3_600_000);
        assert_eq!(window, Window { first: date(2026, 11, 27), last: date(2026, 12, 8) });
    }

    #[test]
    fn nobodys_yesterday_or_horizon_is_outside_the_window() {
        for zone in ["Pacific/Kiritimati", "Etc/GMT+12", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham"] {
            let zone = zone_named(zone).unwrap();
            for hour in 0..48 {
                let now = EVENING + hour * 3_600_000;
                let (window, today) = (calendar("UTC").window(now), Calendar::today_in(&zone, now));
                let last = today.checked_add(jiff::Span::new().days(8)).unwrap();
                assert!(window.holds(today.yesterday().unwrap()) && window.holds(last), "{zone:?} {hour}");
            }
        }
    }

    #[test]
    fn a_user_without_a_zone_has_the_calendars() {
        let calendar = calendar("Asia/Kathmandu");
        for (tz, expected) in [
            (Some("Europe/Berlin"), "Europe/Berlin"),
            (Some("europe/berlin"), "Europe/Berlin"),
            (Some("Mars/Olympus"), "Asia/Kathmandu"),
            (Some(""), "Asia/Kathmandu"),
            (None, "Asia/Kathmandu"),
        ] {
            assert_eq!(calendar.zone(tz).iana_name(), Some(expected), "{tz:?}");
        }
    }

    #[test]
    fn due_is_the_local_notify_time_across_clock_changes() {
        let (calendar, berlin) = (Calendar::default(), zone_named("Europe/Berlin").unwrap());
        assert_eq!(calendar.due(&berlin, date(2026, 3, 28)), 1_774_684_800, "08:00 UTC in winter");
        assert_eq!(calendar.due(&berlin, date(2026, 3, 29)), 1_774_767_600, "07:00 UTC in summer");
        let gap = Calendar { notify_at: Time::constant(2, 30, 0, 0), ..calendar.clone() };
        assert_eq!(gap.due(&berlin, date(2026, 3, 29)), 1_774_747_800, "02:30 does not exist, 03:30 local follows");
        // 25 October has 02:30 twice: the first of them.
        assert_eq!(gap.due(&berlin, date(2026, 10, 25)), 1_792_888_200);
        // Samoa had no 30 December 2011 at all: it follows at once when the next day begins there.
        let apia = zone_named("Pacific/Apia").unwrap();
        assert_eq!(calendar.due(&apia, date(2011, 12, 30)), calendar.due(&apia, date(2011, 12, 31)));
    }

    #[test]
    fn a_day_key_outlives_its_day_everywhere_by_the_grace() {
        let utc = calendar("UTC");
        assert_eq!(utc.expires_at(date(2026, 11, 29)), 1_795_996_800 + 12 * 3600 + 25 * 3600);
    }

    #[test]
    fn a_leap_day_may_stand_where_another_rule_put_it() {
        let window = Window { first: date(2027, 2, 20), last: date(2027, 3, 10) };
        let days = |text: &str| -> Vec<String> {
            let birthday = Birthday::parse(text).unwrap();
            Calendar::default().all_days(birthday, window).map(|day| day.to_string()).collect()
        };
        assert_eq!(days("2000-02-29"), ["2027-02-28", "2027-03-01"]);
        assert_eq!(days("2000-02-28"), ["2027-02-28"]);
        assert_eq!(days(""), [""; 0]);
    }

    #[test]
    fn moments_beyond_the_calendar_do_not_panic() {
        let window = calendar("UTC").window(u64::MAX);
        assert_eq!(window.last.year(), 9999);
        let _ = calendar("UTC").expires_at(window.last);
    }
}
