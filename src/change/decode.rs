//! The fields of a stream entry as a change, or the reason why they are none.

use std::str::FromStr;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::civil::Date;

use super::id::name;
use super::snapshot::{Listed, SNAPSHOT_FIELDS_MAX, SNAPSHOT_LIST_BYTES_MAX, Snapshot, parse_version};
use super::{
    Action, CATEGORY_BYTES_MAX, Change, Fields, Limits, MIRROR_USERS_MAX, Mirror, PROFILE_NAME_BYTES_MAX,
    PROFILE_RESERVED, WEIGHT_MAX, ZONE_FIELD,
};
use super::{Problem, Producer, Rejection, Relayed, SHARD_PRODUCER, TOKEN_BYTES_MAX, USER_BYTES_MAX, UserId};
use crate::birthday::{Birthday, ParseError};
use crate::calendar::{ZONE_AHEAD_MAX, zone_named};

const PROFILE_PREFIX: &[u8] = b"profile.";

impl Change {
    /// `entry_milliseconds` is the entry id's time, against which a future date is judged: so the same entry always
    /// gets the same verdict, whoever reads it and when.
    pub fn decode(fields: &Fields, limits: &Limits, entry_milliseconds: u64) -> Result<Change, Rejection> {
        let is_snapshot = fields.iter().any(|(name, value)| name == "type" && value == "snapshot");
        let fields_max = if is_snapshot { limits.fields_max.max(SNAPSHOT_FIELDS_MAX) } else { limits.fields_max };
        if fields.len() > fields_max {
            let problem = Problem::TooMany { fields: fields.len(), fields_max };
            return Err(Rejection::new("entry", None, problem));
        }
        let mut raw = Raw::gather(fields, limits)?;
        let kind = raw.take("type").ok_or_else(|| Rejection::new("type", None, Problem::Missing))?;
        let change = raw.change(kind, entry_milliseconds);
        if !limits.strict {
            return change;
        }
        match change {
            Ok(change) => raw.left_over(kind).map_or(Ok(change), Err),
            // What is missing was most likely written under another name.
            Err(missing) if missing.problem == Problem::Missing => Err(raw.unknown(kind).unwrap_or(missing)),
            Err(rejection) => Err(rejection),
        }
    }

    /// The names of the fields of a valid entry that have no effect, since its type has no such fields.
    pub fn ignored(fields: &Fields, limits: &Limits) -> Vec<String> {
        let mut names = Vec::new();
        if let Ok(mut raw) = Raw::gather(fields, limits)
            && let Some(kind) = raw.take("type")
            && raw.change(kind, u64::MAX).is_ok()
        {
            names.extend(KNOWN.iter().filter(|name| raw.gives(name)).map(|name| (*name).to_owned()));
            names.extend(raw.profile.iter().map(|(name, _)| format!("profile.{name}")));
            names.extend(raw.unknown.iter().map(|name| String::from_utf8_lossy(name).into_owned()));
        }
        names
    }
}

/// The fields of an entry, each taken at most once.
struct Raw<'a> {
    /// Those with a meaning. An entry has few, so a scan is cheaper than a place for each there is.
    given: Vec<(&'static str, &'a str)>,
    profile: Vec<(&'a str, &'a str)>,
    unknown: Vec<&'a Bytes>,
}

const KNOWN: [&str; 21] = [
    "type", "user", "friend", "birthday", "mutual", "category", "weight", "version", "id", "producer", "seq", "at",
    "others", "order", "ask", "friends", "from", "to", "whole", "gone", "versions",
];
/// What the names of types begin with that only shards write.
const MIRROR_PREFIX: &str = "mirror.";
/// Longest value of the field `others`.
const OTHERS_BYTES_MAX: usize = MIRROR_USERS_MAX * (USER_BYTES_MAX + 1);

