//! `heyday calendar`: the months of a user, with the days on which friends celebrate.

mod picture;

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use serde::Serialize;

use super::cluster::{self, block_on};
use super::output::{self, Format};
use super::{Context, Exit};
use crate::birthday::{Birthday, LeapDay};
use crate::change::UserId;
use crate::client::reader::View;

const MONTHS_MAX: i64 = 24;

/// Show the months of a user, with the days on which friends celebrate
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday calendar 42\n  heyday calendar 42 --month 2027-02 --months 3\n\n\
    The first month is the one of the user's own today, unless another is given. Days with a birthday are \
    bold and coloured, and today is reversed; where there is no terminal or NO_COLOR is set, they are marked \
    as 29* and [30].")]
pub struct Arguments {
    /// The user's id
    user: String,
    /// The first month
    #[arg(long, value_name = "YYYY-MM")]
    month: Option<Month>,
    /// So many months
    #[arg(long, value_name = "MONTHS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=MONTHS_MAX))]
    months: u8,
    #[command(flatten)]
    format: Format,
}

/// A month, as its first day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Month(Date);

#[derive(Debug, thiserror::Error)]
#[error("expected YYYY-MM")]
struct NoMonth;

impl FromStr for Month {
    type Err = NoMonth;

    fn from_str(text: &str) -> Result<Month, NoMonth> {
        let date: Option<Date> = format!("{text}-01").parse().ok();
        date.filter(|_| text.len() == "YYYY-MM".len()).map(Month).ok_or(NoMonth)
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

impl Month {
    fn of(date: Date) -> Month {
        Month(date.first_of_month())
    }

    /// The month after; none behind the last one there is.
    fn next(self) -> Option<Month> {
        self.0.last_of_month().tomorrow().ok().map(Month)
    }
}

/// A month and who celebrates in it, by day.
#[derive(Debug, PartialEq, Eq)]
struct Sheet {
    month: Month,
    celebrations: Vec<Celebration>,
}

#[derive(Debug, PartialEq, Eq)]
struct Celebration {
    date: Date,
    friend: UserId,
    birthday: Birthday,
    age: Option<i16>,
}

#[derive(Serialize)]
struct Answer {
    user: String,
    shard: u16,
    state: &'static str,
    freshness_ms: u64,
    today: String,
    months: Vec<MonthAnswer>,
}

#[derive(Serialize)]
struct MonthAnswer {
    month: String,
    days: Vec<DayAnswer>,
}

#[derive(Serialize)]
struct DayAnswer {
    date: String,
    friends: Vec<FriendAnswer>,
}

#[derive(Serialize)]
struct FriendAnswer {
    friend: String,
    birthday: String,
    age: Option<i16>,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let user = cluster::user(&arguments.user)?;
    let options = context.settings.config.reader();
    let leap_day = options.calendar.leap_day;
    let view = block_on(async {
        let hub = cluster::hub(context).await?;
        Ok(hub.reader(options).read(&user).await?)
    })?;
    let first = arguments.month.unwrap_or(Month::of(view.today));
    let months = std::iter::successors(Some(first), |month| month.next()).take(arguments.months.into());
    let sheets: Vec<Sheet> = months.map(|month| Sheet::new(month, &view, leap_day)).collect();
    if arguments.format.json {
        output::print_json(&Answer::new(&view, &sheets))?;
    } else {
        let pictures = sheets.iter().map(|sheet| picture::draw(sheet, view.today, output::is_styled()));
        output::print(&pictures.collect::<Vec<_>>().join("\n"))?;
        if view.state.name() != "live" {
            eprintln!("heyday: {}", output::state(view.state.name(), view.freshness));
        }
    }
    Ok(Exit::Done)
}

impl Sheet {
    fn new(month: Month, view: &View, leap_day: LeapDay) -> Sheet {
        let celebrations = view.friends.iter().filter_map(|friend| {
            let date = friend.birthday.in_year(month.0.year(), leap_day)?;
            let age = friend.birthday.date().map(|birth| date.year() - birth.year());
            let (friend, birthday) = (friend.friend.clone(), friend.birthday);
            (date.month() == month.0.month()).then_some(Celebration { date, friend, birthday, age })
        });
        let mut celebrations: Vec<Celebration> = celebrations.collect();
        celebrations.sort_by(|left, right| left.date.cmp(&right.date).then_with(|| left.friend.cmp(&right.friend)));
        Sheet { month, celebrations }
    }

    /// Those of each day together.
    fn days(&self) -> impl Iterator<Item = &[Celebration]> {
        self.celebrations.chunk_by(|left, right| left.date == right.date)
    }
}

impl Answer {
    fn new(view: &View, sheets: &[Sheet]) -> Answer {
        Answer {
            user: view.user.to_string(),
            shard: view.shard.0,
            state: view.state.name(),
            freshness_ms: u64::try_from(view.freshness.as_millis()).unwrap_or(u64::MAX),
            today: view.today.to_string(),
            months: sheets.iter().map(MonthAnswer::new).collect(),
        }
    }
}

impl MonthAnswer {
    fn new(sheet: &Sheet) -> MonthAnswer {
        let friend = |celebration: &Celebration| FriendAnswer {
            friend: celebration.friend.to_string(),
            birthday: celebration.birthday.to_string(),
            age: celebration.age,
        };
        let day = |day: &[Celebration]| DayAnswer {
            date: day[0].date.to_string(),
            friends: day.iter().map(friend).collect(),
        };
        MonthAnswer { month: sheet.month.to_string(), days: sheet.days().map(day).collect() }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn months_are_written_as_in_dates() {
        assert_eq!("2027-02".parse::<Month>().unwrap(), Month(date(2027, 2, 1)));
        assert_eq!(Month(date(2027, 2, 1)).to_string(), "2027-02");
        assert_eq!("2026-12".parse::<Month>().unwrap().next(), Some(Month(date(2027, 1, 1))));
        assert_eq!("9999-12".parse::<Month>().unwrap().next(), None);
        for text in ["", "2027", "2027-13", "2027-2", "2027-02-01", "02-2027"] {
            assert!(text.parse::<Month>().is_err(), "{text}");
        }
    }
}
