//! Jobs, and what goes to other shards.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::super::keyspace::{Hash, Sorted};
use super::super::refusal;
use super::super::stream::{Stream, after};
use super::ShardServer;
use crate::calendar::Calendar;
use crate::change::{Fields, UserId, ZONE_FIELD};
use crate::position::EntryId;
use crate::profile::expires_at;
use crate::reduce::{Job, Progress, ROLL_ASKED_FIELD, ROLL_FIELD, Roll, RolledUser, Survey, Surveyed, parse_job};
use crate::store::{CalendarNews, Error, Relay, Unfinished};

impl ShardServer {
    pub fn unfinished(&self, jobs_max: usize) -> Result<Unfinished, Error> {
        let fanout = self.hash(&self.keys.fanout).map_err(refusal::poison)?;
        let jobs = fanout.iter().take(jobs_max).filter_map(|(job, progress)| parse_job(job, progress).ok()).collect();
        let state = self.hash(&self.keys.state).map_err(refusal::foreign)?;
        let roll = state.get(ROLL_FIELD).and_then(|text| text.parse().ok());
        let calendar = self.calendar_news(&state);
        Ok(Unfinished { outbox: self.outbox_length()?, jobs, more: fanout.len() >= jobs_max, roll, calendar })
    }

    pub(super) fn calendar_news(&self, state: &Hash) -> CalendarNews {
        CalendarNews { milliseconds: self.keyspace.now, roll_asked: state.contains_key(ROLL_ASKED_FIELD) }
    }

    pub fn is_rolled(&self, calendar: &Calendar) -> bool {
        let (Ok(state), Ok(left)) = (self.state(), self.unfinished(0)) else { return false };
        state.turn(calendar, self.keyspace.now, (left.roll.as_ref(), left.calendar.roll_asked)).is_none()
    }

    /// Users in order with all or a part of their friends; a cursor is the last friend seen, of this epoch.
    pub fn survey_days(&self, roll: &Roll, count: usize) -> Result<Surveyed, Error> {
        let users =
            self.keyspace.get::<Sorted>(&self.keys.users).map_err(refusal::poison)?.cloned().unwrap_or_default();
        let mut surveyed = Surveyed::default();
        let mut left = count;
        for user in users.keys().filter_map(|name| name.parse::<UserId>().ok()) {
            let cursor = roll.cursor.as_deref().filter(|_| roll.user.as_ref() == Some(&user));
            if roll.user.as_ref().is_some_and(|done| user < *done || (user == *done && cursor.is_none())) {
                continue;
            }
            if left == 0 {
                return Ok(surveyed);
            }
            let epoch = self.epoch.to_string();
            let cursor = cursor.and_then(|cursor| cursor.split_once(':')).filter(|(earlier, _)| **earlier == epoch);
            let profile = self.keyspace.get::<Hash>(&self.keys.profile(&user)).ok().flatten();
            let zone = profile.and_then(|profile| profile.get(ZONE_FIELD).cloned());
            let over = |profile: &&Hash| expires_at(profile).is_some_and(|end| end <= self.keyspace.now);
            let expired = profile.filter(over).cloned();
            let key = self.keys.birthdays(&user);
            let page = self.page(&key, cursor.map(|(_, last)| last), left);
            let (friends, more) = page.unwrap_or_default();
            left = left.saturating_sub(friends.len().max(1));
            surveyed.next = Some(roll.came(user.clone(), more.map(|last| format!("{epoch}:{last}"))));
            // A key of a foreign type is not none.
            let friends_count = self.hash(&key).map_or(1, |friends| friends.len() as u64);
            // Whoever has no friends stands on no day.
            if !friends.is_empty() || expired.is_some() {
                surveyed.users.push(RolledUser {
                    user,
                    zone,
                    friends: friends.into_iter().collect(),
                    expired,
                    friends_count,
                });
            }
            if surveyed.next.as_ref().is_some_and(|next| next.cursor.is_some()) {
                return Ok(surveyed);
            }
        }
        surveyed.next = None;
        Ok(surveyed)
    }

