//! What any consumer of these changes has to read and write, as plain commands: no fence, no order guard, no log, no signal,
//! and users that come again are not put together.

use std::collections::BTreeMap;

use anyhow::Context as _;
use bytes::Bytes;
use jiff::civil::Date;

use crate::birthday::Birthday;
use crate::calendar::{Calendar, Window};
use crate::change::{Action, Change, UserId, ZONE_FIELD};
use crate::key::{ShardKeys, day_member};
use crate::position::EntryId;
use crate::redis::{Pipeline, Reply};

/// The consumer group of whoever is no worker of heyday.
pub const GROUP: &str = "floor";
const CONSUMER: &str = "floor";

/// How a consumer knows which entries it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a consumer group: every entry is noted when it is read and acknowledged when it is done.
    Group,
    /// By the id of the last one, which it keeps itself beside the views: nothing is noted of single entries. What one
    /// saves by this is what a group costs.
    Position,
}

/// One entry, as far as it matters.
pub struct Item {
    pub id: EntryId,
    pub user: UserId,
    pub friend: UserId,
    pub birthday: Birthday,
}

/// When days are due, and which there are.
#[derive(Clone, Debug)]
pub struct Days {
    pub calendar: Calendar,
    pub window: Window,
}

impl Days {
    fn of(&self, birthday: Birthday) -> impl Iterator<Item = Date> {
        self.calendar.days(birthday, self.window)
    }
}

impl Item {
    pub fn of(id: EntryId, change: &Change) -> anyhow::Result<Item> {
        match &change.action {
            Action::Add { friend, birthday: Some(birthday), .. } => {
                Ok(Item { id, user: change.user.clone(), friend: friend.clone(), birthday: *birthday })
            }
            other => anyhow::bail!("this consumer knows only how to add a friend with a date, not {other:?}"),
        }
    }

    fn of_fields(id: EntryId, fields: &[Reply]) -> anyhow::Result<Item> {
        let (mut user, mut friend, mut birthday) = (None, None, None);
        for pair in fields.chunks_exact(2) {
            let value: &Bytes = pair[1].as_bytes()?;
            let text = || std::str::from_utf8(value);
            match &pair[0].as_bytes()?[..] {
                b"user" => user = Some(text()?.parse().context("user")?),
                b"friend" => friend = Some(text()?.parse().context("friend")?),
                b"birthday" => birthday = Some(Birthday::parse(text()?)?),
                _ => {}
            }
        }
        let (user, friend) = (user.context("an entry without a user")?, friend.context("an entry without a friend")?);
        Ok(Item { id, user, friend, birthday: birthday.context("an entry without a date")? })
    }
}

pub fn create_group(pipeline: &mut Pipeline, keys: &ShardKeys) {
    pipeline.command("XGROUP").arg("CREATE").arg(keys.changes.as_bytes()).arg(GROUP).arg("0").arg("MKSTREAM");
}

/// The next entries; `after` is the last one done.
pub fn read(pipeline: &mut Pipeline, keys: &ShardKeys, count: usize, (way, after): (Way, EntryId)) {
    if way == Way::Position {
        let mut command = pipeline.command("XREAD");
        command.arg("COUNT").arg_u64(count as u64).arg("STREAMS").arg(keys.changes.as_bytes());
        command.arg_position(after.milliseconds, after.sequence);
        return;
    }
    let mut command = pipeline.command("XREADGROUP");
    command.arg("GROUP").arg(GROUP).arg(CONSUMER).arg("COUNT").arg_u64(count as u64);
    command.arg("STREAMS").arg(keys.changes.as_bytes()).arg(">");
}

/// What [`read`] brought; empty where there was nothing more.
pub fn items(reply: &Reply) -> anyhow::Result<Vec<Item>> {
    if reply.is_null() {
        return Ok(Vec::new());
    }
    let [stream] = reply.as_array()? else { anyhow::bail!("entries of one stream were asked for") };
    let [_, entries] = stream.as_array()? else { anyhow::bail!("a stream has a name and entries") };
    let item = |entry: &Reply| {
        let [id, fields] = entry.as_array()? else { anyhow::bail!("an entry has an id and fields") };
        Item::of_fields(id.to_str()?.parse().context("entry id")?, fields.as_array()?)
    };
    entries.as_array()?.iter().map(item).collect()
}

