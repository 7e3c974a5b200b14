//! One link's life as the shard's owner: drain what is pending, then read, settle, read.

use tokio::time::{Duration, Instant};
use tracing::warn;

use super::batch::{Settled, settle, state_lost};
use super::jobs::Beyond;
use super::pace::Pace;
use super::roll::Rolling;
use super::shard::{Ended, Interrupt, Owner};
use crate::error::Disposition;
use crate::metrics::{self, Presence};
use crate::reduce::{Entry, ShardState};
use crate::store::{self, Backlog, Read, ShardLink, Store, TOO_LARGE, TRIMMED_PART_MIN};

/// A lease is renewed when a third of it has passed.
const RENEWALS_PER_TTL: u32 = 3;

pub(super) struct Session<L> {
    pub link: L,
    /// As of this owner's last commit.
    pub state: ShardState,
    pub beyond: Beyond,
    pub rolling: Rolling,
    leased_at: Instant,
    tended_at: Option<Instant>,
    /// Whether it was told that tending fails.
    untended: bool,
    pace: Pace,
    _open: Presence,
}

impl<L: ShardLink> Session<L> {
    pub fn new(
        link: L,
        open: Presence,
        (state, beyond, rolling): (ShardState, Beyond, Rolling),
        leased_at: Instant,
    ) -> Session<L> {
        let pace = Pace::default();
        Session { link, state, beyond, rolling, leased_at, tended_at: None, untended: false, pace, _open: open }
    }

    /// Serves until something ends it. An error that leaves the link usable is waited out where it happened; what
    /// arrives here ends the link.
    pub async fn serve<S: Store<Link = L>>(mut self, owner: &mut Owner<S>) -> Interrupt {
        match self.work(owner).await {
            Err(interrupt) => interrupt,
            Ok(never) => match never {},
        }
    }

    async fn work<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<std::convert::Infallible, Interrupt> {
        self.drain(owner).await?;
        loop {
            self.pause_if_told(owner).await?;
            self.tend(owner).await?;
            self.confirm(owner).await?;
            self.step(owner).await?;
            self.roll(owner).await?;
            self.room(owner).await?;
            let entries = self.read_new(owner).await?;
            let settled = match entries.is_empty() {
                // While idle, look at what is pending: a read that a lost reply swallowed, or a stalled predecessor's.
                true => Settled::Behind,
                false => self.settle(owner, entries, false).await?,
            };
            if settled == Settled::Behind {
                self.drain(owner).await?;
            }
        }
    }

