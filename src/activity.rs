//! A user's activity: sums of weights by local day, and what a reader makes of them. Nothing has to run for a count to fall:
//! the stored days stay as they are, and the reader's own today moves on.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Span;
use jiff::civil::Date;

use crate::birthday::Birthday;

/// Days that are counted, up to the user's today.
pub const DAYS_KEPT: u16 = 31;
/// How long the days outlive the last activity.
pub const KEPT_FOR: Duration = Duration::from_secs(DAYS_KEPT as u64 * 24 * 3600);
/// The largest sum of a category: beyond it a score would skip whole numbers.
pub const WEIGHT_SUM_MAX: u64 = 1 << 53;

/// How active a user was, seen from one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The sum of weights on that day.
    pub today: u64,
    /// The same over that day and the six before.
    pub last_7_days: u64,
    /// The same over that day and the 29 before.
    pub last_30_days: u64,
    /// The moment of the newest activity, Unix milliseconds.
    pub last: Option<u64>,
}

impl Activity {
    /// From the stored days and the profile's `last_activity`. `today` is a day in the user's zone.
    pub fn of(days: &[(String, String)], last_activity: Option<u64>, today: Date) -> Activity {
        let (today, last_7_days, last_30_days) = windows(&read(days), today);
        Activity { today, last_7_days, last_30_days, last: last_activity }
    }
}

/// The stored days; a field that somebody spoilt counts as none.
pub fn read(days: &[(String, String)]) -> BTreeMap<Date, u64> {
    days.iter().filter_map(|(day, sum)| Some((day_of(day)?, sum_of(sum)?))).collect()
}

/// The sums of today, of the last 7 and of the last 30 days, today among them. Days after today, which there are after a
/// move to the west, do not count yet.
pub fn windows(days: &BTreeMap<Date, u64>, today: Date) -> (u64, u64, u64) {
    let sum = |length: i64| {
        let first = today.saturating_sub(Span::new().days(length - 1));
        days.range(first..=today).fold(0u64, |sum, (_, count)| sum.saturating_add(*count))
    };
    (sum(1), sum(7), sum(30))
}

/// The oldest day that is counted.
pub fn first_day(today: Date) -> Date {
    today.saturating_sub(Span::new().days(i64::from(DAYS_KEPT) - 1))
}

/// A field's name as the day it stands for: `YYYY-MM-DD` and nothing else.
pub fn day_of(name: &str) -> Option<Date> {
    Birthday::parse(name).ok()?.date()
}

/// A field's value: a whole number in digits.
pub fn sum_of(value: &str) -> Option<u64> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten()
}

/// A score as a sum of weights; what somebody spoilt weighs nothing.
pub fn weight_of(score: &str) -> u64 {
    // Out of range and not a number become a bound or zero.
    score.parse::<f64>().map_or(0, |score| score as u64).min(WEIGHT_SUM_MAX)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_window_ends_today_and_begins_on_its_first_day() {
        let stored = pairs(&[
            ("2026-10-30", "1000000"),
            ("2026-10-31", "100000"),
            ("2026-11-01", "10000"),
            ("2026-11-22", "1000"),
            ("2026-11-23", "100"),
            ("2026-11-29", "10"),
            ("2026-11-30", "1"),
        ]);
        let seen = |day| {
            let Activity { today, last_7_days, last_30_days, .. } = Activity::of(&stored, None, day);
            (today, last_7_days, last_30_days)
        };
        assert_eq!(seen(date(2026, 11, 29)), (10, 110, 111_110));
        assert_eq!(seen(date(2026, 11, 30)), (1, 11, 11_111));
        assert_eq!(seen(date(2026, 12, 30)), (0, 0, 0));
    }

    #[test]
    fn what_somebody_spoilt_counts_as_nothing() {
        let stored = pairs(&[
            ("2026-11-29", "7"),
            ("2026-11-28", "-1"),
            ("2026-11-27", "many"),
            ("2026-11-26", "+5"),
            ("2026-11-25", ""),
            ("20261124", "5"),
            ("2026-11-31", "5"),
            ("2026-11-23T00:00", "5"),
            ("yesterday", "5"),
        ]);
        let expected = Activity { today: 7, last_7_days: 7, last_30_days: 7, last: Some(3) };
        assert_eq!(Activity::of(&stored, Some(3), date(2026, 11, 29)), expected);
        assert_eq!(Activity::of(&[], None, date(2026, 11, 29)), Activity::default());
    }

    #[test]
    fn sums_stop_at_the_largest_number() {
        let most = u64::MAX.to_string();
        let stored = pairs(&[("2026-11-29", &most), ("2026-11-28", "1")]);
        let seen = Activity::of(&stored, None, date(2026, 11, 29));
        assert_eq!((seen.today, seen.last_7_days), (u64::MAX, u64::MAX));
    }

    proptest! {
        /// Against a second calculation that goes from day to day and asks of each whether it lies within.
        #[test]
        fn an_idle_user_s_counts_fall_as_days_pass(
            counts in prop::collection::btree_map(0i64..31, 1u64..1000, 1..31),
        ) {
            let last = date(2024, 3, 1);
            let day = |before: i64| last.checked_sub(Span::new().days(before)).unwrap();
            let stored: Vec<_> = counts.iter().map(|(before, sum)| (day(*before).to_string(), sum.to_string())).collect();
            let mut earlier = Activity { last_7_days: u64::MAX, last_30_days: u64::MAX, ..Activity::default() };
            for later in 0..40 {
                let seen = Activity::of(&stored, None, last.checked_add(Span::new().days(later)).unwrap());
                let within = |length: i64| {
                    let age = |before: &i64| before + later;
                    counts.iter().filter(|(before, _)| age(before) < length).map(|(_, sum)| *sum).sum::<u64>()
                };
                prop_assert_eq!((seen.today, seen.last_7_days, seen.last_30_days), (within(1), within(7), within(30)));
                prop_assert!(seen.last_7_days <= earlier.last_7_days && seen.last_30_days <= earlier.last_30_days);
                earlier = seen;
            }
            prop_assert_eq!(earlier, Activity::default());
        }
    }
}
