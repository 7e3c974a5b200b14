//! From a batch of entries to its commit: load, check the fence and the order, reduce, commit.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::DELIVERIES_FACTOR;
use super::session::{Session, stop_if_told};
use super::shard::{Ended, Interrupt, Owner};
use crate::change::Problem;
use crate::error::Disposition;
use crate::metrics::{BatchStats, Outcomes};
use crate::reduce::{Commit, Decoded, Entry, Loaded, Outcome, Plan, reduce};
use crate::store::{self, Committed, ShardLink, Store};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    All,
    /// Something older is pending, or a part of the batch still is: drain before reading on.
    Behind,
}

/// Settles `entries`, the whole batch or its beginning, in one commit. Entries that are `unreadable` become dead letters by
/// their ids alone.
pub(super) async fn settle<S: Store>(
    session: &mut Session<S::Link>,
    owner: &mut Owner<S>,
    entries: Vec<Entry>,
    unreadable: bool,
) -> Result<Settled, Interrupt> {
    let mut batch = Batch::new(owner, entries, unreadable);
    let mut wider = None;
    loop {
        let (rules, now) = (&owner.context.rules, session.rolling.milliseconds());
        let fresh = || Plan::of(&batch.decoded, &session.state, session.beyond.jobs(), (rules, now));
        let plan = wider.take().unwrap_or_else(fresh);
        let loaded = match session.link.load(&plan).await {
            Ok(loaded) => loaded,
            Err(error) => {
                batch.after(session, owner, error).await?;
                continue;
            }
        };
        check_fence(session, owner, &loaded)?;
        session.rolling.heard(loaded.milliseconds);
        session.state.rebuild = loaded.rebuild;
        if !plan.suffices(&session.state, &owner.context.rules.calendar, &loaded) {
            continue;
        }
        wider = plan.widened(&loaded);
        if wider.is_some() {
            continue;
        }
        // Acknowledgements that a server forgot, or entries that were deleted while they were pending.
        if batch
            .decoded
            .first()
            .is_some_and(|first| loaded.pending_first.is_some_and(|pending| pending < first.entry.id))
        {
            return Ok(Settled::Behind);
        }
        let rules = &owner.context.rules;
        let commit = reduce(rules, &owner.keys, &session.state, &batch.decoded, (&plan, &loaded));
        let started = Instant::now();
        match session.link.commit(&commit).await {
            Ok(Committed::Done { errors }) => {
                session.state = commit.state;
                let waits = owner.context.options.wait_replicas > 0;
                session.beyond.committed(commit.state.last, commit.relays, &commit.jobs, waits);
                committed(owner, &batch, &commit, started.elapsed(), &errors);
                check_written(owner, &errors)?;
                return Ok(if batch.cut { Settled::Behind } else { Settled::All });
            }
            // Loading again tells who wrote the state.
            Ok(Committed::Refused) => batch.after(session, owner, refused()).await?,
            Err(error) => batch.after(session, owner, error).await?,
        }
    }
}

/// Entries on their way to a commit.
struct Batch {
    decoded: Vec<Decoded>,
    /// Whether entries were left out behind these.
    cut: bool,
    /// Whether the one entry left is to be set aside instead of applied.
    set_aside: bool,
}

impl Batch {
    /// An entry that was delivered very often is tried alone, so that it cannot take others down with it; in the end it
    /// is set aside without another try.
    fn new<S: Store>(owner: &Owner<S>, mut entries: Vec<Entry>, unreadable: bool) -> Batch {
        let deliveries_max = owner.context.options.deliveries_max;
        let before = entries.len();
        match entries.iter().position(|entry| entry.deliveries > deliveries_max) {
            Some(0) => entries.truncate(1),
            Some(suspect) => entries.truncate(suspect),
            None => {}
        }
        entries.truncate(fitting(&entries, owner.context.options.batch_bytes_max));
        let limits = &owner.context.rules.limits;
        let decode = |entry: Entry| {
            if unreadable {
                return Decoded::rejected(entry, Problem::Unreadable);
            }
            let undeliverable = entry.fields.is_some() && entry.deliveries > deliveries_max * DELIVERIES_FACTOR;
            match undeliverable {
                true => {
                    let deliveries = entry.deliveries;
                    Decoded::rejected(entry, Problem::Undeliverable(deliveries))
                }
                false => Decoded::new(entry, limits).at(&owner.context.layout, owner.keys.shard),
            }
        };
        let mut decoded: Vec<Decoded> = entries.into_iter().map(decode).collect();
        decoded.truncate(bearable(&decoded, owner.context.options.batch_changes_max));
        Batch { cut: decoded.len() < before, decoded, set_aside: false }
    }

    /// What a failed load or commit leads to: another try with the same or fewer entries, or the end of the link.
    async fn after<S: Store>(
        &mut self,
        session: &mut Session<S::Link>,
        owner: &mut Owner<S>,
        error: store::Error,
    ) -> Result<(), Interrupt> {
        stop_if_told(owner)?;
        if error.disposition == Disposition::Poison && !self.set_aside {
            self.narrow(owner, &error);
            return Ok(());
        }
        session.wait_in_place(owner, error).await
    }

