//! Waiting until every shard has settled everything in its stream.

use std::time::{Duration, Instant};

use heyday::key::GROUP;
use heyday::position::EntryId;
use heyday::redis::Reply;
use heyday::shard::Shard;

use super::super::eventually;
use super::Scene;
use super::snapshot::text;

/// How a shard stands.
struct Standing {
    tip: Option<EntryId>,
    applied: Option<EntryId>,
    /// None where there is no group.
    pending: Option<u64>,
    /// Entries for other shards, and jobs.
    unfinished: u64,
    owner: Option<String>,
}

impl Standing {
    fn is_settled(&self) -> bool {
        self.tip.is_none_or(|tip| self.applied >= Some(tip) && self.pending == Some(0)) && self.unfinished == 0
    }

    fn tell(&self, shard: Shard) -> String {
        let id = |id: Option<EntryId>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
        let pending = self.pending.map_or_else(|| "no group".to_owned(), |count| format!("{count} pending"));
        let owner = self.owner.as_deref().unwrap_or("nobody");
        let (tip, applied, unfinished) = (id(self.tip), id(self.applied), self.unfinished);
        format!("shard {shard} of {owner}: {tip} in the stream, {applied} applied, {pending}, {unfinished} unfinished")
    }
}

impl Scene {
    /// Waits until nothing is unread, pending or on its way to another shard anywhere; where that never comes, names the
    /// shards and how they stand. Shards are not looked at in one moment, so nothing may have come between two looks.
    pub async fn settle(&self, deadline: Duration) {
        let started = Instant::now();
        let (mut last, mut before) = (Vec::new(), None);
        // One look more than the deadline, so that the message tells of the last one.
        eventually(deadline + Duration::from_secs(5), "a look at the shards was taken", async || {
            match self.stuck().await {
                Some((stuck, tips)) if stuck.is_empty() && before.as_ref() == Some(&tips) => return Some(()),
                Some((stuck, tips)) => (before, last) = (Some(tips).filter(|_| stuck.is_empty()), stuck),
                None => {}
            }
            let shown = &last[..last.len().min(8)];
            assert!(
                started.elapsed() < deadline,
                "within {deadline:?} {} shards did not settle:\n  {}",
                last.len(),
                shown.join("\n  ")
            );
            None
        })
        .await;
    }

    /// Waits until each shard's lease is held by a worker whose id begins so.
    pub async fn owned_by(&self, worker: &str, deadline: Duration) {
        let never = format!("every shard was owned by {worker}…");
        eventually(deadline, &never, async || {
            let owners = self.owners().await?;
            owners.iter().all(|owner| owner.as_deref().is_some_and(|owner| owner.starts_with(worker))).then_some(())
        })
        .await;
    }

    /// The holders of all leases, by shard; none where a node did not answer.
    pub async fn owners(&self) -> Option<Vec<Option<String>>> {
        let answers = self.ask_shards(|keys, pipeline| pipeline.push(&["GET", keys.lease.as_str()])).await?;
        Some(answers.values().map(|replies| owner(&replies[0])).collect())
    }

    /// The generations of all shards, by shard; 0 where there is none.
    pub async fn generations(&self) -> Option<Vec<u64>> {
        let question = |keys: &heyday::key::ShardKeys, pipeline: &mut heyday::redis::Pipeline| {
            pipeline.push(&["HGET", keys.state.as_str(), "generation"]);
        };
        let answers = self.ask_shards(question).await?;
        Some(answers.values().map(|replies| replies[0].as_u64().unwrap_or(0)).collect())
    }

    /// One line for each shard that is not settled, and the tips of all; none where a node did not answer.
    async fn stuck(&self) -> Option<(Vec<String>, Vec<Option<EntryId>>)> {
        let answers = self
            .ask_shards(|keys, pipeline| {
                pipeline.push(&["XREVRANGE", keys.changes.as_str(), "+", "-", "COUNT", "1"]);
                pipeline.push(&["HGET", keys.state.as_str(), "applied"]);
                pipeline.push(&["XPENDING", keys.changes.as_str(), GROUP]);
                pipeline.push(&["GET", keys.lease.as_str()]);
                pipeline.push(&["XLEN", keys.outbox.as_str()]);
                pipeline.push(&["HLEN", keys.fanout.as_str()]);
            })
            .await?;
        let standings = answers.into_iter().map(|(shard, replies)| Some((shard, standing(&replies)?)));
        let standings: Option<Vec<_>> = standings.collect();
        let standings = standings?;
        let stuck = standings.iter().filter(|(_, standing)| !standing.is_settled());
        let stuck = stuck.map(|(shard, standing)| standing.tell(*shard)).collect();
        Some((stuck, standings.iter().map(|(_, standing)| standing.tip).collect()))
    }
}

/// None where the node did not tell, as while it has just been demoted.
fn standing(replies: &[Reply]) -> Option<Standing> {
    let tip = replies[0].as_array().ok()?.first().map(|entry| text(&entry.as_array().expect("an entry")[0]));
    let applied = replies[1].as_bytes_or_null().ok()?.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let id = |text: String| text.parse().expect("an entry id");
    Some(Standing {
        tip: tip.map(id),
        applied: applied.map(id),
        pending: replies[2].as_array().ok().map(|summary| summary[0].as_u64().expect("a count")),
        owner: owner(&replies[3]),
        unfinished: replies[4].as_u64().ok()? + replies[5].as_u64().ok()?,
    })
}

fn owner(reply: &Reply) -> Option<String> {
    reply.as_bytes().ok().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}
