//! Hearing signals: one subscription connection to each node that owns shards.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::session::{Cell, Session};
use crate::error::{ServerCode, ServerError};
use crate::redis::{self, Event, NodeAddress, Subscription};

/// Between two connects.
const RECONNECT_SHORTEST: Duration = Duration::from_millis(20);
const RECONNECT_LONGEST: Duration = Duration::from_secs(1);

/// Listens to the shards that live on `node`, as long as any does.
pub(super) async fn run(session: Arc<Session>, node: NodeAddress, is_over: impl Fn() -> bool) {
    let mut backoff = Backoff::new(RECONNECT_SHORTEST, RECONNECT_LONGEST);
    let mut told = false;
    while !is_over() {
        let mut ears = Ears { session: &session, node: &node, asked: HashSet::new(), again: None };
        let error = match Subscription::connect(&node, session.hub.topology().options()).await {
            Ok(link) => {
                if std::mem::take(&mut told) {
                    tracing::info!(%node, "signals are heard again");
                }
                backoff.reset();
                ears.listen(link).await.err()
            }
            Err(error) => Some(error),
        };
        ears.all_silent();
        let Some(error) = error else {
            continue;
        };
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(%node, %error, "no signals are heard: the logs are read more often instead");
        }
        session.stale.notify_one();
        sleep(backoff.wait()).await;
    }
}

/// One connection's subscriptions.
struct Ears<'a> {
    session: &'a Session,
    node: &'a NodeAddress,
    /// Channels asked for and not given up.
    asked: HashSet<Bytes>,
    /// When to look for shards whose subscription ended.
    again: Option<Instant>,
}

impl Ears<'_> {
    /// Ok: no shard lives on this node any more.
    async fn listen(&mut self, mut link: Subscription) -> Result<(), redis::Error> {
        let mut topology = self.session.hub.topology().changes();
        loop {
            topology.borrow_and_update();
            if !self.reconcile(&mut link) {
                return Ok(());
            }
            // Messages are handled outside of `select!`, which must never drop one half delivered.
            while let Some(event) = tokio::select! {
                biased;
                event = link.next() => Some(event?),
                _ = topology.changed() => None,
                () = until(self.again) => None,
            } {
                self.handle(event).await;
            }
        }
    }

    /// Subscribes to the shards that came and leaves those that went. False: there are none.
    fn reconcile(&mut self, link: &mut Subscription) -> bool {
        self.again = None;
        let here = self.session.cells_on(self.node);
        let wanted: HashSet<Bytes> = here.iter().map(|cell| channel(cell)).collect();
        for left in self.asked.extract_if(|channel| !wanted.contains(channel)) {
            link.unsubscribe(left.clone());
            if let Some(cell) = self.session.cell(&left) {
                self.session.went_silent(cell, self.node);
            }
        }
        for new in wanted {
            if !self.asked.contains(&new) {
                link.subscribe(new.clone());
                self.asked.insert(new);
            }
        }
        !self.asked.is_empty()
    }

    async fn handle(&mut self, event: Event) {
        let session = self.session;
        match event {
            Event::Message { channel, payload } => {
                if let Some(cell) = session.cell(&channel) {
                    session.heard(cell, &payload).await;
                }
            }
            Event::Subscribed { channel } => {
                if let Some(cell) = session.cell(&channel).filter(|_| self.asked.contains(&channel)) {
                    session.went_live(cell, self.node);
                }
            }
            Event::Unsubscribed { channel } => self.ended(&channel, session.options.poll_interval_degraded),
            Event::Refused { channel, error } => self.refused(&channel, &error),
        }
    }

    fn refused(&mut self, channel: &Bytes, error: &ServerError) {
        let options = &self.session.options;
        match &error.code {
            ServerCode::Moved { slot, endpoint } => {
                self.session.hub.topology().learn_moved(*slot, endpoint, self.node);
                self.ended(channel, options.poll_interval_degraded);
            }
            _ => {
                tracing::debug!(node = %self.node, %error, "a subscription was refused");
                self.ended(channel, options.poll_interval);
            }
        }
    }

    /// The slot has moved, or will be back: wherever the slot map then says, somebody subscribes again.
    fn ended(&mut self, channel: &Bytes, pause: Duration) {
        if !self.asked.remove(channel) {
            return;
        }
        if let Some(cell) = self.session.cell(channel) {
            self.session.went_silent(cell, self.node);
        }
        self.session.stale.notify_one();
        let again = Instant::now() + pause;
        self.again = Some(self.again.map_or(again, |earlier| earlier.min(again)));
    }

    fn all_silent(&mut self) {
        for channel in self.asked.drain() {
            if let Some(cell) = self.session.cell(&channel) {
                self.session.went_silent(cell, self.node);
            }
        }
    }
}

fn channel(cell: &Cell) -> Bytes {
    Bytes::copy_from_slice(cell.keys.push.as_bytes())
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
