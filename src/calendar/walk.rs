//! A second calculation of days, by counting: whole numbers and the zone's offset, one day after the other.

use jiff::Timestamp;
use jiff::civil::{Date, Time, date};
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::{Calendar, zone_named};
use crate::birthday::{Birthday, LeapDay};

const DAY: i64 = 86_400;
/// 1970-01-01 to 2037-01-01.
const LAST: i64 = 2_114_380_800;
/// Every kind of clock there is: far ahead and behind, odd minutes, half an hour of summer, clocks that change at midnight, and
/// a day that was left out.
const ZONES: [&str; 14] = [
    "Pacific/Kiritimati",
    "Etc/GMT+12",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "America/Sao_Paulo",
    "Asia/Beirut",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "UTC",
];

/// A day as a year, a month and a day of the month.
type Civil = (i64, i64, i64);

/// Days since 1970-01-01, and back: March is the first month, so that the odd day comes last.
fn number_of((year, month, day): Civil) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_of(number: i64) -> Civil {
    let shifted = number + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    (era * 400 + year + i64::from(month <= 2), month, of_year - (153 * shifted_month + 2) / 5 + 1)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn offset(zone: &TimeZone, second: i64) -> i64 {
    zone.to_offset(Timestamp::from_second(second).unwrap()).seconds().into()
}

fn local(zone: &TimeZone, second: i64) -> i64 {
    second + offset(zone, second)
}

fn today(zone: &TimeZone, second: i64) -> i64 {
    local(zone, second).div_euclid(DAY)
}

fn is_celebrated((year, month, day): Civil, on: Civil, leap_day: LeapDay) -> bool {
    let celebrated = match (month, day, leap_day) {
        (2, 29, _) if is_leap(on.0) => (2, 29),
        (2, 29, LeapDay::February28) => (2, 28),
        (2, 29, LeapDay::March1) => (3, 1),
        _ => (month, day),
    };
    on.0 > year && (on.1, on.2) == celebrated
}

/// The first second that has this local time; where none has, as much later as the clock was moved forward.
fn due(zone: &TimeZone, local_second: i64) -> i64 {
    let around = (local_second - 2 * DAY..=local_second + 2 * DAY).step_by(900);
    let offsets: std::collections::BTreeSet<i64> = around.clone().map(|second| offset(zone, second)).collect();
    let exact =
        offsets.iter().map(|offset| local_second - offset).filter(|second| local(zone, *second) == local_second);
    exact.min().unwrap_or_else(|| {
        let before = around.take_while(|second| local(zone, *second) < local_second).last().expect("two days before");
        local_second - offset(zone, before)
    })
}

fn civil(date: Date) -> Civil {
    (date.year().into(), date.month().into(), date.day().into())
}

/// A moment somewhere, at somebody's midnight, or at a change of somebody's clock.
fn moments() -> impl Strategy<Value = (usize, i64)> {
    let any = (0..ZONES.len(), DAY * 2..LAST);
    (any, 0..3, -3i64..=3).prop_map(|((zone, second), kind, jitter)| {
        let clock = zone_named(ZONES[zone]).unwrap();
        let at = match kind {
            0 => second,
            1 => {
                let midnight = local(&clock, second).div_euclid(DAY) * DAY;
                midnight - offset(&clock, midnight) + jitter
            }
            _ => {
                let change = clock.following(Timestamp::from_second(second).unwrap()).next();
                change.map_or(second, |change| change.timestamp().as_second() + jitter)
            }
        };
        (zone, at.clamp(DAY, LAST))
    })
}

fn birthdays() -> impl Strategy<Value = (Civil, bool)> {
    let dates = (number_of((1900, 1, 1))..number_of((2040, 1, 1))).prop_map(civil_of);
    let leap = (475i64..510).prop_map(|year| (year * 4, 2, 29)).prop_filter("a leap year", |date| is_leap(date.0));
    (prop_oneof![4 => dates, 1 => leap], any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn today_next_days_and_age_are_those_of_counting(
        (zone, second) in moments(), (born, has_year) in birthdays(), march in any::<bool>()
    ) {
        let zone = zone_named(ZONES[zone]).unwrap();
        let leap_day = if march { LeapDay::March1 } else { LeapDay::February28 };
        let birth = date(born.0 as i16, born.1 as i8, born.2 as i8);
        let birthday = if has_year { Birthday::Date(birth) } else { Birthday::Day { month: birth.month(), day: birth.day() } };
        let counted_from = if has_year { born } else { (i64::MIN, born.1, born.2) };

        let first = today(&zone, second);
        let found = Calendar::today_in(&zone, second as u64 * 1000 + 999);
        prop_assert_eq!(civil(found), civil_of(first));

        let mut walked = first;
        while !is_celebrated(counted_from, civil_of(walked), leap_day) {
            walked += 1;
        }
        let next = birthday.next(found, leap_day).unwrap();
        prop_assert_eq!(civil(next.date), civil_of(walked));
        prop_assert_eq!(i64::from(next.days), walked - first);
        prop_assert_eq!(next.age.map(i64::from), has_year.then_some(civil_of(walked).0 - born.0));
    }

    #[test]
    fn due_is_the_first_moment_of_the_local_time(
        (zone, second) in moments(), hour in 0i8..24, minute in 0i8..60, ahead in -1i64..9
    ) {
        let zone = zone_named(ZONES[zone]).unwrap();
        let day = today(&zone, second) + ahead;
        let (year, month, of_month) = civil_of(day);
        let calendar = Calendar { notify_at: Time::constant(hour, minute, 0, 0), ..Calendar::default() };
        let found = calendar.due(&zone, date(year as i16, month as i8, of_month as i8));
        prop_assert_eq!(found, due(&zone, day * DAY + i64::from(hour) * 3600 + i64::from(minute) * 60));
    }

    #[test]
    fn a_window_holds_the_days_that_counting_finds_in_it(
        (_, second) in moments(), (born, _) in birthdays(), horizon_days in 0u16..400, march in any::<bool>()
    ) {
        let leap_day = if march { LeapDay::March1 } else { LeapDay::February28 };
        let calendar = Calendar { horizon_days, leap_day, ..Calendar::default() };
        let window = calendar.window(second as u64 * 1000);
        let first = (second - 12 * 3600).div_euclid(DAY) - 1;
        let last = (second + 14 * 3600).div_euclid(DAY) + i64::from(horizon_days);
        prop_assert_eq!((civil(window.first), civil(window.last)), (civil_of(first), civil_of(last)));
        let birthday = Birthday::Date(date(born.0 as i16, born.1 as i8, born.2 as i8));
        let found: Vec<Civil> = calendar.days(birthday, window).map(civil).collect();
        let counted: Vec<Civil> =
            (first..=last).map(civil_of).filter(|day| is_celebrated(born, *day, leap_day)).collect();
        prop_assert_eq!(found, counted);
    }
}

#[test]
fn numbers_and_days_are_one_to_one() {
    assert_eq!((number_of((1970, 1, 1)), number_of((2000, 2, 29)), number_of((2026, 11, 30))), (0, 11_016, 20_787));
    for number in number_of((1895, 1, 1))..number_of((2105, 1, 1)) {
        let (year, month, day) = civil_of(number);
        assert_eq!(number_of((year, month, day)), number);
        let next = if (month, day) == (12, 31) { (year + 1, 1, 1) } else { civil_of(number + 1) };
        assert_eq!(civil_of(number + 1), next);
    }
}
