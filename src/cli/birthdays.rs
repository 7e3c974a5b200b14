//! `heyday birthdays`: who has whom to congratulate on a day.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use anyhow::Context as _;
use indicatif::ProgressBar;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;

use super::cluster::{self, block_on};
use super::output::{self, Format, Rows};
use super::signals::Signals;
use super::{Context, Exit, progress};
use crate::calendar::Calendar;
use crate::change::UserId;
use crate::client::day::{Celebrations, Cursor, DayStream, Incomplete, Options};
use crate::shard::Shard;

/// List who has whom to congratulate on a day, over all shards
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday birthdays today\n  heyday birthdays 2026-11-30 --due-until now --json | jq -r .user\n  \
    heyday birthdays tomorrow --limit 1000 --cursor 2026-12-01:3:1796115600:42:77\n\n\
    Users come shard by shard, then by when they are due, each once with all friends who celebrate; with \
    --json each user is a line of its own. Where the list is cut off by --limit, by Ctrl-C or by a failure, \
    stderr says from which cursor to go on; each line of JSON carries the one behind it."
)]
pub struct Arguments {
    /// YYYY-MM-DD, today, tomorrow or yesterday (in calendar.time_zone)
    date: Day,
    /// Go on behind this place, as an earlier run printed it
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<Cursor>,
    /// Only who is due later than this: Unix seconds, a time such as 2026-11-30T09:00Z, or now
    #[arg(long, value_name = "TIME")]
    due_after: Option<Moment>,
    /// Only who is due by then, written alike
    #[arg(long, value_name = "TIME")]
    due_until: Option<Moment>,
    /// At most so many users
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// List shards too in which the day is not complete, and name them
    #[arg(long)]
    incomplete: bool,
    #[command(flatten)]
    format: Format,
}

/// A day as people say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    Date(Date),
    /// So many days from today.
    Relative(i8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Now,
    Seconds(i64),
}

#[derive(Debug, thiserror::Error)]
#[error("expected {0}")]
struct Expected(&'static str);

impl FromStr for Day {
    type Err = Expected;

    fn from_str(text: &str) -> Result<Day, Expected> {
        const EXPECTED: Expected = Expected("YYYY-MM-DD, today, tomorrow or yesterday");
        match text {
            "yesterday" => Ok(Day::Relative(-1)),
            "today" => Ok(Day::Relative(0)),
            "tomorrow" => Ok(Day::Relative(1)),
            date if date.len() == "YYYY-MM-DD".len() => date.parse().map(Day::Date).map_err(|_| EXPECTED),
            _ => Err(EXPECTED),
        }
    }
}

impl Day {
    fn date(self, calendar: &Calendar, now: u64) -> Date {
        match self {
            Day::Date(date) => date,
            Day::Relative(days) => calendar.today(now).saturating_add(jiff::Span::new().days(days)),
        }
    }
}

impl FromStr for Moment {
    type Err = Expected;

    fn from_str(text: &str) -> Result<Moment, Expected> {
        if text == "now" {
            return Ok(Moment::Now);
        }
        let seconds = text.parse().ok().or_else(|| Some(text.parse::<Timestamp>().ok()?.as_second()));
        seconds.map(Moment::Seconds).ok_or(Expected("Unix seconds, a time such as 2026-11-30T09:00Z, or now"))
    }
}

impl Moment {
    fn seconds(self, now: u64) -> i64 {
        match self {
            Moment::Now => i64::try_from(now / 1000).unwrap_or(i64::MAX),
            Moment::Seconds(seconds) => seconds,
        }
    }
}

#[derive(Serialize)]
struct Line {
    user: String,
    due: i64,
    shard: u16,
    /// Whether the day is complete in the shard.
    complete: bool,
    friends: Vec<Friend>,
    cursor: String,
}

#[derive(Serialize)]
struct Friend {
    friend: String,
    birthday: String,
    age: Option<i16>,
}

impl Line {
    fn new(found: &Celebrations, incomplete: &[Incomplete]) -> Line {
        let friends = found.friends.iter().map(|celebrant| Friend {
            friend: celebrant.friend.to_string(),
            birthday: celebrant.birthday.to_string(),
            age: celebrant.age,
        });
        Line {
            user: found.user.to_string(),
            due: found.due,
            shard: found.shard.0,
            complete: incomplete.iter().all(|incomplete| incomplete.shard != found.shard),
            friends: friends.collect(),
            cursor: found.cursor.to_string(),
        }
    }
}

/// How a list came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Whole,
    Limited,
    Told,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let config = &context.settings.config;
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
    let date = arguments.date.date(&config.rules().calendar, now);
    let options = Options {
        cursor: arguments.cursor,
        due_after: arguments.due_after.map(|moment| moment.seconds(now)),
        due_until: arguments.due_until.map(|moment| moment.seconds(now)),
        incomplete: arguments.incomplete,
        ..Options::default()
    };
    block_on(async {
        let mut signals = Signals::new()?;
        let hub = cluster::hub(context).await?;
        let shards = u64::from(hub.layout().count());
        let mut list = List {
            day: hub.reader(config.reader()).day(date, options),
            json: arguments.format.json,
            rows: Rows::new(&["due", "user", "friend", "birthday", "turns"], &[4]),
            // On a terminal the rows themselves show how far it is.
            bar: if output::is_terminal() { ProgressBar::hidden() } else { progress::of_items(shards) },
            users: 0,
        };
        let ended = list.go(&mut signals, arguments.limit.unwrap_or(u64::MAX)).await;
        list.bar.finish_and_clear();
        list.rows.print()?;
        Ok(list.tell(date, ended?))
    })
}

