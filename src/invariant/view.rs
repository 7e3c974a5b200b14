//! What is stored of a user is well formed, and `users` lists exactly those of whom something is.

use super::{Kind, Repair, Violation, shown};
use crate::birthday::Birthday;
use crate::calendar::zone_named;
use crate::change::{SHARD_PRODUCER, UserId, ZONE_FIELD};
use crate::key::{Key, ShardKeys};
use crate::position::{EntryId, Order};
use crate::profile::{PROFILE_SCHEMA, SCHEMA_FIELD};
use crate::reduce::is_change_mark;

/// The fields of a profile that [`judge_profile`] looks at, in its order.
pub const PROFILE_FIELDS: [&str; 6] = ["schema", "version", "updated_at", "birthday", "last_activity", ZONE_FIELD];

/// What there is of a user, seen in one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub profile: bool,
    pub birthdays: bool,
    /// By day or by category.
    pub activity: bool,
    /// The score in `users`; none where the user is not listed.
    pub score: Option<String>,
}

/// One friend of a user.
pub fn judge_friend(key: &Key, user: &UserId, friend: &[u8], date: &[u8]) -> Option<Violation> {
    let wrong = |expected: &str, found: String| Some(Violation::new(Kind::View, key, expected, found));
    let text = |bytes| std::str::from_utf8(bytes).ok();
    match text(friend).and_then(|friend| friend.parse::<UserId>().ok()) {
        None => return wrong("the id of a friend", shown(friend)),
        Some(friend) if friend == *user => return wrong("a friend", "the user's own id".to_owned()),
        Some(_) => {}
    }
    match text(date).map(Birthday::parse) {
        Some(Ok(_)) => None,
        _ => wrong(&format!("a date for {}", shown(friend)), shown(date)),
    }
}

/// The fields that every profile has, and those with a form where there are any. What a schema that is not this build's
/// says of a zone is not known here.
pub fn judge_profile(key: &Key, fields: [Option<&[u8]>; 6]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let text = |value: Option<&[u8]>| value.and_then(|value| std::str::from_utf8(value).ok().map(str::to_owned));
    for (name, value) in PROFILE_FIELDS.iter().zip(fields).take(3) {
        // A profile from before there were schemas has none.
        let old = *name == SCHEMA_FIELD && value.is_none();
        if !old && text(value).is_none_or(|value| value.parse::<u64>().is_err()) {
            let found = value.map_or_else(|| format!("no {name}"), shown);
            violations.push(Violation::new(Kind::View, key, format!("a number as {name}"), found));
        }
    }
    if let Some(birthday) = fields[3]
        && text(Some(birthday)).is_none_or(|text| Birthday::parse(&text).is_err())
    {
        violations.push(Violation::new(Kind::View, key, "a date as birthday", shown(birthday)));
    }
    if let Some(last) = fields[4]
        && number(last).is_none()
    {
        violations.push(Violation::new(Kind::View, key, "a number as last_activity", shown(last)));
    }
    if let Some(zone) = fields[5]
        && text(fields[0]).is_some_and(|schema| schema == PROFILE_SCHEMA.to_string())
        && text(Some(zone)).is_none_or(|zone| zone_named(&zone).is_none())
    {
        violations.push(Violation::new(Kind::View, key, "a time zone as tz", shown(zone)));
    }
    violations
}

/// One field of `versions`.
pub fn judge_version(key: &str, field: &[u8], value: &[u8]) -> Option<Violation> {
    let text = || std::str::from_utf8(value).unwrap_or("?");
    let (good, what) = match field {
        [.., b':', b'@'] => (is_change_mark(text()), "a moment, with ? or =DATE behind it"),
        [.., b':'] => (text().parse::<Order>().is_ok(), "an order"),
        _ => (pair(value).is_some() || number(value).is_some(), "version or version:removed_at"),
    };
    let expected = || format!("{what} for {}", shown(field));
    (!good).then(|| Violation::new(Kind::View, key, expected(), shown(value)))
}

/// One field of `producers`.
pub fn judge_producer(key: &Key, producer: &[u8], value: &[u8]) -> Option<Violation> {
    let expected = || format!("seq:last_seen for {}", shown(producer));
    let good = match producer.starts_with(SHARD_PRODUCER.as_bytes()) {
        true => place(value).is_some(),
        false => pair(value).is_some(),
    };
    (!good).then(|| Violation::new(Kind::Producer, key, expected(), shown(value)))
}

impl Listing {
    pub fn judge(&self, keys: &ShardKeys, user: &str) -> Option<Violation> {
        if self.activity && !self.profile {
            let key = user.parse().map_or_else(|_| user.to_owned(), |user| keys.profile(&user).to_string());
            let found = "no such key".to_owned();
            return Some(Violation::new(Kind::View, key, "a profile of somebody with activity", found));
        }
        let has_view = self.profile || self.birthdays;
        let listed = shown(user.as_bytes());
        let (expected, found) = match (has_view, self.score.as_deref()) {
            (true, Some("0")) | (false, None) => return None,
            (true, Some(score)) => (format!("{listed} at 0"), format!("{listed} at {score}")),
            (true, None) => (format!("{listed}, who has a view"), "no such user".to_owned()),
            (false, Some(_)) => ("only users with a view".to_owned(), format!("{listed}, who has none")),
        };
        let repair = Repair::Listing { user: user.to_owned() };
        Some(Violation::new(Kind::Index, &keys.users, expected, found).with(repair))
    }

