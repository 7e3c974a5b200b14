//! Loading what a plan names.

use std::borrow::Cow;

use super::super::keyspace::{Hash, Sorted};
use super::super::refusal;
use super::super::stream::Stream;
use super::ShardServer;
use crate::activity::weight_of;
use crate::change::ZONE_FIELD;
use crate::key::Key;
use crate::reduce::{Loaded, PRUNE_SAMPLE, Plan, REBUILD_FIELD, UserLoaded, UserPlan};
use crate::store::Error;

impl ShardServer {
    /// What the plan names, and the count of writes that a commit compares with.
    pub fn load(&mut self, plan: &Plan) -> Result<(Loaded, u64), Error> {
        let state = self.state()?;
        let group = self.changes()?.group().ok_or_else(refusal::no_group)?;
        let (pending, pending_first) = (group.pending.len() as u64, group.pending.keys().next().copied());
        let users = plan.users.iter().map(|user| self.load_user(user)).collect::<Result<_, String>>();
        let users = users.map_err(refusal::poison)?;
        let named = !plan.producers.is_empty();
        let producers = if named { self.hash(&self.keys.producers).map_err(refusal::foreign)? } else { Cow::default() };
        let letters = self.keyspace.get::<Stream>(&self.keys.dead_letters).map_err(refusal::foreign)?;
        let letters = letters.filter(|_| plan.letters).and_then(|letters| letters.entries.keys().next_back().copied());
        let rebuild = self.hash(&self.keys.state).map_err(refusal::foreign)?.get(REBUILD_FIELD).cloned();
        let loaded = Loaded {
            letters_last: letters.unwrap_or_default(),
            rebuild: rebuild.and_then(|text| text.parse().ok()),
            milliseconds: self.keyspace.now,
            generation: state.generation,
            last: state.last,
            pending,
            pending_first,
            users,
            events: plan.events.iter().map(|event| self.keyspace.exists(&self.keys.dedup(event))).collect(),
            producers: plan.producers.iter().map(|name| producers.get(name).cloned()).collect(),
            producers_sample: sample(&producers, PRUNE_SAMPLE),
        };
        Ok((loaded, self.state_writes))
    }

    /// Only what is planned is read: a key of a foreign type that nothing asks for is no trouble.
    fn load_user(&self, plan: &UserPlan) -> Result<UserLoaded, String> {
        let loaded = if plan.all { self.load_all(plan)? } else { self.load_named(plan)? };
        let versions = if plan.sample { self.hash(&self.keys.versions(&plan.user))? } else { Cow::default() };
        let days = if plan.activity { self.hash(&self.keys.activity(&plan.user))? } else { Cow::default() };
        let top =
            if plan.categories.is_empty() { None } else { self.keyspace.get::<Sorted>(&self.keys.top(&plan.user))? };
        let top = top.cloned().unwrap_or_default();
        Ok(UserLoaded {
            sample: sample(&versions, PRUNE_SAMPLE),
            days: days.iter().map(|(day, sum)| (day.clone(), sum.clone())).collect(),
            weights: plan.categories.iter().map(|name| top.get(name).copied().map(weight)).collect(),
            top_length: top.len() as u64,
            lightest: lightest(&top, plan.lightest()),
            ..loaded
        })
    }

    fn load_all(&self, plan: &UserPlan) -> Result<UserLoaded, String> {
        let all = |key: Key| self.hash(&key).map(|fields| sample(&fields, fields.len()));
        let (everyone, all_versions) = (all(self.keys.birthdays(&plan.user))?, all(self.keys.versions(&plan.user))?);
        let loaded = UserLoaded { everyone, all_versions, ..UserLoaded::default() };
        Ok(loaded.with_profile(all(self.keys.profile(&plan.user))?))
    }

    fn load_named(&self, plan: &UserPlan) -> Result<UserLoaded, String> {
        let key = self.keys.profile(&plan.user);
        let asked = |asked: bool, key: Key| if asked { self.hash(&key) } else { Ok(Cow::default()) };
        let birthdays =
            asked(plan.extent || plan.everyone || !plan.friends.is_empty(), self.keys.birthdays(&plan.user))?;
        let versions = asked(!plan.versions.is_empty(), self.keys.versions(&plan.user))?;
        let own = asked(plan.profile || plan.whole || plan.birthday || plan.zone, key.clone())?;
        let profile = |name: &str| Some((name.to_owned(), own.get(name)?.clone()));
        let birthday = own.get("birthday").filter(|_| plan.birthday).cloned();
        Ok(UserLoaded {
            friends: plan.friends.iter().map(|friend| birthdays.get(friend.as_str()).cloned()).collect(),
            versions: plan.versions.iter().map(|field| versions.get(field).cloned()).collect(),
            profile: if plan.whole {
                own.clone().into_owned()
            } else {
                plan.profile_fields().filter_map(profile).collect()
            },
            profile_length: if plan.fields.is_empty() && !plan.whole { 0 } else { own.len() as u64 },
            birthday,
            zone: own.get(ZONE_FIELD).filter(|_| plan.zone).cloned(),
            everyone: sample(&birthdays, if plan.everyone { birthdays.len() } else { 0 }),
            extent: plan.extent.then(|| (birthdays.len() as u64, self.keyspace.exists(&key))),
            ..UserLoaded::default()
        })
    }
}

/// In the order of Redis: by score, and by name where scores are equal.
fn lightest(top: &Sorted, count: usize) -> Vec<(String, u64)> {
    let mut members: Vec<_> = top.iter().map(|(name, score)| (weight(*score), name.clone())).collect();
    members.sort();
    members.into_iter().take(count).map(|(weight, name)| (name, weight)).collect()
}

fn weight(score: i64) -> u64 {
    weight_of(&score.to_string())
}

fn sample(fields: &Hash, count: usize) -> Vec<(String, String)> {
    fields.iter().take(count).map(|(name, value)| (name.clone(), value.clone())).collect()
}
