//! One user's profile while a batch is reduced: what is stored, in the words of this build, and what becomes of it.

use std::time::Duration;

use super::user::Moment;
use super::{Op, Outcome, Rules, UserLoaded, UserPlan};
use crate::change::{Problem, Rejection};
use crate::key::Key;
use crate::profile::{
    EXPIRES_FIELD, LAST_ACTIVITY_FIELD, MIGRATED, PROFILE_SCHEMA, SCHEMA_FIELD, expired, is_own, migrate, schema_of,
};

const VERSION_FIELD: &str = "version";

pub(super) struct Profile<'a> {
    /// How long own fields outlive a change.
    ttl: Option<Duration>,
    loaded: &'a UserLoaded,
    /// What becomes of fields, a migration's first; none: it goes.
    fields: Vec<(String, Option<String>)>,
    changes: u64,
    updated_at: u64,
    /// Own fields there are now, where their number was asked for.
    own: u64,
    /// The newest activity, where it is newer than what is stored.
    last_activity: Option<u64>,
    /// The activity that made the profile.
    began_at: Option<u64>,
    /// Whether all of it goes.
    ended: bool,
}

impl<'a> Profile<'a> {
    /// `now` is the server's time.
    pub fn new(rules: &'a Rules, (plan, loaded): (&'a UserPlan, &'a UserLoaded), now: u64) -> Profile<'a> {
        let kept = loaded.profile.keys().filter(|name| !is_own(name)).count() as u64;
        let mut profile = Profile {
            ttl: rules.profile_ttl,
            loaded,
            fields: Vec::new(),
            changes: 0,
            updated_at: 0,
            own: loaded.profile_length.saturating_sub(kept),
            last_activity: None,
            began_at: None,
            ended: false,
        };
        if profile.schema() < PROFILE_SCHEMA && !loaded.profile.is_empty() {
            let mut migrated = loaded.profile.clone();
            migrate(&mut migrated);
            for name in MIGRATED {
                if loaded.profile.get(name) != migrated.get(name) {
                    profile.put(name, migrated.remove(name));
                }
            }
        }
        if plan.whole {
            // The profile lives on with what is said of it now, and not with what has expired.
            expired(&loaded.profile, &rules.profile_keep, now).for_each(|name| profile.put(name, None));
        }
        profile
    }

    fn schema(&self) -> u32 {
        schema_of(self.loaded.profile.get(SCHEMA_FIELD).map(String::as_str))
    }

    /// Whether there was a profile before the batch.
    pub fn was_known(&self) -> bool {
        self.loaded.profile.contains_key(VERSION_FIELD)
    }

    /// Whether the batch makes one, or leaves the one it finds.
    pub fn is_written(&self) -> bool {
        !self.ended && (self.changes > 0 || self.began_at.is_some())
    }

    /// The names of the fields there are now, where all were loaded.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let stored = self.loaded.profile.keys().map(String::as_str).filter(|name| self.get(name).is_some());
        let new = self.fields.iter().filter(|(name, _)| !self.loaded.profile.contains_key(name));
        stored.chain(new.filter(|(_, value)| value.is_some()).map(|(name, _)| name.as_str()))
    }

    /// The moment of the newest activity that is known.
    pub fn active_at(&self) -> Option<u64> {
        let stored = || self.loaded.profile.get(LAST_ACTIVITY_FIELD).and_then(|text| text.parse().ok());
        self.last_activity.or_else(stored)
    }

