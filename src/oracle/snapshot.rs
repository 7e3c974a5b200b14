//! What a snapshot makes of a user, and what other changes leave for it to see while a rebuild is on.

use std::collections::BTreeMap;

use super::user::UserView;
use crate::change::UserId;

/// What an entry of type `snapshot` tells.
pub(super) struct Told {
    /// Date and version.
    pub friends: BTreeMap<UserId, (String, Option<u64>)>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub whole: bool,
    pub gone: bool,
    /// The own date among them, under `birthday`.
    pub profile: Vec<(String, String)>,
    pub versions: BTreeMap<String, u64>,
}

/// Since when a rebuild is on, and the time of the entry.
#[derive(Clone, Copy)]
pub(super) struct Rebuilding {
    pub since: u64,
    pub now: u64,
}

/// What was changed last, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Marked {
    Changed(u64),
    /// A friendship, without a date, or with one that was told before that.
    Dateless(u64, Option<(String, Option<u64>)>),
    /// A date without a friendship.
    Early(u64, String, Option<u64>),
}

impl Marked {
    fn at(&self) -> u64 {
        match self {
            Marked::Changed(at) | Marked::Dateless(at, _) | Marked::Early(at, ..) => *at,
        }
    }

    pub fn text(&self) -> String {
        match self {
            Marked::Changed(at) => at.to_string(),
            Marked::Dateless(at, None) => format!("{at}?"),
            Marked::Dateless(at, Some((date, None))) => format!("{at}?={date}"),
            Marked::Dateless(at, Some((date, Some(version)))) => format!("{at}?={date}@{version}"),
            Marked::Early(at, date, None) => format!("{at}={date}"),
            Marked::Early(at, date, Some(version)) => format!("{at}={date}@{version}"),
        }
    }
}

impl UserView {
    fn marked_after(&self, field: &str, at: u64) -> Option<&Marked> {
        self.marks.get(field).filter(|mark| mark.at() > at)
    }

    pub fn mark(&mut self, field: &str) {
        if let Some(Rebuilding { now, .. }) = self.rebuilding {
            self.marks.insert(field.to_owned(), Marked::Changed(now));
        }
    }

    /// An `add`, with or without a date.
    pub fn mark_added(&mut self, friend: &str, dated: bool) {
        let Some(Rebuilding { since, now }) = self.rebuilding else { return };
        let mark = match self.marked_after(friend, since) {
            _ if dated => Marked::Changed(now),
            Some(Marked::Changed(_)) => Marked::Changed(now),
            Some(Marked::Dateless(_, told)) => Marked::Dateless(now, told.clone()),
            Some(Marked::Early(_, date, version)) => Marked::Dateless(now, Some((date.clone(), *version))),
            None => Marked::Dateless(now, None),
        };
        self.marks.insert(friend.to_owned(), mark);
    }

    /// A date for a friendship, be it there or not.
    pub fn mark_date(&mut self, friend: &UserId, date: &str, version: Option<u64>) {
        let Some(Rebuilding { since, now }) = self.rebuilding else { return };
        let exists = self.friends.contains_key(friend);
        let decided =
            matches!(self.marked_after(friend.as_str(), since), Some(Marked::Changed(_) | Marked::Dateless(..)));
        if decided {
            if exists {
                self.mark(friend.as_str());
            }
            return;
        }
        let told = match self.marked_after(friend.as_str(), since) {
            Some(Marked::Early(_, _, told)) => *told,
            _ => None,
        };
        let newest = told.max(self.versions.get(friend.as_str()).map(|(version, _)| *version));
        let outdated = matches!((version, newest), (Some(version), Some(newest)) if version <= newest);
        if exists || !outdated {
            self.marks.insert(friend.to_string(), Marked::Early(now, date.to_owned(), version));
        }
    }

