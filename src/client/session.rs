//! What the tasks of one subscriber share: each shard's position, when its log is read next, and the way to the caller.
//!
//! A shard is *sure* while its signals are heard and a look at its log has proven lately that none was missed.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::Hub;
use super::reading::Reading;
use super::subscriber::{Event, Options};
use crate::change::UserId;
use crate::key::ShardKeys;
use crate::position::CommitId;
use crate::redis::NodeAddress;
use crate::shard::Shard;
use crate::signal::{Continuity, Signal, Step};

/// A log is not read more often than this without a reason.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// For so many poll intervals a look at a log is proof: one that is late does no harm, two that fail do.
const SURE_POLLS: u32 = 2;

/// Where events go.
pub(super) enum Sink {
    /// To a caller who takes them one by one, and is waited for.
    Queue(mpsc::Sender<Event>),
    /// To somebody who acts at once: when the position moves on, it is done.
    Applied(Arc<dyn Apply>),
}

/// What is done with events where they are heard. It must not wait for anything.
pub(super) trait Apply: Send + Sync {
    /// `position` is how far the shard's log is told with this event.
    fn apply(&self, event: Event, position: CommitId);

    /// The shard's signals come from another node than before. What the old one said may never have been.
    fn moved(&self, shard: Shard);
}

pub(super) struct Session {
    pub hub: Hub,
    pub options: Options,
    pub cells: Vec<Cell>,
    /// Cells by the name of their channel.
    channels: HashMap<Bytes, usize>,
    users: Option<BTreeSet<UserId>>,
    sink: Sink,
    /// What moments are counted from.
    begun: Instant,
    /// Counts up whenever a log is due earlier than planned.
    pub wake: watch::Sender<u64>,
    /// Told when the slot map seems wrong.
    pub stale: Notify,
    /// How many shards have a position.
    pub started: watch::Sender<usize>,
    /// Whether the caller has the subscriber: a shard that gets its position later begins with a reset.
    pub handed_over: AtomicBool,
}

/// One shard.
pub(super) struct Cell {
    pub keys: ShardKeys,
    /// Held while events are handed to the caller, which keeps them in order.
    state: tokio::sync::Mutex<State>,
    schedule: Mutex<Schedule>,
    /// Until when the shard is sure, in milliseconds since the session began.
    sure_until: AtomicU64,
}

#[derive(Default)]
struct State {
    /// None until the log's tip is known.
    continuity: Option<Continuity>,
    /// Whether it was told that somebody writes what this build cannot read.
    unreadable_told: bool,
}

struct Schedule {
    /// The node where the subscription is confirmed, and since when.
    live: Option<(NodeAddress, Instant)>,
    /// The node where it was confirmed last.
    heard_from: Option<NodeAddress>,
    next: Instant,
}

impl Session {
    pub fn new(hub: Hub, options: Options, shards: Vec<Shard>, sink: Sink) -> Session {
        // A log that nobody has subscribed to by then is read all the same.
        let first = Instant::now() + options.poll_interval_degraded;
        let cells: Vec<Cell> = shards.iter().map(|shard| Cell::new(hub.shard_keys(*shard).clone(), first)).collect();
        let channel = |(index, cell): (usize, &Cell)| (Bytes::copy_from_slice(cell.keys.push.as_bytes()), index);
        let channels = cells.iter().enumerate().map(channel).collect();
        Session {
            hub,
            users: options.users.clone(),
            options,
            cells,
            channels,
            sink,
            begun: Instant::now(),
            wake: watch::Sender::new(0),
            stale: Notify::new(),
            started: watch::Sender::new(0),
            handed_over: AtomicBool::new(false),
        }
    }

    pub fn cell(&self, channel: &[u8]) -> Option<&Cell> {
        self.channels.get(channel).map(|index| &self.cells[*index])
    }

    /// The cell of a shard. They are in order, and mostly all shards have one.
    pub fn cell_of(&self, shard: Shard) -> Option<&Cell> {
        let here = self.cells.get(usize::from(shard.0)).filter(|cell| cell.keys.shard == shard);
        here.or_else(|| {
            let found = self.cells.binary_search_by_key(&shard, |cell| cell.keys.shard);
            found.ok().map(|at| &self.cells[at])
        })
    }

    /// The shards that live on a node now.
    pub fn cells_on(&self, node: &NodeAddress) -> Vec<&Cell> {
        let owner =
            |cell: &&Cell| self.hub.topology().node_of(cell.keys.slot).is_ok_and(|owner| owner.address == *node);
        self.cells.iter().filter(owner).collect()
    }

    /// A message of Pub/Sub.
    pub async fn heard(&self, cell: &Cell, payload: &[u8]) {
        let mut state = cell.state.lock().await;
        let step = match (Signal::decode(payload), &mut state.continuity) {
            // What the tip, once it is known, does not cover, the next look at the log tells.
            (_, None) => Step::Fetch,
            (Ok(signal), Some(continuity)) => continuity.heard(signal),
            (Err(error), Some(_)) => {
                state.unreadable(cell, &error);
                Step::Fetch
            }
        };
        match step {
            Step::Fetch => self.hurry(cell),
            step => self.deliver(cell.keys.shard, step, state.position()).await,
        }
    }

    /// The tip of a log that had no position yet, asked for at `asked_at`: from here on everything is told.
    pub async fn begin(&self, cell: &Cell, tip: CommitId, asked_at: Instant) {
        let mut state = cell.state.lock().await;
        if state.continuity.is_some() {
            return;
        }
        state.continuity = Some(Continuity::new(tip));
        if self.handed_over.load(Ordering::SeqCst) {
            self.deliver(cell.keys.shard, Step::Reset, tip).await;
        }
        self.prove(cell, asked_at);
        self.started.send_modify(|started| *started += 1);
    }