    /// Nothing is left of it, unless something comes later in the batch.
    pub fn end(&mut self) {
        self.ended = true;
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// A field that the plan names, as it is now.
    pub fn get(&self, name: &str) -> Option<&str> {
        match self.fields.iter().find(|(known, _)| known == name) {
            Some((_, value)) => value.as_deref(),
            None => self.loaded.profile.get(name).map(String::as_str),
        }
    }

    /// What becomes of a field in this batch, where something does.
    pub fn change(&self, name: &str) -> Option<Option<&str>> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_deref())
    }

    /// Sets and deletes fields, unless there would be more own ones than may be and more than there are.
    pub fn set(
        &mut self,
        fields: &[&(String, Option<String>)],
        fields_max: u64,
        moment: Moment,
    ) -> Result<Outcome, Rejection> {
        let own = || fields.iter().filter(|(name, _)| is_own(name));
        let new = own().filter(|(name, value)| value.is_some() && self.get(name).is_none()).count() as u64;
        let gone = own().filter(|(name, value)| value.is_none() && self.get(name).is_some()).count() as u64;
        let after = (self.own + new).saturating_sub(gone);
        if after > fields_max && after > self.own {
            let full = Problem::ProfileFull { fields: after, fields_max };
            return Err(Rejection::new("profile.NAME", None, full));
        }
        fields.iter().for_each(|(name, value)| self.put(name, value.clone()));
        Ok(self.applied(moment))
    }

    pub fn set_one(&mut self, name: &str, value: String, moment: Moment) -> Outcome {
        self.put(name, Some(value));
        self.applied(moment)
    }

    /// An activity at a moment; whether it is the newest of those up to the latest that can be believed.
    pub fn active(&mut self, at: u64, believed_max: u64) -> bool {
        if !self.was_known() && !self.is_written() {
            self.began_at = Some(at);
        }
        self.ended = false;
        // One that lies far ahead was told by a clock that was wrong.
        let newest = self.active_at().is_none_or(|last| last < at || last > believed_max);
        if newest {
            self.last_activity = Some(at);
        }
        newest
    }

    /// Whether the batch has a newer activity than any before.
    pub fn is_newly_active(&self) -> bool {
        self.last_activity.is_some()
    }

    /// Whether an activity of the user is known, of this batch or an earlier one.
    pub fn has_activity(&self) -> bool {
        self.last_activity.is_some() || self.loaded.profile.contains_key(LAST_ACTIVITY_FIELD)
    }

    fn put(&mut self, name: &str, value: Option<String>) {
        if is_own(name) {
            let (before, after) = (u64::from(self.get(name).is_some()), u64::from(value.is_some()));
            self.own = (self.own + after).saturating_sub(before);
        }
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.fields.push((name.to_owned(), value)),
        }
    }

    fn applied(&mut self, moment: Moment) -> Outcome {
        self.ended = false;
        self.changes += 1;
        self.updated_at = moment.changed_at;
        Outcome::Applied
    }

    /// Appends the commands; whether there are any. `now` is the server's time.
    pub fn write(&self, key: impl FnOnce() -> Key, now: u64, ops: &mut Vec<Op>) -> bool {
        let (mut set, mut deleted) = (Vec::new(), Vec::new());
        if self.is_written() {
            self.write_head(&mut set);
            for (name, value) in &self.fields {
                match value {
                    Some(value) => set.push((name.clone(), value.clone())),
                    None => deleted.push(name.clone()),
                }
            }
        }
        if self.changes > 0 && self.schema() <= PROFILE_SCHEMA {
            match self.ttl.map(|ttl| now.saturating_add(ttl.as_millis() as u64)) {
                Some(end) => set.push((EXPIRES_FIELD.to_owned(), end.to_string())),
                None if self.get(EXPIRES_FIELD).is_some() => deleted.push(EXPIRES_FIELD.to_owned()),
                None => {}
            }
        }
        set.extend(self.last_activity.map(|at| (LAST_ACTIVITY_FIELD.to_owned(), at.to_string())));
        if set.is_empty() && deleted.is_empty() {
            return false;
        }
        let key = key();
        if !deleted.is_empty() {
            ops.push(Op::HashDelete { key: key.clone(), fields: deleted });
        }
        let written = !set.is_empty();
        if written {
            ops.push(Op::HashSet { key, fields: set });
        }
        written
    }

    /// What a newer build has written keeps its schema: that build alone knows what else it means.
    fn write_head(&self, set: &mut Vec<(String, String)>) {
        if self.schema() <= PROFILE_SCHEMA {
            set.push((SCHEMA_FIELD.to_owned(), PROFILE_SCHEMA.to_string()));
        }
        let before: u64 = self.loaded.profile.get(VERSION_FIELD).and_then(|text| text.parse().ok()).unwrap_or(0);
        let updated_at = if self.changes > 0 { self.updated_at } else { self.began_at.unwrap_or_default() };
        set.push((VERSION_FIELD.to_owned(), before.saturating_add(self.changes).to_string()));
        set.push(("updated_at".to_owned(), updated_at.to_string()));
    }
}
