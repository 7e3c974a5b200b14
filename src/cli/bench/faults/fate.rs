//! What became of the changes in the end: the views, and how many entries had an effect.

use anyhow::Context as _;

use super::super::drain::prove;
use super::super::ground::Field;
use super::load::{Written, change};
use crate::change::Change;
use crate::redis::Pipeline;

/// Changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    pub written: Written,
    /// Acknowledged to the writer, and not in the views.
    pub lost: u64,
    /// Effects beyond one a change.
    pub doubled: u64,
}

/// Reads all views. Nothing may wait to be applied any more.
pub async fn tell(field: &Field, seed: u64, written: Written) -> anyhow::Result<Fate> {
    field.hub.topology().refresh().await?;
    let numbers = (0..written.sent).partition(|number| written.refused.contains(number));
    let (refused, acknowledged): (Vec<u64>, Vec<u64>) = numbers;
    let changes = |numbers: Vec<u64>| numbers.into_iter().map(|number| change(seed, number)).collect::<Vec<Change>>();
    let lost = prove::different(field, &changes(acknowledged)).await?;
    let absent = prove::different(field, &changes(refused)).await?;
    let present = written.sent - lost - absent;
    let doubled = effects(field).await?.saturating_sub(present);
    Ok(Fate { written, lost, doubled })
}

/// Entries that changed something, by the shards' own count.
async fn effects(field: &Field) -> anyhow::Result<u64> {
    let mut sum = 0;
    for shard in field.hub.layout().shards() {
        let keys = field.hub.shard_keys(shard);
        let node = field.hub.topology().node_of(keys.slot)?.address.clone();
        let mut question = Pipeline::new();
        question.push(&["HMGET", keys.state.as_str(), "entries", "skipped", "dead"]);
        let replies = field.submit(&node, question).await?;
        let counts = replies.first().context("no answer to HMGET")?.as_array()?;
        let counts = counts.iter().map(|count| match count.is_null() {
            true => Ok(0),
            false => Ok(count.to_str()?.parse::<u64>()?),
        });
        let counts: Vec<u64> = counts.collect::<anyhow::Result<_>>()?;
        let [entries, skipped, dead] = counts[..] else { anyhow::bail!("three counts were asked for") };
        sum += entries - skipped - dead;
    }
    Ok(sum)
}
