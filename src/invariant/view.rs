//! What is stored of a user is well formed, and `users` lists exactly those of whom something is.

use super::{Kind, Repair, Violation, shown};
use crate::birthday::Birthday;
use crate::change::{SHARD_PRODUCER, UserId};
use crate::key::{Key, ShardKeys};
use crate::position::{EntryId, Order};

/// The fields of a profile that [`judge_profile`] looks at, in its order.
pub const PROFILE_FIELDS: [&str; 4] = ["schema", "version", "updated_at", "birthday"];

/// What there is of a user, seen in one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub profile: bool,
    pub birthdays: bool,
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

/// The fields that every profile has, and the birthday where there is one.
pub fn judge_profile(key: &Key, fields: [Option<&[u8]>; 4]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let text = |value: Option<&[u8]>| value.and_then(|value| std::str::from_utf8(value).ok().map(str::to_owned));
    for (name, value) in PROFILE_FIELDS.iter().zip(fields).take(3) {
        if text(value).is_none_or(|value| value.parse::<u64>().is_err()) {
            let found = value.map_or_else(|| format!("no {name}"), shown);
            violations.push(Violation::new(Kind::View, key, format!("a number as {name}"), found));
        }
    }
    if let Some(birthday) = fields[3]
        && text(Some(birthday)).is_none_or(|text| Birthday::parse(&text).is_err())
    {
        violations.push(Violation::new(Kind::View, key, "a date as birthday", shown(birthday)));
    }
    violations
}

/// One field of `versions`.
pub fn judge_version(key: &str, field: &[u8], value: &[u8]) -> Option<Violation> {
    let ordered = field.ends_with(b":");
    let good = match ordered {
        true => std::str::from_utf8(value).is_ok_and(|text| text.parse::<Order>().is_ok()),
        false => pair(value).is_some() || number(value).is_some(),
    };
    let what = if ordered { "an order" } else { "version or version:removed_at" };
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
        let wrong = |fields: [Option<&str>; 4]| judge_profile(&key, fields.map(|field| field.map(str::as_bytes))).len();
        assert_eq!(wrong([Some("1"), Some("3"), Some("17"), None]), 0);
        assert_eq!(wrong([Some("1"), Some("3"), Some("17"), Some("--02-29")]), 0);
        assert_eq!(wrong([None, Some("x"), Some("-1"), Some("1990")]), 4);
        assert_eq!(wrong([Some("1"), Some("3"), Some("17"), Some("")]), 0, "a date may be told to be unknown");
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
        for (value, good) in [("7-1:3", true), ("7:3", false), ("7-1", false)] {
            assert_eq!(judge_producer(&keys().producers, b"shard:3", value.as_bytes()).is_none(), good, "{value}");
        }
    }

    #[test]
    fn exactly_those_with_a_view_are_listed() {
        let judge = |profile, birthdays, score: Option<&str>| {
            let listing = Listing { profile, birthdays, score: score.map(str::to_owned) };
            listing.judge(&keys(), "a").map(|violation| (violation.expected, violation.found))
        };
        let told = |expected: &str, found: &str| Some((expected.to_owned(), found.to_owned()));
        assert_eq!(judge(true, false, Some("0")), None);
        assert_eq!(judge(false, true, Some("0")), None);
        assert_eq!(judge(false, false, None), None);
        assert_eq!(judge(true, false, None), told("\"a\", who has a view", "no such user"));
        assert_eq!(judge(false, false, Some("0")), told("only users with a view", "\"a\", who has none"));
        assert_eq!(judge(true, false, Some("1")), told("\"a\" at 0", "\"a\" at 1"));
    }
}
