//! Birthdays as a feed that calendar programs subscribe to (RFC 5545).
//!
//! An event is a friend's birthday for ever: it begins at the date of birth, or in the year 2000 where the year is not
//! told, and comes back each year by a rule. Nothing but DTSTAMP depends on when the feed was made, so a
//! program that fetches it again finds the same events.

use icalendar::{Calendar, Component, Event, Property};
use jiff::Timestamp;
use jiff::civil::Date;

use crate::birthday::{Birthday, LeapDay};
use crate::change::UserId;

/// The year in which a birthday without one begins: past for everybody's calendar, and with a 29 February.
const YEAR_FIRST: i16 = 2000;
const PRODUCT: &str = "-//heyday//heyday//EN";

/// The feed of one user's friends; who has no date is left out.
pub(super) fn feed(
    user: &UserId,
    friends: impl IntoIterator<Item = (UserId, Birthday)>,
    now: Timestamp,
    leap_day: LeapDay,
) -> String {
    let mut calendar = Calendar::empty();
    calendar.append_property(("VERSION", "2.0"));
    calendar.append_property(("PRODID", PRODUCT));
    calendar.append_property(("CALSCALE", "GREGORIAN"));
    calendar.append_property(Property::new("X-WR-CALNAME", format!("Birthdays of {user}'s friends")));
    for (friend, birthday) in friends {
        let start = birthday.date().or_else(|| birthday.in_year(YEAR_FIRST, leap_day));
        if let Some(start) = start {
            calendar.push(event((user, &friend), (birthday, start), now, leap_day));
        }
    }
    calendar.to_string()
}

fn event(
    (user, friend): (&UserId, &UserId),
    (birthday, start): (Birthday, Date),
    now: Timestamp,
    leap_day: LeapDay,
) -> Event {
    let mut event = Event::new();
    // No id contains a colon, so no two pairs share a name.
    event.uid(&format!("{user}:{friend}@heyday"));
    event.summary(friend.as_str());
    event.append_property(("DTSTAMP", &*now.strftime("%Y%m%dT%H%M%SZ").to_string()));
    event.append_property(day("DTSTART", start));
    if let Ok(end) = start.tomorrow() {
        event.append_property(day("DTEND", end));
    }
    event.append_property(("RRULE", rule(birthday, leap_day)));
    event.append_property(("TRANSP", "TRANSPARENT"));
    event.done()
}

/// The first day of an event is always one that its rule gives too, as the standard asks for.
fn rule(birthday: Birthday, leap_day: LeapDay) -> &'static str {
    let born = match birthday {
        Birthday::Unknown => None,
        Birthday::Day { month, day } => Some((month, day)),
        Birthday::Date(date) => Some((date.month(), date.day())),
    };
    match (born, leap_day) {
        (Some((2, 29)), LeapDay::February28) => "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=-1",
        // Day 60 is 29 February where there is one, and 1 March elsewhere.
        (Some((2, 29)), LeapDay::March1) => "FREQ=YEARLY;BYYEARDAY=60",
        _ => "FREQ=YEARLY",
    }
}