    /// The value that something has after a snapshot of the moment `at`, where that decides it.
    fn decide(&mut self, field: &str, value: &str, version: Option<u64>, at: u64) -> Option<String> {
        let stored = self.versions.get(field).map(|(version, _)| *version);
        let (value, version) = match (stored, self.marked_after(field, at)) {
            (Some(stored), _) => (value.to_owned(), Some(version.filter(|version| *version > stored)?)),
            (None, Some(Marked::Changed(_))) => return None,
            (None, Some(Marked::Early(_, date, told) | Marked::Dateless(_, Some((date, told))))) => {
                match (told, version) {
                    (Some(told), Some(version)) if version >= *told => (value.to_owned(), Some(version)),
                    _ => (date.clone(), told.or(version)),
                }
            }
            (None, Some(Marked::Dateless(_, None)) | None) => (value.to_owned(), version),
        };
        if let Some(version) = version {
            self.versions.insert(field.to_owned(), (version, false));
        }
        Some(value)
    }

    /// Whether something goes that a whole snapshot does not name.
    fn drops(&mut self, field: &str, at: u64) -> bool {
        if matches!(self.marked_after(field, at), Some(Marked::Changed(_) | Marked::Dateless(..))) {
            return false;
        }
        if let Some((_, removed)) = self.versions.get_mut(field) {
            *removed = true;
        }
        true
    }

    /// Whether it did anything.
    pub fn snapshot(&mut self, told: &Told, at: u64) -> bool {
        let on = self.rebuilding.is_some_and(|rebuilding| rebuilding.since <= at);
        if !on || self.forgotten.is_some_and(|(milliseconds, ..)| milliseconds > at) {
            return false;
        }
        let before = (self.friends.clone(), self.profile.clone());
        if told.from.is_none() {
            self.snapshot_profile(told, at);
        }
        for (friend, (date, version)) in &told.friends {
            if let Some(date) = self.decide(friend.as_str(), date, *version, at) {
                self.friends.insert(friend.clone(), date);
            }
        }
        let covered = |friend: &UserId| {
            told.from.as_deref().is_none_or(|from| from <= friend.as_str())
                && told.to.as_deref().is_none_or(|to| friend.as_str() < to)
        };
        let unnamed = self.friends.keys().filter(|friend| told.whole && covered(friend));
        let unnamed: Vec<UserId> = unnamed.filter(|friend| !told.friends.contains_key(*friend)).cloned().collect();
        for friend in unnamed {
            let dateless = matches!(self.marked_after(friend.as_str(), at), Some(Marked::Dateless(..)));
            if self.drops(friend.as_str(), at) {
                self.friends.remove(&friend);
            } else if dateless {
                self.friends.insert(friend, String::new());
            }
        }
        (&before.0, &before.1) != (&self.friends, &self.profile)
    }

    fn snapshot_profile(&mut self, told: &Told, at: u64) {
        let machinery = ["schema", "version", "updated_at", "last_activity", "expires_at"];
        let is_told = |name: &String| !machinery.contains(&name.as_str());
        let mut after = self.profile.clone();
        for (name, value) in &told.profile {
            let field = format!(":{name}");
            let Some(value) = self.decide(&field, value, told.versions.get(name).copied(), at) else { continue };
            after.remove(name);
            if value.is_empty() && name != "birthday" {
                self.drops(&field, at);
            } else {
                after.insert(name.clone(), value);
            }
        }
        let unnamed = self.profile.keys().filter(|name| told.whole && is_told(name));
        let unnamed: Vec<String> =
            unnamed.filter(|name| told.profile.iter().all(|(known, _)| known != *name)).cloned().collect();
        for name in unnamed {
            if self.drops(&format!(":{name}"), at) {
                after.remove(&name);
            }
        }
        if after != self.profile {
            let version = after.get("version").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) + 1;
            after.insert("schema".into(), "2".into());
            after.insert("version".into(), version.to_string());
            after.insert("updated_at".into(), at.to_string());
        }
        let nobody = told.gone && told.whole && told.to.is_none() && told.friends.is_empty();
        let nobody = nobody && told.profile.iter().all(|(name, value)| value.is_empty() && name != "birthday");
        let active = after.get("last_activity").is_some_and(|last| last.parse::<u64>().is_ok_and(|last| last > at));
        if nobody && !active && !after.keys().any(is_told) {
            after.clear();
            self.activity = super::activity::Activity::default();
        }
        self.profile = after;
    }
}
