//! A birthday as people tell it: with the year, without it, or not at all; and on which days it is celebrated.

use std::fmt;

use jiff::civil::Date;

/// A date of birth. Text forms: `YYYY-MM-DD`, `--MM-DD`, and the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Birthday {
    /// A friend whose date nobody told.
    #[default]
    Unknown,
    /// The day of the year without the year: no age.
    Day { month: i8, day: i8 },
    /// The whole date.
    Date(Date),
}

/// On which day somebody born on 29 February celebrates in a year without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LeapDay {
    #[default]
    #[serde(rename = "february-28")]
    February28,
    #[serde(rename = "march-1")]
    March1,
}

impl LeapDay {
    pub fn other(self) -> LeapDay {
        match self {
            LeapDay::February28 => LeapDay::March1,
            LeapDay::March1 => LeapDay::February28,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("expected YYYY-MM-DD, --MM-DD or nothing")]
    Form,
    #[error("no such day")]
    NoSuchDay,
}

/// The next celebration of a birthday, seen from a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    pub date: Date,
    /// Days from the given day; 0 on the day itself.
    pub days: i32,
    /// The age reached on that date; none where the year is not told.
    pub age: Option<i16>,
}

/// A leap year: a birthday without a year may be 29 February.
const YEAR_LEAP: i16 = 2000;
/// The longest text form.
const TEXT_BYTES_MAX: usize = "YYYY-MM-DD".len();

/// The text form of a birthday, without memory of its own: views are full of them.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl Text {
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("digits and hyphens")
    }
}

impl Birthday {
    pub fn parse(text: &str) -> Result<Birthday, ParseError> {
        let bytes = text.as_bytes();
        match bytes.len() {
            0 => Ok(Birthday::Unknown),
            7 if text.starts_with("--") && bytes[4] == b'-' => {
                let (month, day) = (digits(&bytes[2..4])?, digits(&bytes[5..7])?);
                Date::new(YEAR_LEAP, month as i8, day as i8).map_err(|_| ParseError::NoSuchDay)?;
                Ok(Birthday::Day { month: month as i8, day: day as i8 })
            }
            10 if bytes[4] == b'-' && bytes[7] == b'-' => {
                let (year, month, day) = (digits(&bytes[..4])?, digits(&bytes[5..7])?, digits(&bytes[8..])?);
                if year == 0 {
                    return Err(ParseError::NoSuchDay);
                }
                let date = Date::new(year, month as i8, day as i8).map_err(|_| ParseError::NoSuchDay)?;
                Ok(Birthday::Date(date))
            }
            _ => Err(ParseError::Form),
        }
    }

    pub fn text(self) -> Text {
        let digit = |number: u16| b'0' + (number % 10) as u8;
        let pair = |number: i8| [digit(number.unsigned_abs() as u16 / 10), digit(number.unsigned_abs().into())];
        let mut bytes = *b"YYYY-MM-DD";
        let length = match self {
            Birthday::Unknown => 0,
            Birthday::Day { month, day } => {
                let ([m, n], [d, e]) = (pair(month), pair(day));
                bytes[..7].copy_from_slice(&[b'-', b'-', m, n, b'-', d, e]);
                7
            }
            Birthday::Date(date) => {
                let year = date.year().unsigned_abs();
                bytes[..4].copy_from_slice(&[1000, 100, 10, 1].map(|unit| digit(year / unit)));
                bytes[5..7].copy_from_slice(&pair(date.month()));
                bytes[8..].copy_from_slice(&pair(date.day()));
                bytes.len()
            }
        };
        Text { bytes, length }
    }

    /// Whether it is a day that most years do not have.
    pub fn is_leap_day(self) -> bool {
        match self {
            Birthday::Unknown => false,
            Birthday::Day { month, day } => (month, day) == (2, 29),
            Birthday::Date(date) => (date.month(), date.day()) == (2, 29),
        }
    }

    /// A stored date. One that somebody else spoilt counts as unknown, and the next change of it mends it.
    pub fn lenient(text: &str) -> Birthday {
        Birthday::parse(text).unwrap_or_default()
    }

    /// The birth date where it is known whole.
    pub fn date(self) -> Option<Date> {
        match self {
            Birthday::Date(date) => Some(date),
            Birthday::Unknown | Birthday::Day { .. } => None,
        }
    }

    /// The day on which it is celebrated in `year`; none for an unknown birthday and up to the year of birth.
    pub fn in_year(self, year: i16, leap_day: LeapDay) -> Option<Date> {
        let (month, day) = match self {
            Birthday::Unknown => return None,
            Birthday::Day { month, day } => (month, day),
            Birthday::Date(date) if year <= date.year() => return None,
            Birthday::Date(date) => (date.month(), date.day()),
        };
        // Only 29 February can be missing from a year.
        Date::new(year, month, day).ok().or(match leap_day {
            LeapDay::February28 => Date::new(year, 2, 28).ok(),
            LeapDay::March1 => Date::new(year, 3, 1).ok(),
        })
    }

    /// The days on which it is celebrated from `first` to `last`, both included.
    pub fn days_between(self, first: Date, last: Date, leap_day: LeapDay) -> impl Iterator<Item = Date> {
        (first.year()..=last.year())
            .filter_map(move |year| self.in_year(year, leap_day))
            .filter(move |date| *date >= first && *date <= last)
    }

