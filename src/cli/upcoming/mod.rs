//! `heyday upcoming`: whose birthday comes next for a user.

mod ics;

use jiff::Timestamp;
use serde::Serialize;

use super::cluster::{self, block_on};
use super::output::{self, Format};
use super::{Context, Exit};
use crate::client::reader::View;
use crate::client::upcoming::{DAYS_MAX, Upcoming};

/// How far ahead is looked where nobody says.
const DAYS: u16 = 30;

/// Show which friends celebrate soon, or a calendar feed of all of them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday upcoming 42\n  heyday upcoming 42 --days 0 --json | jq -r '.friends[].friend'\n  \
    heyday upcoming 42 --ics > birthdays.ics\n\n\
    Days are counted from the user's own today: in the time zone of the profile, or calendar.time_zone. The \
    feed (iCalendar) has one yearly event for every friend whose date is known, however far ahead, unless \
    --days is given. It begins with the date of birth, or this year where the year of birth is not told."
)]
pub struct Arguments {
    /// The user's id
    user: String,
    /// So many days ahead; 0 is today only [default: 30]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(..=i64::from(DAYS_MAX)))]
    days: Option<u16>,
    /// Print an iCalendar feed
    #[arg(long, conflicts_with = "json")]
    ics: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    user: String,
    shard: u16,
    state: &'static str,
    freshness_ms: u64,
    today: String,
    days: u16,
    friends: Vec<Friend>,
}

#[derive(Serialize)]
struct Friend {
    friend: String,
    birthday: String,
    next: String,
    days: i32,
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
    if arguments.ics {
        output::print(&feed(view, arguments.days, leap_day))?;
        return Ok(Exit::Done);
    }
    let days = arguments.days.unwrap_or(DAYS);
    let upcoming = Upcoming::of(view, days);
    if arguments.format.json {
        output::print_json(&Answer::new(&upcoming, days))?;
    } else {
        print(&upcoming, days)?;
    }
    Ok(Exit::Done)
}

fn feed(view: View, days: Option<u16>, leap_day: crate::birthday::LeapDay) -> String {
    let user = view.user.clone();
    let friends: Vec<_> = match days {
        Some(days) => {
            let upcoming = Upcoming::of(view, days);
            upcoming.friends.into_iter().map(|friend| (friend.friend, friend.birthday)).collect()
        }
        None => view.friends.into_iter().map(|friend| (friend.friend, friend.birthday)).collect(),
    };
    ics::feed(&user, friends, Timestamp::now(), leap_day)
}

impl Answer {
    fn new(upcoming: &Upcoming, days: u16) -> Answer {
        let friends = upcoming.friends.iter().map(|friend| Friend {
            friend: friend.friend.to_string(),
            birthday: friend.birthday.to_string(),
            next: friend.next.date.to_string(),
            days: friend.next.days,
            age: friend.next.age,
        });
        Answer {
            user: upcoming.user.to_string(),
            shard: upcoming.shard.0,
            state: upcoming.state.name(),
            freshness_ms: u64::try_from(upcoming.freshness.as_millis()).unwrap_or(u64::MAX),
            today: upcoming.today.to_string(),
            days,
            friends: friends.collect(),
        }
    }
}

fn print(upcoming: &Upcoming, days: u16) -> std::io::Result<()> {
    let mut head = output::plain();
    head.add_row(["user", upcoming.user.as_str()]);
    head.add_row(["state", &output::state(upcoming.state.name(), upcoming.freshness)]);
    head.add_row(["today", &output::weekday(upcoming.today)]);
    output::print_table(&head)?;
    if upcoming.friends.is_empty() {
        let until =
            if days == 0 { "today".to_owned() } else { format!("within {}", output::counted(days.into(), "day")) };
        return output::print(&format!("\nnobody celebrates {until}\n"));
    }
    let mut table = output::table(&["friend", "birthday", "on", "in", "turns"]);
    for friend in &upcoming.friends {
        table.add_row([
            output::harmless(friend.friend.as_str()),
            friend.birthday.to_string(),
            output::weekday(friend.next.date),
            output::in_days(friend.next.days),
            output::shown(friend.next.age),
        ]);
    }
    output::right(&mut table, &[4]);
    output::print("\n")?;
    output::print_table(&table)
}
