//! The lease and what `state` knows of owners.

use std::time::Duration;

use super::super::keyspace::Hash;
use super::super::refusal;
use super::super::stream::{Group, Stream};
use super::ShardServer;
use crate::key::{GROUP, Key};
use crate::lease::WorkerId;
use crate::position::EntryId;
use crate::store::{Cause, Error, Taken};

impl ShardServer {
    pub fn take(&mut self, worker: &WorkerId, ttl: Duration) -> Result<Taken, Error> {
        self.writable()?;
        let now = self.keyspace.now;
        if let Some(holder) = self.holder()?
            && holder != *worker
        {
            return Ok(Taken::Held(holder));
        }
        self.own_types().map_err(refusal::foreign_shard)?;
        self.keyspace.set(&self.keys.lease, worker.as_str(), Some(now + ttl.as_millis() as u64));
        let last = |key: &Key| {
            let stream = self.keyspace.get::<Stream>(key).map_err(refusal::poison)?;
            Ok(stream.map_or(EntryId::ZERO, |stream| stream.last))
        };
        let tip = last(&self.keys.log)?.max(last(&self.keys.outbox)?);
        let mut state = self.state()?;
        // Above the tips of log and outbox too, where the state was lost and they were not.
        state.generation = now.max(state.generation + 1).max(tip.milliseconds + 1);
        let cause = self.own(worker, state.generation).map_err(refusal::poison)?;
        self.history.takes += 1;
        let changes = self.keyspace.get_mut::<Stream>(&self.keys.changes).map_err(refusal::poison)?;
        let created = || Group { delivered: state.applied, ..Group::default() };
        changes.groups.entry(GROUP.to_owned()).or_insert_with(created);
        // A stream that was lost and begun anew: its next entries must not pass for entries that are applied already.
        changes.last = changes.last.max(state.applied);
        Ok(Taken::Mine(state, cause))
    }

    /// Writes down the new owner; answers why the shard was free.
    fn own(&mut self, worker: &WorkerId, generation: u64) -> Result<Cause, String> {
        let now = self.keyspace.now;
        let fields = self.keyspace.get_mut::<Hash>(&self.keys.state)?;
        fields.insert("generation".to_owned(), generation.to_string());
        let former = fields.insert("owner".to_owned(), worker.to_string());
        let released = fields.remove("released_at").is_some();
        let same = former.as_deref() == Some(worker.as_str());
        let cause = match former {
            None => Cause::First,
            Some(_) if released => Cause::Released,
            Some(_) if same => Cause::Same,
            Some(_) => Cause::Expired,
        };
        if cause != Cause::Same {
            fields.insert("owned_at".to_owned(), now.to_string());
        }
        let moves = fields.entry("moves".to_owned()).or_insert_with(|| "0".to_owned());
        if cause != Cause::First && !same {
            *moves = (moves.parse::<u64>().map_err(|_| "moves is not a number")? + 1).to_string();
        }
        self.state_writes += 1;
        Ok(cause)
    }

    pub fn renew(&mut self, worker: &WorkerId, ttl: Duration) -> Result<bool, Error> {
        let mine = self.holder()?.as_ref() == Some(worker);
        if mine {
            let at = self.keyspace.now + ttl.as_millis() as u64;
            self.keyspace.expire_at(&self.keys.lease, Some(at));
        }
        Ok(mine)
    }

    pub fn release(&mut self, worker: &WorkerId) -> Result<bool, Error> {
        let mine = self.holder()?.as_ref() == Some(worker);
        if mine {
            self.keyspace.delete(&self.keys.lease);
            let now = self.keyspace.now.to_string();
            // A state that is no hash is for a person to mend, and one that is gone stays so.
            if let Ok(Some(fields)) = self.keyspace.find_mut::<Hash>(&self.keys.state) {
                fields.insert("released_at".to_owned(), now);
                self.state_writes += 1;
            }
        }
        Ok(mine)
    }

    /// Whether the lease is still this holder's and lasted longer; then it does no more.
    pub fn shorten(&mut self, holder: &WorkerId, ttl: Duration) -> Result<bool, Error> {
        let latest = self.keyspace.now + ttl.as_millis() as u64;
        let same = self.holder()?.as_ref() == Some(holder);
        let long = same && self.keyspace.expires_at(&self.keys.lease).is_none_or(|at| at > latest);
        if long {
            self.keyspace.expire_at(&self.keys.lease, Some(latest));
        }
        Ok(long)
    }

    pub fn holder(&self) -> Result<Option<WorkerId>, Error> {
        let holder = self.keyspace.get::<String>(&self.keys.lease).map_err(refusal::poison)?;
        Ok(holder.and_then(|text| text.parse().ok()))
    }
}