impl<'a> Raw<'a> {
    fn gather(fields: &'a Fields, limits: &Limits) -> Result<Raw<'a>, Rejection> {
        let mut raw = Raw { given: Vec::with_capacity(fields.len()), profile: Vec::new(), unknown: Vec::new() };
        for (name, value) in fields {
            let reject = |problem| Rejection::new(String::from_utf8_lossy(name), Some(value), problem);
            let known = KNOWN.iter().find(|known| known.as_bytes() == name);
            if known.is_none() && !name.starts_with(PROFILE_PREFIX) {
                raw.unknown.push(name);
                continue;
            }
            let bytes_max = match &name[..] {
                b"others" => OTHERS_BYTES_MAX,
                b"friends" | b"versions" => SNAPSHOT_LIST_BYTES_MAX,
                _ => limits.field_bytes_max,
            };
            if value.len() > bytes_max {
                return Err(reject(Problem::TooLong { bytes: value.len(), bytes_max }));
            }
            let text = std::str::from_utf8(value).map_err(|_| reject(Problem::NotUtf8))?;
            match known {
                Some(known) if raw.gives(known) => return Err(reject(Problem::Repeated)),
                Some(known) => raw.given.push((known, text)),
                None => {
                    let field = std::str::from_utf8(name).map_err(|_| reject(Problem::NotUtf8))?;
                    raw.profile.push((&field[PROFILE_PREFIX.len()..], text));
                }
            }
        }
        Ok(raw)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.given.iter().position(|(given, _)| *given == name)?;
        Some(self.given.swap_remove(at).1)
    }

    fn gives(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    fn change(&mut self, kind: &'a str, now: u64) -> Result<Change, Rejection> {
        let user = self.user("user")?;
        if let Some(what) = kind.strip_prefix(MIRROR_PREFIX) {
            return self.mirrored(kind, what, user);
        }
        if kind == "snapshot" {
            return self.snapshot(user, now);
        }
        let action = self.action(kind, &user, now)?;
        let version = if action.has_version() { self.number("version")? } else { None };
        let (event, producer, at) = (self.token("id")?, self.producer()?, self.number("at")?);
        Ok(Change { version, event, producer, at, ..Change::new(user, action) })
    }

    /// What another shard tells: its dates were judged there.
    fn mirrored(&mut self, kind: &str, what: &str, user: UserId) -> Result<Change, Rejection> {
        let friend = self.friend(&user)?;
        let mirror = match what {
            "add" => {
                let (birthday, ask) = (self.birthday(u64::MAX)?, self.flag("ask")?);
                Mirror::Add { friend, birthday, ask, order: self.position("order")? }
            }
            "remove" => Mirror::Remove { friend, order: self.position("order")? },
            "birthday" => Mirror::Birthday { friend, birthday: self.birthday_required(u64::MAX)? },
            "forget" => Mirror::Forget { friend, order: self.position("order")? },
            _ => return Err(Rejection::new("type", Some(kind.as_bytes()), Problem::UnknownType)),
        };
        let others = match mirror {
            Mirror::Add { .. } | Mirror::Remove { .. } => Vec::new(),
            Mirror::Birthday { .. } | Mirror::Forget { .. } => self.others()?,
        };
        let (version, relayed) = (self.number("version")?, self.relayed()?);
        Ok(Change { others, version, relayed, ..Change::new(user, Action::Mirror(mirror)) })
    }

    /// What `heyday rebuild` writes. The moment is needed: it decides what is newer.
    fn snapshot(&mut self, user: UserId, now: u64) -> Result<Change, Rejection> {
        let (from, to) = (self.user_optional("from")?, self.user_optional("to")?);
        let (whole, gone) = (self.flag("whole")?, self.flag("gone")?);
        let (birthday, profile) = (self.birthday(now)?, self.profile_fields()?);
        let versions = self.list("versions", parse_version)?;
        let friends = self.list("friends", Listed::parse)?;
        let snapshot = Snapshot { friends, from, to, whole, gone, birthday, profile, versions };
        self.check_friends(&user, &snapshot, now)?;
        let at = self.number("at")?.ok_or_else(|| Rejection::new("at", None, Problem::Missing))?;
        let action = Action::Snapshot(Box::new(snapshot));
        Ok(Change { at: Some(at), producer: self.producer()?, ..Change::new(user, action) })
    }

    fn check_friends(&self, user: &UserId, snapshot: &Snapshot, now: u64) -> Result<(), Rejection> {
        let (latest, mut before) = (latest(now), None);
        for Listed { friend, birthday, .. } in &snapshot.friends {
            let reject = |problem| Err(Rejection::new("friends", Some(friend.as_str().as_bytes()), problem));
            if friend == user {
                return reject(Problem::SameAsUser);
            }
            if before.is_some_and(|before| friend <= before) || !snapshot.covers(friend.as_str()) {
                return reject(Problem::NotAscending);
            }
            if birthday.date().is_some_and(|date| date > latest) {
                return reject(Problem::Future);
            }
            before = Some(friend);
        }
        Ok(())
    }

    fn list<T>(&mut self, field: &'static str, parse: fn(&str) -> Result<T, Problem>) -> Result<Vec<T>, Rejection> {
        let Some(text) = self.take(field).filter(|text| !text.is_empty()) else {
            return Ok(Vec::new());
        };
        let item = |item: &str| parse(item).map_err(|problem| Rejection::new(field, Some(item.as_bytes()), problem));
        text.split(' ').map(item).collect()
    }

    fn action(&mut self, kind: &'a str, user: &UserId, now: u64) -> Result<Action, Rejection> {
        match kind {
            "add" => {
                let (friend, mutual) = (self.friend(user)?, self.flag("mutual")?);
                Ok(Action::Add { friend, birthday: self.birthday(now)?, mutual })
            }
            "remove" => Ok(Action::Remove { friend: self.friend(user)?, mutual: self.flag("mutual")? }),
            "update" => Ok(Action::Update { friend: self.friend(user)?, birthday: self.birthday_required(now)? }),
            "birthday" => Ok(Action::Birthday { birthday: self.birthday_required(now)? }),
            "profile" => self.profile(),
            "forget" => Ok(Action::Forget),
            "activity" => Ok(Action::Activity { category: self.category()?, weight: self.weight()? }),
            _ => Err(Rejection::new("type", Some(kind.as_bytes()), Problem::UnknownType)),
        }
    }

    fn user(&mut self, field: &'static str) -> Result<UserId, Rejection> {
        let text = self.take(field).ok_or_else(|| Rejection::new(field, None, Problem::Missing))?;
        text.parse().map_err(|problem| Rejection::new(field, Some(text.as_bytes()), problem))
    }

    fn user_optional(&mut self, field: &'static str) -> Result<Option<UserId>, Rejection> {
        let Some(text) = self.take(field) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|problem| Rejection::new(field, Some(text.as_bytes()), problem))
    }

    fn friend(&mut self, user: &UserId) -> Result<UserId, Rejection> {
        let friend = self.user("friend")?;
        if friend == *user {
            return Err(Rejection::new("friend", Some(friend.as_str().as_bytes()), Problem::SameAsUser));
        }
        Ok(friend)
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, Rejection> {
        match self.take(field) {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(Rejection::new(field, Some(other.as_bytes()), Problem::NotAFlag)),
        }
    }

    fn others(&mut self) -> Result<Vec<UserId>, Rejection> {
        let Some(text) = self.take("others") else {
            return Ok(Vec::new());
        };
        let reject = |problem| Rejection::new("others", Some(text.as_bytes()), problem);
        let others: Vec<UserId> = text.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(reject)?;
        let (users, users_max) = (others.len() + 1, MIRROR_USERS_MAX);
        if users > users_max { Err(reject(Problem::TooManyUsers { users, users_max })) } else { Ok(others) }
    }

    /// None for one that was a dead letter and is replayed.
    fn relayed(&mut self) -> Result<Option<Relayed>, Rejection> {
        let Some(text) = self.take("producer") else {
            return Ok(None);
        };
        let source = text.strip_prefix(SHARD_PRODUCER).and_then(|number| number.parse().ok());
        let source = source.ok_or_else(|| Rejection::new("producer", Some(text.as_bytes()), Problem::NotAShard))?;
        Ok(Some(Relayed { source, id: self.position("seq")? }))
    }

    fn position<T: FromStr>(&mut self, field: &'static str) -> Result<T, Rejection> {
        let text = self.take(field).ok_or_else(|| Rejection::new(field, None, Problem::Missing))?;
        text.parse().map_err(|_| Rejection::new(field, Some(text.as_bytes()), Problem::NotAPosition))
    }

    fn birthday(&mut self, now: u64) -> Result<Option<Birthday>, Rejection> {
        let Some(text) = self.take("birthday") else {
            return Ok(None);
        };
        let reject = |problem| Rejection::new("birthday", Some(text.as_bytes()), problem);
        let birthday = Birthday::parse(text).map_err(|error| {
            reject(match error {
                ParseError::Form => Problem::DateForm,
                ParseError::NoSuchDay => Problem::NoSuchDay,
            })
        })?;
        match birthday.date() {
            Some(date) if date > latest(now) => Err(reject(Problem::Future)),
            _ => Ok(Some(birthday)),
        }
    }

    fn birthday_required(&mut self, now: u64) -> Result<Birthday, Rejection> {
        self.birthday(now)?.ok_or_else(|| Rejection::new("birthday", None, Problem::Missing))
    }

    fn profile(&mut self) -> Result<Action, Rejection> {
        let fields = self.profile_fields()?;
        if fields.is_empty() {
            return Err(Rejection::new("profile.NAME", None, Problem::Missing));
        }
        Ok(Action::Profile { fields })
    }

    fn profile_fields(&mut self) -> Result<Vec<(String, Option<String>)>, Rejection> {
        let named = std::mem::take(&mut self.profile);
        let mut fields: Vec<(String, Option<String>)> = Vec::with_capacity(named.len());
        for (field, value) in named {
            let reject = |problem| Rejection::new(format!("profile.{field}"), Some(value.as_bytes()), problem);
            name(field, PROFILE_NAME_BYTES_MAX).map_err(reject)?;
            if PROFILE_RESERVED.contains(&field) {
                return Err(reject(Problem::Reserved));
            }
            if fields.iter().any(|(earlier, _)| earlier == field) {
                return Err(reject(Problem::Repeated));
            }
            if field == ZONE_FIELD && !value.is_empty() && zone_named(value).is_none() {
                return Err(reject(Problem::NoSuchZone));
            }
            fields.push((field.to_owned(), (!value.is_empty()).then(|| value.to_owned())));
        }
        Ok(fields)
    }

    fn category(&mut self) -> Result<Option<String>, Rejection> {
        let Some(text) = self.take("category") else {
            return Ok(None);
        };
        let reject = |problem| Rejection::new("category", Some(text.as_bytes()), problem);
        name(text, CATEGORY_BYTES_MAX).map_err(reject)?;
        Ok(Some(text.to_owned()))
    }

    fn weight(&mut self) -> Result<u32, Rejection> {
        let Some(text) = self.take("weight") else {
            return Ok(1);
        };
        let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let weight = number.filter(|weight| (1..=WEIGHT_MAX).contains(weight));
        weight.ok_or_else(|| Rejection::new("weight", Some(text.as_bytes()), Problem::Weight))
    }

    fn number(&mut self, field: &'static str) -> Result<Option<u64>, Rejection> {
        let Some(text) = self.take(field) else {
            return Ok(None);
        };
        let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(Rejection::new(field, Some(text.as_bytes()), Problem::NotANumber)),
        }
    }

    fn token(&mut self, field: &'static str) -> Result<Option<String>, Rejection> {
        let Some(text) = self.take(field) else {
            return Ok(None);
        };
        let reject = |problem| Rejection::new(field, Some(text.as_bytes()), problem);
        if text.is_empty() {
            return Err(reject(Problem::Empty));
        }
        if text.len() > TOKEN_BYTES_MAX {
            return Err(reject(Problem::TooLong { bytes: text.len(), bytes_max: TOKEN_BYTES_MAX }));
        }
        match text.chars().find(|c| c.is_control()) {
            Some(character) => Err(reject(Problem::Control(character))),
            None => Ok(Some(text.to_owned())),
        }
    }

    fn producer(&mut self) -> Result<Option<Producer>, Rejection> {
        match (self.token("producer")?, self.number("seq")?) {
            (None, None) => Ok(None),
            (Some(name), _) if name.starts_with(SHARD_PRODUCER) => {
                Err(Rejection::new("producer", Some(name.as_bytes()), Problem::Reserved))
            }
            (Some(name), Some(sequence)) => Ok(Some(Producer { name, sequence })),
            (None, Some(sequence)) => {
                let value = sequence.to_string();
                Err(Rejection::new("seq", Some(value.as_bytes()), Problem::Without("producer")))
            }
            (Some(name), None) => Err(Rejection::new("producer", Some(name.as_bytes()), Problem::Without("seq"))),
        }
    }

    /// The first field that nothing has taken.
    fn left_over(&self, kind: &str) -> Option<Rejection> {
        let known = KNOWN.iter().find(|name| self.gives(name)).map(|name| (*name).to_owned());
        let profile = || self.profile.first().map(|(name, _)| format!("profile.{name}"));
        let field = known.or_else(profile).map(|field| Rejection::new(field, None, Problem::UnknownField));
        field.or_else(|| self.unknown(kind))
    }

    /// The first field that no type has.
    fn unknown(&self, kind: &str) -> Option<Rejection> {
        let problem = if kind == "profile" { Problem::Unprefixed } else { Problem::UnknownField };
        self.unknown.first().map(|name| Rejection::new(String::from_utf8_lossy(name), None, problem))
    }
}

/// The last day that has begun anywhere.
fn latest(milliseconds: u64) -> Date {
    i64::try_from(milliseconds)
        .ok()
        .and_then(|milliseconds| Timestamp::from_millisecond(milliseconds).ok())
        .and_then(|moment| moment.checked_add(ZONE_AHEAD_MAX).ok())
        .map_or(Date::MAX, |moment| jiff::tz::TimeZone::UTC.to_datetime(moment).date())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
