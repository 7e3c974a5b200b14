//! What befalls a shard on its server.

use std::time::Duration;

use super::super::faults::Calamity;
use super::super::keyspace::Hash;
use super::super::refusal;
use super::super::stream::{Stream, after};
use super::ShardServer;
use crate::key::GROUP;
use crate::position::EntryId;
use crate::reduce::REBUILD_FIELD;
use crate::store::Error;

impl ShardServer {
    pub fn strike(&mut self, calamity: Calamity) {
        match calamity {
            Calamity::LeaseLost => self.keyspace.delete(&self.keys.lease),
            Calamity::Failover { away, commits_lost } => self.fail_over(away, commits_lost),
            Calamity::MemoryFull { lasting } => self.full_until = self.keyspace.now + lasting.as_millis() as u64,
            Calamity::GroupDestroyed => self.destroy_group(),
            Calamity::PendingTrimmed => self.trim_pending(),
            Calamity::GroupRewound { entries } => self.rewind(entries),
        }
    }

    /// Writes the mark of a rebuild into the state, or takes it away.
    pub fn rebuild(&mut self, at: Option<u64>) {
        if let Ok(state) = self.keyspace.get_mut::<Hash>(&self.keys.state) {
            state.remove(REBUILD_FIELD);
            state.extend(at.map(|at| (REBUILD_FIELD.to_owned(), at.to_string())));
        }
        self.state_writes += 1;
    }

    fn destroy_group(&mut self) {
        if let Ok(Some(changes)) = self.keyspace.find_mut::<Stream>(&self.keys.changes) {
            changes.groups.remove(GROUP);
        }
        self.unblock(&refusal::no_group());
    }

    /// All keys are gone. Nobody writes `state` here, but what was watched was touched.
    pub fn flush(&mut self) {
        self.keyspace.clear();
        self.state_writes += 1;
        self.unblock(&refusal::unblocked());
    }

    /// Trims the oldest pending entry and everything before it.
    fn trim_pending(&mut self) {
        let Ok(Some(changes)) = self.keyspace.find_mut::<Stream>(&self.keys.changes) else {
            return;
        };
        let first = changes.group().and_then(|group| group.pending.keys().next().copied());
        if let Some(first) = first {
            changes.trim_below(after(first), usize::MAX);
            self.history.trimmed.push(first);
        }
    }

    /// The group goes back to before the last entries it has read.
    fn rewind(&mut self, entries: usize) {
        let Ok(Some(changes)) = self.keyspace.find_mut::<Stream>(&self.keys.changes) else {
            return;
        };
        let Some(delivered) = changes.group().map(|group| group.delivered) else {
            return;
        };
        let mut read = changes.entries.range(..=delivered).rev().map(|(id, _)| *id);
        self.history.rewound.extend(read.by_ref().take(entries));
        let before = read.next().unwrap_or(EntryId::ZERO);
        changes.groups.entry(GROUP.to_owned()).and_modify(|group| group.delivered = before);
        self.serve();
    }

    /// A replica takes over that has not heard of the last commits nor of anything since. Appended entries are kept:
    /// their writers waited for the replica.
    fn fail_over(&mut self, away: Duration, commits_lost: usize) {
        let lost = self.keyspace.go_back(commits_lost);
        if lost > 0 {
            self.keep_entries();
            self.history.lose(lost);
        }
        self.epoch += 1;
        self.state_writes += 1;
        self.inbox.clear();
        self.unblock(&refusal::unblocked());
        self.away_until = self.keyspace.now + away.as_millis() as u64;
    }

    /// Puts back the entries that were appended since, also those that were settled and trimmed since.
    fn keep_entries(&mut self) {
        let Ok(changes) = self.keyspace.get_mut::<Stream>(&self.keys.changes) else {
            return;
        };
        let later = self.history.entries.iter().rev().take_while(|(id, _)| *id > changes.last);
        changes.entries.extend(later.cloned());
        changes.last = changes.entries.keys().next_back().map_or(changes.last, |last| changes.last.max(*last));
    }

    fn unblock(&mut self, error: &Error) {
        self.waiters.drain(..).for_each(|waiter| drop(waiter.reply.send(Err(error.clone()))));
    }
}
