//! What must be loaded for a batch, and what was loaded.

use std::borrow::Cow;

use foldhash::{HashMap, HashSet};

use super::{Decoded, Jobs, Rules, ShardState};
use crate::birthday::Birthday;
use crate::calendar::{Calendar, Window};
use crate::change::{Action, Change, Mirror, UserId, ZONE_FIELD, shard_producer};
use crate::key::{FORGOTTEN_FIELD, changed_field, order_field, version_field};
use crate::position::{CommitId, EntryId, Order};
use crate::profile::{Fields, KEPT, MIGRATED, expires_at, is_own};

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
    /// Whether something may be written for other shards.
    pub outbox: bool,
    /// The last dead letter there is.
    pub letters: bool,
    /// The days for which the zones of users are read. Where others are open by the time of the answer, the plan is not good.
    pub window: Option<Window>,
    /// The moment of the rebuild that is on. Where it is another one by the time of the answer, the plan is not good.
    pub rebuild: Option<u64>,
}

/// The reads of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserPlan {
    pub user: UserId,
    /// Fields of `birthdays`.
    pub friends: Vec<UserId>,
    /// Fields of `versions`.
    pub versions: Vec<String>,
    /// The fields of `profile` that heyday knows, and [`UserPlan::fields`].
    pub profile: bool,
    /// All of `profile` instead: what has expired in it has to go.
    pub whole: bool,
    /// Whether the profile lives on from here where it has a time to live.
    pub extends: bool,
    /// Own fields of `profile` that change, and how many it has.
    pub fields: Vec<String>,
    /// Field `birthday` of `profile`.
    pub birthday: bool,
    /// Field `tz` of `profile`.
    pub zone: bool,
    /// All of `birthdays`: the zone may change, and with it when each is due.
    pub everyone: bool,
    /// The number of friends, and whether there is a profile: where the view may become or have been empty.
    pub extent: bool,
    /// A few random fields of `versions`, to prune what is old.
    pub sample: bool,
    /// All of `activity`.
    pub activity: bool,
    /// Members of `top` that grow, how many there are, and the lightest: as many as may be pushed out, and as many again, so
    /// that too many become fewer.
    pub categories: Vec<String>,
    /// All of `birthdays`, `versions` and `profile`, instead of what is named of them above.
    pub all: bool,
    /// When the user was forgotten, where that is not worked off yet. Not read: the owner knows.
    pub forgotten: Option<Order>,
    /// The moment of the rebuild that is on: what is changed leaves a mark then.
    pub rebuild: Option<u64>,
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
    /// How many entries are pending in the group, and the oldest of them.
    pub pending: u64,
    pub pending_first: Option<EntryId>,
    pub users: Vec<UserLoaded>,
    pub events: Vec<bool>,
    pub producers: Vec<Option<String>>,
    /// A few random producers and their values, where [`Plan::producers`] is not empty.
    pub producers_sample: Vec<(String, String)>,
    /// The last dead letter, where asked; zero where there is none.
    pub letters_last: EntryId,
    /// The moment of the rebuild that is on.
    pub rebuild: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserLoaded {
    pub friends: Vec<Option<String>>,
    pub versions: Vec<Option<String>>,
    /// Of the asked fields those that are there.
    pub profile: Fields,
    /// The number of fields of `profile`, where own ones change.
    pub profile_length: u64,
    /// The user's own date.
    pub birthday: Option<String>,
    /// The user's own time zone.
    pub zone: Option<String>,
    /// Every friend's date.
    pub everyone: Vec<(String, String)>,
    /// Every field of `versions`.
    pub all_versions: Vec<(String, String)>,
    /// Number of friends and whether there is a profile, where asked.
    pub extent: Option<(u64, bool)>,
    pub sample: Vec<(String, String)>,
    /// Of `activity`, in the order of their names.
    pub days: Vec<(String, String)>,
    pub weights: Vec<Option<u64>>,
    pub top_length: u64,
    /// Lightest first, and in byte order where they weigh the same.
    pub lightest: Vec<(String, u64)>,
}

impl UserLoaded {
    /// With all of a profile, where the friends are all loaded too.
    pub fn with_profile(self, fields: impl IntoIterator<Item = (String, String)>) -> UserLoaded {
        let profile: Fields = fields.into_iter().collect();
        UserLoaded {
            profile_length: profile.len() as u64,
            birthday: profile.get(BIRTHDAY_FIELD).cloned(),
            zone: profile.get(ZONE_FIELD).cloned(),
            extent: Some((self.everyone.len() as u64, !profile.is_empty())),
            profile,
            ..self
        }
    }
}

