//! A steady load through heyday's writer, and who hears of it: what is planned goes on, whatever happens.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::super::pace::{Pace, Ticker};
use super::super::workload::{number_of, numbered};
use super::analysis::Heard;
use crate::change::{Change, Producer};
use crate::client::subscriber::{self, Event};
use crate::client::{Hub, Subscriber, writer};
use crate::task;

/// No fault may make an append give up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Changes of a shard that wait for its node: more than come while a primary is replaced, so that no other shard waits.
const QUEUED_MAX: usize = 65_536;

/// What was appended.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Changes, by their numbers from 0.
    pub sent: u64,
    /// Of these, what the writer did not acknowledge: whether it was appended, nobody knows.
    pub refused: BTreeSet<u64>,
}

/// A change with a producer, so that a lost answer neither loses nor doubles it.
pub fn change(seed: u64, number: u64) -> Change {
    let producer = Some(Producer { name: "bench".to_owned(), sequence: number + 1 });
    Change { producer, ..numbered(seed, number) }
}

/// Appends at this pace until told to stop, then waits for every answer.
pub async fn write(hub: Hub, seed: u64, pace: Pace, mut stop: watch::Receiver<bool>) -> anyhow::Result<Written> {
    let options =
        writer::Options { timeout: WRITE_TIMEOUT, queue_changes_max: QUEUED_MAX, ..writer::Options::default() };
    let writer = hub.writer(options);
    let mut ticker = Ticker::new()?;
    let refused = Arc::new(Mutex::new(BTreeSet::new()));
    // Closed once nobody waits for an answer any more.
    let (waiting, mut answered) = mpsc::channel::<()>(1);
    let mut sent = 0;
    loop {
        let due = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            due = ticker.next(&pace, sent) => due?,
        };
        while sent < due {
            let number = sent;
            let receipt = writer.enqueue(&change(seed, number)).await;
            sent += 1;
            let (refused, waiting) = (refused.clone(), waiting.clone());
            task::spawn("bench receipt", async move {
                let _waiting = waiting;
                let appended = match receipt {
                    Ok(receipt) => receipt.await,
                    Err(error) => Err(error),
                };
                if let Err(error) = appended {
                    tracing::warn!("a change was not appended: {error}");
                    refused.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
                }
            });
        }
    }
    drop(waiting);
    while answered.recv().await.is_some() {}
    let refused = std::mem::take(&mut *refused.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Written { sent, refused })
}

/// Everything that a subscriber was told.
#[derive(Debug)]
pub struct Audience {
    pace: Pace,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heard: Vec<Heard>,
    numbers: HashSet<u64>,
    resets: u64,
    last: Option<Instant>,
}

impl Audience {
    pub fn new(pace: Pace) -> Audience {
        Audience { pace, state: Mutex::default() }
    }

    /// Begins to listen, on the thread that this runs on.
    pub async fn listen(self: Arc<Audience>, hub: Hub) -> anyhow::Result<()> {
        let subscriber = hub.subscribe(subscriber::Options::default()).await?;
        task::spawn("bench subscriber", self.follow(subscriber));
        Ok(())
    }

    async fn follow(self: Arc<Audience>, mut subscriber: Subscriber) {
        while let Some(event) = subscriber.next_event().await {
            let now = Instant::now();
            let mut state = self.lock();
            state.last = Some(now);
            let Event::Changed { shard, user, .. } = event else {
                state.resets += 1;
                continue;
            };
            // One that is told again, since its first commit was lost with its primary, was heard of before.
            if let Some(number) = number_of(user.as_str()).filter(|number| state.numbers.insert(*number)) {
                let since = |moment: Instant| moment.saturating_duration_since(self.pace.begin).as_secs_f64();
                let (planned, heard) = (since(self.pace.planned(number)), since(now));
                state.heard.push(Heard { shard, planned, heard });
            }
        }
    }

    /// Whether all of these were heard of, or nothing more for so long.
    pub fn is_done(&self, changes: u64, quiet: Duration) -> bool {
        let state = self.lock();
        state.numbers.len() as u64 >= changes || state.last.is_some_and(|last| last.elapsed() > quiet)
    }

    /// All that was heard so far, and how often continuity was lost.
    pub fn heard(&self) -> (Vec<Heard>, u64) {
        let state = self.lock();
        (state.heard.clone(), state.resets)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
