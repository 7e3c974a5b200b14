//! Jobs under way in a shard, a step at a time between batches, so that no user waits for longer than one step.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tracing::error;

use super::batch::check_fence;
use super::outbox::Outbox;
use super::roll::Rolling;
use super::session::{Session, stop_if_told};
use super::shard::{Interrupt, Owner};
use crate::error::Disposition;
use crate::position::{CommitId, EntryId};
use crate::reduce::{Job, JobChange, Jobs, Place, Progress, ShardState, Step};
use crate::store::{self, Committed, ShardLink, Store};

/// Friends or dead letters that one step looks at, about, at most and at least.
const STEP_MAX: usize = 500;
const STEP_MIN: usize = 32;
/// Who waits for a step should not wait for longer: steps that take more become smaller.
const STEP_TIME: Duration = Duration::from_millis(4);
/// Jobs that are known at a time; the others wait in the shard. With so many under way no further change is read.
const JOBS_MAX: usize = 1000;
/// How long one look waits for the replicas.
const REPLICAS_WAIT: Duration = Duration::from_millis(100);

/// What an owner has begun and not finished.
pub(super) struct Beyond {
    pub outbox: Outbox,
    jobs: Jobs,
    /// The job that had its turn last.
    turn: Option<Job>,
    /// How much the next step looks at.
    size: usize,
    /// Whether the shard may hold further jobs.
    more: bool,
    /// Jobs that only a person can help on: they stay in the shard, and the next link tries them again.
    stuck: BTreeSet<Job>,
    /// The last commit that wrote for other shards, until replicas have it.
    unconfirmed: Option<CommitId>,
}

impl Beyond {
    /// Finds what an earlier owner has left.
    pub async fn open<S: Store>(
        link: &mut S::Link,
        owner: &Owner<S>,
        state: &ShardState,
    ) -> Result<(Beyond, Rolling), store::Error> {
        let left = link.unfinished(JOBS_MAX).await?;
        let rolling = Rolling::open(&left);
        let waits = owner.context.options.wait_replicas > 0;
        let upto = if waits { EntryId::ZERO } else { EntryId::new(u64::MAX, u64::MAX) };
        let outbox = Outbox::start(&owner.context, owner.keys.shard, left.outbox, upto);
        let beyond = Beyond {
            outbox,
            size: STEP_MIN,
            more: left.more,
            jobs: left.jobs,
            stuck: BTreeSet::new(),
            turn: None,
            // All that is there was written before this generation, and taking the shard wrote behind it.
            unconfirmed: (waits && left.outbox > 0).then_some(CommitId::new(state.generation, 0)),
        };
        Ok((beyond, rolling))
    }

    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Takes note of what a commit has begun.
    pub fn committed(&mut self, commit: CommitId, relays: u64, jobs: &[JobChange], waits: bool) {
        for (job, progress) in jobs {
            self.stuck.remove(job);
            self.jobs.note(job, progress.as_ref());
        }
        if relays > 0 && waits {
            self.unconfirmed = Some(commit);
        }
        self.outbox.written(relays);
    }

    /// Whether there is something to go on with soon.
    pub fn is_busy(&self) -> bool {
        self.more || !self.jobs.is_empty() || self.unconfirmed.is_some()
    }
}