    /// What the log said when it was asked at `asked_at`.
    pub async fn read(&self, cell: &Cell, reading: Reading, asked_at: Instant) {
        let mut state = cell.state.lock().await;
        let Some(continuity) = &mut state.continuity else {
            return;
        };
        let (read_something, tip) = (!reading.entries.is_empty(), reading.tip);
        let step = match reading.settle(continuity) {
            Ok(step) => {
                state.unreadable_told &= !read_something;
                step
            }
            Err(error) => {
                state.unreadable(cell, &error);
                Step::Reset
            }
        };
        let position = state.position();
        match step {
            Step::Fetch => self.hurry(cell),
            step => {
                self.deliver(cell.keys.shard, step, position).await;
                if position >= tip {
                    self.prove(cell, asked_at);
                }
            }
        }
    }

    /// Whether everything committed is told as it comes, as far as anybody can know.
    pub fn is_sure(&self, cell: &Cell) -> bool {
        cell.sure_until.load(Ordering::Acquire) > self.milliseconds(Instant::now())
    }

    pub async fn position(&self, cell: &Cell) -> Option<CommitId> {
        cell.state.lock().await.continuity.as_ref().map(Continuity::position)
    }

    /// The log is due now.
    pub fn hurry(&self, cell: &Cell) {
        let now = Instant::now();
        let mut schedule = cell.schedule();
        if schedule.next > now {
            schedule.next = now;
            drop(schedule);
            self.wake.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// From here on signals of this shard arrive from `node`; what came before is in the log.
    pub fn went_live(&self, cell: &Cell, node: &NodeAddress) {
        let mut schedule = cell.schedule();
        schedule.live = Some((node.clone(), Instant::now()));
        let before = schedule.heard_from.replace(node.clone());
        drop(schedule);
        if let (Sink::Applied(target), Some(before)) = (&self.sink, before)
            && before != *node
        {
            target.moved(cell.keys.shard);
        }
        self.hurry(cell);
    }

    /// Signals of this shard no longer arrive from `node`.
    pub fn went_silent(&self, cell: &Cell, node: &NodeAddress) {
        let mut schedule = cell.schedule();
        if schedule.live.as_ref().is_some_and(|(live, _)| live == node) {
            schedule.live = None;
            cell.sure_until.store(0, Ordering::Release);
            drop(schedule);
            self.hurry(cell);
        }
    }

    /// Plans the next read of the log, before the present one: a hurry that comes meanwhile is not lost.
    pub fn plan_next(&self, cell: &Cell, now: Instant) {
        let mut schedule = cell.schedule();
        let interval = match schedule.live {
            Some(_) => self.options.poll_interval,
            None => self.options.poll_interval_degraded,
        };
        schedule.next = now + interval.max(POLL_INTERVAL_MIN);
    }

    /// The log could not be read: not long until the next try, however well signals are heard.
    pub fn plan_again(&self, cell: &Cell) {
        let again = Instant::now() + self.options.poll_interval_degraded.max(POLL_INTERVAL_MIN);
        let mut schedule = cell.schedule();
        schedule.next = schedule.next.min(again);
    }

    /// All that was committed before `asked_at` is told. What came between that moment and the subscription may not be.
    fn prove(&self, cell: &Cell, asked_at: Instant) {
        let schedule = cell.schedule();
        if schedule.live.as_ref().is_some_and(|(_, since)| *since <= asked_at) {
            let until = self.milliseconds(asked_at + self.options.poll_interval * SURE_POLLS);
            cell.sure_until.fetch_max(until, Ordering::AcqRel);
        }
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begun).as_millis() as u64
    }

    /// The caller may be slow: then everybody waits here, holding one shard each.
    async fn deliver(&self, shard: Shard, step: Step, position: CommitId) {
        let signals = match step {
            Step::Deliver(signals) => signals,
            Step::Reset => return self.sink.tell(Event::Reset { shard }, position).await,
            Step::Fetch => return,
        };
        for signal in signals {
            for (user, views) in signal.users {
                if self.users.as_ref().is_none_or(|users| users.contains(&user)) {
                    self.sink.tell(Event::Changed { shard, commit: signal.id, user, views }, signal.id).await;
                }
            }
        }
    }
}

impl Sink {
    async fn tell(&self, event: Event, position: CommitId) {
        match self {
            // The caller may have gone.
            Sink::Queue(events) => drop(events.send(event).await),
            Sink::Applied(target) => target.apply(event, position),
        }
    }
}

impl Cell {
    fn new(keys: ShardKeys, first: Instant) -> Cell {
        let schedule = Mutex::new(Schedule { live: None, heard_from: None, next: first });
        Cell { keys, state: tokio::sync::Mutex::default(), schedule, sure_until: AtomicU64::new(0) }
    }

    pub fn next(&self) -> Instant {
        self.schedule().next
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn position(&self) -> CommitId {
        self.continuity.as_ref().map_or(CommitId::ZERO, Continuity::position)
    }

    /// Told once, until something readable comes again.
    fn unreadable(&mut self, cell: &Cell, error: &dyn std::fmt::Display) {
        if !self.unreadable_told {
            tracing::warn!(shard = %cell.keys.shard, %error, "a signal cannot be read: its changes are told as a reset");
            self.unreadable_told = true;
        }
    }
}
