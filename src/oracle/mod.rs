//! What the keys must hold after a sequence of changes, told by a second, simple interpreter that shares no code with
//! the reducer: it takes one entry at a time and keeps everything in memory. Tests and the demo compare with it.

mod content;
mod decode;
mod found;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::civil::Date;

use crate::birthday::LeapDay;
use crate::calendar::Window;
use crate::change::{Change, Fields, Problem, Rejection, UserId};
use crate::key::{Keys, ShardKeys, day_member};
use crate::position::EntryId;
use crate::reduce::{Counts, Rules};
use crate::shard::{Layout, Shard};

pub use content::{Content, Contents};
use decode::{Kind, Told};
pub use found::found;

/// What entries in stream order make of each shard.
pub struct Oracle {
    rules: Rules,
    keys: Keys,
    layout: Layout,
    shards: BTreeMap<Shard, ShardView>,
}

#[derive(Default)]
struct ShardView {
    users: BTreeMap<UserId, UserView>,
    events: BTreeSet<String>,
    producers: BTreeMap<String, u64>,
    dead: Vec<Fields>,
    counts: Counts,
    applied: EntryId,
}

#[derive(Default)]
struct UserView {
    friends: BTreeMap<UserId, String>,
    profile: BTreeMap<String, String>,
    /// By field, with whether the newest was a removal.
    versions: BTreeMap<String, (u64, bool)>,
}

impl Oracle {
    pub fn new(rules: Rules, keys: Keys, layout: Layout) -> Oracle {
        Oracle { rules, keys, layout, shards: BTreeMap::new() }
    }

    /// The next entry of a shard's stream; no fields where it was trimmed before it was applied. One that was told
    /// before only counts: a server that forgot its acknowledgement delivered it again.
    pub fn entry(&mut self, shard: Shard, id: EntryId, fields: Option<&Fields>) {
        let told = fields.and_then(|fields| decode::decode(fields, &self.rules.limits, id.milliseconds));
        let stray = told.as_ref().filter(|told| self.layout.shard_of(&told.user) != shard).map(|told| {
            let belongs = self.layout.shard_of(&told.user);
            Rejection::new("user", Some(told.user.as_str().as_bytes()), Problem::WrongShard { belongs, found: shard })
        });
        let view = self.shards.entry(shard).or_default();
        view.counts.entries += 1;
        if id <= view.applied {
            view.counts.skipped += 1;
            return;
        }
        view.applied = id;
        match told.filter(|_| stray.is_none()) {
            Some(told) => {
                if !view.change(&told, id.milliseconds) {
                    view.counts.skipped += 1;
                }
            }
            None => {
                view.counts.dead += 1;
                let rejection = match fields {
                    Some(_) if stray.is_some() => stray,
                    Some(fields) => Change::decode(fields, &self.rules.limits, id.milliseconds).err(),
                    None => Some(Rejection::new("entry", None, Problem::Trimmed)),
                };
                view.dead.push(letter(id, rejection.as_ref(), fields));
            }
        }
    }

    /// How many entries of a shard were told.
    pub fn counts(&self, shard: Shard) -> Counts {
        self.shards.get(&shard).map(|view| view.counts).unwrap_or_default()
    }

    /// Every key that is more than the machinery's own, with the day keys of `window`. Times of removal and of hearing
    /// from a producer, and ids of dead letters, are empty: they depend on when the entries were applied.
    pub fn contents(&self, window: Window) -> Contents {
        let mut contents = Contents::new();
        for (shard, view) in &self.shards {
            let keys = self.keys.shard(&self.layout, *shard);
            view.describe(&keys, &mut contents);
            self.days(view, &keys, window, &mut contents);
        }
        contents.retain(|_, content| !content.is_empty());
        contents
    }

    /// Every key that is not as it must be, one line each. Streams of changes, leases, locks, logs and the day keys outside
    /// `window` are not looked at; a key that the registry does not know is named.
    pub fn differences(&self, window: Window, found: &Contents) -> Vec<String> {
        let expected = self.contents(window);
        let found: Contents = found
            .iter()
            .filter_map(|(name, content)| Some((name.clone(), self.comparable(name, content, window)?)))
            .filter(|(_, content)| !content.is_empty())
            .collect();
        let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        let difference = |name: &String| match (expected.get(name), found.get(name)) {
            (Some(expected), Some(found)) => Content::difference(expected, found),
            (Some(expected), None) => Some(format!("expected {expected:?}, found no such key")),
            (None, found) => Some(format!("expected no such key, found {found:?}")),
        };
        names.into_iter().filter_map(|name| Some(format!("{name}: {}", difference(name)?))).collect()
    }

