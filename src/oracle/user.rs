//! One user as the oracle sees it.

use std::collections::BTreeMap;

use super::activity::Activity;
use super::decode::{Kind, Order, Told};
use super::snapshot::{Marked, Rebuilding};
use crate::change::UserId;

#[derive(Default)]
pub(super) struct UserView {
    pub friends: BTreeMap<UserId, String>,
    pub profile: BTreeMap<String, String>,
    /// By field, with whether the newest was a removal.
    pub versions: BTreeMap<String, (u64, bool)>,
    /// By friend, of changes to both sides.
    pub orders: BTreeMap<String, Order>,
    pub forgotten: Option<Order>,
    pub activity: Activity,
    /// By the field of versions, what was changed while a rebuild was on.
    pub marks: BTreeMap<String, Marked>,
    pub rebuilding: Option<Rebuilding>,
}

impl UserView {
    /// Whether it did anything, and what the friend's shard is told. `next` is the order of a change to both sides.
    pub fn change(&mut self, told: &Told, at: u64, next: Order) -> (bool, Option<(&'static str, UserId)>) {
        match &told.kind {
            Kind::Add { friend, mutual: true, .. } | Kind::Remove { friend, mutual: true } => {
                let adds = matches!(told.kind, Kind::Add { .. });
                if !self.would_pass(friend.as_str(), told.version) {
                    return (false, None);
                }
                self.orders.insert(friend.to_string(), next);
                let kind = if adds { "mirror.add" } else { "mirror.remove" };
                (self.own_side(told, at), Some((kind, friend.clone())))
            }
            Kind::Added { friend, order, .. } | Kind::Removed { friend, order } => {
                let late = |seen: Option<&Order>| seen.is_some_and(|seen| order <= seen);
                let known = self.orders.get(friend.as_str()).copied();
                if late(self.forgotten.as_ref()) || (told.version.is_none() && late(known.as_ref())) {
                    return (false, None);
                }
                if !self.would_pass(friend.as_str(), told.version) {
                    return (false, None);
                }
                // What stands was made by the later of the two; what was removed comes back as of then.
                let stands = self.versions.get(friend.as_str()).is_some_and(|(_, removed)| !removed);
                let later = known.filter(|_| stands && matches!(told.kind, Kind::Added { .. }));
                self.orders.insert(friend.to_string(), later.map_or(*order, |known| known.max(*order)));
                (self.own_side(told, at), None)
            }
            Kind::Forgotten { friend, order } => {
                if self.orders.get(friend.as_str()).is_some_and(|seen| order <= seen) {
                    return (false, None);
                }
                self.versions.remove(friend.as_str());
                self.orders.insert(friend.to_string(), *order);
                self.mark(friend.as_str());
                (self.friends.remove(friend).is_some(), None)
            }
            _ => (self.own_side(told, at), None),
        }
    }

    fn would_pass(&self, field: &str, version: Option<u64>) -> bool {
        match (version, self.versions.get(field)) {
            (Some(version), Some((stored, _))) => version > *stored,
            _ => true,
        }
    }

    fn own_side(&mut self, told: &Told, at: u64) -> bool {
        match &told.kind {
            Kind::Add { friend, birthday, .. } | Kind::Added { friend, birthday, .. } => {
                let replayed = matches!(told.kind, Kind::Added { .. }) && told.producer.is_none();
                let birthday = birthday.clone().filter(|_| !replayed);
                if !self.newer(friend.as_str(), told.version, false) {
                    return false;
                }
                let known = self.friends.get(friend).cloned();
                self.mark_added(friend.as_str(), birthday.is_some());
                let date = birthday.or_else(|| known.clone()).unwrap_or_default();
                self.friends.insert(friend.clone(), date.clone());
                known != Some(date)
            }
            Kind::Remove { friend, .. } | Kind::Removed { friend, .. } => {
                if !self.newer(friend.as_str(), told.version, true) {
                    return false;
                }
                self.mark(friend.as_str());
                self.friends.remove(friend).is_some()
            }
            Kind::Born { .. } if told.producer.is_none() => false,
            Kind::Born { friend, birthday } => match self.friends.get_mut(friend) {
                Some(known) => {
                    let changed = std::mem::replace(known, birthday.clone()) != *birthday;
                    self.mark_date(friend, birthday, told.version);
                    changed
                }
                None => {
                    self.mark_date(friend, birthday, told.version);
                    false
                }
            },
            Kind::Snapshot(snapshot) => self.snapshot(snapshot, at),
            Kind::Forget | Kind::Forgotten { .. } | Kind::Activity { .. } => unreachable!("told apart before"),
            Kind::Update { friend, birthday } => {
                if !self.friends.contains_key(friend) {
                    self.mark_date(friend, birthday, told.version);
                    return false;
                }
                if !self.newer(friend.as_str(), told.version, false) {
                    return false;
                }
                self.mark_date(friend, birthday, told.version);
                self.friends.insert(friend.clone(), birthday.clone()) != Some(birthday.clone())
            }
            Kind::Birthday { birthday } => {
                let newer = self.newer(":birthday", told.version, false);
                if newer {
                    self.mark(":birthday");
                }
                newer && self.profile(&[("birthday".to_owned(), birthday.clone())], at)
            }
            Kind::Profile { fields } => {
                let newer: Vec<_> = fields
                    .iter()
                    .filter(|(name, value)| self.newer(&format!(":{name}"), told.version, value.is_empty()))
                    .cloned()
                    .collect();
                newer.iter().for_each(|(name, _)| self.mark(&format!(":{name}")));
                !newer.is_empty() && self.profile(&newer, at)
            }
        }
    }

    /// How many own fields there would be after a change of the profile, where they would become more.
    pub fn grown(&self, fields: &[(String, String)], version: Option<u64>) -> Option<u64> {
        let foreign = ["schema", "version", "updated_at", "birthday", "tz", "last_activity", "expires_at"];
        let own = |profile: &BTreeMap<String, String>| {
            profile.keys().filter(|name| !foreign.contains(&name.as_str())).count() as u64
        };
        let mut after = self.profile.clone();
        for (name, value) in fields.iter().filter(|(name, _)| self.would_pass(&format!(":{name}"), version)) {
            after.remove(name);
            if !value.is_empty() {
                after.insert(name.clone(), value.clone());
            }
        }
        Some(own(&after)).filter(|grown| *grown > own(&self.profile))
    }

    /// Applies profile fields; the profile counts it even where it said so already.
    fn profile(&mut self, fields: &[(String, String)], at: u64) -> bool {
        for (name, value) in fields {
            if value.is_empty() && name != "birthday" {
                self.profile.remove(name);
            } else {
                self.profile.insert(name.clone(), value.clone());
            }
        }
        let version = self.profile.get("version").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) + 1;
        self.profile.insert("schema".into(), "2".into());
        self.profile.insert("version".into(), version.to_string());
        self.profile.insert("updated_at".into(), at.to_string());
        true
    }

    /// Whether a version passes; if so it is the newest now. A change without one always passes and leaves none.
    fn newer(&mut self, field: &str, version: Option<u64>, removes: bool) -> bool {
        let Some(version) = version else {
            return true;
        };
        if self.versions.get(field).is_some_and(|(stored, _)| *stored >= version) {
            return false;
        }
        self.versions.insert(field.to_owned(), (version, removes));
        true
    }
}
