//! One shard's connection: reads, loads and commits in strict sequence.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use super::scripts::{self, BACKLOG, By, RENEW, Script, TAKE, TRIM};
use super::{commit, encode, failure, load, read, take};
use crate::key::{GROUP, Key, ShardKeys};
use crate::lease::WorkerId;
use crate::position::EntryId;
use crate::redis::{Error, Link, Pipeline, Reply, Topology};
use crate::reduce::{Commit, Entry, Job, Loaded, Plan, Progress, Roll, Survey, Surveyed};
use crate::store::{self, Backlog, Committed, Read, ShardLink, Taken, Unfinished};

/// A shard's connection to the node that owned its slot when it was made.
#[derive(Debug)]
pub struct RedisLink {
    topology: Arc<Topology>,
    pub(super) keys: ShardKeys,
    link: Link,
    /// Kept for its memory.
    pub(super) pipeline: Pipeline,
    watch: Watch,
    /// The last entry whose effects are in the views, as far as this link has taken part.
    applied: EntryId,
    /// How many entries the stream has had up to there, where Redis could tell.
    entries_read: Option<u64>,
    /// The run id of the server process, once it was asked for.
    pub(super) run: Option<String>,
}

/// What Redis knows of this connection's interest in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    None,
    /// Since a load that failed: it may or may not be watched.
    Uncertain,
    /// Since a load that succeeded.
    Certain,
}

impl RedisLink {
    pub(super) fn new(topology: Arc<Topology>, keys: ShardKeys, link: Link) -> RedisLink {
        RedisLink {
            topology,
            keys,
            link,
            pipeline: Pipeline::new(),
            watch: Watch::None,
            applied: EntryId::ZERO,
            entries_read: None,
            run: None,
        }
    }

    pub(super) fn reply_timeout(&self) -> Duration {
        self.topology.options().reply_timeout
    }

    /// Sends what the pipeline holds.
    pub(super) async fn request(&mut self, asked: &str, deadline: Duration) -> Result<Vec<Reply>, store::Error> {
        let sent = self.link.request(&self.pipeline, deadline).await;
        self.pipeline.clear();
        sent.map_err(|error| self.failed(asked, &error))
    }