    /// The next celebration on or after `today`; none for an unknown birthday.
    pub fn next(self, today: Date, leap_day: LeapDay) -> Option<Next> {
        // Two years suffice but for somebody born in the current year or later, who waits until the year after.
        let birth_year = self.date().map_or(today.year(), |date| date.year());
        let first_year = today.year().max(birth_year);
        let date = (first_year..=first_year.saturating_add(1))
            .filter_map(|year| self.in_year(year, leap_day))
            .find(|date| *date >= today)?;
        Some(Next { date, days: (date - today).get_days(), age: self.date().map(|birth| date.year() - birth.year()) })
    }
}

fn digits(bytes: &[u8]) -> Result<i16, ParseError> {
    bytes.iter().try_fold(0i16, |value, byte| match byte {
        b'0'..=b'9' => Ok(value * 10 + i16::from(byte - b'0')),
        _ => Err(ParseError::Form),
    })
}

impl fmt::Display for Birthday {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_parse_or_say_why_not() {
        let cases = [
            ("", Ok(Birthday::Unknown)),
            ("1990-05-01", Ok(Birthday::Date(date(1990, 5, 1)))),
            ("--02-29", Ok(Birthday::Day { month: 2, day: 29 })),
            ("2000-02-29", Ok(Birthday::Date(date(2000, 2, 29)))),
            ("1990-02-30", Err(ParseError::NoSuchDay)),
            ("1900-02-29", Err(ParseError::NoSuchDay)),
            ("--13-01", Err(ParseError::NoSuchDay)),
            ("--00-10", Err(ParseError::NoSuchDay)),
            ("0000-01-01", Err(ParseError::NoSuchDay)),
            ("1990-5-1", Err(ParseError::Form)),
            ("01.05.1990", Err(ParseError::Form)),
            ("1990/05/01", Err(ParseError::Form)),
            ("+199-05-01", Err(ParseError::Form)),
            (" 1990-05-01", Err(ParseError::Form)),
            ("١٩٩٠", Err(ParseError::Form)),
            ("--٢٩-", Err(ParseError::Form)),
        ];
        for (text, expected) in cases {
            assert_eq!(Birthday::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn next_celebrations() {
        let rule = LeapDay::February28;
        let cases = [
            // birthday, today, next, days, age
            ("1990-05-01", date(2026, 5, 1), Some((date(2026, 5, 1), 0, Some(36)))),
            ("1990-05-01", date(2026, 5, 2), Some((date(2027, 5, 1), 364, Some(37)))),
            ("--12-31", date(2026, 12, 31), Some((date(2026, 12, 31), 0, None))),
            ("2000-02-29", date(2026, 2, 28), Some((date(2026, 2, 28), 0, Some(26)))),
            ("2000-02-29", date(2028, 2, 28), Some((date(2028, 2, 29), 1, Some(28)))),
            // Born today: the first birthday is a year away.
            ("2026-05-01", date(2026, 5, 1), Some((date(2027, 5, 1), 365, Some(1)))),
            ("2026-05-01", date(2025, 5, 1), Some((date(2027, 5, 1), 730, Some(1)))),
            ("", date(2026, 5, 1), None),
        ];
        for (text, today, expected) in cases {
            let next = Birthday::parse(text).unwrap().next(today, rule);
            assert_eq!(next.map(|next| (next.date, next.days, next.age)), expected, "{text:?} seen from {today}");
        }
        let march = Birthday::parse("--02-29").unwrap().next(date(2026, 2, 28), LeapDay::March1).unwrap();
        assert_eq!((march.date, march.days), (date(2026, 3, 1), 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// A second calculation: walk day by day and compare month and day.
        #[test]
        fn next_is_the_first_matching_day(
            year in 1900i16..2030, month in 1i8..=12, day in 1i8..=31, today_offset in 0i32..4000, march in any::<bool>()
        ) {
            prop_assume!(Date::new(year, month, day).is_ok());
            let leap_day = if march { LeapDay::March1 } else { LeapDay::February28 };
            let birthday = Birthday::Date(date(year, month, day));
            let today = date(2020, 1, 1).checked_add(jiff::Span::new().days(today_offset)).unwrap();
            let mut walked = today;
            let expected = loop {
                let leaps = walked.in_leap_year();
                let (month_now, day_now) = match (month, day) {
                    (2, 29) if !leaps && march => (3, 1),
                    (2, 29) if !leaps => (2, 28),
                    other => other,
                };
                if walked.year() > year && walked.month() == month_now && walked.day() == day_now {
                    break walked;
                }
                walked = walked.tomorrow().unwrap();
            };
            let next = birthday.next(today, leap_day).unwrap();
            prop_assert_eq!(next.date, expected);
            prop_assert_eq!(next.age, Some(expected.year() - year));
            prop_assert_eq!(today.checked_add(jiff::Span::new().days(next.days)).unwrap(), expected);
        }

        #[test]
        fn valid_texts_print_alike(text in "[0-9]{4}-[01][0-9]-[0-3][0-9]|--[01][0-9]-[0-3][0-9]") {
            if let Ok(birthday) = Birthday::parse(&text) {
                prop_assert_eq!(birthday.to_string(), text);
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,12}") {
            let _ = Birthday::parse(&text);
        }
    }
}
