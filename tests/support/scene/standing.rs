//! Who owns which shard, and whether anybody was interrupted.

use std::time::Duration;

use heyday::key::ShardKeys;
use heyday::redis::Pipeline;

use super::super::eventually;
use super::Scene;

/// How a shard is owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub owner: Option<String>,
    pub generation: u64,
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
        };
        let answers = self.ask_shards(question).await.expect("a cluster that answers");
        let standing = answers.values().map(|replies| Standing {
            owner: replies[0].as_bytes().ok().map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            generation: replies[1].as_u64().unwrap_or(0),
        });
        standing.collect()
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