    /// The score that the user must have in `users`.
    pub fn expected(&self) -> Option<i64> {
        (self.profile || self.birthdays).then_some(0)
    }
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A place in an outbox, and when it was heard of.
fn place(value: &[u8]) -> Option<EntryId> {
    let (place, seen) = std::str::from_utf8(value).ok()?.split_once(':')?;
    seen.parse::<u64>().ok()?;
    place.parse().ok()
}

fn pair(value: &[u8]) -> Option<(u64, u64)> {
    let at = value.iter().position(|byte| *byte == b':')?;
    Some((number(&value[..at])?, number(&value[at + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Keys;
    use crate::shard::{Layout, Shard};

    fn keys() -> ShardKeys {
        Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0))
    }

    #[test]
    fn friends_have_ids_and_dates() {
        let user: UserId = "a".parse().unwrap();
        let key = keys().birthdays(&user);
        for (friend, date, good) in [
            ("b", "1990-05-01", true),
            ("b", "--02-29", true),
            ("b", "", true),
            ("b", "1990-02-30", false),
            ("b", "\u{661}", false),
            ("a", "", false),
            ("b:c", "", false),
            ("", "", false),
        ] {
            let found = judge_friend(&key, &user, friend.as_bytes(), date.as_bytes());
            assert_eq!(found.is_none(), good, "{friend} {date}: {found:?}");
        }
    }

    #[test]
    fn profiles_say_what_every_profile_says() {
        let key = keys().profile(&"a".parse().unwrap());
        let wrong = |fields: [Option<&str>; 6]| judge_profile(&key, fields.map(|field| field.map(str::as_bytes))).len();
        let [one, two, nine] = ["1", "2", "9"].map(Some);
        let profile = |schema, rest: [Option<&'static str>; 3]| {
            [schema, Some("3"), Some("17")].into_iter().chain(rest).collect::<Vec<_>>().try_into().unwrap()
        };
        assert_eq!(wrong(profile(one, [None; 3])), 0);
        assert_eq!(wrong(profile(two, [Some("--02-29"), Some("5"), Some("Asia/Kathmandu")])), 0);
        assert_eq!(wrong([None, Some("x"), Some("-1"), Some("1990"), Some("now"), None]), 4);
        assert_eq!(wrong([Some("x"), Some("x"), Some("-1"), Some("1990"), Some("now"), None]), 5);
        assert_eq!(wrong(profile(two, [Some(""), None, None])), 0, "a date may be told to be unknown");
        assert_eq!(wrong(profile(two, [None, None, Some("Mars")])), 1);
        assert_eq!(wrong(profile(one, [None, None, Some("Mars")])), 0, "schema 1 knows no zones");
        assert_eq!(wrong(profile(nine, [None, None, Some("Mars")])), 0);
    }

    #[test]
    fn versions_and_positions_are_numbers() {
        for (value, version, producer) in [
            ("7", true, false),
            ("7:9", true, true),
            ("7:", false, false),
            ("x", false, false),
            ("7:9:1", false, false),
        ] {
            assert_eq!(judge_version("k", b"f", value.as_bytes()).is_none(), version, "{value}");
            assert_eq!(judge_producer(&keys().producers, b"p", value.as_bytes()).is_none(), producer, "{value}");
        }
        for (value, good) in [("7-1-3", true), ("7", false), ("7-1", false), ("7:9", false)] {
            assert_eq!(judge_version("k", b"f:", value.as_bytes()).is_none(), good, "{value}");
            assert_eq!(judge_version("k", b"::", value.as_bytes()).is_none(), good, "{value}");
        }
        for (value, good) in [("7", true), ("7?", true), ("7=1990-05-01@8", true), ("7:9", false), ("x", false)] {
            assert_eq!(judge_version("k", b"f:@", value.as_bytes()).is_none(), good, "{value}");
        }
        for (value, good) in [("7-1:3", true), ("7:3", false), ("7-1", false)] {
            assert_eq!(judge_producer(&keys().producers, b"shard:3", value.as_bytes()).is_none(), good, "{value}");
        }
    }

    #[test]
    fn exactly_those_with_a_view_are_listed() {
        let judge = |profile, birthdays, score: Option<&str>| {
            let listing = Listing { profile, birthdays, activity: false, score: score.map(str::to_owned) };
            listing.judge(&keys(), "a").map(|violation| (violation.expected, violation.found))
        };
        let told = |expected: &str, found: &str| Some((expected.to_owned(), found.to_owned()));
        assert_eq!(judge(true, false, Some("0")), None);
        assert_eq!(judge(false, true, Some("0")), None);
        assert_eq!(judge(false, false, None), None);
        assert_eq!(judge(true, false, None), told("\"a\", who has a view", "no such user"));
        assert_eq!(judge(false, false, Some("0")), told("only users with a view", "\"a\", who has none"));
        assert_eq!(judge(true, false, Some("1")), told("\"a\" at 0", "\"a\" at 1"));
        let active = |profile| {
            let listing = Listing { profile, birthdays: true, activity: true, score: Some("0".to_owned()) };
            listing.judge(&keys(), "a").map(|violation| (violation.key, violation.expected))
        };
        assert_eq!(active(true), None);
        let key = keys().profile(&"a".parse().unwrap()).to_string();
        assert_eq!(active(false), Some((key, "a profile of somebody with activity".to_owned())));
    }
}