impl Plan {
    /// `jobs` are those under way before the batch, and `milliseconds` about the time by the server's clock.
    pub fn of(batch: &[Decoded], state: &ShardState, jobs: &Jobs, (rules, milliseconds): (&Rules, u64)) -> Plan {
        let calendar = &rules.calendar;
        let window = state.window(calendar, milliseconds);
        let near = |birthday: Birthday| calendar.days(birthday, window).next().is_some();
        let mut plan = Plan { window: Some(window), rebuild: state.rebuild, ..Plan::default() };
        let mut index = Index::default();
        let live = batch.iter().filter(|decoded| decoded.entry.id > state.applied);
        for change in live.filter_map(|decoded| decoded.change.as_ref().ok()) {
            if let Some(event) = &change.event
                && index.events.insert(event)
            {
                plan.events.push(event.clone());
            }
            if let Some(producer) = producer_of(change)
                && !index.producers.contains(&producer)
            {
                plan.producers.push(producer.clone().into_owned());
                index.producers.insert(producer);
            }
            for user in change.users() {
                let at = *index.users.entry(user).or_insert_with(|| {
                    let forgotten = jobs.forgotten(user);
                    plan.users.push(UserPlan { rebuild: state.rebuild, ..UserPlan::new(user.clone(), forgotten) });
                    plan.users.len() - 1
                });
                plan.users[at].add(&change.action, change.version.is_some());
                plan.users[at].zone |= change.action.date().is_some_and(near);
                plan.users[at].extends |= extends(&change.action);
            }
            plan.outbox |= crosses(&change.action);
            plan.letters |= change.action == Action::Forget;
        }
        plan
    }

    /// Whether what was loaded is all that is needed.
    pub fn suffices(&self, state: &ShardState, calendar: &Calendar, loaded: &Loaded) -> bool {
        self.rebuild == loaded.rebuild
            && self.window.is_none_or(|window| window == state.window(calendar, loaded.milliseconds))
    }

    /// The same with all of the profiles that have expired and now live on; none where there are no such profiles.
    pub fn widened(&self, loaded: &Loaded) -> Option<Plan> {
        let over = |loaded: &UserLoaded, now: u64| expires_at(&loaded.profile).is_some_and(|at| at <= now);
        let mut wider = self.clone();
        let mut grown = false;
        for (user, stored) in wider.users.iter_mut().zip(&loaded.users) {
            let grows = user.extends && !user.whole && over(stored, loaded.milliseconds);
            (user.whole, grown) = (user.whole || grows, grown || grows);
        }
        grown.then_some(wider)
    }

    /// The reads for one step of a job, beside what the step itself has surveyed.
    pub(super) fn of_user(user: UserPlan) -> Plan {
        Plan { users: vec![user], outbox: true, ..Plan::default() }
    }
}

/// The name under which a change's position is remembered.
pub(super) fn producer_of(change: &Change) -> Option<Cow<'_, str>> {
    match (&change.producer, &change.relayed) {
        (Some(producer), _) => Some(Cow::Borrowed(&producer.name)),
        (None, Some(relayed)) => Some(Cow::Owned(shard_producer(relayed.source))),
        (None, None) => None,
    }
}

/// Whether the change may concern another shard.
fn crosses(action: &Action) -> bool {
    match action {
        Action::Add { mutual, .. } | Action::Remove { mutual, .. } => *mutual,
        Action::Birthday { .. } | Action::Forget | Action::Snapshot(_) => true,
        Action::Mirror(Mirror::Add { .. }) => true,
        Action::Mirror(_) | Action::Update { .. } | Action::Profile { .. } | Action::Activity { .. } => false,
    }
}

/// Whether the profile lives on from here where it has a time to live.
fn extends(action: &Action) -> bool {
    matches!(action, Action::Profile { .. } | Action::Birthday { .. })
}

/// What the plan names already.
#[derive(Default)]
struct Index<'a> {
    users: HashMap<&'a UserId, usize>,
    events: HashSet<&'a str>,
    producers: HashSet<Cow<'a, str>>,
}

impl UserPlan {
    /// Nothing to be read yet.
    pub fn new(user: UserId, forgotten: Option<Order>) -> UserPlan {
        UserPlan {
            user,
            friends: Vec::new(),
            versions: Vec::new(),
            profile: false,
            whole: false,
            extends: false,
            fields: Vec::new(),
            birthday: false,
            zone: false,
            everyone: false,
            extent: false,
            sample: false,
            activity: false,
            categories: Vec::new(),
            all: false,
            forgotten,
            rebuild: None,
        }
    }

