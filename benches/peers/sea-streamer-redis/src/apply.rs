//! A batch of changes as two pipelines: what was there, and what shall be there.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use redis::cluster_async::ClusterConnection;
use sea_streamer_types::{Buffer, Message, Payload, SharedMessage};

use crate::settings::{Day, Settings};

pub struct Writer {
    settings: Arc<Settings>,
    connection: ClusterConnection,
    users: String,
    user_before: String,
    day_before: String,
}

/// Each user's friends and their dates, the last of a friendship within the batch.
type Views<'a> = HashMap<&'a str, HashMap<&'a str, &'a str>>;

#[derive(Default)]
struct DayChanges<'a> {
    gone: HashMap<&'a Day, Vec<String>>,
    come: HashMap<&'a Day, Vec<String>>,
}

impl Writer {
    pub fn new(settings: Arc<Settings>, connection: ClusterConnection, tag: &str) -> Self {
        let prefix = &settings.prefix;
        Self {
            users: format!("{prefix}users:{{{tag}}}"),
            user_before: format!("{prefix}user:{{{tag}}}:"),
            day_before: format!("{prefix}birthdays:{{{tag}}}:"),
            settings,
            connection,
        }
    }

    pub async fn apply(&mut self, messages: &[SharedMessage]) -> Result<()> {
        let payloads: Vec<Payload> = messages.iter().map(|message| message.message()).collect();
        let views = views(&payloads)?;
        let mut pipeline = redis::pipe();
        for (user, dates) in &views {
            pipeline.cmd("HMGET").arg(self.user_key(user));
            for friend in dates.keys() {
                pipeline.arg(*friend);
            }
        }
        let before: Vec<Vec<Option<String>>> = pipeline.query_async(&mut self.connection).await?;

        let mut pipeline = redis::pipe();
        for (user, dates) in &views {
            pipeline.cmd("HSET").arg(self.user_key(user)).ignore();
            for (friend, date) in dates {
                pipeline.arg(*friend).arg(*date);
            }
        }
        pipeline.cmd("ZADD").arg(&self.users).ignore();
        for user in views.keys() {
            pipeline.arg(0).arg(*user);
        }
        self.write_days(&mut pipeline, &views, &before);
        Ok(pipeline.query_async::<()>(&mut self.connection).await?)
    }

    fn write_days(&self, pipeline: &mut redis::Pipeline, views: &Views, before: &[Vec<Option<String>>]) {
        let days = self.day_changes(views, before);
        for (day, members) in days.gone {
            pipeline.cmd("ZREM").arg(self.day_key(day)).arg(members).ignore();
        }
        for (day, members) in days.come {
            let key = self.day_key(day);
            pipeline.cmd("ZADD").arg(&key).ignore();
            for member in members {
                pipeline.arg(day.due).arg(member);
            }
            pipeline.cmd("EXPIREAT").arg(&key).arg(day.end).ignore();
        }
    }

    fn day_changes(&self, views: &Views, before: &[Vec<Option<String>>]) -> DayChanges<'_> {
        let mut days = DayChanges::default();
        for ((user, dates), old_dates) in views.iter().zip(before) {
            for ((friend, date), old_date) in dates.iter().zip(old_dates) {
                let old = old_date.as_deref().and_then(|date| self.settings.day(date));
                let new = self.settings.day(date);
                if let Some(old) = old.filter(|old| Some(*old) != new) {
                    days.gone.entry(old).or_default().push(format!("{user}:{friend}"));
                }
                if let Some(new) = new {
                    days.come.entry(new).or_default().push(format!("{user}:{friend}"));
                }
            }
        }
        days
    }

    fn user_key(&self, user: &str) -> String {
        format!("{}{user}:birthdays", self.user_before)
    }

    fn day_key(&self, day: &Day) -> String {
        format!("{}{}", self.day_before, day.name)
    }
}

fn views<'a>(payloads: &'a [Payload]) -> Result<Views<'a>> {
    let mut views = Views::new();
    for payload in payloads {
        let text = payload.as_str()?;
        let mut words = text.split(' ');
        let (user, friend, date) = (words.next(), words.next(), words.next());
        let (user, friend, date) =
            user.zip(friend).zip(date).map(|((u, f), d)| (u, f, d)).with_context(|| format!("odd message {text:?}"))?;
        views.entry(user).or_default().insert(friend, date);
    }
    Ok(views)
}