struct List {
    day: DayStream,
    json: bool,
    rows: Rows,
    bar: ProgressBar,
    users: u64,
}

impl List {
    async fn go(&mut self, signals: &mut Signals, limit: u64) -> anyhow::Result<Ended> {
        loop {
            let found = tokio::select! {
                biased;
                () = signals.next() => return Ok(Ended::Told),
                found = self.day.next_user() => found,
            };
            let Some(found) = found else { return Ok(Ended::Whole) };
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    let behind = error.cursor().map(|cursor| format!("broken off, go on with --cursor {cursor}"));
                    return match behind.filter(|_| self.users > 0) {
                        Some(behind) => Err(error).context(behind),
                        None => Err(error.into()),
                    };
                }
            };
            self.bar.set_position(found.shard.0.into());
            self.add(&found)?;
            self.users += 1;
            if self.users == limit {
                return Ok(Ended::Limited);
            }
        }
    }

    fn add(&mut self, found: &Celebrations) -> std::io::Result<()> {
        if self.json {
            return self.bar.suspend(|| output::print_json(&Line::new(found, self.day.incomplete())));
        }
        let due =
            u64::try_from(found.due).map_or(found.due.to_string(), |due| output::moment(due.saturating_mul(1000)));
        for celebrant in &found.friends {
            let age = output::shown(celebrant.age);
            let shown = |id: &UserId| output::harmless(id.as_str());
            let (user, friend) = (shown(&found.user), shown(&celebrant.friend));
            self.rows.add([due.clone(), user, friend, celebrant.birthday.to_string(), age])?;
        }
        Ok(())
    }

    /// What is to be known besides the list.
    fn tell(&self, date: Date, ended: Ended) -> Exit {
        if !self.day.incomplete().is_empty() {
            let shards = Ranges(self.day.incomplete().iter().map(|incomplete| incomplete.shard).collect());
            eprintln!("heyday: {date} is not complete in {shards}: somebody may be missing there");
        }
        match ended {
            Ended::Whole if self.users == 0 => eprintln!("heyday: nobody to congratulate on {date}"),
            Ended::Whole => {}
            Ended::Limited => eprintln!("heyday: go on with --cursor {}", self.day.cursor()),
            Ended::Told => {
                eprintln!("heyday: told to stop; go on with --cursor {}", self.day.cursor());
                return Exit::Found;
            }
        }
        Exit::Done
    }
}

/// Shards in their order, neighbours together: `shards 0-3, 7`.
struct Ranges(Vec<Shard>);

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "shard " } else { "shards " })?;
        let neighbours = |left: &Shard, right: &Shard| left.0.checked_add(1) == Some(right.0);
        for (at, range) in self.0.chunk_by(neighbours).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match range {
                [one] => write!(f, "{comma}{one}")?,
                range => write!(f, "{comma}{}-{}", range[0], range[range.len() - 1])?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    /// 2026-11-29T23:30:00Z
    const NOW: u64 = 1_795_995_000_000;

    #[test]
    fn days_are_those_of_the_calendars_zone() {
        let calendar = Calendar { time_zone: jiff::tz::TimeZone::get("Europe/Berlin").unwrap(), ..Calendar::default() };
        for (text, expected) in [
            ("yesterday", date(2026, 11, 29)),
            ("today", date(2026, 11, 30)),
            ("tomorrow", date(2026, 12, 1)),
            ("2028-02-29", date(2028, 2, 29)),
        ] {
            assert_eq!(text.parse::<Day>().unwrap().date(&calendar, NOW), expected, "{text}");
        }
        for text in ["", "Today", "2026-11-31", "20261130", "30.11.2026", "--11-30"] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_seconds_or_times_with_a_zone() {
        for (text, expected) in [
            ("now", 1_795_995_000),
            ("1796029200", 1_796_029_200),
            ("2026-11-30T09:00Z", 1_796_029_200),
            ("2026-11-30T10:00:00+01:00", 1_796_029_200),
            ("-5", -5),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().seconds(NOW), expected, "{text}");
        }
        for text in ["", "soon", "2026-11-30", "2026-11-30T09:00", "9:00"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }

    #[test]
    fn many_shards_are_named_shortly() {
        let text = |shards: &[u16]| Ranges(shards.iter().copied().map(Shard).collect()).to_string();
        assert_eq!(text(&[7]), "shard 7");
        assert_eq!(text(&[0, 1, 2, 5, 7, 8]), "shards 0-2, 5, 7-8");
    }
}
