//! One shard: its state, group and log fit each other, then its producers, users and days.

use jiff::ToSpan;

use super::scan::{By, Scan};
use super::{Check, Ground, readable};
use crate::calendar::Window;
use crate::invariant::{
    Day, Group, PROGRESS_FIELDS, Progress, ShardFacts, Unreadable, Violation, follows, judge_producer, read_entry,
};
use crate::key::{GROUP, ShardKeys};
use crate::position::{CommitId, EntryId};
use crate::redis::log::SIGNAL_FIELD;
use crate::redis::query::command;
use crate::redis::reply::milliseconds;
use crate::redis::{Error, Pipeline, Reply};
use crate::shard::Shard;
use crate::signal::Signal;

/// Days after the last one that the calendar names which are looked at: those of a larger horizon, or of a clock ahead.
const DAYS_BEYOND_MAX: i64 = 366;
/// Log entries read at once.
const LOG_PAGE: usize = 100;

impl Check<'_> {
    pub(super) async fn shard(&mut self, shard: Shard) -> Result<(), Error> {
        let keys = self.shard_keys(shard);
        let Some(replies) = self.source.snapshot(keys.slot, &questions(&keys)).await? else {
            self.findings.undecided(&keys.state, "its slot is on the way to another node");
            return Ok(());
        };
        let (now, facts) = (milliseconds(&replies[0])?, facts(&replies)?);
        self.findings.note_all(facts.judge(&keys));
        self.log(&keys).await?;
        let calendar = &self.rules.calendar;
        let field = |name: &str| facts.state.as_ref().and_then(|state| state.get(name)).map(String::as_str);
        let progress = Progress::of(PROGRESS_FIELDS.map(field));
        let named = calendar.window(now);
        // An absurd day that somebody wrote there is named by the state's own rule.
        let last = progress.open.unwrap_or(named.last).min(named.last.saturating_add(DAYS_BEYOND_MAX.days()));
        let days = Day::all(calendar, &keys, Window { last, ..named });
        let ground = Ground { keys, days, progress };
        self.producers(&ground.keys).await?;
        self.users(&ground).await?;
        self.days(&ground).await
    }

    async fn producers(&mut self, keys: &ShardKeys) -> Result<(), Error> {
        let mut scan = Scan::new(By::Hash, &keys.producers, keys.slot);
        while let Some(page) = self.page(&mut scan).await? {
            self.findings.counts.producers += page.len() as u64;
            let wrong = page.iter().filter_map(|(name, value)| judge_producer(&keys.producers, name, value));
            self.findings.note_all(wrong);
        }
        Ok(())
    }

    /// The chain, oldest commit first.
    async fn log(&mut self, keys: &ShardKeys) -> Result<(), Error> {
        let mut position = None::<CommitId>;
        loop {
            let after = position.map_or_else(|| "-".to_owned(), |position| format!("({position}"));
            let page = command(&["XRANGE", keys.log.as_str(), &after, "+", "COUNT", &LOG_PAGE.to_string()]);
            let replies = self.source.ask_slot(keys.slot, vec![page]).await?;
            let Some(entries) = readable(&replies[0]) else { return Ok(()) };
            let entries = entries.as_array()?;
            for entry in entries {
                position = Some(self.entry(keys, entry, position).await?);
            }
            self.findings.counts.log_entries += entries.len() as u64;
            if entries.len() < LOG_PAGE {
                return Ok(());
            }
        }
    }

    async fn entry(&mut self, keys: &ShardKeys, entry: &Reply, before: Option<CommitId>) -> Result<CommitId, Error> {
        let (id, payload) = parts(entry)?;
        let signal = match read_entry(&keys.log, id, payload) {
            Ok(signal) => signal,
            Err(violation) => {
                self.findings.note_all([violation]);
                return Ok(id);
            }
        };
        if follows(&keys.log, before, &signal).is_err()
            && let Some(violation) = self.broken(keys, &signal).await?
        {
            self.findings.note_all([violation]);
        }
        Ok(id)
    }

    /// Whether the link is broken indeed: the log may have been cut in between two pages, so the entry and the one before
    /// it are read in one step.
    async fn broken(&mut self, keys: &ShardKeys, signal: &Signal) -> Result<Option<Violation>, Error> {
        let id = signal.id.to_string();
        let two = command(&["XREVRANGE", keys.log.as_str(), &id, "-", "COUNT", "2"]);
        let replies = self.source.ask_slot(keys.slot, vec![two]).await?;
        let Some(entries) = readable(&replies[0]) else { return Ok(None) };
        let entries = entries.as_array()?.iter().map(parts).collect::<Result<Vec<_>, _>>()?;
        let before = match &entries[..] {
            [(found, _)] if *found == signal.id => None,
            [(found, _), (before, _)] if *found == signal.id => Some(*before),
            // It was trimmed, or lost with a primary.
            _ => return Ok(None),
        };
        Ok(follows(&keys.log, before, signal).err())
    }
}