    async fn run(
        &mut self,
        asked: &str,
        script: &Script,
        keys: &[&Key],
        arguments: &[&str],
    ) -> Result<Reply, store::Error> {
        let mut reply = Reply::Null;
        for by in [By::Name, By::Body] {
            script.write(&mut self.pipeline, by, keys, arguments);
            reply = self.request(asked, self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
            if !scripts::is_lost(&reply) {
                break;
            }
        }
        Ok(reply)
    }

    async fn read_pending(&mut self, count: usize) -> Result<Vec<Entry>, store::Error> {
        let rows = self.own_pending(count).await?;
        // All that an idle shard is asked.
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let from = (self.applied, count);
        encode::read_pending(&mut self.pipeline, &self.keys, from);
        let mut replies = self.request("read", self.reply_timeout()).await?.into_iter();
        let mut next = || replies.next().unwrap_or(Reply::Null);
        let read = read::entries(next()).and_then(|entries| Ok((entries, read::following(next())?)));
        let (mut entries, following) = read.map_err(|error| self.failed("read", &error))?;
        read::count_deliveries(&mut entries, rows);
        Ok(read::unsettled(entries, following, from))
    }

    /// The oldest pending entries, all of them the owner's.
    async fn own_pending(&mut self, count: usize) -> Result<Vec<read::Pending>, store::Error> {
        loop {
            encode::pending(&mut self.pipeline, &self.keys, count);
            let reply = self.request("read", self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
            let rows = read::pending(&reply).map_err(|error| self.failed("read", &error))?;
            let strays: Vec<_> = rows.iter().filter(|row| row.stray).map(|row| row.id).collect();
            if strays.is_empty() {
                return Ok(rows);
            }
            // Nobody else will ever acknowledge them, and what is older than the owner's own holds the shard up.
            encode::claim(&mut self.pipeline, &self.keys, &strays);
            let claimed = self.request("claim", self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
            claimed.checked().map_err(|error| self.failed("claim", &error))?;
        }
    }

    async fn read_head(&mut self) -> Result<Vec<Entry>, store::Error> {
        encode::pending(&mut self.pipeline, &self.keys, 1);
        let reply = self.request("head", self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
        let rows = read::pending(&reply).map_err(|error| self.failed("head", &error))?;
        Ok(rows.into_iter().map(|row| row.unread()).collect())
    }

    /// After an answer that leaves open what happened, nothing more is said on this link.
    pub(super) fn failed(&mut self, asked: impl Display, error: &Error) -> store::Error {
        if !error.disposition().is_clean() {
            self.link.close();
        }
        let asked = format_args!("shard {}: {asked}", self.keys.shard);
        failure::tell(&self.topology, self.link.node(), asked, error)
    }
}

impl ShardLink for RedisLink {
    async fn take(&mut self, worker: &WorkerId, ttl: Duration) -> Result<Taken, store::Error> {
        let ShardKeys { lease, state, changes, log, users, producers, dead_letters, outbox, fanout, .. } =
            self.keys.clone();
        let keys = [&lease, &state, &changes, &log, &users, &producers, &dead_letters, &outbox, &fanout];
        let reply = self.run("take", &TAKE, &keys, &[worker.as_str(), &milliseconds(ttl), GROUP]).await?;
        match take::taken(reply) {
            Ok(Ok((taken, entries_read))) => {
                if let Taken::Mine(state, _) = &taken {
                    (self.applied, self.entries_read) = (state.applied, entries_read);
                }
                Ok(taken)
            }
            Ok(Err(what)) => Err(failure::foreign(self.link.node(), "take", what)),
            Err(error) => Err(self.failed("take", &error)),
        }
    }

    async fn renew(&mut self, worker: &WorkerId, ttl: Duration) -> Result<bool, store::Error> {
        let lease = self.keys.lease.clone();
        let reply = self.run("renew", &RENEW, &[&lease], &[worker.as_str(), &milliseconds(ttl)]).await?;
        let renewed = reply.as_i64().map(|renewed| renewed == 1);
        renewed.map_err(|error| self.failed("renew", &error))
    }

    async fn read(&mut self, which: Read, count: usize) -> Result<Vec<Entry>, store::Error> {
        match which {
            Read::Pending => self.read_pending(count).await,
            Read::Head => self.read_head().await,
            Read::New { block } => {
                encode::read_new(&mut self.pipeline, &self.keys, block, (self.applied, count));
                // An earlier deadline would leave an entry that comes late with nobody.
                let mut replies = self.request("read", block + self.reply_timeout()).await?.into_iter();
                let mut next = || replies.next().unwrap_or(Reply::Null);
                let woken = next().checked();
                let entries = woken.and_then(|_| read::following(next()));
                entries.map_err(|error| self.failed("read", &error))
            }
        }
    }

    async fn load(&mut self, plan: &Plan) -> Result<Loaded, store::Error> {
        // Watching twice would keep the first watch's verdict on what has been written since.
        let watched = self.watch != Watch::None;
        if watched {
            self.pipeline.command("UNWATCH");
        }
        self.watch = Watch::Uncertain;
        encode::load(&mut self.pipeline, &self.keys, plan);
        let mut replies = self.request("load", self.reply_timeout()).await?;
        if watched {
            replies.remove(0);
        }
        let loaded = load::loaded(&self.keys, plan, replies).map_err(|failure| {
            let error = self.failed(&failure.asked, &failure.error);
            store::Error { disposition: failure.disposition.unwrap_or(error.disposition), ..error }
        })?;
        self.watch = Watch::Certain;
        Ok(loaded)
    }

    async fn commit(&mut self, commit: &Commit) -> Result<Committed, store::Error> {
        // Without a watch nothing proves that the state is the one this commit was made from.
        if self.watch != Watch::Certain {
            return Ok(Committed::Refused);
        }
        // EXEC ends the watch, whatever it answers.
        self.watch = Watch::None;
        let new = commit.settled.iter().filter(|id| **id > self.applied).count() as u64;
        let entries_read = self.entries_read.map(|read| read + new);
        encode::commit(&mut self.pipeline, &self.keys, commit, entries_read);
        let replies = self.request("commit", self.reply_timeout()).await?;
        let committed = commit::outcome(&self.keys, commit, replies)
            .map_err(|refusal| self.failed(format_args!("commit: {}", refusal.command), &refusal.error))?;
        if let Committed::Done { .. } = committed {
            (self.applied, self.entries_read) = (commit.state.applied, entries_read);
        }
        Ok(committed)
    }

    async fn trim(&mut self, retention: Duration) -> Result<u64, store::Error> {
        let changes = self.keys.changes.clone();
        let reply = self.run("trim", &TRIM, &[&changes], &[GROUP, &milliseconds(retention)]).await?;
        reply.as_u64().map_err(|error| self.failed("trim", &error))
    }

    async fn unfinished(&mut self, jobs_max: usize) -> Result<Unfinished, store::Error> {
        self.ask_unfinished(jobs_max).await
    }

    async fn survey(&mut self, job: &Job, progress: &Progress, count: usize) -> Result<Survey, store::Error> {
        self.survey_job(job, progress, count).await
    }

    async fn survey_days(&mut self, roll: &Roll, count: usize) -> Result<Surveyed, store::Error> {
        self.survey_users(roll, count).await
    }

    async fn replicated(&mut self, replicas: u32, wait: Duration) -> Result<bool, store::Error> {
        self.pipeline.command("WAIT").arg_u64(replicas.into()).arg_u64(wait.as_millis().max(1) as u64);
        let reply = self.request("wait", wait + self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
        let reached = reply.as_u64().map_err(|error| self.failed("wait", &error))?;
        Ok(reached >= u64::from(replicas))
    }

    async fn backlog(&mut self) -> Result<Backlog, store::Error> {
        let ShardKeys { changes, state, dead_letters, outbox, .. } = self.keys.clone();
        let reply = self.run("backlog", &BACKLOG, &[&changes, &state, &dead_letters, &outbox], &[GROUP]).await?;
        let (backlog, read) = read::backlog(&reply).map_err(|error| self.failed("backlog", &error))?;
        // What was deleted unread was counted by nobody; only this link commits, so what Redis says now holds.
        self.entries_read = read.or(self.entries_read);
        Ok(backlog)
    }
}

/// As scripts take it.
fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}
