//! What the tasks of one subscriber share: each shard's position, when its log is read next, and the way to the caller.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

pub(super) struct Session {
    pub hub: Hub,
    pub options: Options,
    pub cells: Vec<Cell>,
    /// Cells by the name of their channel.
    channels: HashMap<Bytes, usize>,
    users: Option<BTreeSet<UserId>>,
    events: mpsc::Sender<Event>,
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
}

#[derive(Default)]
struct State {
    /// None until the log's tip is known.
    continuity: Option<Continuity>,
    /// Whether it was told that somebody writes what this build cannot read.
    unreadable_told: bool,
}

struct Schedule {
    /// The node where the subscription is confirmed.
    live: Option<NodeAddress>,
    next: Instant,
}

impl Session {
    pub fn new(hub: Hub, options: Options, shards: Vec<Shard>, events: mpsc::Sender<Event>) -> Session {
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
            events,
            wake: watch::Sender::new(0),
            stale: Notify::new(),
            started: watch::Sender::new(0),
            handed_over: AtomicBool::new(false),
        }
    }

    pub fn cell(&self, channel: &[u8]) -> Option<&Cell> {
        self.channels.get(channel).map(|index| &self.cells[*index])
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
            step => self.deliver(cell.keys.shard, step).await,
        }
    }

    /// The tip of a log that had no position yet: from here on everything is told.
    pub async fn begin(&self, cell: &Cell, tip: CommitId) {
        let mut state = cell.state.lock().await;
        if state.continuity.is_some() {
            return;
        }
        state.continuity = Some(Continuity::new(tip));
        if self.handed_over.load(Ordering::SeqCst) {
            self.deliver(cell.keys.shard, Step::Reset).await;
        }
        self.started.send_modify(|started| *started += 1);
    }

    /// What the log said.
    pub async fn read(&self, cell: &Cell, reading: Reading) {
        let mut state = cell.state.lock().await;
        let Some(continuity) = &mut state.continuity else {
            return;
        };
        let read_something = !reading.entries.is_empty();
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
        match step {
            Step::Fetch => self.hurry(cell),
            step => self.deliver(cell.keys.shard, step).await,
        }
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
        cell.schedule().live = Some(node.clone());
        self.hurry(cell);
    }

    /// Signals of this shard no longer arrive from `node`.
    pub fn went_silent(&self, cell: &Cell, node: &NodeAddress) {
        let mut schedule = cell.schedule();
        if schedule.live.as_ref() == Some(node) {
            schedule.live = None;
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

    /// The caller may be slow: then everybody waits here, holding one shard each.
    async fn deliver(&self, shard: Shard, step: Step) {
        let signals = match step {
            Step::Deliver(signals) => signals,
            // The caller may have gone.
            Step::Reset => return drop(self.events.send(Event::Reset { shard }).await),
            Step::Fetch => return,
        };
        for signal in signals {
            for (user, views) in signal.users {
                if self.users.as_ref().is_none_or(|users| users.contains(&user)) {
                    let event = Event::Changed { shard, commit: signal.id, user, views };
                    let _ = self.events.send(event).await;
                }
            }
        }
    }
}

impl Cell {
    fn new(keys: ShardKeys, first: Instant) -> Cell {
        let schedule = Mutex::new(Schedule { live: None, next: first });
        Cell { keys, state: tokio::sync::Mutex::default(), schedule }
    }

    pub fn next(&self) -> Instant {
        self.schedule().next
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Told once, until something readable comes again.
    fn unreadable(&mut self, cell: &Cell, error: &dyn std::fmt::Display) {
        if !self.unreadable_told {
            tracing::warn!(shard = %cell.keys.shard, %error, "a signal cannot be read: its changes are told as a reset");
            self.unreadable_told = true;
        }
    }
}
