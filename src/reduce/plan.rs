//! What must be loaded for a batch, and what was loaded.

use std::collections::HashMap;

use super::{Decoded, ShardState};
use crate::change::{Action, UserId};
use crate::key::version_field;
use crate::position::{CommitId, EntryId};

/// The version field of the user's own date.
pub(super) const BIRTHDAY_FIELD: &str = "birthday";

/// The reads of a batch, each once, in the order of first mention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub users: Vec<UserPlan>,
    /// Event ids to look up.
    pub events: Vec<String>,
    /// Producers whose position to look up.
    pub producers: Vec<String>,
}

/// The reads of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserPlan {
    pub user: UserId,
    /// Fields of `birthdays`.
    pub friends: Vec<UserId>,
    /// Fields of `versions`.
    pub versions: Vec<String>,
    /// Field `version` of `profile`.
    pub profile: bool,
    /// The number of friends, and whether there is a profile: where the view may become or have been empty.
    pub extent: bool,
    /// A few random fields of `versions`, to prune old tombstones.
    pub sample: bool,
}

/// The answers, aligned with the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Server time, Unix milliseconds.
    pub milliseconds: u64,
    /// The generation stored now; 0 where none is.
    pub generation: u64,
    /// The last commit stored now.
    pub last: CommitId,
    /// The oldest pending entry of the group.
    pub pending_first: Option<EntryId>,
    pub users: Vec<UserLoaded>,
    pub events: Vec<bool>,
    pub producers: Vec<Option<String>>,
    /// A few random producers and their values, where [`Plan::producers`] is not empty.
    pub producers_sample: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserLoaded {
    pub friends: Vec<Option<String>>,
    pub versions: Vec<Option<String>>,
    pub profile_version: Option<String>,
    /// Number of friends and whether there is a profile, where asked.
    pub extent: Option<(u64, bool)>,
    pub sample: Vec<(String, String)>,
}

impl Plan {
    pub fn of(batch: &[Decoded], state: &ShardState) -> Plan {
        let mut plan = Plan::default();
        let mut index = Index::default();
        let live = batch.iter().filter(|decoded| decoded.entry.id > state.applied);
        for change in live.filter_map(|decoded| decoded.change.as_ref().ok()) {
            if let Some(event) = &change.event {
                push_new(&mut index.events, &mut plan.events, event);
            }
            if let Some(producer) = &change.producer {
                push_new(&mut index.producers, &mut plan.producers, &producer.name);
            }
            let at = *index.users.entry(change.user.clone()).or_insert_with(|| {
                plan.users.push(UserPlan::new(change.user.clone()));
                plan.users.len() - 1
            });
            plan.users[at].add(&change.action, change.version.is_some());
        }
        plan
    }
}

#[derive(Default)]
struct Index {
    users: HashMap<UserId, usize>,
    events: HashMap<String, ()>,
    producers: HashMap<String, ()>,
}

fn push_new(seen: &mut HashMap<String, ()>, list: &mut Vec<String>, item: &str) {
    if seen.insert(item.to_owned(), ()).is_none() {
        list.push(item.to_owned());
    }
}

impl UserPlan {
    fn new(user: UserId) -> UserPlan {
        UserPlan { user, friends: Vec::new(), versions: Vec::new(), profile: false, extent: false, sample: false }
    }

    fn add(&mut self, action: &Action, versioned: bool) {
        self.extent |= versioned;
        match action {
            Action::Add { friend, .. } | Action::Update { friend, .. } => self.friend(friend, versioned),
            Action::Remove { friend } => {
                self.extent = true;
                self.sample |= versioned;
                self.friend(friend, versioned);
            }
            Action::Birthday { .. } => {
                self.profile = true;
                if versioned {
                    self.version(version_field(BIRTHDAY_FIELD));
                }
            }
            Action::Profile { fields } => {
                self.profile = true;
                if versioned {
                    self.sample |= fields.iter().any(|(_, value)| value.is_none());
                    fields.iter().for_each(|(name, _)| self.version(version_field(name)));
                }
            }
        }
    }

    // A batch names few friends of one user, so a scan is cheaper than a map.
    fn friend(&mut self, friend: &UserId, versioned: bool) {
        if !self.friends.contains(friend) {
            self.friends.push(friend.clone());
        }
        if versioned {
            self.version(friend.as_str().to_owned());
        }
    }

    fn version(&mut self, field: String) {
        if !self.versions.contains(&field) {
            self.versions.push(field);
        }
    }
}
