//! What the environment asks for.

use std::collections::HashMap;
use std::env;

use anyhow::{Context, Result};
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;

const HOUR: i64 = 3600;

pub struct Settings {
    pub nodes: Vec<String>,
    pub password: Option<String>,
    pub prefix: String,
    pub tags: Vec<String>,
    pub changes: usize,
    pub batch: usize,
    /// The days whose day keys are kept, by the month and the day that a date celebrates: `MM-DD`.
    pub window: HashMap<String, Day>,
}

#[derive(PartialEq, Eq, Hash)]
pub struct Day {
    pub name: String,
    pub due: i64,
    pub end: i64,
}

impl Settings {
    pub fn read() -> Result<Self> {
        let list = |name| Ok::<_, anyhow::Error>(variable(name)?.split(',').map(str::to_owned).collect());
        Ok(Self {
            nodes: list("PEER_NODES")?,
            password: env::var("PEER_PASSWORD").ok().filter(|password| !password.is_empty()),
            prefix: env::var("PEER_PREFIX").unwrap_or_default(),
            tags: list("PEER_TAGS")?,
            changes: variable("PEER_CHANGES")?.parse().context("PEER_CHANGES")?,
            batch: variable("PEER_BATCH")?.parse().context("PEER_BATCH")?,
            window: window(&variable("PEER_FIRST")?, &variable("PEER_LAST")?)?,
        })
    }

    /// The day in the window on which the date is celebrated.
    pub fn day(&self, date: &str) -> Option<&Day> {
        self.window.get(date.get(date.len().checked_sub(5)?..)?)
    }
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}

fn window(first: &str, last: &str) -> Result<HashMap<String, Day>> {
    let (first, last): (Date, Date) = (first.parse()?, last.parse()?);
    let days = first.series(1.day()).take_while(|day| *day <= last);
    days.map(|day| {
        let midnight = TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0))?.as_second();
        let (due, end) = (midnight + 9 * HOUR, midnight + (24 + 25 + 12) * HOUR);
        let name = day.to_string();
        Ok((name[5..].to_owned(), Day { name, due, end }))
    })
    .collect()
}