    /// A cursor is the last friend seen, and means something in this epoch only.
    pub fn survey(&self, job: &Job, progress: &Progress, count: usize) -> Result<Survey, Error> {
        match (job, progress) {
            (Job::Forget { user, commit }, Progress::Forget { order, until, letters: None }) => {
                let (friends, _) = self.page(&self.keys.forgotten(user, *commit), None, count)?;
                let letters = friends.is_empty().then_some(EntryId::ZERO);
                let next = Some(Progress::Forget { order: *order, until: *until, letters });
                Ok(Survey { friends, letters: Vec::new(), next })
            }
            (Job::Forget { .. }, Progress::Forget { order, until, letters: Some(seen) }) => {
                let dead = self.keyspace.get::<Stream>(&self.keys.dead_letters).map_err(refusal::poison)?;
                let letters: Vec<(EntryId, Fields)> = dead.map_or_else(Vec::new, |dead| {
                    let left = dead.entries.range(after(*seen)..).take(count);
                    left.map(|(id, fields)| (*id, fields.clone())).collect()
                });
                let more = letters.last().filter(|(id, _)| letters.len() >= count && id < until);
                let next = more.map(|(id, _)| Progress::Forget { order: *order, until: *until, letters: Some(*id) });
                Ok(Survey { friends: BTreeMap::new(), letters, next })
            }
            (Job::Birthday { user } | Job::Forget { user, .. }, progress) => {
                let (text, epoch) = (progress.to_string(), self.epoch.to_string());
                let cursor = text.split_once(':').filter(|(earlier, _)| **earlier == epoch).map(|(_, cursor)| cursor);
                let (friends, last) = self.page(&self.keys.birthdays(user), cursor, count)?;
                let next = last.map(|last| Progress::Birthday { cursor: format!("{epoch}:{last}") });
                Ok(Survey { friends, letters: Vec::new(), next })
            }
        }
    }

    /// Fields behind a cursor, and the next cursor where there are more.
    fn page(
        &self,
        key: &crate::key::Key,
        cursor: Option<&str>,
        count: usize,
    ) -> Result<(BTreeMap<String, String>, Option<String>), Error> {
        let fields = self.hash(key).map_err(refusal::poison)?;
        let begin = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = fields.range::<str, _>((begin, Bound::Unbounded));
        let page: Hash = left.by_ref().take(count).map(|(name, value)| (name.clone(), value.clone())).collect();
        let more = left.next().and(page.keys().next_back().cloned());
        Ok((page, more))
    }

    pub fn outbox(&self, seen: EntryId, count: usize) -> Result<Vec<Relay>, Error> {
        let Some(outbox) = self.keyspace.get::<Stream>(&self.keys.outbox).map_err(refusal::poison)? else {
            return Ok(Vec::new());
        };
        let relay = |(id, fields): (&EntryId, &Fields)| {
            let user = fields.iter().find(|(name, _)| name == "user").map(|(_, user)| user);
            let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok());
            Relay { id: *id, user, fields: fields.clone() }
        };
        Ok(outbox.entries.range(after(seen)..).take(count).map(relay).collect())
    }

    /// Appends all or none.
    pub fn take_in(&mut self, producer: &str, relays: &[Relay]) -> Result<(), Error> {
        for relay in relays {
            let mut fields = relay.fields.clone();
            fields.push(("producer".into(), producer.to_owned().into()));
            fields.push(("seq".into(), relay.id.to_string().into()));
            self.append(None, fields)?;
        }
        Ok(())
    }

    pub fn relayed(&mut self, ids: &[EntryId]) -> Result<(), Error> {
        if let Some(outbox) = self.keyspace.find_mut::<Stream>(&self.keys.outbox).map_err(refusal::poison)? {
            ids.iter().for_each(|id| drop(outbox.entries.remove(id)));
        }
        Ok(())
    }

    /// What replicas have, no failover takes back.
    pub fn replicated(&mut self, replicas: u32) -> bool {
        if replicas > 0 {
            self.keyspace.keep();
        }
        true
    }

    pub(super) fn outbox_length(&self) -> Result<u64, Error> {
        let outbox = self.keyspace.get::<Stream>(&self.keys.outbox).map_err(refusal::poison)?;
        Ok(outbox.map_or(0, |outbox| outbox.entries.len() as u64))
    }
}
