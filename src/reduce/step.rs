//! One step of a job as one commit.

use std::collections::BTreeMap;

use super::batch::StepEffects;
use super::days::Days;
use super::jobs::{Job, Progress, Survey};
use super::user::DateChange;
use super::{Commit, Loaded, Op, Plan, Rules, ShardState, UserPlan};
use crate::birthday::Birthday;
use crate::calendar::Window;
use crate::change::{Action, Change, Fields, MIRROR_USERS_MAX, Mirror, UserId};
use crate::key::ShardKeys;
use crate::position::{CommitId, EntryId};
use crate::shard::{Layout, Shard};

/// A job and the part of it that is worked through in this step.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub job: &'a Job,
    pub progress: &'a Progress,
    pub survey: &'a Survey,
}

/// Where the step takes place.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub rules: &'a Rules,
    pub layout: &'a Layout,
    pub keys: &'a ShardKeys,
}

impl Step<'_> {
    /// What must be loaded for it.
    pub fn plan(&self) -> Plan {
        if self.survey.friends.is_empty() {
            return Plan { outbox: true, ..Plan::default() };
        }
        let mut user = UserPlan::new(self.job.user().clone(), None);
        match self.job {
            Job::Birthday { .. } => user.birthday = true,
            // Whoever is a friend again keeps the day.
            Job::Forget { .. } => (user.friends, user.zone) = (self.friends(), true),
        }
        Plan::of_user(user)
    }

    /// The commit, on top of `state`. `loaded` belongs to the step's plan.
    pub fn reduce(&self, place: Place<'_>, state: &ShardState, loaded: &Loaded) -> Commit {
        let window = state.window(&place.rules.calendar, loaded.milliseconds);
        let (mut ops, mut relays) = (Vec::new(), Vec::new());
        match (self.job, self.progress) {
            (Job::Forget { commit, .. }, Progress::Forget { order, .. }) => {
                relays = self.tell(place.layout, |friend| Mirror::Forget { friend, order: *order });
                self.clear((place, window), *commit, loaded, &mut ops);
            }
            _ => {
                let text = loaded.users.first().and_then(|user| user.birthday.as_deref());
                let birthday: Birthday = text.map(Birthday::lenient).unwrap_or_default();
                relays.extend(self.tell(place.layout, |friend| Mirror::Birthday { friend, birthday }));
            }
        }
        let jobs = vec![(self.job.clone(), self.survey.next.clone())];
        let effects = StepEffects { ops, relays, jobs, users: Vec::new() };
        Commit::of_step(place, (state, state.next(window)), loaded.milliseconds, effects)
    }

    fn friends(&self) -> Vec<UserId> {
        self.survey.friends.keys().filter_map(|friend| friend.parse().ok()).collect()
    }

    /// One entry for the friends of each shard, or a few where they are very many.
    fn tell(&self, layout: &Layout, mirror: impl Fn(UserId) -> Mirror) -> Vec<Change> {
        let mut shards: BTreeMap<Shard, Vec<UserId>> = BTreeMap::new();
        for friend in self.friends() {
            shards.entry(layout.shard_of(&friend)).or_default().push(friend);
        }
        let chunks = shards.values().flat_map(|friends| friends.chunks(MIRROR_USERS_MAX));
        let change = |friends: &[UserId]| {
            let (user, others) = friends.split_first()?;
            let action = Action::Mirror(mirror(self.job.user().clone()));
            Some(Change { others: others.to_vec(), ..Change::new(user.clone(), action) })
        };
        chunks.filter_map(change).collect()
    }

    /// What is left of a forgotten user: friends with their days, and dead letters.
    fn clear(&self, (place, window): (Place<'_>, Window), commit: CommitId, loaded: &Loaded, ops: &mut Vec<Op>) {
        let (user, friends) = (self.job.user(), self.friends());
        let again = loaded.users.first().map(|user| &user.friends[..]).unwrap_or_default();
        let zone = loaded.users.first().and_then(|user| user.zone.as_deref());
        let dates: Vec<_> = friends
            .iter()
            .zip(again)
            .map(|(friend, again)| DateChange {
                friend: friend.as_str(),
                before: self.survey.friends.get(friend.as_str()).map(|text| Birthday::lenient(text)),
                after: again.as_deref().map(Birthday::lenient),
            })
            .collect();
        let mut days = Days::new(place.rules, window);
        days.note(user, zone, &dates);
        days.write(place.keys, ops);
        if !self.survey.friends.is_empty() {
            let fields = self.survey.friends.keys().cloned().collect();
            ops.push(Op::HashDelete { key: place.keys.forgotten(user, commit), fields });
        }
        if matches!(self.survey.next, Some(Progress::Forget { letters: Some(EntryId::ZERO), .. })) {
            // Nothing is left in it but what nobody can read.
            ops.push(Op::Delete { keys: vec![place.keys.forgotten(user, commit)] });
        }
        let until = match self.progress {
            Progress::Forget { until, .. } => *until,
            Progress::Birthday { .. } => EntryId::ZERO,
        };
        let about = |(id, fields): &(EntryId, Fields)| (*id <= until && is_about(fields, user)).then_some(*id);
        let ids: Vec<EntryId> = self.survey.letters.iter().filter_map(about).collect();
        if !ids.is_empty() {
            ops.push(Op::StreamDelete { key: place.keys.dead_letters.clone(), ids });
        }
    }
}

/// Whether a dead letter names the user.
fn is_about(letter: &Fields, user: &UserId) -> bool {
    let names = |name: &[u8]| matches!(name, b"f.user" | b"f.friend");
    letter.iter().any(|(name, value)| names(name) && value == user.as_str().as_bytes())
}
