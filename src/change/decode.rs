//! The fields of a stream entry as a change, or the reason why they are none.

use bytes::Bytes;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use super::id::name;
use super::{Action, Change, Fields, Limits, PROFILE_NAME_BYTES_MAX, PROFILE_RESERVED, Problem, Producer, Rejection};
use super::{TOKEN_BYTES_MAX, UserId};
use crate::birthday::{Birthday, ParseError};

const PROFILE_PREFIX: &[u8] = b"profile.";
/// No zone is further ahead of UTC: a date beyond this one's today is in the future everywhere.
const ZONE_AHEAD_MAX: SignedDuration = SignedDuration::from_hours(14);

impl Change {
    /// `entry_milliseconds` is the entry id's time, against which a future date is judged: so the same entry always
    /// gets the same verdict, whoever reads it and when.
    pub fn decode(fields: &Fields, limits: &Limits, entry_milliseconds: u64) -> Result<Change, Rejection> {
        if fields.len() > limits.fields_max {
            let problem = Problem::TooMany { fields: fields.len(), fields_max: limits.fields_max };
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
            names.extend(raw.known.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| (*name).to_owned()));
            names.extend(raw.profile.iter().map(|(name, _)| format!("profile.{name}")));
            names.extend(raw.unknown.iter().map(|name| String::from_utf8_lossy(name).into_owned()));
        }
        names
    }
}

/// The known fields of an entry, each taken at most once.
struct Raw<'a> {
    known: [(&'static str, Option<&'a str>); KNOWN.len()],
    profile: Vec<(&'a str, &'a str)>,
    unknown: Vec<&'a Bytes>,
}

const KNOWN: [&str; 10] = ["type", "user", "friend", "birthday", "mutual", "version", "id", "producer", "seq", "at"];

impl<'a> Raw<'a> {
    fn gather(fields: &'a Fields, limits: &Limits) -> Result<Raw<'a>, Rejection> {
        let mut raw = Raw { known: KNOWN.map(|name| (name, None)), profile: Vec::new(), unknown: Vec::new() };
        for (name, value) in fields {
            let reject = |problem| Rejection::new(String::from_utf8_lossy(name), Some(value), problem);
            let known = raw.known.iter_mut().find(|(known, _)| known.as_bytes() == name);
            if known.is_none() && !name.starts_with(PROFILE_PREFIX) {
                raw.unknown.push(name);
                continue;
            }
            if value.len() > limits.field_bytes_max {
                return Err(reject(Problem::TooLong { bytes: value.len(), bytes_max: limits.field_bytes_max }));
            }
            let text = std::str::from_utf8(value).map_err(|_| reject(Problem::NotUtf8))?;
            match known {
                Some((_, Some(_))) => return Err(reject(Problem::Repeated)),
                Some((_, slot)) => *slot = Some(text),
                None => {
                    let field = std::str::from_utf8(name).map_err(|_| reject(Problem::NotUtf8))?;
                    raw.profile.push((&field[PROFILE_PREFIX.len()..], text));
                }
            }
        }
        Ok(raw)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        self.known.iter_mut().find(|(known, _)| *known == name).and_then(|(_, value)| value.take())
    }

    fn change(&mut self, kind: &'a str, now: u64) -> Result<Change, Rejection> {
        let user = self.user("user")?;
        let action = self.action(kind, &user, now)?;
        Ok(Change {
            user,
            action,
            version: self.number("version")?,
            event: self.token("id")?,
            producer: self.producer()?,
            at: self.number("at")?,
        })
    }

    fn action(&mut self, kind: &'a str, user: &UserId, now: u64) -> Result<Action, Rejection> {
        match kind {
            "add" => {
                let friend = self.friend(user)?;
                self.mutual()?;
                Ok(Action::Add { friend, birthday: self.birthday(now)? })
            }
            "remove" => {
                let friend = self.friend(user)?;
                self.mutual()?;
                Ok(Action::Remove { friend })
            }
            "update" => Ok(Action::Update { friend: self.friend(user)?, birthday: self.birthday_required(now)? }),
            "birthday" => Ok(Action::Birthday { birthday: self.birthday_required(now)? }),
            "profile" => self.profile(),
            "activity" | "forget" => Err(Rejection::new("type", Some(kind.as_bytes()), Problem::NotYet)),
            _ => Err(Rejection::new("type", Some(kind.as_bytes()), Problem::UnknownType)),
        }
    }

    fn user(&mut self, field: &'static str) -> Result<UserId, Rejection> {
        let text = self.take(field).ok_or_else(|| Rejection::new(field, None, Problem::Missing))?;
        text.parse().map_err(|problem| Rejection::new(field, Some(text.as_bytes()), problem))
    }

    fn friend(&mut self, user: &UserId) -> Result<UserId, Rejection> {
        let friend = self.user("friend")?;
        if friend == *user {
            return Err(Rejection::new("friend", Some(friend.as_str().as_bytes()), Problem::SameAsUser));
        }
        Ok(friend)
    }

    /// Both sides at once are not applied yet; half of it would be worse than none.
    fn mutual(&mut self) -> Result<(), Rejection> {
        let problem = match self.take("mutual") {
            None | Some("0") => return Ok(()),
            Some("1") => (b"1".as_slice(), Problem::NotYet),
            Some(other) => (other.as_bytes(), Problem::NotAFlag),
        };
        Err(Rejection::new("mutual", Some(problem.0), problem.1))
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
        let named = std::mem::take(&mut self.profile);
        if named.is_empty() {
            return Err(Rejection::new("profile.NAME", None, Problem::Missing));
        }
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
            fields.push((field.to_owned(), (!value.is_empty()).then(|| value.to_owned())));
        }
        Ok(Action::Profile { fields })
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
        let known = self.known.iter().find(|(_, value)| value.is_some()).map(|(name, _)| (*name).to_owned());
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