    /// What of a found key can be foretold; none for a key that is the machinery's own.
    fn comparable(&self, name: &str, content: &Content, window: Window) -> Option<Content> {
        let Some(row) = self.keys.row_of(name) else {
            return Some(content.clone());
        };
        let space = row.pattern.split(':').next().unwrap_or_default();
        let content = match (space, content) {
            ("changes" | "lease" | "lock" | "log" | "heyday", _) => return None,
            ("dedup", _) => Content::Text(String::new()),
            ("state", Content::Hash(fields)) => {
                let foretold = |name: &String| ["applied", "entries", "dead", "skipped"].contains(&name.as_str());
                let fields = fields.iter().filter(|(name, _)| foretold(name));
                Content::Hash(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
            }
            ("producers", Content::Hash(fields)) => {
                let sequence = |value: &str| value.split(':').next().unwrap_or_default().to_owned();
                Content::Hash(fields.iter().map(|(name, value)| (name.clone(), sequence(value))).collect())
            }
            ("user", Content::Hash(fields)) if name.ends_with(":versions") => {
                let timeless = |value: &str| match value.split_once(':') {
                    Some((version, _)) => format!("{version}:"),
                    None => value.to_owned(),
                };
                Content::Hash(fields.iter().map(|(name, value)| (name.clone(), timeless(value))).collect())
            }
            ("dlq", Content::Stream(entries)) => {
                Content::Stream(entries.iter().map(|(_, fields)| (String::new(), fields.clone())).collect())
            }
            ("birthdays", _) => {
                let date: Date = name.rsplit(':').next()?.parse().ok()?;
                (window.first..=window.last).contains(&date).then(|| content.clone())?
            }
            _ => content.clone(),
        };
        Some(content)
    }

    fn days(&self, view: &ShardView, keys: &ShardKeys, window: Window, contents: &mut Contents) {
        let calendar = &self.rules.calendar;
        for date in window.first.series(jiff::Span::new().days(1)).take_while(|date| *date <= window.last) {
            let due = calendar.due(date);
            let members: BTreeMap<String, i64> = view
                .users
                .iter()
                .flat_map(|(user, view)| view.friends.iter().map(move |(friend, text)| (user, friend, text)))
                .filter(|(_, _, text)| celebrated(text, date, calendar.leap_day))
                .map(|(user, friend, _)| (day_member(user, friend), due))
                .collect();
            contents.insert(keys.day(date).to_string(), Content::Sorted(members));
        }
    }
}

/// Whether somebody born on the day that `text` tells celebrates on `date`.
fn celebrated(text: &str, date: Date, leap_day: LeapDay) -> bool {
    let Some((year, month, day)) = decode::parts(text) else {
        return false;
    };
    if year.is_some_and(|year| date.year() <= year) {
        return false;
    }
    let instead = match leap_day {
        LeapDay::February28 => (2, 28),
        LeapDay::March1 => (3, 1),
    };
    let today = (date.month(), date.day());
    today == (month, day) || ((month, day) == (2, 29) && !date.in_leap_year() && today == instead)
}

fn letter(id: EntryId, rejection: Option<&Rejection>, fields: Option<&Fields>) -> Fields {
    // Where the two readings of an entry disagree, the comparison shows it by this reason.
    let reason = rejection.map_or_else(|| "the oracle refuses what the decoder takes".to_owned(), ToString::to_string);
    let mut letter: Fields = vec![
        ("reason".into(), reason.into()),
        ("kind".into(), rejection.map_or("", Rejection::kind).into()),
        ("entry".into(), id.to_string().into()),
    ];
    for (name, value) in fields.into_iter().flatten() {
        letter.push((Bytes::from([b"f.", name.as_ref()].concat()), value.clone()));
    }
    letter
}

impl ShardView {
    /// Whether the change did anything.
    fn change(&mut self, told: &Told, entry_milliseconds: u64) -> bool {
        if let Some((producer, sequence)) = &told.producer {
            if self.producers.get(producer).is_some_and(|last| sequence <= last) {
                return false;
            }
            self.producers.insert(producer.clone(), *sequence);
        }
        if let Some(event) = &told.event
            && !self.events.insert(event.clone())
        {
            return false;
        }
        let user = self.users.entry(told.user.clone()).or_default();
        user.change(told, told.at.unwrap_or(entry_milliseconds))
    }

