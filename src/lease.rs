//! Who owns which shard: worker ids, fair shares and the order in which workers want shards. Pure; the lease itself
//! lives in Redis and gives liveness only, safety comes from the commit's fence.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::shard::Shard;

/// The id of one incarnation of a worker process: never used again after it ended.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker name {0:?}: expected 1 to 128 bytes without control characters or spaces")]
pub struct WorkerIdError(pub String);

impl WorkerId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WorkerId {
    type Err = WorkerIdError;

    fn from_str(text: &str) -> Result<WorkerId, WorkerIdError> {
        let good = (1..=128).contains(&text.len()) && !text.contains(|c: char| c.is_control() || c.is_whitespace());
        good.then(|| WorkerId(text.into())).ok_or_else(|| WorkerIdError(text.to_owned()))
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// How many of `shards` a worker aims at among the `living`, itself included whether listed or not. The shares add up to
/// all shards and differ by one at most: the first in order of their ids take the remainder. A worker that joins or leaves
/// changes every other's share in one direction only, so no more shards move than its own share.
pub fn share(shards: u32, living: &[WorkerId], worker: &WorkerId) -> usize {
    let others = living.iter().filter(|other| *other != worker);
    let rank = others.clone().filter(|other| *other < worker).count();
    let workers = others.count() + 1;
    let shards = shards as usize;
    shards / workers + usize::from(rank < shards % workers)
}

/// `shards` in the order in which `worker` wants them: highest weight first. Each worker has an order of its own, so
/// that workers which look for free shards at once start with different ones.
pub fn preference(worker: &WorkerId, shards: impl IntoIterator<Item = Shard>) -> Vec<Shard> {
    let mut ranked: Vec<(u64, Shard)> = shards.into_iter().map(|shard| (weight(worker, shard), shard)).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.into_iter().map(|(_, shard)| shard).collect()
}

/// Rendezvous weight: FNV-1a over worker and shard, then mixed so that neighbouring shards differ in the high bits.
fn weight(worker: &WorkerId, shard: Shard) -> u64 {
    let bytes = worker.as_str().bytes().chain(shard.0.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(count: usize) -> Vec<WorkerId> {
        (0..count).map(|number| format!("w{number:03}").parse().unwrap()).collect()
    }

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for shards in [1, 2, 64, 256] {
            for count in 1..40 {
                let living = workers(count);
                let shares: Vec<_> = living.iter().map(|worker| share(shards, &living, worker)).collect();
                assert_eq!(shares.iter().sum::<usize>(), shards as usize, "{shards} shards, {count} workers");
                assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
            }
        }
        assert_eq!(share(4, &[], &workers(1)[0]), 4, "a worker not listed yet counts itself");
    }

    #[test]
    fn whoever_leaves_no_other_share_shrinks() {
        for shards in [1, 2, 64, 256] {
            for count in 2..40 {
                let all = workers(count);
                for leaving in 0..count {
                    let mut left = all.clone();
                    left.remove(leaving);
                    for worker in &left {
                        assert!(share(shards, &left, worker) >= share(shards, &all, worker));
                    }
                }
            }
        }
    }

    #[test]
    fn workers_prefer_different_shards() {
        let shards = || (0..256).map(Shard);
        let first = preference(&"a".parse().unwrap(), shards());
        let second = preference(&"b".parse().unwrap(), shards());
        let common = first[..128].iter().filter(|shard| second[..128].contains(shard)).count();
        assert!((40..90).contains(&common), "two halves at random share about 64, these share {common}");
        let mut sorted = first.clone();
        sorted.sort();
        assert_eq!(sorted, shards().collect::<Vec<_>>());
    }

    #[test]
    fn names_with_spaces_are_refused() {
        assert!("a b".parse::<WorkerId>().is_err() && "".parse::<WorkerId>().is_err());
    }
}