fn questions(keys: &ShardKeys) -> [Pipeline; 6] {
    [
        command(&["TIME"]),
        command(&["HGETALL", keys.state.as_str()]),
        command(&["XINFO", "GROUPS", keys.changes.as_str()]),
        command(&["XINFO", "CONSUMERS", keys.changes.as_str(), GROUP]),
        command(&["XPENDING", keys.changes.as_str(), GROUP]),
        command(&["XREVRANGE", keys.log.as_str(), "+", "-", "COUNT", "1"]),
    ]
}

fn facts(replies: &[Reply]) -> Result<ShardFacts, Error> {
    let [_, state, groups, consumers, pending, tip] = replies else {
        return Err(Error::protocol("an answer to each command", "fewer"));
    };
    let wrong_type =
        |reply: &Reply| reply.error().is_some_and(|error| error.code == crate::error::ServerCode::WrongType);
    let unreadable = Unreadable { state: wrong_type(state), changes: wrong_type(groups), log: wrong_type(tip) };
    let text = |reply: &Reply| Ok::<_, Error>(String::from_utf8_lossy(reply.as_bytes()?).into_owned());
    let state = match readable(state) {
        Some(state) => {
            state.as_pairs()?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect::<Result<_, Error>>()?
        }
        None => std::collections::BTreeMap::new(),
    };
    let tip = match readable(tip) {
        Some(tip) => tip.as_array()?.first().map(parts).transpose()?.map(|(id, _)| id),
        None => None,
    };
    let group = group(groups, consumers, pending)?;
    Ok(ShardFacts { state: Some(state).filter(|state| !state.is_empty()), group, tip, unreadable })
}

/// None where there is no stream or no such group.
fn group(groups: &Reply, consumers: &Reply, pending: &Reply) -> Result<Option<Group>, Error> {
    let Some(groups) = readable(groups) else { return Ok(None) };
    for group in groups.as_array()? {
        if field(group, "name")?.as_bytes()? != GROUP {
            continue;
        }
        let names = readable(consumers).map(Reply::as_array).transpose()?.unwrap_or_default();
        let name = |consumer: &Reply| Ok(String::from_utf8_lossy(field(consumer, "name")?.as_bytes()?).into_owned());
        let pending_first = match readable(pending).map(Reply::as_array).transpose()? {
            Some([_, first, ..]) if !first.is_null() => Some(entry_id(first)?),
            _ => None,
        };
        return Ok(Some(Group {
            delivered: entry_id(field(group, "last-delivered-id")?)?,
            pending_first,
            consumers: names.iter().map(name).collect::<Result<_, Error>>()?,
        }));
    }
    Ok(None)
}

fn field<'a>(map: &'a Reply, wanted: &str) -> Result<&'a Reply, Error> {
    for (name, value) in map.as_pairs()? {
        if name.as_bytes()? == wanted {
            return Ok(value);
        }
    }
    Err(Error::protocol(format!("the field {wanted}"), "none"))
}

fn entry_id(reply: &Reply) -> Result<EntryId, Error> {
    let text = reply.to_str()?;
    text.parse().map_err(|_| Error::protocol("an entry id", text))
}

/// The id of a log entry, and its signal's bytes where it has them.
fn parts(entry: &Reply) -> Result<(CommitId, Option<&[u8]>), Error> {
    let [id, fields] = entry.as_array()? else {
        return Err(Error::protocol("an id and fields", "another number"));
    };
    let text = id.to_str()?;
    let id = text.parse().map_err(|_| Error::protocol("a commit id", text))?;
    for (name, value) in fields.as_pairs()? {
        if name.as_bytes()?.as_ref() == SIGNAL_FIELD {
            return Ok((id, Some(value.as_bytes()?)));
        }
    }
    Ok((id, None))
}
