//! The oracle's own reading of an entry: whether it is a change, and which one. Reasons are not its business.

use std::collections::BTreeMap;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use super::snapshot;
use crate::calendar::zone_named;
use crate::change::{Fields, Limits, UserId};

const PLAIN: [&str; 21] = [
    "type", "user", "friend", "birthday", "mutual", "category", "weight", "version", "id", "producer", "seq", "at",
    "others", "order", "ask", "friends", "from", "to", "whole", "gone", "versions",
];
const KEPT: [&str; 6] = ["schema", "version", "updated_at", "birthday", "last_activity", "expires_at"];

/// A good entry.
pub(super) struct Told {
    /// Of one shard.
    pub users: Vec<UserId>,
    pub kind: Kind,
    pub version: Option<u64>,
    pub event: Option<String>,
    /// A shard's has two numbers.
    pub producer: Option<(String, (u64, u64))>,
    pub at: Option<u64>,
}

/// A change to both sides: milliseconds, sequence and shard of its entry.
pub(super) type Order = (u64, u64, u64);

pub(super) enum Kind {
    Add {
        friend: UserId,
        birthday: Option<String>,
        mutual: bool,
    },
    Remove {
        friend: UserId,
        mutual: bool,
    },
    Forget,
    /// From the friend's shard.
    Added {
        friend: UserId,
        birthday: Option<String>,
        order: Order,
    },
    Removed {
        friend: UserId,
        order: Order,
    },
    Born {
        friend: UserId,
        birthday: String,
    },
    Forgotten {
        friend: UserId,
        order: Order,
    },
    Update {
        friend: UserId,
        birthday: String,
    },
    Birthday {
        birthday: String,
    },
    /// An empty value deletes the field.
    Profile {
        fields: Vec<(String, String)>,
    },
    Snapshot(snapshot::Told),
    Activity {
        category: Option<String>,
        weight: u64,
    },
}

/// The known fields as text, in two sorts.
struct Known {
    plain: BTreeMap<String, String>,
    profile: Vec<(String, String)>,
    foreign: bool,
}

/// Dates from other shards were judged there.
const LATE: u64 = 200_000_000_000_000;

/// None for an entry that is no change.
pub(super) fn decode(fields: &Fields, limits: &Limits, entry_milliseconds: u64) -> Option<Told> {
    let mut known = gather(fields, limits)?;
    let strict = limits.strict;
    if known.plain.get("type").is_some_and(|kind| kind == "snapshot") {
        return snapshot(known, entry_milliseconds, strict);
    }
    let mut take = |name: &str| known.plain.remove(name);
    let kind = take("type")?;
    let user = id(&take("user")?)?;
    let mut friend = || take("friend").and_then(|text| id(&text)).filter(|friend| *friend != user);
    let kind = match kind.as_str() {
        "add" => {
            let (friend, mutual) = (friend()?, flag(take("mutual"))?);
            Kind::Add { friend, birthday: optional(take("birthday"), |text| date(text, entry_milliseconds))?, mutual }
        }
        "remove" => Kind::Remove { friend: friend()?, mutual: flag(take("mutual"))? },
        "forget" => Kind::Forget,
        "mirror.add" => {
            let (friend, _, order) = (friend()?, flag(take("ask"))?, order(&take("order")?)?);
            Kind::Added { friend, birthday: optional(take("birthday"), |text| date(text, LATE))?, order }
        }
        "mirror.remove" => Kind::Removed { friend: friend()?, order: order(&take("order")?)? },
        "mirror.birthday" => Kind::Born { friend: friend()?, birthday: date(take("birthday")?, LATE)? },
        "mirror.forget" => Kind::Forgotten { friend: friend()?, order: order(&take("order")?)? },
        "update" => Kind::Update { friend: friend()?, birthday: date(take("birthday")?, entry_milliseconds)? },
        "birthday" => Kind::Birthday { birthday: date(take("birthday")?, entry_milliseconds)? },
        "profile" => Kind::Profile { fields: profile(std::mem::take(&mut known.profile))? },
        "activity" => Kind::Activity {
            category: optional(take("category"), |text| word(&text).then_some(text))?,
            weight: optional(take("weight"), |text| number(text).filter(|weight| (1..=1_000_000).contains(weight)))?
                .unwrap_or(1),
        },
        _ => return None,
    };
    let versioned = !matches!(kind, Kind::Activity { .. });
    let version = if versioned { optional(take("version"), number)? } else { None };
    if matches!(kind, Kind::Added { .. } | Kind::Removed { .. } | Kind::Born { .. } | Kind::Forgotten { .. }) {
        let several = matches!(kind, Kind::Born { .. } | Kind::Forgotten { .. });
        let others = take("others").filter(|_| several).unwrap_or_default();
        let others = others.split_terminator(' ').map(id).collect::<Option<Vec<_>>>()?;
        let producer = match take("producer") {
            Some(name) => Some((Some(name).filter(|name| shard(name).is_some())?, pair(&take("seq")?)?)),
            None => None,
        };
        let users = std::iter::once(user).chain(others).collect();
        return Some(Told { users, kind, version, event: None, producer, at: None });
    }
    let event = optional(take("id"), token)?;
    let producer = match (optional(take("producer"), token)?, optional(take("seq"), number)?) {
        (Some(name), _) if name.starts_with("shard:") => return None,
        (Some(name), Some(sequence)) => Some((name, (sequence, 0))),
        (None, None) => None,
        _ => return None,
    };
    let at = optional(take("at"), number)?;
    let foreign = known.foreign || !known.plain.is_empty() || !known.profile.is_empty();
    (!(strict && foreign)).then_some(Told { users: vec![user], kind, version, event, producer, at })
}