/// The date that the friend had, and for dates that fall into the window the user's zone.
pub fn loads(pipeline: &mut Pipeline, keys: &ShardKeys, days: &Days, items: &[Item]) {
    for item in items {
        let friends = keys.birthdays_parts(&item.user);
        pipeline.command("HGET").arg_parts(&friends).arg(item.friend.as_str());
        if days.of(item.birthday).next().is_some() {
            pipeline.command("HGET").arg_parts(&keys.profile_parts(&item.user)).arg(ZONE_FIELD);
        }
    }
}

/// The old dates among the answers to [`loads`].
pub fn olds(days: &Days, items: &[Item], replies: &[Reply]) -> anyhow::Result<Vec<Option<String>>> {
    let mut replies = replies.iter();
    let old = |item: &Item| {
        let reply = replies.next().context("an answer to each command")?;
        if days.of(item.birthday).next().is_some() {
            replies.next();
        }
        Ok(reply.as_bytes_or_null()?.map(|date| String::from_utf8_lossy(date).into_owned()))
    };
    items.iter().map(old).collect()
}

/// What becomes of one day key.
#[derive(Default)]
struct Day {
    removed: Vec<String>,
    added: Vec<(i64, String)>,
}

/// The views.
pub fn writes(pipeline: &mut Pipeline, keys: &ShardKeys, days: &Days, items: &[Item], olds: &[Option<String>]) {
    let mut kept: BTreeMap<Date, Day> = BTreeMap::new();
    for (item, old) in items.iter().zip(olds) {
        let friends = keys.birthdays_parts(&item.user);
        pipeline.command("HSET").arg_parts(&friends).arg(item.friend.as_str()).arg(item.birthday.to_string());
        let after: Vec<Date> = days.of(item.birthday).collect();
        let before = old.iter().flat_map(|old| days.of(Birthday::lenient(old)));
        let member = || day_member(&item.user, item.friend.as_str());
        for day in before.filter(|day| !after.contains(day)) {
            kept.entry(day).or_default().removed.push(member());
        }
        for day in after {
            let due = days.calendar.due(&days.calendar.time_zone, day);
            kept.entry(day).or_default().added.push((due, member()));
        }
    }
    let new: Vec<&Item> = items.iter().zip(olds).filter(|(_, old)| old.is_none()).map(|(item, _)| item).collect();
    if !new.is_empty() {
        let mut command = pipeline.command("ZADD");
        command.arg(keys.users.as_bytes());
        for item in new {
            command.arg("0").arg(item.user.as_str());
        }
    }
    for (day, Day { removed, added }) in kept {
        let key = keys.day(day);
        if !removed.is_empty() {
            pipeline.command("ZREM").arg(key.as_bytes()).args(&removed);
        }
        if !added.is_empty() {
            let mut command = pipeline.command("ZADD");
            command.arg(key.as_bytes());
            for (due, member) in &added {
                command.arg_i64(*due).arg(member);
            }
            drop(command);
            pipeline.command("EXPIREAT").arg(key.as_bytes()).arg_i64(days.calendar.expires_at(day));
        }
    }
}

/// That these are done.
pub fn acknowledge(pipeline: &mut Pipeline, keys: &ShardKeys, items: &[Item], way: Way) {
    let Some(last) = items.last() else { return };
    if way == Way::Position {
        let mut command = pipeline.command("HSET");
        command.arg(keys.state.as_bytes()).arg("applied").arg_position(last.id.milliseconds, last.id.sequence);
        return;
    }
    let mut command = pipeline.command("XACK");
    command.arg(keys.changes.as_bytes()).arg(GROUP);
    for item in items {
        command.arg_position(item.id.milliseconds, item.id.sequence);
    }
}
