//! Who heard what when: latencies of one turn, counted from the moment each change was planned for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use hdrhistogram::Histogram;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::pace::Pace;

/// Latencies from a microsecond to this, three digits.
const LATENCY_MAX: Duration = Duration::from_secs(120);
/// After the last change was sent, how long until all must have been heard.
const PATIENCE: Duration = Duration::from_secs(60);

/// Microseconds.
pub type Latencies = Histogram<u64>;

/// What a turn is about.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub pace: Pace,
    /// The number of its first change.
    pub first: u64,
    pub count: u64,
    /// One change in so many is read as soon as it was signalled; none where this is 0.
    pub read_every: u64,
}

/// What came of a turn.
#[derive(Clone, Debug)]
pub struct Recording {
    /// To the moment in which a subscriber is told.
    pub signal: Latencies,
    /// To the moment in which a reader has the view with the change in it.
    pub view: Latencies,
    /// To the moment in which the generator hands the change over to its connection: how exact the generator is.
    pub sent: Latencies,
    /// Reads after a signal whose answer did not hold the change yet.
    pub unseen: u64,
    /// From the first change planned to the last one heard.
    pub seconds: f64,
    pub busy: Busy,
}

/// What a turn took of the machine, in cores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// The thread between stream and channel.
    pub worker: f64,
    /// The thread of generator, subscriber and reader.
    pub audience: f64,
    pub primaries: f64,
    pub replicas: f64,
    /// Changes a signal.
    pub batch: f64,
}

/// Where everybody writes down what they heard.
#[derive(Debug, Default)]
pub struct Board {
    state: Mutex<Option<State>>,
    whole: Notify,
}

#[derive(Debug)]
struct State {
    turn: Turn,
    found: Recording,
    heard: u64,
    read: u64,
    failure: Option<String>,
}

impl Turn {
    /// The place of a change in this turn.
    fn place(&self, number: u64) -> Option<u64> {
        number.checked_sub(self.first).filter(|place| *place < self.count)
    }

    fn is_read(&self, place: u64) -> bool {
        self.read_every > 0 && place.is_multiple_of(self.read_every)
    }

    fn reads(&self) -> u64 {
        if self.read_every == 0 { 0 } else { self.count.div_ceil(self.read_every) }
    }
}

impl Board {
    pub fn begin(&self, turn: Turn) {
        let found =
            Recording { signal: empty(), view: empty(), sent: empty(), unseen: 0, seconds: 0.0, busy: Busy::default() };
        *self.lock() = Some(State { turn, found, heard: 0, read: 0, failure: None });
    }

    /// The change with this number was signalled. Answers whether it is one to be read.
    pub fn heard(&self, number: u64) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let Some((state, place)) = in_turn(&mut state, number) else { return false };
        record(&mut state.found.signal, now - state.turn.pace.planned(place));
        state.heard += 1;
        state.found.seconds = (now - state.turn.pace.begin).as_secs_f64();
        self.tell_if_whole(state);
        state.turn.is_read(place)
    }

    /// The view with this change in it was read.
    pub fn read(&self, number: u64) {
        let now = Instant::now();
        let mut state = self.lock();
        let Some((state, place)) = in_turn(&mut state, number) else { return };
        record(&mut state.found.view, now - state.turn.pace.planned(place));
        state.read += 1;
        self.tell_if_whole(state);
    }

    /// A view was read, and the change not in it.
    pub fn unseen(&self) {
        if let Some(state) = self.lock().as_mut() {
            state.found.unseen += 1;
        }
    }

    /// Changes up to this place are handed over now, since the place before.
    pub fn sent(&self, from: u64, until: u64) {
        let now = Instant::now();
        if let Some(state) = self.lock().as_mut() {
            for place in from..until {
                record(&mut state.found.sent, now - state.turn.pace.planned(place));
            }
        }
    }

    /// Somebody cannot go on.
    pub fn failed(&self, why: &anyhow::Error) {
        if let Some(state) = self.lock().as_mut() {
            state.failure.get_or_insert_with(|| format!("{why:#}"));
        }
        self.whole.notify_one();
    }

    /// Waits for the end of the turn that was begun last.
    pub async fn end(&self) -> anyhow::Result<Recording> {
        let whole = async {
            while !self.lock().as_ref().is_none_or(|state| state.failure.is_some() || state.is_whole()) {
                self.whole.notified().await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, whole).await.is_ok();
        let Some(state) = self.lock().take() else { anyhow::bail!("no turn was begun") };
        if let Some(why) = state.failure {
            anyhow::bail!(why);
        }
        let (turn, heard, read) = (state.turn, state.heard, state.read);
        ensure!(in_time, "{heard} of {} changes were heard of, {read} of {} read", turn.count, turn.reads());
        Ok(state.found)
    }

    fn tell_if_whole(&self, state: &State) {
        if state.is_whole() {
            self.whole.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_whole(&self) -> bool {
        self.heard >= self.turn.count && self.read >= self.turn.reads()
    }
}

fn in_turn(state: &mut Option<State>, number: u64) -> Option<(&mut State, u64)> {
    let state = state.as_mut()?;
    let place = state.turn.place(number)?;
    Some((state, place))
}

pub fn empty() -> Latencies {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_micros() as u64, 3).expect("bounds that the type allows")
}

fn record(latencies: &mut Latencies, latency: Duration) {
    latencies.saturating_record(latency.as_micros() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(count: u64, read_every: u64) -> Turn {
        Turn {
            pace: Pace { begin: Instant::now() - Duration::from_secs(1), rate: 1_000.0 },
            first: 100,
            count,
            read_every,
        }
    }

    #[tokio::test]
    async fn a_turn_is_over_when_all_was_heard_and_what_is_to_be_read_was_read() {
        let board = Board::default();
        board.begin(turn(3, 2));
        assert!(!board.heard(99), "a change of the turn before");
        assert_eq!([100, 101, 102].map(|number| board.heard(number)), [true, false, true]);
        board.read(100);
        assert!(!board.lock().as_ref().unwrap().is_whole());
        board.read(102);
        let found = board.end().await.unwrap();
        assert_eq!((found.signal.len(), found.view.len(), found.unseen), (3, 2, 0));
        assert!(found.signal.min() > 900_000, "counted from the planned moment");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_told() {
        let board = Board::default();
        board.begin(turn(3, 0));
        board.heard(100);
        let error = board.end().await.unwrap_err().to_string();
        assert_eq!(error, "1 of 3 changes were heard of, 0 of 0 read");
        board.begin(turn(3, 0));
        board.failed(&anyhow::anyhow!("on purpose"));
        assert_eq!(board.end().await.unwrap_err().to_string(), "on purpose");
    }
}