fn snapshot(mut known: Known, entry_milliseconds: u64, strict: bool) -> Option<Told> {
    known.plain.remove("type");
    let mut take = |name: &str| known.plain.remove(name);
    let user = id(&take("user")?)?;
    let boundary = |text: String| id(&text).map(|id| id.to_string());
    let (from, to) = (optional(take("from"), boundary)?, optional(take("to"), boundary)?);
    let (whole, gone) = (flag(take("whole"))?, flag(take("gone"))?);
    let mut friends: BTreeMap<UserId, (String, Option<u64>)> = BTreeMap::new();
    for item in take("friends").unwrap_or_default().split_terminator(' ') {
        let (friend, told) = item.rsplit_once('=')?;
        let (text, version) = told.split_once('@').map_or((told, None), |(text, version)| (text, Some(version)));
        let version = optional(version.map(str::to_owned), number)?;
        let friend = id(friend).filter(|friend| *friend != user)?;
        let outside = from.as_deref().is_some_and(|from| friend.as_str() < from)
            || to.as_deref().is_some_and(|to| friend.as_str() >= to);
        if outside || friends.last_key_value().is_some_and(|(last, _)| friend <= *last) {
            return None;
        }
        friends.insert(friend, (date(text.to_owned(), entry_milliseconds)?, version));
    }
    let mut versions = BTreeMap::new();
    for item in take("versions").unwrap_or_default().split_terminator(' ') {
        let (name, version) = item.rsplit_once('=')?;
        versions.insert(name.to_owned(), number(version.to_owned())?);
    }
    let birthday = optional(take("birthday"), |text| date(text, entry_milliseconds))?;
    let at = Some(number(take("at")?)?);
    let producer = match (optional(take("producer"), token)?, optional(take("seq"), number)?) {
        (Some(name), Some(sequence)) if !name.starts_with("shard:") => Some((name, (sequence, 0))),
        (None, None) => None,
        _ => return None,
    };
    let named = std::mem::take(&mut known.profile);
    let mut profile = if named.is_empty() { named } else { self::profile(named)? };
    profile.extend(birthday.map(|date| ("birthday".to_owned(), date)));
    if strict && (known.foreign || !known.plain.is_empty()) {
        return None;
    }
    let kind = Kind::Snapshot(snapshot::Told { friends, from, to, whole, gone, profile, versions });
    Some(Told { users: vec![user], kind, version: None, event: None, producer, at })
}

