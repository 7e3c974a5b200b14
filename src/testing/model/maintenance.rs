//! The model's maintenance lock, and what operators do with it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Model, lock};
use crate::lease::WorkerId;
use crate::store::{Maintenance, MaintenanceLock};

/// The lock as it is stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    holder: String,
    reason: String,
    since: u64,
    ends_at: u64,
    given_up: bool,
    paused: BTreeSet<WorkerId>,
}

/// How long it is known at the least that a lock was given up.
const GIVEN_UP_KNOWN_MIN: u64 = 60_000;

impl Model {
    /// Takes the lock, or changes its reason and time; false where somebody else has it.
    pub fn maintenance_on(&self, holder: &str, reason: &str, ttl: Duration) -> bool {
        let now = self.world.now();
        let mut stored = lock(&self.world.maintenance);
        let found = stored.take().filter(|lock| lock.ends_at > now && !lock.given_up);
        let mine = found.as_ref().is_none_or(|lock| lock.holder == holder);
        *stored = if mine {
            Some(Stored {
                holder: holder.to_owned(),
                reason: reason.to_owned(),
                since: found.as_ref().map_or(now, |lock| lock.since),
                ends_at: now + ttl.as_millis() as u64,
                given_up: false,
                paused: found.map(|lock| lock.paused).unwrap_or_default(),
            })
        } else {
            found
        };
        mine
    }

    /// Ends it in order, whoever has it.
    pub fn maintenance_off(&self) {
        let now = self.world.now();
        if let Some(stored) = lock(&self.world.maintenance).as_mut().filter(|lock| lock.ends_at > now) {
            stored.given_up = true;
            stored.ends_at = stored.ends_at.max(now + GIVEN_UP_KNOWN_MIN);
        }
    }

    /// While it is on: when it runs out, Unix milliseconds, and who has paused.
    pub fn maintenance_paused(&self) -> Option<(u64, BTreeSet<WorkerId>)> {
        let now = self.world.now();
        let stored = lock(&self.world.maintenance);
        let on = stored.as_ref().filter(|lock| lock.ends_at > now && !lock.given_up);
        on.map(|lock| (lock.ends_at, lock.paused.clone()))
    }

    /// Those heard of by a heartbeat that nobody has forgotten yet.
    pub fn living(&self) -> BTreeSet<WorkerId> {
        lock(&self.world.workers).keys().cloned().collect()
    }

    pub(super) fn look(&self, worker: &WorkerId, paused: bool) -> Maintenance {
        let now = self.world.now();
        let mut stored = lock(&self.world.maintenance);
        let Some(found) = stored.as_mut().filter(|lock| lock.ends_at > now) else {
            return Maintenance::None;
        };
        if found.given_up {
            return Maintenance::GivenUp;
        }
        if paused {
            found.paused.insert(worker.clone());
        } else {
            found.paused.remove(worker);
        }
        Maintenance::On(MaintenanceLock {
            holder: found.holder.clone(),
            reason: found.reason.clone(),
            held_for: Duration::from_millis(now - found.since),
            left: Duration::from_millis(found.ends_at - now),
        })
    }
}
