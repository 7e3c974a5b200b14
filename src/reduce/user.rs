//! One user's part of a batch: changes applied in order on what was loaded, then written as the difference.

use super::plan::BIRTHDAY_FIELD;
use super::{Op, Outcome, PROFILE_SCHEMA, Rules, UserLoaded, UserPlan};
use crate::birthday::Birthday;
use crate::change::{Action, UserId};
use crate::key::{ShardKeys, version_field};
use crate::signal::Views;

/// Working state of a user while a batch is reduced.
pub(super) struct Working<'a> {
    plan: &'a UserPlan,
    loaded: &'a UserLoaded,
    /// Aligned with the plan's friends.
    friends: Vec<Friend<'a>>,
    /// Aligned with the plan's versions.
    versions: Vec<Version>,
    profile: Vec<(String, Option<String>)>,
    profile_changes: u64,
    profile_updated_at: u64,
}

struct Friend<'a> {
    before: Option<&'a str>,
    now: Option<Birthday>,
    touched: bool,
}

struct Version {
    stored: Option<Stamp>,
    touched: bool,
}

/// A stored version; a tombstone carries the server time of the removal.
#[derive(Clone, Copy)]
struct Stamp {
    version: u64,
    removed_at: Option<u64>,
}

/// When a change is applied: its version, its own time and the server's.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub version: Option<u64>,
    pub changed_at: u64,
    pub now: u64,
}

/// What one friend's date became: the day keys follow.
pub(super) struct DateChange<'a> {
    pub friend: &'a UserId,
    pub before: Option<Birthday>,
    pub after: Option<Birthday>,
}

/// What the user adds to the commit beside its own commands.
#[derive(Default)]
pub(super) struct Written<'a> {
    pub views: Views,
    pub dates: Vec<DateChange<'a>>,
    /// Whether `users` must list the user, must no longer, or stays as it is.
    pub listed: Option<bool>,
}