    fn describe(&self, keys: &ShardKeys, contents: &mut Contents) {
        let mut put = |key: &crate::key::Key, content: Content| contents.insert(key.to_string(), content);
        for (user, view) in &self.users {
            let friends = view.friends.iter().map(|(friend, date)| (friend.to_string(), date.clone())).collect();
            let versions = view.versions.iter().map(|(field, (version, removed))| {
                (field.clone(), if *removed { format!("{version}:") } else { version.to_string() })
            });
            put(&keys.birthdays(user), Content::Hash(friends));
            put(&keys.profile(user), Content::Hash(view.profile.clone()));
            put(&keys.versions(user), Content::Hash(versions.collect()));
        }
        let listed = self.users.iter().filter(|(_, view)| !view.friends.is_empty() || !view.profile.is_empty());
        put(&keys.users, Content::Sorted(listed.map(|(user, _)| (user.to_string(), 0)).collect()));
        for event in &self.events {
            put(&keys.dedup(event), Content::Text(String::new()));
        }
        let producers = self.producers.iter().map(|(name, sequence)| (name.clone(), sequence.to_string()));
        put(&keys.producers, Content::Hash(producers.collect()));
        let dead = self.dead.iter().map(|fields| (String::new(), fields.clone()));
        put(&keys.dead_letters, Content::Stream(dead.collect()));
        let state = [
            ("applied", self.applied.to_string()),
            ("entries", self.counts.entries.to_string()),
            ("dead", self.counts.dead.to_string()),
            ("skipped", self.counts.skipped.to_string()),
        ];
        put(&keys.state, Content::Hash(state.map(|(name, value)| (name.to_owned(), value)).into()));
    }
}

impl UserView {
    fn change(&mut self, told: &Told, at: u64) -> bool {
        match &told.kind {
            Kind::Add { friend, birthday } => {
                if !self.newer(friend.as_str(), told.version, false) {
                    return false;
                }
                let known = self.friends.get(friend).cloned();
                let date = birthday.clone().or_else(|| known.clone()).unwrap_or_default();
                self.friends.insert(friend.clone(), date.clone());
                known != Some(date)
            }
            Kind::Remove { friend } => {
                self.newer(friend.as_str(), told.version, true) && self.friends.remove(friend).is_some()
            }
            Kind::Update { friend, birthday } => {
                if !self.friends.contains_key(friend) || !self.newer(friend.as_str(), told.version, false) {
                    return false;
                }
                self.friends.insert(friend.clone(), birthday.clone()) != Some(birthday.clone())
            }
            Kind::Birthday { birthday } => {
                let newer = self.newer(":birthday", told.version, false);
                newer && self.profile(&[("birthday".to_owned(), birthday.clone())], at)
            }
            Kind::Profile { fields } => {
                let newer: Vec<_> = fields
                    .iter()
                    .filter(|(name, value)| self.newer(&format!(":{name}"), told.version, value.is_empty()))
                    .cloned()
                    .collect();
                !newer.is_empty() && self.profile(&newer, at)
            }
        }
    }

    /// Applies profile fields; the profile counts it even where it said so already.
    fn profile(&mut self, fields: &[(String, String)], at: u64) -> bool {
        for (name, value) in fields {
            if value.is_empty() {
                self.profile.remove(name);
            } else {
                self.profile.insert(name.clone(), value.clone());
            }
        }
        let version = self.profile.get("version").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) + 1;
        self.profile.insert("schema".into(), "1".into());
        self.profile.insert("version".into(), version.to_string());
        self.profile.insert("updated_at".into(), at.to_string());
        true
    }

    /// Whether a version passes; if so it is the newest now. A change without one always passes and leaves none.
    fn newer(&mut self, field: &str, version: Option<u64>, removes: bool) -> bool {
        let Some(version) = version else {
            return true;
        };
        if self.versions.get(field).is_some_and(|(stored, _)| *stored >= version) {
            return false;
        }
        self.versions.insert(field.to_owned(), (version, removes));
        true
    }
}

#[cfg(test)]
mod tests;
