//! What a user's view was at a moment, or a part of it: the entries that `heyday rebuild` writes.

use std::fmt::Write;

use super::{Problem, USER_BYTES_MAX, UserId, ZONE_FIELD};
use crate::birthday::{Birthday, ParseError};

/// Longest value of the fields `friends` and `versions`, in bytes. A user with more friends has several entries.
pub const SNAPSHOT_LIST_BYTES_MAX: usize = 32 * 1024;
/// Longest item of `friends` and what parts it from the next, in bytes.
pub const SNAPSHOT_ITEM_BYTES_MAX: usize = USER_BYTES_MAX + "=YYYY-MM-DD@18446744073709551615 ".len();
/// Most fields of such an entry: a profile has each of its fields in one of its own.
pub const SNAPSHOT_FIELDS_MAX: usize = 1024;
/// So many friends weigh as much in a batch as one view.
const FRIENDS_A_VIEW: usize = 32;
/// All that is stored of a user weighs as much as so many views.
const ALL_WEIGHT: usize = 31;

/// A user at the moment that the entry's `at` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// In byte order, each once.
    pub friends: Vec<Listed>,
    /// The first friend's id that it speaks of. The entry without speaks of the profile too.
    pub from: Option<UserId>,
    /// The first id that it does not speak of any more.
    pub to: Option<UserId>,
    /// Whether what it speaks of and does not name was not there.
    pub whole: bool,
    /// Whether the user was not there at all: then activity goes as well, where nothing later tells of the user.
    pub gone: bool,
    /// The user's own date.
    pub birthday: Option<Birthday>,
    /// Profile fields by name; none was not there.
    pub profile: Vec<(String, Option<String>)>,
    /// Versions of profile fields and of `birthday`.
    pub versions: Vec<(String, u64)>,
}

/// A friend in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub friend: UserId,
    pub birthday: Birthday,
    pub version: Option<u64>,
}

impl Snapshot {
    /// Of somebody who was not there.
    pub fn of_nobody() -> Snapshot {
        Snapshot { whole: true, gone: true, ..Snapshot::default() }
    }

    /// Whether it says that the user was not there.
    pub fn is_of_nobody(&self) -> bool {
        self.gone
            && self.whole
            && self.speaks_of_profile()
            && self.to.is_none()
            && self.friends.is_empty()
            && !self.has_profile()
    }

    pub fn speaks_of_profile(&self) -> bool {
        self.from.is_none()
    }

    fn has_profile(&self) -> bool {
        self.birthday.is_some() || self.profile.iter().any(|(_, value)| value.is_some())
    }

    /// Whether it speaks of this friend, named or not.
    pub fn covers(&self, friend: &str) -> bool {
        self.from.as_ref().is_none_or(|from| from.as_str() <= friend)
            && self.to.as_ref().is_none_or(|to| friend < to.as_str())
    }

    pub fn version_of(&self, field: &str) -> Option<u64> {
        self.versions.iter().find(|(name, _)| name == field).map(|(_, version)| *version)
    }

    /// As many views as it is worth. Whatever speaks of all that is stored, or moves it, is worth many.
    pub fn weight(&self) -> usize {
        let moves = self.profile.iter().any(|(name, _)| name == ZONE_FIELD);
        let all = if self.whole || moves { ALL_WEIGHT } else { 0 };
        1 + all + self.friends.len() / FRIENDS_A_VIEW
    }
}

impl Listed {
    /// One item of the field `friends`, such as `77=1990-05-01@7`.
    pub fn write(&self, text: &mut String) {
        if !text.is_empty() {
            text.push(' ');
        }
        // Nothing can go wrong in a text.
        let _ = write!(text, "{}={}", self.friend, self.birthday);
        if let Some(version) = self.version {
            let _ = write!(text, "@{version}");
        }
    }

    pub fn parse(item: &str) -> Result<Listed, Problem> {
        // Ids may hold both signs, dates neither.
        let (friend, told) = item.rsplit_once('=').ok_or(Problem::ListForm)?;
        let (date, version) = match told.split_once('@') {
            None => (told, None),
            Some((date, version)) => (date, Some(number(version)?)),
        };
        let birthday = Birthday::parse(date).map_err(|error| match error {
            ParseError::Form => Problem::DateForm,
            ParseError::NoSuchDay => Problem::NoSuchDay,
        })?;
        Ok(Listed { friend: friend.parse()?, birthday, version })
    }
}

/// `NAME=VERSION`.
pub(super) fn parse_version(item: &str) -> Result<(String, u64), Problem> {
    let (name, version) = item.rsplit_once('=').ok_or(Problem::ListForm)?;
    Ok((name.to_owned(), number(version)?))
}

fn number(text: &str) -> Result<u64, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or(Problem::NotANumber)
}
