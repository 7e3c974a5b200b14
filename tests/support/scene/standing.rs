//! Who owns which shard, and whether anybody was interrupted.

use std::time::Duration;

use heyday::key::ShardKeys;
use heyday::position::CommitId;
use heyday::redis::{Pipeline, Reply};

use super::super::eventually;
use super::Scene;

/// How a shard is owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub owner: Option<String>,
    pub generation: u64,
    /// How often the shard went from one worker to another.
    pub moves: u64,
}

impl Scene {
    /// Waits until these workers, and nobody else, own all shards, with at most one shard between the largest share and the
    /// smallest. Workers are named by how their ids begin.
    pub async fn shared_between(&self, workers: &[&str], deadline: Duration) {
        eventually(deadline, &format!("the shards were shared fairly by {workers:?}"), async || {
            let owners = self.owners().await?;
            let count = |worker: &&&str| owners.iter().flatten().filter(|owner| owner.starts_with(**worker)).count();
            let shares: Vec<usize> = workers.iter().map(|worker| count(&worker)).collect();
            let (least, most) = (shares.iter().min()?, shares.iter().max()?);
            (shares.iter().sum::<usize>() == owners.len() && most - least <= 1).then_some(())
        })
        .await;
    }

    /// How each shard is owned, by shard.
    pub async fn standing(&self) -> Vec<Standing> {
        let question = |keys: &ShardKeys, pipeline: &mut Pipeline| {
            pipeline.push(&["GET", keys.lease.as_str()]);
            pipeline.push(&["HGET", keys.state.as_str(), "generation"]);
            pipeline.push(&["HGET", keys.state.as_str(), "moves"]);
        };
        let answers = self.ask_shards(question).await.expect("a cluster that answers");
        let standing = answers.values().map(|replies| Standing {
            owner: replies[0].as_bytes().ok().map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            generation: replies[1].as_u64().unwrap_or(0),
            moves: replies[2].as_u64().unwrap_or(0),
        });
        standing.collect()
    }

    /// The last commit of each shard, by shard; `0-0` for none.
    pub async fn last_commits(&self) -> Vec<CommitId> {
        let question = |keys: &ShardKeys, pipeline: &mut Pipeline| {
            pipeline.push(&["HGET", keys.state.as_str(), "last"]);
        };
        let answers = self.ask_shards(question).await.expect("a cluster that answers");
        let last = |reply: &Reply| reply.to_str().map_or(CommitId::ZERO, |text| text.parse().expect("a commit id"));
        answers.values().map(|replies| last(&replies[0])).collect()
    }

    /// Waits until every shard has committed so often once more.
    pub async fn committed_more(&self, times: usize, deadline: Duration) {
        for _ in 0..times {
            let before = self.last_commits().await;
            eventually(deadline, "every shard committed once more", async || {
                let now = self.last_commits().await;
                before.iter().zip(&now).all(|(before, now)| now > before).then_some(())
            })
            .await;
        }
    }
}

/// A shard whose owner is the same was never interrupted: its generation is the same too.
pub fn undisturbed(before: &[Standing], after: &[Standing]) {
    let kept: Vec<_> = before.iter().zip(after).filter(|(before, after)| before.owner == after.owner).collect();
    assert!(!kept.is_empty(), "every shard went to another worker: {after:?}");
    for (before, after) in kept {
        assert_eq!(before, after, "a shard was interrupted although its owner stayed");
    }
}
