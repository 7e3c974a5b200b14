//! A snapshot of a user applied to what is stored: what was changed after its moment stays.

use super::Outcome;
use super::plan::BIRTHDAY_FIELD;
use super::user::{Moment, Working};
use super::versions::Verdict;
use crate::change::{Problem, Rejection, Snapshot, ZONE_FIELD};
use crate::key::version_field;
use crate::profile::is_own;

/// What a snapshot did: how much of it was taken, and whether that changed anything.
#[derive(Default)]
struct Done {
    changed: bool,
    taken: bool,
    kept: bool,
}

impl Working<'_> {
    /// Nothing of it is applied unless its rebuild is on: only since that began it is known what was changed when.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot, moment: Moment) -> Result<Outcome, Rejection> {
        let at = moment.changed_at;
        let knows = self.plan.rebuild.is_some_and(|since| since <= at);
        if !knows || self.versions.forgotten().is_some_and(|order| order.entry.milliseconds > at) {
            return Ok(Outcome::Outdated);
        }
        let mut done = Done::default();
        if snapshot.speaks_of_profile() {
            self.snapshot_profile(snapshot, moment, &mut done)?;
        }
        self.snapshot_friends(snapshot, moment, &mut done);
        Ok(match done {
            Done { changed: true, .. } => Outcome::Applied,
            Done { taken: false, kept: true, .. } => Outcome::Outdated,
            Done { .. } => Outcome::Unchanged,
        })
    }

    fn snapshot_friends(&mut self, snapshot: &Snapshot, moment: Moment, done: &mut Done) {
        for listed in &snapshot.friends {
            let friend = self.friends.slot(&listed.friend).listed(snapshot.whole);
            match self.versions.told(listed.friend.as_str(), listed.version, moment.changed_at) {
                Verdict::Kept => done.kept = true,
                Verdict::Taken => done.note(friend.set(Some(listed.birthday))),
                Verdict::Dated(birthday) => done.note(friend.set(Some(birthday))),
            }
        }
        if snapshot.whole {
            for friend in self.friends.unlisted(snapshot) {
                let slot = self.friends.slot(&friend);
                match self.versions.absent(friend.as_str(), moment.changed_at, moment.now) {
                    Verdict::Kept => done.kept = true,
                    Verdict::Taken => done.note(slot.set(None)),
                    Verdict::Dated(birthday) => done.note(slot.set(Some(birthday))),
                }
            }
        }
        // Friends whom only the snapshot knows have not heard of a date that was told meanwhile.
        let told = self.versions.is_newer_than(&version_field(BIRTHDAY_FIELD), moment.changed_at);
        self.announces |= told && done.changed && !snapshot.friends.is_empty();
    }

    fn snapshot_profile(&mut self, snapshot: &Snapshot, moment: Moment, done: &mut Done) -> Result<(), Rejection> {
        self.check_room(snapshot)?;
        let mut fields: Vec<(String, Option<String>)> = Vec::new();
        let birthday = snapshot.birthday.map(|date| (BIRTHDAY_FIELD.to_owned(), Some(date.to_string())));
        let gone = self.profile.names().filter(|name| snapshot.whole && is_told(name)).map(str::to_owned);
        let mut gone: Vec<String> = gone.collect();
        for (name, value) in birthday.into_iter().chain(snapshot.profile.iter().cloned()) {
            gone.retain(|known| *known != name);
            let field = version_field(&name);
            if self.versions.told(&field, snapshot.version_of(&name), moment.changed_at) == Verdict::Kept {
                done.kept = true;
                continue;
            }
            if value.is_none() {
                self.versions.absent(&field, moment.changed_at, moment.now);
            }
            done.taken = true;
            fields.push((name, value));
        }
        for name in gone {
            if self.versions.absent(&version_field(&name), moment.changed_at, moment.now) == Verdict::Taken {
                fields.push((name, None));
            } else {
                done.kept = true;
            }
        }
        let differing = fields.iter().filter(|(name, value)| self.profile.get(name) != value.as_deref());
        let differing: Vec<_> = differing.collect();
        if !differing.is_empty() {
            done.note(self.profile.set(&differing, u64::MAX, moment)?);
        }
        self.end_profile(snapshot, moment, done);
        Ok(())
    }

    /// Together with what is stored there may be more for a while, but never more than twice as many.
    fn check_room(&self, snapshot: &Snapshot) -> Result<(), Rejection> {
        let fields_max = self.rules.profile_fields_max;
        let fields = snapshot.profile.iter().filter(|(name, value)| is_own(name) && value.is_some()).count() as u64;
        if fields <= fields_max {
            return Ok(());
        }
        Err(Rejection::new("profile.NAME", None, Problem::ProfileFull { fields, fields_max }))
    }

    /// Nothing stays of a user who was not there, and whom nothing later has told of.
    fn end_profile(&mut self, snapshot: &Snapshot, moment: Moment, done: &mut Done) {
        let idle = self.profile.active_at().is_none_or(|at| at <= moment.changed_at);
        let (mut exists, mut told) = (false, false);
        self.profile.names().for_each(|name| (exists, told) = (true, told || is_told(name)));
        if snapshot.is_of_nobody() && exists && idle && !told {
            self.profile.end();
            done.note(Outcome::Applied);
        }
    }
}

impl Done {
    fn note(&mut self, outcome: Outcome) {
        self.taken = true;
        self.changed |= outcome == Outcome::Applied;
    }
}

/// Whether a profile's field is one that snapshots tell.
fn is_told(name: &str) -> bool {
    is_own(name) || name == ZONE_FIELD || name == BIRTHDAY_FIELD
}