fn day(name: &str, date: Date) -> Property {
    let digits = format!("{:04}{:02}{:02}", date.year(), date.month(), date.day());
    Property::new(name, digits).append_parameter(("VALUE", "DATE")).done()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::civil::date;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn text(user: &str, friends: &[(&str, &str)], leap_day: LeapDay) -> String {
        let friends = friends.iter().map(|(friend, date)| (friend.parse().unwrap(), Birthday::parse(date).unwrap()));
        feed(&user.parse().unwrap(), friends, NOW, leap_day)
    }

    fn unfolded(text: &str) -> Vec<String> {
        text.replace("\r\n ", "").split_terminator("\r\n").map(str::to_owned).collect()
    }

    #[test]
    fn a_feed_is_public_and_keeps_its_shape() {
        let friends = [("77", "1990-05-01"), ("78", "2000-02-29"), ("79", "--12-24"), ("80", "")];
        insta::assert_snapshot!(text("42", &friends, LeapDay::February28).replace("\r\n", "\n"));
    }

    #[test]
    fn lines_are_folded_and_text_is_escaped() {
        let (user, friend) = ("я".repeat(32), format!("a,b;c\\d\"{}", "🎂".repeat(12)));
        let feed = text(&user, &[(&friend, "1990-05-01")], LeapDay::February28);
        assert!(feed.ends_with("END:VCALENDAR\r\n"));
        let lines: Vec<&str> = feed.split_terminator("\r\n").collect();
        assert!(lines.iter().all(|line| line.len() <= 75 && !line.contains(['\r', '\n'])), "{feed}");
        assert!(lines.iter().any(|line| line.starts_with(' ')), "{feed}");
        let escaped = friend.replace('\\', "\\\\").replace(',', "\\,").replace(';', "\\;");
        assert!(unfolded(&feed).contains(&format!("SUMMARY:{escaped}")), "{feed}");
        assert!(unfolded(&feed).contains(&format!("UID:{user}:{escaped}@heyday")), "{feed}");
        let parsed: Calendar = feed.parse().unwrap();
        let event = parsed.events().next().unwrap();
        assert_eq!(event.get_summary(), Some(&*friend));
    }

    #[test]
    fn names_of_events_differ_and_nothing_but_the_stamp_changes() {
        let feed = |now: &str| {
            let friends = [("b-c", "1990-05-01"), ("c", "--05-01"), ("d", "--02-29")];
            let friends = friends.map(|(friend, date)| (friend.parse().unwrap(), Birthday::parse(date).unwrap()));
            let feed = super::feed(&"a".parse().unwrap(), friends, now.parse().unwrap(), LeapDay::March1);
            unfolded(&feed).into_iter().filter(|line| !line.starts_with("DTSTAMP:")).collect::<Vec<_>>()
        };
        let lines = feed("2026-11-30T09:00Z");
        assert_eq!(lines.iter().filter(|line| line.starts_with("UID:")).collect::<BTreeSet<_>>().len(), 3);
        assert!(lines.contains(&"DTSTART;VALUE=DATE:20000229".to_owned()), "{lines:?}");
        assert_eq!(lines, feed("2030-01-01T00:00Z"));
    }

    /// Every day there is, with and without a year, by both rules, read back and expanded by another library.
    #[test]
    fn rules_give_the_days_of_celebration() {
        for leap_day in [LeapDay::February28, LeapDay::March1] {
            let days = date(2000, 1, 1).series(jiff::Span::new().days(1)).take(366);
            let texts: Vec<String> = days
                .flat_map(|day| {
                    let day = day.strftime("-%m-%d").to_string();
                    [format!("1988{day}"), format!("-{day}"), format!("1991{day}")]
                })
                .filter(|text| Birthday::parse(text).is_ok())
                .collect();
            let friends: Vec<(&str, &str)> = texts.iter().map(|text| (&**text, &**text)).collect();
            let parsed: Calendar = text("42", &friends, leap_day).parse().unwrap();
            assert_eq!(parsed.events().count(), 366 + 366 + 365);
            for event in parsed.events() {
                let birthday = Birthday::parse(event.get_summary().unwrap()).unwrap();
                let (start, found) = expanded(event);
                let first = birthday.date().or_else(|| birthday.in_year(YEAR_FIRST, leap_day)).unwrap();
                assert_eq!(start, first.strftime("%Y%m%d").to_string());
                let later =
                    (first.year() + 1..=first.year() + 10).map(|year| birthday.in_year(year, leap_day).unwrap());
                let expected: Vec<String> = [first].into_iter().chain(later).map(|date| date.to_string()).collect();
                assert_eq!(found, expected, "{birthday} {leap_day:?}");
            }
        }
    }

    /// DTSTART, and the first eleven days that the rule gives from there.
    fn expanded(event: &Event) -> (String, Vec<String>) {
        let (start, rule) = (event.property_value("DTSTART").unwrap(), event.property_value("RRULE").unwrap());
        let set: rrule::RRuleSet = format!("DTSTART:{start}T000000Z\nRRULE:{rule}").parse().unwrap();
        let days = set.all(11).dates.into_iter().map(|moment| moment.format("%Y-%m-%d").to_string());
        (start.to_owned(), days.collect())
    }
}
