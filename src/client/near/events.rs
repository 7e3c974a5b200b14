//! Events for whoever also wants to hear them: told once the cache has acted on them, and never in its way.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::client::subscriber::Event;
use crate::shard::Shard;

/// What changed, told after the cache has acted on it: a read that begins after an event has what the event speaks of.
///
/// As with a subscriber, events of a shard come in commit order and each once. Who takes them too slowly gets an
/// [`Event::Reset`] in place of those that found no room. The stream ends with the last clone of the cache.
pub struct Events(Arc<Queue>);

/// The queues of all who listen.
#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<Weak<Queue>>>);

struct Queue {
    events_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// Shards of which events found no room, each with a reset in the queue. Until that is taken, it covers what comes.
    missed: BTreeSet<Shard>,
    waker: Option<Waker>,
    closed: bool,
}

impl Listeners {
    pub fn listen(&self, events_max: usize) -> Events {
        let queue = Arc::new(Queue { events_max: events_max.max(1), state: Mutex::default() });
        lock(&self.0).push(Arc::downgrade(&queue));
        Events(queue)
    }

    pub fn tell(&self, event: &Event) {
        lock(&self.0).retain(|queue| queue.upgrade().map(|queue| queue.push(event.clone())).is_some());
    }

    /// Nothing more will be told.
    pub fn close(&self) {
        for queue in lock(&self.0).drain(..).filter_map(|queue| queue.upgrade()) {
            let mut state = lock(&queue.state);
            state.closed = true;
            state.wake();
        }
    }
}

impl Queue {
    fn push(&self, event: Event) {
        let mut state = lock(&self.state);
        let shard = match &event {
            Event::Changed { shard, .. } | Event::Reset { shard } => *shard,
        };
        if state.missed.contains(&shard) {
            return;
        }
        if state.events.len() < self.events_max {
            state.events.push_back(event);
        } else {
            // One for each shard at most, beyond the bound.
            state.missed.insert(shard);
            state.events.push_back(Event::Reset { shard });
        }
        state.wake();
    }
}

impl State {
    fn next(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if let Some(Event::Reset { shard }) = &event {
            self.missed.remove(shard);
        }
        event
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Events {
    /// The next event, as [`Stream`] gives it. Nothing is lost where this future is dropped.
    pub async fn next_event(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = lock(&self.0.state);
        match state.next() {
            Some(event) => Poll::Ready(Some(event)),
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll_event(context)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("waiting", &lock(&self.0.state).events.len()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::CommitId;
    use crate::signal::Views;

    fn changed(shard: u16, sequence: u64) -> Event {
        let (user, views) = ("7".parse().unwrap(), Views::PROFILE);
        Event::Changed { shard: Shard(shard), commit: CommitId::new(1, sequence), user, views }
    }

    #[tokio::test]
    async fn what_finds_no_room_is_told_as_a_reset_of_its_shard() {
        let listeners = Listeners::default();
        let mut events = listeners.listen(2);
        for event in [changed(0, 1), changed(1, 2), changed(0, 3), changed(0, 4)] {
            listeners.tell(&event);
        }
        let reset = Event::Reset { shard: Shard(0) };
        assert_eq!(events.next_event().await, Some(changed(0, 1)));
        assert_eq!(events.next_event().await, Some(changed(1, 2)));
        // There is room again, and yet the reset has to come first.
        listeners.tell(&changed(0, 5));
        listeners.tell(&changed(1, 6));
        assert_eq!(events.next_event().await, Some(reset));
        assert_eq!(events.next_event().await, Some(changed(1, 6)));
        listeners.tell(&changed(0, 7));
        assert_eq!(events.next_event().await, Some(changed(0, 7)));
        listeners.close();
        assert_eq!(events.next_event().await, None);
    }

    #[tokio::test]
    async fn a_listener_that_has_gone_is_forgotten() {
        let listeners = Listeners::default();
        drop(listeners.listen(2));
        listeners.tell(&changed(0, 1));
        assert!(lock(&listeners.0).is_empty());
    }
}