impl<'a> Working<'a> {
    pub fn new(plan: &'a UserPlan, loaded: &'a UserLoaded) -> Working<'a> {
        let friend = |before: &'a Option<String>| Friend {
            before: before.as_deref(),
            now: before.as_deref().map(lenient),
            touched: false,
        };
        let version =
            |stored: &Option<String>| Version { stored: stored.as_deref().and_then(Stamp::parse), touched: false };
        Working {
            plan,
            loaded,
            friends: loaded.friends.iter().map(friend).collect(),
            versions: loaded.versions.iter().map(version).collect(),
            profile: Vec::new(),
            profile_changes: 0,
            profile_updated_at: 0,
        }
    }

    pub fn apply(&mut self, action: &Action, moment: Moment) -> Outcome {
        match action {
            Action::Add { friend, birthday } => {
                if !self.newer(friend.as_str(), moment, false) {
                    return Outcome::Outdated;
                }
                let slot = self.friend(friend);
                let date = birthday.or(slot.now).unwrap_or_default();
                slot.set(Some(date))
            }
            Action::Remove { friend } => {
                if !self.newer(friend.as_str(), moment, true) {
                    return Outcome::Outdated;
                }
                self.friend(friend).set(None)
            }
            Action::Update { friend, birthday } => self.update(friend, *birthday, moment),
            Action::Birthday { birthday } => {
                if !self.newer(&version_field(BIRTHDAY_FIELD), moment, false) {
                    return Outcome::Outdated;
                }
                let text = birthday.to_string();
                self.profile_set(BIRTHDAY_FIELD, (!text.is_empty()).then_some(text), moment)
            }
            Action::Profile { fields } => self.profile(fields, moment),
        }
    }

    /// The position of a friendship that does not exist is not moved: an earlier `add` may still be on its way.
    fn update(&mut self, friend: &UserId, birthday: Birthday, moment: Moment) -> Outcome {
        if self.friend(friend).now.is_none() {
            return Outcome::NoSuchFriend;
        }
        if !self.newer(friend.as_str(), moment, false) {
            return Outcome::Outdated;
        }
        self.friend(friend).set(Some(birthday))
    }

    fn profile(&mut self, fields: &[(String, Option<String>)], moment: Moment) -> Outcome {
        let newer: Vec<_> =
            fields.iter().filter(|(name, value)| self.newer(&version_field(name), moment, value.is_none())).collect();
        if newer.is_empty() {
            return Outcome::Outdated;
        }
        for (name, value) in newer {
            self.profile_put(name, value.clone());
        }
        self.profile_applied(moment)
    }

    fn profile_set(&mut self, name: &str, value: Option<String>, moment: Moment) -> Outcome {
        self.profile_put(name, value);
        self.profile_applied(moment)
    }

    fn profile_put(&mut self, name: &str, value: Option<String>) {
        match self.profile.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.profile.push((name.to_owned(), value)),
        }
    }

    fn profile_applied(&mut self, moment: Moment) -> Outcome {
        self.profile_changes += 1;
        self.profile_updated_at = moment.changed_at;
        Outcome::Applied
    }

    fn friend(&mut self, friend: &UserId) -> &mut Friend<'a> {
        let at = self.plan.friends.iter().position(|planned| planned == friend);
        &mut self.friends[at.expect("the plan names every friend of the batch")]
    }

    /// Whether a change is newer than what is stored; if so its version is stored. Without a version it always is.
    fn newer(&mut self, field: &str, moment: Moment, removes: bool) -> bool {
        let Some(version) = moment.version else {
            return true;
        };
        let at = self.plan.versions.iter().position(|planned| planned == field);
        let slot = &mut self.versions[at.expect("the plan names every version of the batch")];
        if slot.stored.is_some_and(|stored| stored.version >= version) {
            return false;
        }
        slot.stored = Some(Stamp { version, removed_at: removes.then_some(moment.now) });
        slot.touched = true;
        true
    }

    /// Appends the user's commands.
    pub fn write(&self, keys: &ShardKeys, rules: &Rules, now: u64, ops: &mut Vec<Op>) -> Written<'a> {
        let mut written = Written::default();
        self.write_birthdays(keys, ops, &mut written);
        self.write_profile(keys, ops, &mut written);
        let emptied = self.extent_after() == Some(0);
        if !written.views.is_empty() {
            let known =
                self.loaded.profile_version.is_some() || self.friends.iter().any(|friend| friend.before.is_some());
            written.listed = if emptied { Some(false) } else { (!known).then_some(true) };
        }
        let versions_touched = self.write_versions(keys, rules, now, ops);
        if emptied && (versions_touched || !written.views.is_empty()) {
            // Nothing to expire is no error, and saves asking whether there is.
            ops.push(Op::ExpireAfter { key: keys.versions(&self.plan.user), after: rules.tombstone_retention });
        } else if versions_touched {
            // They may be on their way out since the view was empty, whoever has filled it since.
            ops.push(Op::Persist { key: keys.versions(&self.plan.user) });
        }
        written
    }

    fn write_birthdays(&self, keys: &ShardKeys, ops: &mut Vec<Op>, written: &mut Written<'a>) {
        let (mut set, mut deleted) = (Vec::new(), Vec::new());
        for (friend, slot) in self.plan.friends.iter().zip(&self.friends).filter(|(_, slot)| slot.touched) {
            let text = slot.now.map(|birthday| birthday.to_string());
            if text.as_deref() == slot.before {
                continue;
            }
            match text {
                Some(text) => set.push((friend.as_str().to_owned(), text)),
                None => deleted.push(friend.as_str().to_owned()),
            }
            written.dates.push(DateChange { friend, before: slot.before.map(lenient), after: slot.now });
        }
        let key = keys.birthdays(&self.plan.user);
        if !set.is_empty() || !deleted.is_empty() {
            written.views = written.views.with(Views::BIRTHDAYS);
        }
        if !deleted.is_empty() {
            ops.push(Op::HashDelete { key: key.clone(), fields: deleted });
        }
        if !set.is_empty() {
            ops.push(Op::HashSet { key, fields: set });
        }
    }

    fn write_profile(&self, keys: &ShardKeys, ops: &mut Vec<Op>, written: &mut Written<'a>) {
        if self.profile_changes == 0 {
            return;
        }
        written.views = written.views.with(Views::PROFILE);
        let key = keys.profile(&self.plan.user);
        let before: u64 = self.loaded.profile_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut set = vec![
            ("schema".to_owned(), PROFILE_SCHEMA.to_string()),
            ("version".to_owned(), (before + self.profile_changes).to_string()),
            ("updated_at".to_owned(), self.profile_updated_at.to_string()),
        ];
        let mut deleted = Vec::new();
        for (name, value) in &self.profile {
            match value {
                Some(value) => set.push((name.clone(), value.clone())),
                None => deleted.push(name.clone()),
            }
        }
        if !deleted.is_empty() {
            ops.push(Op::HashDelete { key: key.clone(), fields: deleted });
        }
        ops.push(Op::HashSet { key, fields: set });
    }

    fn write_versions(&self, keys: &ShardKeys, rules: &Rules, now: u64, ops: &mut Vec<Op>) -> bool {
        let touched = self.plan.versions.iter().zip(&self.versions).filter(|(_, slot)| slot.touched);
        let set: Vec<_> =
            touched.filter_map(|(field, slot)| slot.stored.map(|stamp| (field.clone(), stamp.text()))).collect();
        let retention = rules.tombstone_retention.as_millis() as u64;
        let old = |text: &str| {
            Stamp::parse(text).and_then(|stamp| stamp.removed_at).is_some_and(|at| at.saturating_add(retention) < now)
        };
        let pruned: Vec<_> = self
            .loaded
            .sample
            .iter()
            .filter(|(field, text)| old(text) && !set.iter().any(|(kept, _)| kept == field))
            .map(|(field, _)| field.clone())
            .collect();
        let key = keys.versions(&self.plan.user);
        if !pruned.is_empty() {
            ops.push(Op::HashDelete { key: key.clone(), fields: pruned });
        }
        let touched = !set.is_empty();
        if touched {
            ops.push(Op::HashSet { key, fields: set });
        }
        touched
    }

    /// Friends and profile after the batch, where the number before it is known.
    fn extent_after(&self) -> Option<u64> {
        let (count, has_profile) = self.loaded.extent?;
        let before = self.friends.iter().filter(|friend| friend.before.is_some()).count() as u64;
        let after = self.friends.iter().filter(|friend| friend.now.is_some()).count() as u64;
        Some(count.saturating_sub(before) + after + u64::from(has_profile || self.profile_changes > 0))
    }
}

impl Friend<'_> {
    fn set(&mut self, date: Option<Birthday>) -> Outcome {
        let changed = self.now != date;
        self.now = date;
        self.touched = true;
        if changed { Outcome::Applied } else { Outcome::Unchanged }
    }
}

impl Stamp {
    fn parse(text: &str) -> Option<Stamp> {
        match text.split_once(':') {
            None => Some(Stamp { version: text.parse().ok()?, removed_at: None }),
            Some((version, at)) => Some(Stamp { version: version.parse().ok()?, removed_at: Some(at.parse().ok()?) }),
        }
    }

    fn text(self) -> String {
        match self.removed_at {
            None => self.version.to_string(),
            Some(at) => format!("{}:{at}", self.version),
        }
    }
}

/// A stored date that somebody else spoilt counts as unknown, and the next change of it mends it.
fn lenient(text: &str) -> Birthday {
    Birthday::parse(text).unwrap_or_default()
}
