//! What the keys must hold after a sequence of changes, told by a second, simple interpreter that shares no code with
//! the reducer: it takes one entry at a time and keeps everything in memory. Tests and the demo compare with it.

mod activity;
mod content;
mod decode;
mod found;
mod snapshot;
mod user;

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
use decode::{Kind, Order, Told};
pub use found::found;
use snapshot::Rebuilding;
use user::UserView;

/// What entries in stream order make of each shard.
pub struct Oracle {
    rules: Rules,
    keys: Keys,
    layout: Layout,
    shards: BTreeMap<Shard, ShardView>,
    /// The moment of the rebuild that is on.
    rebuild: Option<u64>,
}

/// The other side of a change, as another shard is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// `mirror.add` or `mirror.remove`.
    pub kind: String,
    pub user: UserId,
    pub friend: UserId,
    pub order: String,
}

impl Mirrored {
    /// What an entry of a stream says, where it is one, with its place in the outbox of its shard.
    pub fn of(fields: &Fields) -> Option<(Shard, EntryId, Mirrored)> {
        let text = |wanted: &str| {
            let (_, value) = fields.iter().find(|(name, _)| name == wanted)?;
            String::from_utf8(value.to_vec()).ok()
        };
        let kind = text("type").filter(|kind| kind == "mirror.add" || kind == "mirror.remove")?;
        let source = Shard(decode::shard(&text("producer")?)?);
        let (user, friend) = (text("user")?.parse().ok()?, text("friend")?.parse().ok()?);
        Some((source, text("seq")?.parse().ok()?, Mirrored { kind, user, friend, order: text("order")? }))
    }
}

#[derive(Default)]
struct ShardView {
    users: BTreeMap<UserId, UserView>,
    events: BTreeSet<String>,
    producers: BTreeMap<String, (u64, u64)>,
    /// The highest order seen.
    clock: Order,
    told: Vec<Mirrored>,
    dead: Vec<Fields>,
    counts: Counts,
    applied: EntryId,
    rebuild: Option<u64>,
}

impl Oracle {
    pub fn new(rules: Rules, keys: Keys, layout: Layout) -> Oracle {
        Oracle { rules, keys, layout, shards: BTreeMap::new(), rebuild: None }
    }

    /// From the next entry on a rebuild of this moment is on in all shards, or none.
    pub fn rebuilding(&mut self, at: Option<u64>) {
        self.rebuild = at;
    }

    /// The next entry of a shard's stream; no fields where it was trimmed before it was applied. One that was told
    /// before is nothing new: a server that forgot its acknowledgement delivered it again.
    pub fn entry(&mut self, shard: Shard, id: EntryId, fields: Option<&Fields>) {
        let told = fields.and_then(|fields| decode::decode(fields, &self.rules.limits, id.milliseconds));
        let astray = told.as_ref().and_then(|told| told.users.iter().find(|user| self.layout.shard_of(user) != shard));
        let stray = astray.map(|user| {
            let belongs = self.layout.shard_of(user);
            Rejection::new("user", Some(user.as_str().as_bytes()), Problem::WrongShard { belongs, found: shard })
        });
        let view = self.shards.entry(shard).or_default();
        view.rebuild = self.rebuild;
        if id <= view.applied {
            return;
        }
        view.counts.entries += 1;
        view.applied = id;
        let rejection = match told.filter(|_| stray.is_none()) {
            Some(told) => match view.change(&told, id, shard, &self.rules) {
                Ok(changed) => {
                    view.counts.skipped += u64::from(!changed);
                    return;
                }
                Err(rejection) => Some(rejection),
            },
            None => match fields {
                Some(_) if stray.is_some() => stray,
                Some(fields) => Change::decode(fields, &self.rules.limits, id.milliseconds).err(),
                None => Some(Rejection::new("entry", None, Problem::Trimmed)),
            },
        };
        view.counts.dead += 1;
        view.dead.push(letter(id, rejection.as_ref(), fields));
    }