    /// Settles everything delivered before, to whomever, and not acknowledged.
    async fn drain<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        loop {
            self.room(owner).await?;
            self.renew(owner).await?;
            let unreadable = owner.unreadable_after.take() == Some(self.state.last);
            let entries = self.read_pending(owner, if unreadable { Read::Head } else { Read::Pending }).await?;
            if entries.is_empty() {
                return Ok(());
            }
            self.settle(owner, entries, unreadable).await?;
        }
    }

    async fn read_pending<S: Store<Link = L>>(
        &mut self,
        owner: &mut Owner<S>,
        which: Read,
    ) -> Result<Vec<Entry>, Interrupt> {
        let count = self.batch_changes(owner);
        loop {
            match self.link.read(which, count).await {
                Ok(entries) => return Ok(entries),
                Err(error) => {
                    // The link is lost with it; the next one sets the entry aside without reading it.
                    owner.unreadable_after = (error.reason == TOO_LARGE && count == 1).then_some(self.state.last);
                    self.wait_in_place(owner, error).await?;
                }
            }
        }
    }

    async fn settle<S: Store<Link = L>>(
        &mut self,
        owner: &mut Owner<S>,
        entries: Vec<Entry>,
        unreadable: bool,
    ) -> Result<Settled, Interrupt> {
        self.pace.read(&entries);
        let settled = settle(self, owner, entries, unreadable).await?;
        self.pace.settled(settled);
        Ok(settled)
    }

    /// A shard that is given up drops the read on the way: what it may still deliver is pending for the next owner.
    async fn read_new<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<Vec<Entry>, Interrupt> {
        stop_if_told(owner)?;
        let block =
            if self.beyond.is_busy() { Duration::ZERO } else { self.rolling.block(owner.context.options.block) };
        let count = self.batch_changes(owner);
        let read = tokio::select! {
            biased;
            _ = owner.stop.wait_for(|stop| *stop) => return Err(Interrupt::Ended(Ended::Stopped)),
            read = self.link.read(Read::New { block }, count) => read,
        };
        match read {
            Ok(entries) => {
                // What was pending is settled by now: a shard that is idle flows too.
                owner.flows();
                Ok(entries)
            }
            Err(error) => self.wait_in_place(owner, error).await.map(|()| Vec::new()),
        }
    }

    /// Waits where the link is still good and nothing was done; anything else ends the link.
    pub async fn wait_in_place<S: Store<Link = L>>(
        &mut self,
        owner: &mut Owner<S>,
        error: store::Error,
    ) -> Result<(), Interrupt> {
        match error.disposition {
            Disposition::Retry | Disposition::Full => {
                owner.wait(&error).await?;
                self.renew(owner).await?;
                self.tell_while_waiting(owner).await?;
                self.pause_if_told(owner).await
            }
            Disposition::Refresh
            | Disposition::Ambiguous
            | Disposition::Fenced
            | Disposition::Poison
            | Disposition::Fatal => Err(Interrupt::Broken(error)),
        }
    }

    /// While maintenance is on, nothing is read and nothing committed: the lease is kept, and what waits is told. Nothing is
    /// on its way to the node when this is called, so from here on the shard stands still.
    pub(super) async fn pause_if_told<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        if !owner.pause.is_on() {
            return Ok(());
        }
        let _paused = owner.pause.begin(&owner.context.metrics);
        let options = owner.context.options.clone();
        // Half as long as a lease may go without renewal.
        let pause = options.trim_interval.min(options.lease_ttl / (2 * RENEWALS_PER_TTL));
        while owner.pause.is_on() {
            self.renew(owner).await?;
            self.tell_while_waiting(owner).await?;
            tokio::select! {
                biased;
                _ = owner.stop.wait_for(|stop| *stop) => return Err(Interrupt::Ended(Ended::Stopped)),
                () = owner.pause.over() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(())
    }

    /// A lease that could not be renewed for a passing reason is tried again later: safety does not hang on it.
    pub(super) async fn renew<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        let options = &owner.context.options;
        if self.leased_at.elapsed() < options.lease_ttl / RENEWALS_PER_TTL {
            return Ok(());
        }
        let started = Instant::now();
        match self.link.renew(&options.worker, options.lease_ttl).await {
            Ok(true) => self.leased_at = started,
            Ok(false) => return Err(Interrupt::Broken(lease_lost())),
            Err(error) if matches!(error.disposition, Disposition::Retry | Disposition::Full) => {
                owner.context.metrics.retried(error.reason);
            }
            Err(error) => return Err(Interrupt::Broken(error)),
        }
        Ok(())
    }

    /// Renews the lease, and now and then trims the stream and tells what waits.
    async fn tend<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        self.renew(owner).await?;
        let options = owner.context.options.clone();
        if self.tended_at.is_some_and(|at| at.elapsed() < options.trim_interval) {
            return Ok(());
        }
        self.tended_at = Some(Instant::now());
        let trimmed = self.link.trim(options.retention).await;
        if let Some(trimmed) = self.tended(owner, trimmed).await? {
            owner.context.metrics.trimmed(trimmed);
            // A busy shard's stream would otherwise grow faster than it is trimmed.
            if trimmed >= TRIMMED_PART_MIN {
                self.tended_at = None;
            }
        }
        let backlog = self.link.backlog().await;
        if let Some(backlog) = self.tended(owner, backlog).await? {
            self.told(owner, backlog)?;
        }
        Ok(())
    }

    /// The next wait asks the server what waits, however short a while ago it was asked.
    pub(super) fn count_again(&mut self) {
        self.tended_at = None;
    }

    /// A shard that waits goes on telling what piles up meanwhile, where its node answers at all.
    pub(super) async fn tell_while_waiting<S: Store<Link = L>>(&mut self, owner: &Owner<S>) -> Result<(), Interrupt> {
        if self.tended_at.is_some_and(|at| at.elapsed() < owner.context.options.trim_interval) {
            return Ok(());
        }
        self.tended_at = Some(Instant::now());
        match self.link.backlog().await {
            Ok(backlog) => {
                self.told(owner, backlog)?;
            }
            Err(error) if error.disposition.is_clean() => {}
            Err(error) => return Err(Interrupt::Broken(error)),
        }
        Ok(())
    }

    /// What tending gave. A refusal for a reason that lies in the data stops no changes: it is told once, and the next
    /// round tries again.
    async fn tended<S: Store<Link = L>, T>(
        &mut self,
        owner: &mut Owner<S>,
        result: Result<T, store::Error>,
    ) -> Result<Option<T>, Interrupt> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.disposition == Disposition::Poison => {
                if !std::mem::replace(&mut self.untended, true) {
                    warn!(shard = owner.keys.shard.0, reason = error.reason, "shard is not tended: {error}");
                }
                Ok(None)
            }
            Err(error) => self.wait_in_place(owner, error).await.map(|()| None),
        }
    }

    /// Also where nothing is to be settled, a lost state is noticed here: whoever takes the shard up again goes on.
    fn told<S: Store>(&mut self, owner: &Owner<S>, backlog: Backlog) -> Result<(), Interrupt> {
        if backlog.state_lost {
            return Err(Interrupt::Broken(state_lost()));
        }
        self.beyond.outbox.counted(backlog.outbox);
        self.rolling.hear(backlog.calendar);
        tell(owner, backlog);
        Ok(())
    }

    fn batch_changes<S: Store>(&self, owner: &Owner<S>) -> usize {
        self.pace.entries(&owner.context.options)
    }
}

fn tell<S: Store>(owner: &Owner<S>, backlog: Backlog) {
    owner.backlog(metrics::Backlog {
        changes: backlog.unread + backlog.pending,
        oldest: Duration::from_millis(backlog.oldest_milliseconds.unwrap_or(0)),
        dead_letters: backlog.dead_letters,
        outbox: backlog.outbox,
    });
}

pub(super) fn stop_if_told<S: Store>(owner: &Owner<S>) -> Result<(), Interrupt> {
    if owner.stopping() { Err(Interrupt::Ended(Ended::Stopped)) } else { Ok(()) }
}

fn lease_lost() -> store::Error {
    store::Error {
        disposition: Disposition::Retry,
        reason: "lease_lost",
        message: "the lease ran out before it was renewed".to_owned(),
    }
}
