//! One shard's queue of appends, and the task that empties it: one batch at a time, so that order survives refusals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::backoff::Backoff;
use super::writer::{self, Error, Options};
use super::{Failure, Hub};
use crate::change::Producer;
use crate::error::{Disposition, ServerCode, ServerError};
use crate::position::EntryId;
use crate::redis::append::{Append, Appended, append};
use crate::redis::{self, NodeAddress, endpoint_address};
use crate::shard::Shard;
use crate::task;

/// Between two tries.
const WAIT_SHORTEST: Duration = Duration::from_millis(20);
const WAIT_LONGEST: Duration = Duration::from_secs(1);
/// Redirects followed without a wait: during a hand-over two nodes may point at each other for a moment.
const REDIRECTS_AT_ONCE_MAX: u32 = 2;
/// Bytes of a batch beyond which no further change joins it.
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Producers whose failure is remembered in a shard. Beyond it the first by name is forgotten.
const HELD_MAX: usize = 1024;

/// One shard's queue. Its task runs only while there is something to append.
#[derive(Debug)]
pub(super) struct Lane {
    hub: Hub,
    shard: Shard,
    options: Arc<Options>,
    room: Arc<Semaphore>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    running: bool,
    /// Producers of which a change failed: the least failed sequence of each.
    held: BTreeMap<String, u64>,
}

/// A change on its way into the stream.
#[derive(Debug)]
pub(super) struct Entry {
    append: Append,
    producer: Option<Producer>,
    deadline: Instant,
    /// Why an earlier try may have had an effect.
    unknown: Option<Failure>,
    answer: oneshot::Sender<Result<writer::Appended, Error>>,
    room: Option<OwnedSemaphorePermit>,
}

impl Entry {
    pub fn new(
        append: Append,
        producer: Option<Producer>,
        deadline: Instant,
        answer: oneshot::Sender<Result<writer::Appended, Error>>,
    ) -> Entry {
        Entry { append, producer, deadline, unknown: None, answer, room: None }
    }

    /// Tells the caller, who may have gone, and makes room.
    fn settle(self, result: Result<writer::Appended, Error>) {
        let _ = self.answer.send(result);
    }
}

impl Lane {
    pub fn new(hub: Hub, shard: Shard, options: Arc<Options>) -> Lane {
        let room = Arc::new(Semaphore::new(options.queue_changes_max.clamp(1, Semaphore::MAX_PERMITS)));
        Lane { hub, shard, options, room, queue: Mutex::default() }
    }

    /// Takes the entry in, once there is room for it.
    pub async fn push(self: &Arc<Lane>, mut entry: Entry) -> Result<(), Error> {
        let Ok(Ok(permit)) = timeout_at(entry.deadline, self.room.clone().acquire_owned()).await else {
            self.queue().hold(entry.producer.as_ref());
            return Err(Error::Full { shard: self.shard, after: self.options.timeout });
        };
        entry.room = Some(permit);
        let mut queue = self.queue();
        if let Some(producer) = &entry.producer {
            queue.admit(producer).map_err(|sequence| self.behind(producer, sequence))?;
        }
        queue.waiting.push_back(entry);
        if !queue.running {
            queue.running = true;
            task::spawn("lane", Runner { lane: self.clone(), batch: VecDeque::new(), ended: false }.run());
        }
        Ok(())
    }

