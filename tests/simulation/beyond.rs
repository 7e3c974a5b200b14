//! What must be true between shards at the end of a life.

use std::collections::BTreeSet;

use heyday::reduce::Rules;
use heyday::testing::model::Model;

use super::verdict::{Verdict, trimmed};
use crate::support::beyond::Evidence;

pub fn judge(verdict: &mut Verdict, model: &Model, rules: &Rules) {
    let (layout, contents) = (model.layout(), model.contents());
    let entries = layout.shards().map(|shard| {
        let (lost, history) = (trimmed(&contents, model, shard), model.history(shard));
        // What vanished before anybody settled it was told nobody.
        let kept = history.commits.iter().filter(|record| !record.lost).flat_map(|record| &record.entries);
        let settled: BTreeSet<_> = kept.copied().collect();
        let entries = history.entries.into_iter().filter(|(id, _)| settled.contains(id));
        let entries = entries.map(|(id, fields)| (id, Some(fields).filter(|_| !lost.contains(&id.to_string()))));
        (shard, entries.collect())
    });
    let entries = entries.collect();
    let accepted = layout.shards().flat_map(|shard| model.history(shard).entries).map(|(_, fields)| fields).collect();
    let evidence = Evidence { rules, keys: model.keys(), layout, contents: &contents, entries, accepted };
    verdict.faults.extend(evidence.relays());
    // What somebody trims before it is applied is lost, the other side of friendships too.
    if layout.shards().all(|shard| model.history(shard).trimmed.is_empty()) {
        let users: Vec<_> = (0..12).map(|user| format!("u{user}").parse().expect("a good id")).collect();
        verdict.faults.extend(evidence.friendships(&users));
    }
}
