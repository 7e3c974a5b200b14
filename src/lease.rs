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

/// How many of `shards` a worker aims at among `workers` living ones, itself included: the larger whole share, so that
/// every shard has somebody who wants it.
pub fn share(shards: u32, workers: usize) -> usize {
    (shards as usize).div_ceil(workers.max(1))
}

/// How many of its `held` shards a worker should give up.
pub fn surplus(shards: u32, workers: usize, held: usize) -> usize {
    held.saturating_sub(share(shards, workers))
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

    #[test]
    fn shares_cover_all_shards() {
        for (shards, workers, expected) in [(256, 1, 256), (256, 2, 128), (256, 3, 86), (1, 5, 1), (4, 0, 4)] {
            assert_eq!(share(shards, workers), expected);
        }
        assert_eq!(surplus(256, 2, 256), 128);
        assert_eq!(surplus(256, 3, 86), 0);
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