    /// Half of the batch, down to one entry, which then becomes a dead letter.
    fn narrow<S: Store>(&mut self, owner: &Owner<S>, error: &store::Error) {
        owner.context.metrics.retried(error.reason);
        if self.decoded.len() > 1 {
            self.decoded.truncate(self.decoded.len().div_ceil(2));
            self.cut = true;
            return;
        }
        let Some(alone) = self.decoded.pop() else { return };
        warn!(shard = owner.keys.shard.0, entry = %alone.entry.id, "entry set aside: {error}");
        self.decoded.push(Decoded::rejected(alone.entry, Problem::Refused(error.message.clone())));
        self.set_aside = true;
    }
}

/// How many of the entries, one at the least, stay within `bytes_max` together.
fn fitting(entries: &[Entry], bytes_max: usize) -> usize {
    let mut total = 0usize;
    let bytes =
        |entry: &Entry| entry.fields.iter().flatten().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let fits = |entry: &&Entry| {
        total = total.saturating_add(bytes(entry));
        total <= bytes_max
    };
    entries.iter().take_while(fits).count().max(1)
}

/// How many, one at the least, change no more than so many views together. One that must stand alone does.
fn bearable(decoded: &[Decoded], views_max: usize) -> usize {
    let mut total = 0;
    let bears = |(at, decoded): &(usize, &Decoded)| {
        total += decoded.weight();
        total <= views_max && (*at == 0 || !decoded.stands_alone())
    };
    let alone = decoded.first().is_some_and(Decoded::stands_alone);
    if alone { 1 } else { decoded.iter().enumerate().take_while(bears).count().max(1) }
}

/// The generation is the fence; the last commit is the proof that what this owner remembers is what is stored.
pub(super) fn check_fence<S: Store>(
    session: &Session<S::Link>,
    owner: &Owner<S>,
    loaded: &Loaded,
) -> Result<(), Interrupt> {
    // Every owner has a generation: nobody took the shard, its state is gone, as after FLUSHALL. Whoever takes it up
    // again first goes on.
    if loaded.generation == 0 {
        return Err(Interrupt::Broken(state_lost()));
    }
    if loaded.generation != session.state.generation {
        owner.context.metrics.fenced();
        return Err(Interrupt::Ended(Ended::Fenced));
    }
    if loaded.last != session.state.last {
        return Err(Interrupt::Broken(store::Error {
            disposition: Disposition::Ambiguous,
            reason: "state_changed",
            message: format!("the last commit is {}, expected {}", loaded.last, session.state.last),
        }));
    }
    Ok(())
}

/// A log or dead letters that cannot be written to must not be passed over again: taking up again looks at every key of the
/// shard and at the log's tip, and tells what is wrong.
pub(super) fn check_written<S: Store>(owner: &Owner<S>, errors: &[String]) -> Result<(), Interrupt> {
    let keys = &owner.keys;
    let keys = [&keys.changes, &keys.log, &keys.dead_letters, &keys.users, &keys.state, &keys.outbox, &keys.fanout];
    match errors.iter().find(|error| keys.iter().any(|key| error.contains(key.as_str()))) {
        None => Ok(()),
        Some(error) => Err(Interrupt::Broken(store::Error {
            disposition: Disposition::Refresh,
            reason: "key_spoilt",
            message: format!("a key of the shard cannot be written to: {error}"),
        })),
    }
}

pub(super) fn state_lost() -> store::Error {
    store::Error {
        disposition: Disposition::Refresh,
        reason: "state_lost",
        message: "the shard's state is gone, as after FLUSHALL or a lost key".to_owned(),
    }
}

fn refused() -> store::Error {
    store::Error {
        disposition: Disposition::Retry,
        reason: "state_written",
        message: "the shard's state was written while a commit was prepared".to_owned(),
    }
}

fn committed<S: Store>(owner: &mut Owner<S>, batch: &Batch, commit: &Commit, took: Duration, errors: &[String]) {
    owner.commands_failed(errors);
    let now = commit.signal.at_milliseconds;
    let age = |decoded: &Decoded| Duration::from_millis(now.saturating_sub(decoded.entry.id.milliseconds));
    let freshness: Vec<Duration> = batch.decoded.iter().map(age).collect();
    owner.context.metrics.committed(&BatchStats {
        outcomes: count(&commit.outcomes),
        dead_kinds: &commit.dead_kinds,
        freshness: &freshness,
        commit: took,
    });
    owner.flows();
}

fn count(outcomes: &[Outcome]) -> Outcomes {
    let mut counted = Outcomes::default();
    for outcome in outcomes {
        *match outcome {
            Outcome::Applied => &mut counted.applied,
            Outcome::Unchanged => &mut counted.unchanged,
            Outcome::Outdated => &mut counted.outdated,
            Outcome::Duplicate => &mut counted.duplicate,
            Outcome::NoSuchFriend => &mut counted.no_such_friend,
            Outcome::Dead => &mut counted.dead,
        } += 1;
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::EntryId;

    #[test]
    fn a_batch_is_cut_where_its_bytes_would_be_too_many() {
        let entry = |bytes: usize| Entry {
            id: EntryId::ZERO,
            fields: Some(vec![(bytes::Bytes::from_static(b"name"), vec![0; bytes - 4].into())]),
            deliveries: 1,
        };
        let trimmed = Entry { id: EntryId::ZERO, fields: None, deliveries: 1 };
        for (entries, bytes_max, fits) in [
            (vec![entry(10), entry(10), entry(10)], 30, 3),
            (vec![entry(10), entry(10), entry(11)], 30, 2),
            (vec![entry(100), entry(10)], 30, 1),
            (vec![trimmed.clone(), entry(30), trimmed], 30, 3),
        ] {
            assert_eq!(fitting(&entries, bytes_max), fits);
        }
    }
}