impl<L: ShardLink> Session<L> {
    /// Lets what replicas have go to the other shards.
    pub(super) async fn confirm<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        let Some(commit) = self.beyond.unconfirmed else { return Ok(()) };
        match self.link.replicated(owner.context.options.wait_replicas, REPLICAS_WAIT).await {
            Ok(true) => {
                self.beyond.unconfirmed = None;
                self.beyond.outbox.release(commit.outbox_last());
                Ok(())
            }
            Ok(false) => {
                owner.troubled(&unconfirmed(owner));
                Ok(())
            }
            Err(error) => self.wait_in_place(owner, error).await,
        }
    }

    /// Waits until more may be begun. What is under way goes on meanwhile.
    pub(super) async fn room<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        loop {
            stop_if_told(owner)?;
            self.pause_if_told(owner).await?;
            if self.beyond.outbox.length() >= owner.context.options.outbox_max {
                self.confirm(owner).await?;
                // The server counts again with each wait: a lost answer may have left the count too high.
                self.count_again();
                self.wait_in_place(owner, outbox_full(owner)).await?;
            } else if self.beyond.jobs.len() >= JOBS_MAX {
                self.renew(owner).await?;
                self.confirm(owner).await?;
                self.tell_while_waiting(owner).await?;
                // One after the other, so that there is room soon.
                self.beyond.turn = None;
                self.step(owner).await?;
            } else {
                return Ok(());
            }
        }
    }

    /// One step of a job, where there is one and room for what it writes.
    pub(super) async fn step<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        if self.beyond.outbox.length() >= owner.context.options.outbox_max {
            return Ok(());
        }
        if self.beyond.more && self.beyond.jobs.len() < JOBS_MAX / 2 {
            self.find_more(owner).await?;
        }
        let next = self.beyond.jobs.after(self.beyond.turn.as_ref());
        let Some((job, progress)) = next.map(|(job, progress)| (job.clone(), progress.clone())) else {
            return Ok(());
        };
        match self.try_step(owner, &job, &progress).await {
            Ok(()) => self.beyond.turn = Some(job),
            Err(Interrupt::Broken(error)) if error.disposition == Disposition::Poison => {
                error!(shard = owner.keys.shard.0, %job, "job waits for somebody to mend this: {error}");
                owner.context.metrics.retried(error.reason);
                self.beyond.jobs.note(&job, None);
                if self.beyond.stuck.len() < JOBS_MAX {
                    self.beyond.stuck.insert(job);
                }
            }
            Err(Interrupt::Broken(error)) => self.wait_in_place(owner, error).await?,
            Err(ended) => return Err(ended),
        }
        Ok(())
    }

    async fn find_more<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        match self.link.unfinished(JOBS_MAX).await {
            Ok(left) => {
                self.beyond.more = left.more;
                for (job, progress) in left.jobs.into_iter().filter(|(job, _)| !self.beyond.stuck.contains(job)) {
                    self.beyond.jobs.note(&job, Some(&progress));
                }
                Ok(())
            }
            Err(error) => self.wait_in_place(owner, error).await,
        }
    }

    async fn try_step<S: Store<Link = L>>(
        &mut self,
        owner: &mut Owner<S>,
        job: &Job,
        progress: &Progress,
    ) -> Result<(), Interrupt> {
        let started = Instant::now();
        let survey = self.link.survey(job, progress, self.beyond.size).await?;
        let done = self.commit_step(owner, Step { job, progress, survey: &survey }).await;
        let size = self.beyond.size;
        self.beyond.size = if started.elapsed() > STEP_TIME { size / 2 } else { size * 2 }.clamp(STEP_MIN, STEP_MAX);
        done
    }

    async fn commit_step<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>, step: Step<'_>) -> Result<(), Interrupt> {
        let loaded = self.link.load(&step.plan()).await?;
        check_fence(self, owner, &loaded)?;
        self.rolling.heard(loaded.milliseconds);
        let context = &owner.context;
        let place = Place { rules: &context.rules, layout: &context.layout, keys: &owner.keys };
        let commit = step.reduce(place, &self.state, &loaded);
        match self.link.commit(&commit).await? {
            Committed::Done { errors } => {
                self.state = commit.state;
                let waits = context.options.wait_replicas > 0;
                self.beyond.committed(commit.state.last, commit.relays, &commit.jobs, waits);
                owner.commands_failed(&errors);
                super::batch::check_written(owner, &errors)
            }
            // The next step loads again, and finds out who wrote the state.
            Committed::Refused => Ok(()),
        }
    }
}

fn unconfirmed<S: Store>(owner: &Owner<S>) -> store::Error {
    store::Error {
        disposition: Disposition::Retry,
        reason: store::TOO_FEW_REPLICAS,
        message: format!(
            "shard {}: fewer than {} replicas have what is for other shards",
            owner.keys.shard, owner.context.options.wait_replicas
        ),
    }
}

fn outbox_full<S: Store>(owner: &Owner<S>) -> store::Error {
    store::Error {
        disposition: Disposition::Retry,
        reason: "outbox_full",
        message: format!(
            "shard {}: {} changes for other shards are not relayed yet",
            owner.keys.shard, owner.context.options.outbox_max
        ),
    }
}
