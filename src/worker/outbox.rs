//! Beside a shard's own work: what lies in its outbox goes to the other shards' streams, in order for each of them.
//!
//! An entry is taken out once the other shard has it. Between the two the process may die, or the answer be lost: then it
//! is sent once more, and the other shard drops it by its place in the outbox. What a stalled owner sends late is dropped
//! in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tracing::{info, warn};

use super::Context;
use super::backoff::Backoff;
use super::trouble::Trouble;
use crate::error::Disposition;
use crate::position::EntryId;
use crate::shard::Shard;
use crate::store::{self, Relay, Store};
use crate::task::{self, JoinHandle};

/// Entries read from the outbox at once.
const PAGE: usize = 512;

/// A shard's outbox as its owner knows it, and the task that empties it. The task ends with it.
pub(super) struct Outbox {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    /// Entries in it; below zero for a moment where the task is ahead of the count.
    length: AtomicI64,
    /// Entries above are not to be sent yet.
    upto: Mutex<EntryId>,
    wake: Notify,
}

impl Outbox {
    /// The outbox of `shard` with so many entries, of which those up to `upto` may be sent.
    pub fn start<S: Store>(context: &Context<S>, shard: Shard, length: u64, upto: EntryId) -> Outbox {
        let shared =
            Arc::new(Shared { length: AtomicI64::new(length as i64), upto: Mutex::new(upto), wake: Notify::new() });
        let options = &context.options;
        let relayer = Relayer {
            backoff: Backoff::new(options.backoff_min, options.backoff_max, !u64::from(shard.0)),
            context: context.clone(),
            shard,
            shared: shared.clone(),
            trouble: Trouble::default(),
        };
        if length > 0 {
            shared.wake.notify_one();
        }
        Outbox { shared, task: task::spawn("outbox", relayer.run()) }
    }

    /// So many entries more.
    pub fn written(&self, entries: u64) {
        if entries > 0 {
            self.shared.length.fetch_add(entries as i64, Ordering::Relaxed);
            self.shared.wake.notify_one();
        }
    }

    /// Entries up to this one may be sent.
    pub fn release(&self, upto: EntryId) {
        let mut limit = self.shared.upto.lock().unwrap_or_else(PoisonError::into_inner);
        *limit = upto.max(*limit);
        self.shared.wake.notify_one();
    }

    /// As the server counts them: makes good for what lost answers have left uncounted.
    pub fn counted(&self, entries: u64) {
        self.shared.length.store(entries as i64, Ordering::Relaxed);
    }

    pub fn length(&self) -> u64 {
        self.shared.length.load(Ordering::Relaxed).max(0) as u64
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Relayer<S> {
    context: Context<S>,
    shard: Shard,
    shared: Arc<Shared>,
    backoff: Backoff,
    trouble: Trouble,
}

impl<S: Store> Relayer<S> {
    async fn run(mut self) {
        loop {
            match self.pass().await {
                None => {
                    self.backoff.reset();
                    if let Some(reason) = self.trouble.end() {
                        info!(shard = self.shard.0, reason, "outbox flows again");
                    }
                    self.shared.wake.notified().await;
                }
                Some(error) => {
                    self.context.metrics.retried(error.reason);
                    if self.trouble.is_news(error.reason, error.disposition) {
                        warn!(shard = self.shard.0, reason = error.reason, "outbox waits: {error}");
                    }
                    if matches!(error.disposition, Disposition::Refresh | Disposition::Ambiguous) {
                        self.context.store.refresh().await;
                    }
                    tokio::time::sleep(self.backoff.next()).await;
                }
            }
        }
    }

    /// Once through the outbox, from its beginning to its end. A shard that cannot be reached holds up only what is for it,
    /// and all of that, so that its order stays. Answers the last thing that went wrong.
    async fn pass(&self) -> Option<store::Error> {
        let (mut after, mut stopped, mut trouble) = (EntryId::ZERO, BTreeSet::new(), None);
        loop {
            let upto = *self.shared.upto.lock().unwrap_or_else(PoisonError::into_inner);
            let page = match self.context.store.outbox(self.shard, after, PAGE).await {
                Ok(page) => page,
                Err(error) => return Some(error),
            };
            let full = page.len() == PAGE;
            let Some(last) = page.last().map(|relay| relay.id) else { return trouble };
            let mut targets: BTreeMap<Shard, Vec<Relay>> = BTreeMap::new();
            for relay in page.into_iter().filter(|relay| relay.id <= upto) {
                match &relay.user {
                    Some(user) => targets.entry(self.context.layout.shard_of(user)).or_default().push(relay),
                    None => trouble = Some(spoilt(self.shard, relay.id)),
                }
            }
            targets.retain(|target, _| !stopped.contains(target));
            if let Some(error) = self.send(targets, &mut stopped).await {
                trouble = Some(error);
            }
            if !full || last > upto {
                return trouble;
            }
            after = last;
        }
    }

    /// To all targets at once; those that did not take theirs are added to `stopped`.
    async fn send(&self, targets: BTreeMap<Shard, Vec<Relay>>, stopped: &mut BTreeSet<Shard>) -> Option<store::Error> {
        let (source, replicas) = (self.shard, self.context.options.wait_replicas);
        let under_way: Vec<_> = targets
            .into_iter()
            .map(|(target, relays)| {
                let store = self.context.store.clone();
                let ids: Vec<EntryId> = relays.iter().map(|relay| relay.id).collect();
                let sent = async move { store.relay(source, target, &relays, replicas).await };
                (target, ids, Sending(task::spawn("relay", sent)))
            })
            .collect();
        let (mut done, mut trouble) = (Vec::new(), None);
        for (target, ids, mut sending) in under_way {
            match (&mut sending.0).await {
                Ok(Ok(())) => done.extend(ids),
                Ok(Err(error)) => {
                    stopped.insert(target);
                    trouble = Some(error);
                }
                // Told where it happened.
                Err(_) => drop(stopped.insert(target)),
            }
        }
        if let Err(error) = self.context.store.relayed(self.shard, &done).await {
            return Some(error);
        }
        self.shared.length.fetch_sub(done.len() as i64, Ordering::Relaxed);
        self.context.metrics.relayed(done.len() as u64);
        trouble
    }
}

/// A request to another shard, which ends with whoever waits for it.
struct Sending(JoinHandle<Result<(), store::Error>>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn spoilt(shard: Shard, id: EntryId) -> store::Error {
    store::Error {
        disposition: Disposition::Poison,
        reason: "outbox_spoilt",
        message: format!("shard {shard}: entry {id} of the outbox names no user: somebody else wrote it"),
    }
}
