//! Whether the views are what the changes must have led to: who is fast by leaving something out has not done the work.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};

use super::super::ground::Field;
use super::super::workload::expected;
use crate::change::{Action, Change};
use crate::redis::{NodeAddress, Pipeline};

/// Compares the friends of every user; nothing to compare where changes do more than add.
pub async fn views(field: &Field, changes: &[Change]) -> anyhow::Result<()> {
    if changes.iter().any(|change| !matches!(change.action, Action::Add { .. })) {
        return Ok(());
    }
    let different = different(field, changes).await?;
    ensure!(different == 0, "the friends of {different} users are not those that they were given");
    Ok(())
}

/// How many users have other friends than changes which only add must have given them.
pub async fn different(field: &Field, changes: &[Change]) -> anyhow::Result<u64> {
    let expected: Vec<_> = expected(changes).into_iter().collect();
    let mut different = 0;
    for part in expected.chunks(2000) {
        let mut asked: BTreeMap<NodeAddress, (Pipeline, Vec<usize>)> = BTreeMap::new();
        for (at, (user, _)) in part.iter().enumerate() {
            let keys = field.hub.keys_of(user);
            let node = field.hub.topology().node_of(keys.slot)?.address.clone();
            let (pipeline, places) = asked.entry(node).or_default();
            pipeline.command("HGETALL").arg_parts(&keys.birthdays_parts(user));
            places.push(at);
        }
        for (node, (pipeline, places)) in asked {
            for (reply, at) in field.submit(&node, pipeline).await?.iter().zip(places) {
                let (user, wanted) = &part[at];
                let pairs = reply.as_pairs()?.map(|(friend, date)| Ok((text(friend)?, text(date)?)));
                let found = pairs.collect::<anyhow::Result<BTreeMap<_, _>>>()?;
                if found != *wanted {
                    tracing::debug!("the friends of {user} are {} instead of {}", found.len(), wanted.len());
                    different += 1;
                }
            }
        }
    }
    Ok(different)
}

fn text(reply: &crate::redis::Reply) -> anyhow::Result<String> {
    Ok(reply.to_str().context("a name or date that is no text")?.to_owned())
}
