//! Reading the logs: what no signal told, a log does. One task for each node that owns shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::reading::Reading;
use super::session::{Cell, Session};
use crate::error::{Disposition, ServerCode, ServerError};
use crate::key::Key;
use crate::redis::log::{after, tips};
use crate::redis::{self, NodeAddress, endpoint_address};

/// Logs whose tips are read in one pipeline.
const TIPS_MAX: usize = 256;
/// Logs whose entries are read in one pipeline, and entries of each: together they bound the answer.
const READS_MAX: usize = 16;
const ENTRIES_MAX: usize = 64;
/// Between two tries while the node does not answer.
const WAIT_SHORTEST: Duration = Duration::from_millis(50);
const WAIT_LONGEST: Duration = Duration::from_secs(1);

/// Reads the logs of the shards that live on `node` whenever they are due, as long as any does.
pub(super) async fn run(session: Arc<Session>, node: NodeAddress, is_over: impl Fn() -> bool) {
    let mut backoff = Backoff::new(WAIT_SHORTEST, WAIT_LONGEST);
    let (mut wake, mut topology) = (session.wake.subscribe(), session.hub.topology().changes());
    loop {
        // Whatever changes from here on is seen by `changed`.
        wake.borrow_and_update();
        topology.borrow_and_update();
        let here = session.cells_on(&node);
        if here.is_empty() {
            if is_over() {
                return;
            }
            continue;
        }
        let now = Instant::now();
        let next = here.iter().map(|cell| cell.next()).min().unwrap_or(now);
        if next > now {
            tokio::select! {
                biased;
                _ = wake.changed() => {}
                _ = topology.changed() => {}
                () = sleep_until(next) => {}
            }
            continue;
        }
        let due = due(&session, here, now);
        due.iter().for_each(|cell| session.plan_next(cell, now));
        match (Round { session: &session, node: &node, asking: false }).run_all(due.clone()).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                tracing::debug!(%node, %error, "logs cannot be read");
                due.iter().for_each(|cell| session.plan_again(cell));
                session.stale.notify_one();
                sleep(backoff.wait()).await;
            }
        }
    }
}

/// The logs to read now, the longest due first. Those that would be due soon come along: one pipeline for many instead of
/// many for one each.
fn due<'a>(session: &Session, here: Vec<&'a Cell>, now: Instant) -> Vec<&'a Cell> {
    let options = &session.options;
    let soon = now + options.poll_interval.min(options.poll_interval_degraded) / 4;
    let mut due: Vec<(Instant, &Cell)> = here.into_iter().map(|cell| (cell.next(), cell)).collect();
    due.retain(|(next, _)| *next <= soon);
    due.sort_by_key(|(next, _)| *next);
    due.into_iter().take(TIPS_MAX).map(|(_, cell)| cell).collect()
}

/// One look at some logs of one node.
struct Round<'a> {
    session: &'a Session,
    node: &'a NodeAddress,
    /// Whether this node is only about to take the slots over.
    asking: bool,
}

/// Logs that have gone to another node already, while their slot still moves.
type Arrived<'a> = BTreeMap<NodeAddress, Vec<&'a Cell>>;

impl Round<'_> {
    async fn run_all(&self, cells: Vec<&Cell>) -> Result<(), redis::Error> {
        for (node, cells) in self.run(cells).await? {
            // Once is enough: where these have moved on again, the next round finds them.
            Round { session: self.session, node: &node, asking: true }.run(cells).await?;
        }
        Ok(())
    }

    async fn run<'a>(&self, cells: Vec<&'a Cell>) -> Result<Arrived<'a>, redis::Error> {
        let mut arrived = Arrived::new();
        let mut positions = Vec::with_capacity(cells.len());
        for cell in &cells {
            positions.push(self.session.position(cell).await);
        }
        let logs: Vec<&Key> = cells.iter().map(|cell| &cell.keys.log).collect();
        let pipe = self.session.hub.pipes().get(self.node).await?;
        let asked_at = Instant::now();
        let mut behind = Vec::new();
        for ((cell, position), answer) in cells.into_iter().zip(positions).zip(tips(&pipe, &logs, self.asking).await?) {
            match (answer, position) {
                (Ok(tip), Some(position)) if tip > position => behind.push((cell, position, tip)),
                (Ok(tip), Some(after)) => {
                    self.session.read(cell, Reading { after, tip, entries: Vec::new() }, asked_at).await;
                }
                (Ok(tip), None) => self.session.begin(cell, tip, asked_at).await,
                (Err(error), _) => self.refused(cell, &error, &mut arrived),
            }
        }
        for some in behind.chunks(READS_MAX) {
            let reads: Vec<_> = some.iter().map(|(cell, position, _)| (&cell.keys.log, *position)).collect();
            let answers = after(&pipe, &reads, ENTRIES_MAX, self.asking).await?;
            for ((cell, position, tip), answer) in some.iter().zip(answers) {
                match answer {
                    Ok(entries) => {
                        let reading = Reading { after: *position, tip: *tip, entries };
                        self.take(cell, reading, asked_at).await;
                    }
                    Err(error) => self.refused(cell, &error, &mut arrived),
                }
            }
        }
        Ok(arrived)
    }

    async fn take(&self, cell: &Cell, reading: Reading, asked_at: Instant) {
        let more = reading.entries.len() == ENTRIES_MAX;
        self.session.read(cell, reading, asked_at).await;
        if more {
            self.session.hurry(cell);
        }
    }

    fn refused<'a>(&self, cell: &'a Cell, error: &ServerError, arrived: &mut Arrived<'a>) {
        match &error.code {
            ServerCode::Moved { slot, endpoint } => {
                self.session.hub.topology().learn_moved(*slot, endpoint, self.node);
                self.session.hurry(cell);
            }
            ServerCode::Ask { endpoint, .. } if !self.asking => {
                if let Some(node) = endpoint_address(endpoint, self.node) {
                    arrived.entry(node).or_default().push(cell);
                }
            }
            _ => {
                tracing::debug!(shard = %cell.keys.shard, node = %self.node, %error, "a log cannot be read");
                self.session.plan_again(cell);
                if error.disposition() == Disposition::Refresh {
                    self.session.stale.notify_one();
                }
            }
        }
    }
}