fn gather(fields: &Fields, limits: &Limits) -> Option<Known> {
    let is_snapshot = fields.iter().any(|(name, value)| name == "type" && value == "snapshot");
    if fields.len() > if is_snapshot { limits.fields_max.max(1024) } else { limits.fields_max } {
        return None;
    }
    let mut known = Known { plain: BTreeMap::new(), profile: Vec::new(), foreign: false };
    for (name, value) in fields {
        let plain = PLAIN.iter().find(|plain| plain.as_bytes() == name);
        if plain.is_none() && !name.starts_with(b"profile.") {
            known.foreign = true;
            continue;
        }
        let bytes_max = if name == "friends" || name == "versions" { 32 * 1024 } else { limits.field_bytes_max };
        if value.len() > bytes_max && name != "others" {
            return None;
        }
        let value = String::from_utf8(value.to_vec()).ok()?;
        match plain {
            Some(plain) => {
                if known.plain.insert((*plain).to_owned(), value).is_some() {
                    return None;
                }
            }
            None => known.profile.push((String::from_utf8(name[8..].to_vec()).ok()?, value)),
        }
    }
    Some(known)
}

/// Absent is fine, wrong is not.
fn optional<T>(text: Option<String>, read: impl Fn(String) -> Option<T>) -> Option<Option<T>> {
    match text {
        None => Some(None),
        Some(text) => read(text).map(Some),
    }
}

fn word(text: &str) -> bool {
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || "{}:".contains(c);
    !text.is_empty() && text.len() <= 64 && !text.chars().any(forbidden)
}

fn id(text: &str) -> Option<UserId> {
    if word(text) { text.parse().ok() } else { None }
}

fn flag(text: Option<String>) -> Option<bool> {
    match text.as_deref() {
        None | Some("0") => Some(false),
        Some("1") => Some(true),
        Some(_) => None,
    }
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once('-')?;
    Some((number(major.to_owned())?, number(minor.to_owned())?))
}

fn order(text: &str) -> Option<Order> {
    let (entry, shard) = text.rsplit_once('-')?;
    let (major, minor) = pair(entry)?;
    Some((major, minor, number(shard.to_owned())?))
}

/// The number in a shard's name as a producer.
pub(super) fn shard(producer: &str) -> Option<u16> {
    producer.strip_prefix("shard:")?.parse().ok()
}

fn profile(fields: Vec<(String, String)>) -> Option<Vec<(String, String)>> {
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let repeated = names.windows(2).any(|pair| pair[0] == pair[1]);
    let good = names.iter().all(|name| word(name) && !KEPT.contains(name));
    let zones = fields.iter().filter(|(name, value)| name == "tz" && !value.is_empty());
    let good = good && zones.into_iter().all(|(_, value)| zone_named(value).is_some());
    (good && !repeated && !names.is_empty()).then_some(fields)
}

fn number(text: String) -> Option<u64> {
    (!text.starts_with('+')).then(|| text.parse().ok()).flatten()
}

fn token(text: String) -> Option<String> {
    ((1..=128).contains(&text.len()) && !text.chars().any(char::is_control)).then_some(text)
}

fn date(text: String, entry_milliseconds: u64) -> Option<String> {
    if text.is_empty() {
        return Some(text);
    }
    let (year, month, day) = parts(&text)?;
    let date = Date::new(year.unwrap_or(2000), month, day).ok()?;
    let begun = Timestamp::from_millisecond(entry_milliseconds.try_into().ok()?).ok()?;
    let latest =
        begun.checked_add(SignedDuration::from_hours(14)).ok()?.to_zoned_datetime(jiff::tz::TimeZone::UTC).date();
    (year.is_none() || date <= latest).then_some(text)
}

/// Year, month and day of `YYYY-MM-DD` and `--MM-DD`.
pub(super) fn parts(text: &str) -> Option<(Option<i16>, i8, i8)> {
    let two =
        |text: &str| (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok());
    let (year, rest) = match text.strip_prefix("--") {
        Some(rest) => (None, rest),
        None => {
            let (year, rest) = text.split_once('-')?;
            let digits = year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit());
            (Some(digits.then(|| year.parse().ok()).flatten().filter(|year| *year > 0)?), rest)
        }
    };
    let (month, day) = rest.split_once('-')?;
    Some((year, two(month)??, two(day)??))
}