    /// What other shards must have been told of changes to both sides in this shard, in order.
    pub fn told(&self, shard: Shard) -> Vec<Mirrored> {
        self.shards.get(&shard).map(|view| view.told.clone()).unwrap_or_default()
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
                let foretold =
                    |name: &String| ["applied", "entries", "dead", "skipped", "order"].contains(&name.as_str());
                // A shard that was rolled and has had no entry yet.
                let none = fields.get("entries").is_some_and(|entries| entries == "0");
                let fields = fields.iter().filter(|(name, _)| foretold(name) && !none);
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
            let due = |user: &UserView| calendar.due(&calendar.zone(user.profile.get("tz").map(String::as_str)), date);
            let members: BTreeMap<String, i64> = view
                .users
                .iter()
                .flat_map(|(user, view)| view.friends.iter().map(move |(friend, text)| (user, view, friend, text)))
                .filter(|(_, _, _, text)| celebrated(text, date, calendar.leap_day))
                .map(|(user, view, friend, _)| (day_member(user, friend.as_str()), due(view)))
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

fn order_text((milliseconds, sequence, shard): Order) -> String {
    format!("{milliseconds}-{sequence}-{shard}")
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
    /// Whether the change did anything; an error where there was no room for it.
    fn change(&mut self, told: &Told, id: EntryId, shard: Shard, rules: &Rules) -> Result<bool, Rejection> {
        if let Some((producer, sequence)) = &told.producer {
            if self.producers.get(producer).is_some_and(|last| sequence <= last) {
                return Ok(false);
            }
            self.producers.insert(producer.clone(), *sequence);
        }
        if let Some(event) = &told.event
            && !self.events.insert(event.clone())
        {
            return Ok(false);
        }
        if let Kind::Profile { fields } = &told.kind {
            let grown = self.users.get(&told.users[0]).unwrap_or(&UserView::default()).grown(fields, told.version);
            if let Some(fields) = grown.filter(|grown| *grown > rules.profile_fields_max) {
                self.events.retain(|event| told.event.as_ref() != Some(event));
                let fields_max = rules.profile_fields_max;
                return Err(Rejection::new("profile.NAME", None, Problem::ProfileFull { fields, fields_max }));
            }
        }
        if let Kind::Snapshot(snapshot) = &told.kind {
            let foreign = |name: &str| name == "tz" || name == "birthday";
            let own = snapshot.profile.iter().filter(|(name, value)| !foreign(name) && !value.is_empty());
            let (fields, fields_max) = (own.count() as u64, rules.profile_fields_max);
            if fields > fields_max && snapshot.from.is_none() {
                return Err(Rejection::new("profile.NAME", None, Problem::ProfileFull { fields, fields_max }));
            }
        }
        if let Kind::Activity { category, weight } = &told.kind {
            let user = self.users.entry(told.users[0].clone()).or_default();
            let moments = (told.at.unwrap_or(id.milliseconds), id.milliseconds);
            return Ok(user.active(category.as_deref(), *weight, moments, rules));
        }
        let own = (id.milliseconds, id.sequence, u64::from(shard.0));
        let (milliseconds, sequence, _) = self.clock;
        let next = if own > self.clock { own } else { (milliseconds, sequence + 1, own.2) };
        if let Kind::Forget = told.kind {
            self.clock = next;
            self.forget(&told.users[0], next);
            return Ok(true);
        }
        if let Kind::Added { order, .. } | Kind::Removed { order, .. } | Kind::Forgotten { order, .. } = told.kind {
            self.clock = self.clock.max(order);
        }
        let mut changed = false;
        for name in &told.users {
            let user = self.users.entry(name.clone()).or_default();
            user.rebuilding = self.rebuild.map(|since| Rebuilding { since, now: id.milliseconds });
            let (did, told) = user.change(told, told.at.unwrap_or(id.milliseconds), next);
            changed |= did;
            if let Some((kind, friend)) = told {
                self.clock = next;
                let (kind, order) = (kind.to_owned(), order_text(next));
                self.told.push(Mirrored { kind, user: friend, friend: name.clone(), order });
            }
        }
        Ok(changed)
    }

    fn forget(&mut self, user: &UserId, order: Order) {
        self.users.insert(user.clone(), UserView { forgotten: Some(order), ..UserView::default() });
        let names = |name: &[u8]| name == b"f.user" || name == b"f.friend";
        let about = |letter: &Fields| letter.iter().any(|(name, value)| names(name) && value == user.as_str());
        self.dead.retain(|letter| !about(letter));
    }

    fn describe(&self, keys: &ShardKeys, contents: &mut Contents) {
        let mut put = |key: &crate::key::Key, content: Content| contents.insert(key.to_string(), content);
        for (user, view) in &self.users {
            let friends = view.friends.iter().map(|(friend, date)| (friend.to_string(), date.clone())).collect();
            let versions = view.versions.iter().map(|(field, (version, removed))| {
                (field.clone(), if *removed { format!("{version}:") } else { version.to_string() })
            });
            let orders = view.orders.iter().map(|(friend, order)| (format!("{friend}:"), order_text(*order)));
            let forgotten = view.forgotten.map(|order| ("::".to_owned(), order_text(order)));
            let marks = view.marks.iter().map(|(field, mark)| (format!("{field}:@"), mark.text()));
            let versions = versions.chain(orders).chain(forgotten).chain(marks);
            put(&keys.birthdays(user), Content::Hash(friends));
            put(&keys.profile(user), Content::Hash(view.profile.clone()));
            put(&keys.versions(user), Content::Hash(versions.collect()));
            put(&keys.activity(user), view.activity.days());
            put(&keys.top(user), view.activity.top());
        }
        let listed = self.users.iter().filter(|(_, view)| !view.friends.is_empty() || !view.profile.is_empty());
        put(&keys.users, Content::Sorted(listed.map(|(user, _)| (user.to_string(), 0)).collect()));
        for event in &self.events {
            put(&keys.dedup(event), Content::Text(String::new()));
        }
        let sequence = |name: &str, (major, minor): (u64, u64)| match decode::shard(name) {
            Some(_) => format!("{major}-{minor}"),
            None => major.to_string(),
        };
        let producers = self.producers.iter().map(|(name, place)| (name.clone(), sequence(name, *place)));
        put(&keys.producers, Content::Hash(producers.collect()));
        let dead = self.dead.iter().map(|fields| (String::new(), fields.clone()));
        put(&keys.dead_letters, Content::Stream(dead.collect()));
        let state = [
            ("applied", self.applied.to_string()),
            ("entries", self.counts.entries.to_string()),
            ("dead", self.counts.dead.to_string()),
            ("skipped", self.counts.skipped.to_string()),
        ];
        let order = ("order", order_text(self.clock));
        let state = state.into_iter().chain((self.clock != Order::default()).then_some(order));
        put(&keys.state, Content::Hash(state.map(|(name, value)| (name.to_owned(), value)).collect()));
    }
}

#[cfg(test)]
mod tests;
