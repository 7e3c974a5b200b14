//! One shard's task: link after link, until the shard is no longer this worker's.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::Context;
use super::backoff::Backoff;
use super::jobs::Beyond;
use super::maintenance::Pause;
use super::session::Session;
use super::trouble::Trouble;
use crate::error::Disposition;
use crate::key::ShardKeys;
use crate::lease::WorkerId;
use crate::metrics::{OwnedShard, Presence};
use crate::position::CommitId;
use crate::shard::Shard;
use crate::store::{self, Cause, ShardLink, Store, Taken};

/// Why a shard's task ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Told to: the shard was given up in order.
    Stopped,
    /// Another worker owns the shard.
    Held(WorkerId),
    /// Another worker took the shard while this one thought it its own.
    Fenced,
    /// Nothing that waiting can mend.
    Failed(store::Error),
}

/// Leaves the straight path of a shard's work.
#[derive(Debug)]
pub(super) enum Interrupt {
    Ended(Ended),
    /// The link is of no use any more.
    Broken(store::Error),
}

impl From<store::Error> for Interrupt {
    fn from(error: store::Error) -> Interrupt {
        Interrupt::Broken(error)
    }
}

/// What outlives a link.
pub(super) struct Owner<S: Store> {
    pub context: Context<S>,
    pub keys: ShardKeys,
    pub stop: watch::Receiver<bool>,
    pub pause: Pause,
    pub backoff: Backoff,
    /// After this commit the oldest pending entry was too large to be read. If nothing was committed since, it still is.
    pub unreadable_after: Option<CommitId>,
    trouble: Trouble,
    memory_full: Option<Presence>,
    spoilt: Spoilt,
    owned: Option<OwnedShard>,
}

/// Commands that failed within commits since that was last told.
#[derive(Default)]
struct Spoilt {
    count: usize,
    told_at: Option<Instant>,
}

/// The log tells of failed commands of one shard at most this often: where one fails, most commits have one.
const SPOILT_TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// Owns `shard` for as long as that lasts.
pub(super) async fn run<S: Store>(
    context: Context<S>,
    shard: Shard,
    stop: watch::Receiver<bool>,
    pause: Pause,
) -> Ended {
    let (options, seed) = (context.options.clone(), u64::from(shard.0));
    let mut owner = Owner {
        keys: context.keys.shard(&context.layout, shard),
        backoff: Backoff::new(options.backoff_min, options.backoff_max, seed),
        unreadable_after: None,
        context,
        stop,
        pause,
        trouble: Trouble::default(),
        memory_full: None,
        spoilt: Spoilt::default(),
        owned: None,
    };
    let ended = owner.run().await;
    if let Ended::Stopped = ended {
        owner.release().await;
    }
    ended
}

impl<S: Store> Owner<S> {
    async fn run(&mut self) -> Ended {
        loop {
            let error = match self.link_life().await {
                Interrupt::Ended(ended) => return ended,
                Interrupt::Broken(error) => error,
            };
            match error.disposition {
                Disposition::Fatal => return Ended::Failed(error),
                Disposition::Fenced => return Ended::Fenced,
                Disposition::Refresh | Disposition::Ambiguous => self.context.store.refresh().await,
                Disposition::Retry | Disposition::Full | Disposition::Poison => {}
            }
            if let Err(Interrupt::Ended(ended)) = self.wait(&error).await {
                return ended;
            }
        }
    }

    /// From connect to the link's end. Nothing carries over to the next link: it takes a new generation, which breaks
    /// the old link's watch even if its commit is still on the way, and drains what is pending.
    async fn link_life(&mut self) -> Interrupt {
        let mut stop = self.stop.clone();
        let opened = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return Interrupt::Ended(Ended::Stopped),
            opened = self.open() => opened,
        };
        match opened {
            Ok(session) => session.serve(self).await,
            Err(interrupt) => interrupt,
        }
    }

    async fn open(&mut self) -> Result<Session<S::Link>, Interrupt> {
        let options = self.context.options.clone();
        let mut link = self.context.store.connect(self.keys.shard).await?;
        let presence = self.context.metrics.link_opened();
        let taken_at = Instant::now();
        let (state, cause) = match link.take(&options.worker, options.lease_ttl).await? {
            Taken::Mine(state, cause) => (state, cause),
            Taken::Held(worker) => return Err(Interrupt::Ended(Ended::Held(worker))),
        };
        if self.owned.is_none() {
            self.owned = Some(self.context.metrics.shard_owned(self.keys.shard.0.into()));
        }
        if cause != Cause::Same {
            self.context.metrics.taken_over(cause.name());
            debug!(shard = self.keys.shard.0, cause = cause.name(), "shard taken");
        }
        let (beyond, rolling) = Beyond::open(&mut link, self, &state).await?;
        Ok(Session::new(link, presence, (state, beyond, rolling), taken_at))
    }

    pub fn stopping(&self) -> bool {
        *self.stop.borrow()
    }

    pub fn backlog(&self, backlog: crate::metrics::Backlog) {
        if let Some(owned) = &self.owned {
            owned.backlog(backlog);
        }
    }

    /// Counts what went wrong, and tells of it where it is news.
    pub fn troubled(&mut self, error: &store::Error) {
        self.context.metrics.retried(error.reason);
        if self.trouble.is_news(error.reason, error.disposition) {
            warn!(shard = self.keys.shard.0, reason = error.reason, "shard waits: {error}");
        }
    }

    /// Waits before the next try, or until the shard is to be given up.
    pub async fn wait(&mut self, error: &store::Error) -> Result<(), Interrupt> {
        self.troubled(error);
        if error.disposition == Disposition::Full {
            self.memory_full.get_or_insert_with(|| self.context.metrics.memory_full());
        }
        let pause = self.backoff.next();
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => Err(Interrupt::Ended(Ended::Stopped)),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    /// Commands of a commit that failed while the rest of it stands, such as one on a key of a foreign type.
    pub fn commands_failed(&mut self, errors: &[String]) {
        let Some(last) = errors.last() else { return };
        self.spoilt.count += errors.len();
        if self.spoilt.told_at.is_none_or(|at| at.elapsed() >= SPOILT_TOLD_INTERVAL) {
            let count = std::mem::take(&mut self.spoilt.count);
            self.spoilt.told_at = Some(Instant::now());
            error!(shard = self.keys.shard.0, count, "commands of commits failed, the last: {last}");
        }
    }

    /// A commit or a read went through: whatever was wrong is over.
    pub fn flows(&mut self) {
        self.backoff.reset();
        self.memory_full = None;
        if let Some(reason) = self.trouble.end() {
            info!(shard = self.keys.shard.0, reason, "shard flows again");
        }
    }

    /// The link may be in the middle of a read, so the lease is released from beside it. A worker that stops releases many
    /// at once, and those of one node wait for each other; so this is tried for as long as the lease would last anyway.
    async fn release(&mut self) {
        let (options, begun) = (self.context.options.clone(), Instant::now());
        self.backoff.reset();
        while let Err(error) = self.context.store.release(self.keys.shard, &options.worker).await {
            if error.disposition == Disposition::Fatal || begun.elapsed() >= options.lease_ttl {
                warn!(shard = self.keys.shard.0, "lease not released, it will run out: {error}");
                return;
            }
            self.context.metrics.retried(error.reason);
            if matches!(error.disposition, Disposition::Refresh | Disposition::Ambiguous) {
                self.context.store.refresh().await;
            }
            tokio::time::sleep(self.backoff.next()).await;
        }
    }
}