    fn add(&mut self, action: &Action, versioned: bool) {
        self.extent |= versioned;
        match action {
            Action::Add { friend, mutual, .. } => {
                self.friend(friend, versioned);
                if *mutual {
                    self.both_sides(friend);
                    self.birthday = true;
                }
            }
            Action::Update { friend, .. } => self.friend(friend, versioned),
            Action::Remove { friend, mutual } => {
                self.extent = true;
                self.sample |= versioned;
                self.friend(friend, versioned);
                if *mutual {
                    self.both_sides(friend);
                }
            }
            Action::Birthday { .. } => {
                (self.profile, self.extent) = (true, true);
                if versioned {
                    self.version(version_field(BIRTHDAY_FIELD));
                }
            }
            Action::Profile { fields } => {
                self.profile = true;
                let moves = action.moves();
                (self.zone, self.everyone) = (self.zone | moves, self.everyone | moves);
                let own = fields.iter().map(|(name, _)| name).filter(|name| is_own(name));
                own.for_each(|name| push(&mut self.fields, name));
                if versioned {
                    self.sample |= fields.iter().any(|(_, value)| value.is_none());
                    fields.iter().for_each(|(name, _)| self.version(version_field(name)));
                }
            }
            Action::Activity { category, .. } => {
                (self.profile, self.activity) = (true, true);
                if let Some(category) = category {
                    push(&mut self.categories, category);
                }
            }
            Action::Forget => {
                (self.profile, self.extent) = (true, true);
                self.version(FORGOTTEN_FIELD.to_owned());
            }
            Action::Mirror(mirror) => self.mirror(mirror, versioned),
            Action::Snapshot(_) => {
                (self.all, self.whole, self.everyone, self.extent) = (true, true, true, true);
            }
        }
        if self.rebuild.is_some() {
            self.changed(action);
        }
    }

    /// What tells when something was changed while a rebuild is on.
    fn changed(&mut self, action: &Action) {
        match action {
            Action::Add { friend, .. }
            | Action::Remove { friend, .. }
            | Action::Update { friend, .. }
            | Action::Mirror(
                Mirror::Add { friend, .. }
                | Mirror::Remove { friend, .. }
                | Mirror::Birthday { friend, .. }
                | Mirror::Forget { friend, .. },
            ) => self.version(changed_field(friend.as_str())),
            Action::Birthday { .. } => self.version(changed_field(&version_field(BIRTHDAY_FIELD))),
            Action::Profile { fields } => {
                fields.iter().for_each(|(name, _)| self.version(changed_field(&version_field(name))));
            }
            Action::Activity { .. } | Action::Forget | Action::Snapshot(_) => return,
        }
        (self.extent, self.sample) = (true, true);
    }

    fn mirror(&mut self, mirror: &Mirror, versioned: bool) {
        match mirror {
            Mirror::Add { friend, ask, .. } => {
                self.friend(friend, versioned);
                self.both_sides(friend);
                self.birthday |= ask;
            }
            Mirror::Remove { friend, .. } => {
                self.friend(friend, versioned);
                self.both_sides(friend);
            }
            Mirror::Birthday { friend, .. } => self.friend(friend, false),
            // A version that is no longer wanted is forgotten too.
            Mirror::Forget { friend, .. } => {
                self.friend(friend, true);
                self.both_sides(friend);
            }
        }
    }

    /// What decides which of two changes to both sides was the later one.
    fn both_sides(&mut self, friend: &UserId) {
        (self.extent, self.sample) = (true, true);
        self.version(order_field(friend));
        self.version(FORGOTTEN_FIELD.to_owned());
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

    /// The names of the fields of `profile` to be read, each once.
    pub fn profile_fields(&self) -> impl Iterator<Item = &str> {
        let known = KEPT.into_iter().chain(MIGRATED.into_iter().filter(|name| is_own(name)));
        let own = self.fields.iter().map(String::as_str).filter(|name| !MIGRATED.contains(name));
        known.chain(own).filter(|_| self.profile)
    }

    /// How many of the lightest members of `top` are read.
    pub fn lightest(&self) -> usize {
        2 * self.categories.len()
    }

    fn version(&mut self, field: String) {
        if !self.versions.contains(&field) {
            self.versions.push(field);
        }
    }
}

// The same holds of what is named here.
fn push(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}