    pub fn release(&self, producer: &str) {
        self.queue().held.remove(producer);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behind(&self, producer: &Producer, sequence: u64) -> Error {
        Error::Behind { shard: self.shard, producer: producer.name.clone(), sequence }
    }
}

impl Queue {
    /// Lets a producer's change in unless an earlier one failed; the failed one itself lifts the ban.
    fn admit(&mut self, producer: &Producer) -> Result<(), u64> {
        match self.held.get(&producer.name) {
            Some(failed) if producer.sequence > *failed => Err(*failed),
            Some(_) => {
                self.held.remove(&producer.name);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn hold(&mut self, producer: Option<&Producer>) {
        let Some(producer) = producer else {
            return;
        };
        if self.held.len() >= HELD_MAX && !self.held.contains_key(&producer.name) {
            self.held.pop_first();
        }
        let failed = self.held.entry(producer.name.clone()).or_insert(producer.sequence);
        *failed = producer.sequence.min(*failed);
    }
}

/// The task of a lane while it has work.
struct Runner {
    lane: Arc<Lane>,
    batch: VecDeque<Entry>,
    /// Whether it ended in order: the lane may have another runner since.
    ended: bool,
}

/// Cut short, with its runtime or by a bug: whoever waits is told, and the next change starts a new runner. What is lost
/// holds its producer back like any other failure.
impl Drop for Runner {
    fn drop(&mut self) {
        if !self.ended {
            let mut queue = self.lane.queue();
            queue.running = false;
            let waiting = std::mem::take(&mut queue.waiting);
            for entry in self.batch.drain(..).chain(waiting) {
                queue.hold(entry.producer.as_ref());
            }
        }
    }
}

/// How the tries of the present trouble went.
struct Trouble {
    backoff: Backoff,
    /// The last failure; none while all is well.
    last: Option<Failure>,
    /// The node to ask instead of the owner, for the next try only.
    ask: Option<NodeAddress>,
    redirects: u32,
}

/// What to do after a try.
enum Next {
    /// The batch is settled.
    Done,
    /// Nothing of it was appended, or all that is left of it may be sent again.
    Again { wait: bool, refresh: bool },
}

impl Runner {
    async fn run(mut self) {
        let backoff = Backoff::new(WAIT_SHORTEST, WAIT_LONGEST);
        let mut trouble = Trouble { backoff, last: None, ask: None, redirects: 0 };
        while self.fill() {
            self.expire(trouble.last.as_ref());
            if self.batch.is_empty() {
                continue;
            }
            match self.attempt(&mut trouble).await {
                Next::Done => trouble.end(self.lane.shard),
                Next::Again { wait, refresh } => self.pause(&mut trouble, wait, refresh).await,
            }
        }
    }

    /// Adds to the batch what is queued, within bounds. False: there is nothing, and this task ends.
    fn fill(&mut self) -> bool {
        let mut queue = self.lane.queue();
        let mut bytes: usize = self.batch.iter().map(|entry| entry.append.bytes()).sum();
        while self.batch.len() < self.lane.options.batch_changes_max.max(1) && bytes < BATCH_BYTES_MAX {
            let Some(entry) = queue.waiting.pop_front() else {
                break;
            };
            bytes += entry.append.bytes();
            self.batch.push_back(entry);
        }
        self.ended = self.batch.is_empty();
        queue.running = !self.ended;
        queue.running
    }

    /// Settles what has run out of time. Its producer's changes behind it fail with it.
    fn expire(&mut self, last: Option<&Failure>) {
        let now = Instant::now();
        if self.batch.iter().any(|entry| entry.deadline <= now) {
            self.fail(|entry| entry.deadline <= now, last.cloned());
        }
    }

    /// Settles the entries of the batch that `is_failed` names, for one reason.
    fn fail(&mut self, is_failed: impl Fn(&Entry) -> bool, why: Option<Failure>) {
        let mut failed = Failed { lane: &self.lane, producers: BTreeSet::new(), why };
        failed.sift(&mut self.batch, is_failed);
        if !failed.producers.is_empty() {
            let mut waiting = std::mem::take(&mut self.lane.queue().waiting);
            failed.sift(&mut waiting, |_| false);
            // Whoever pushed meanwhile stands behind these.
            let mut queue = self.lane.queue();
            waiting.append(&mut queue.waiting);
            queue.waiting = waiting;
        }
    }

    async fn attempt(&mut self, trouble: &mut Trouble) -> Next {
        let asked = trouble.ask.take();
        let asking = asked.is_some();
        let slot = self.lane.hub.layout().slot(self.lane.shard);
        let node = match asked.map_or_else(|| self.owner(slot), Ok) {
            Ok(node) => node,
            Err(error) => return self.refused(trouble, Failure::new(None, error)),
        };
        let answer = async {
            let pipe = self.lane.hub.pipes().get(&node).await?;
            append(&pipe, self.batch.iter().map(|entry| &entry.append), asking).await
        };
        match answer.await {
            Ok(Appended::Settled(results)) => {
                self.settle(&node, results);
                Next::Done
            }
            Ok(Appended::Refused(error)) => self.redirected(trouble, &node, error),
            Err(error) if error.possibly_sent() => self.lost(trouble, Failure::new(Some(&node), error)),
            Err(error) => self.refused(trouble, Failure::new(Some(&node), error)),
        }
    }

    fn owner(&self, slot: u16) -> Result<NodeAddress, redis::Error> {
        Ok(self.lane.hub.topology().node_of(slot)?.address.clone())
    }

    fn settle(&mut self, node: &NodeAddress, results: Vec<Result<EntryId, ServerError>>) {
        let shard = self.lane.shard;
        for (entry, result) in self.batch.drain(..).zip(results) {
            if result.is_err() {
                self.lane.queue().hold(entry.producer.as_ref());
            }
            let refused = |error: ServerError| Error::Refused { shard, why: Failure::new(Some(node), error.into()) };
            entry.settle(result.map(|id| writer::Appended { shard, id }).map_err(refused));
        }
    }

    fn redirected(&mut self, trouble: &mut Trouble, node: &NodeAddress, error: ServerError) -> Next {
        let target = match &error.code {
            ServerCode::Moved { slot, endpoint } => {
                self.lane.hub.topology().learn_moved(*slot, endpoint, node);
                Some(None)
            }
            ServerCode::Ask { endpoint, .. } => endpoint_address(endpoint, node).map(Some),
            _ => None,
        };
        let failure = Failure::new(Some(node), error.into());
        let Some(ask) = target else {
            return self.refused(trouble, failure);
        };
        trouble.ask = ask;
        trouble.redirects += 1;
        let wait = trouble.redirects > REDIRECTS_AT_ONCE_MAX;
        if wait {
            trouble.begin(self.lane.shard, failure);
        }
        Next::Again { wait, refresh: wait }
    }

    /// Nothing of the batch was appended.
    fn refused(&mut self, trouble: &mut Trouble, failure: Failure) -> Next {
        let disposition = failure.error.disposition();
        match disposition {
            Disposition::Retry | Disposition::Full | Disposition::Refresh | Disposition::Ambiguous => {
                trouble.begin(self.lane.shard, failure);
                Next::Again { wait: true, refresh: disposition == Disposition::Refresh }
            }
            Disposition::Fenced | Disposition::Poison | Disposition::Fatal => {
                self.fail(|_| true, Some(failure));
                Next::Done
            }
        }
    }

    /// The batch may have been appended. What has a producer is sent again, the rest is told so.
    fn lost(&mut self, trouble: &mut Trouble, failure: Failure) -> Next {
        for entry in &mut self.batch {
            entry.unknown.get_or_insert_with(|| failure.clone());
        }
        self.fail(|entry| entry.producer.is_none(), Some(failure.clone()));
        trouble.begin(self.lane.shard, failure);
        Next::Again { wait: true, refresh: true }
    }

    /// Waits before the next try, but never beyond the first deadline.
    async fn pause(&self, trouble: &mut Trouble, wait: bool, refresh: bool) {
        let first = self.batch.iter().map(|entry| entry.deadline).min();
        let patience = || first.map_or(WAIT_LONGEST, |first| first.saturating_duration_since(Instant::now()));
        if wait {
            sleep(trouble.backoff.wait().min(patience())).await;
        }
        if refresh {
            self.lane.hub.refresh(patience()).await;
        }
    }
}

/// Settles entries that failed, and those of the same producers behind them.
struct Failed<'a> {
    lane: &'a Lane,
    producers: BTreeSet<String>,
    why: Option<Failure>,
}

impl Failed<'_> {
    fn sift(&mut self, entries: &mut VecDeque<Entry>, is_failed: impl Fn(&Entry) -> bool) {
        let mut kept = VecDeque::with_capacity(entries.len());
        for entry in entries.drain(..) {
            let name = entry.producer.as_ref().map(|producer| &producer.name);
            let behind = name.is_some_and(|name| self.producers.contains(name));
            if !behind && !is_failed(&entry) {
                kept.push_back(entry);
                continue;
            }
            self.lane.queue().hold(entry.producer.as_ref());
            self.producers.extend(name.cloned());
            let error = self.error(&entry, behind);
            entry.settle(Err(error));
        }
        *entries = kept;
    }

    fn error(&self, entry: &Entry, behind: bool) -> Error {
        let shard = self.lane.shard;
        match (&entry.unknown, &entry.producer, &self.why) {
            (Some(why), _, _) => Error::Unknown { shard, why: why.clone() },
            (None, Some(producer), _) if behind => {
                let failed = self.lane.queue().held.get(&producer.name).copied();
                self.lane.behind(producer, failed.unwrap_or(producer.sequence))
            }
            (None, _, Some(why)) => Error::Refused { shard, why: why.clone() },
            (None, _, None) => Error::Full { shard, after: self.lane.options.timeout },
        }
    }
}

impl Trouble {
    /// One line when it begins and one when it ends, however often it was tried.
    fn begin(&mut self, shard: Shard, failure: Failure) {
        if self.last.is_none() {
            tracing::warn!(%shard, reason = %failure, "appends wait");
        }
        self.last = Some(failure);
    }

    fn end(&mut self, shard: Shard) {
        if self.last.take().is_some() {
            tracing::info!(%shard, "appends go on");
        }
        self.backoff.reset();
        self.redirects = 0;
        self.ask = None;
    }
}
