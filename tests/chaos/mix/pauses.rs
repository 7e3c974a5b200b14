//! How long shards stood still, by what their logs say: the time between one commit and the next, while somebody appended to
//! every shard all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::shard::Shard;

use super::schedule::Kind;
use super::stage::Strike;
use crate::support::scene::{Scene, Snapshot, read_log};

/// How long after a fault is over a pause may still be its doing: leases run out, connections are made, shards go back to a worker
/// that has returned.
const AFTERMATH_MS: u64 = 4_000;

/// What may be the cause of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No fault touched the shard.
    None,
    /// Faults of this kind and no other did.
    One(Kind),
    Several,
}

/// The longest of its cause.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    pub cause: Cause,
    pub shard: Shard,
    pub lasted: Duration,
    /// Unix milliseconds.
    pub at_ms: u64,
}

/// The longest pause of each cause between two moments, Unix milliseconds.
pub fn longest(scene: &Scene, snapshot: &Snapshot, strikes: &[Strike], (from, to): (u64, u64)) -> Vec<Pause> {
    let mut longest: BTreeMap<Cause, Pause> = BTreeMap::new();
    for shard in scene.layout.shards() {
        let Ok(log) = read_log(snapshot, scene.shard_keys(shard).log.as_str()) else { continue };
        let times: Vec<u64> = log.iter().map(|signal| signal.at_milliseconds).collect();
        for pair in times.windows(2).filter(|pair| from <= pair[0] && pair[1] <= to) {
            let cause = cause(strikes, shard, (pair[0], pair[1]));
            let lasted = Duration::from_millis(pair[1].saturating_sub(pair[0]));
            let pause = Pause { cause, shard, lasted, at_ms: pair[0] };
            let known = longest.entry(cause).or_insert(pause);
            if known.lasted < lasted {
                *known = pause;
            }
        }
    }
    longest.into_values().collect()
}

fn cause(strikes: &[Strike], shard: Shard, (from, to): (u64, u64)) -> Cause {
    let touching = strikes.iter().filter(|strike| {
        strike.shards.contains(&shard) && strike.begin_ms <= to && from <= strike.end_ms + AFTERMATH_MS
    });
    let mut kinds: Vec<Kind> = touching.map(|strike| strike.kind).collect();
    kinds.sort();
    kinds.dedup();
    match kinds[..] {
        [] => Cause::None,
        [kind] => Cause::One(kind),
        _ => Cause::Several,
    }
}

#[test]
fn a_pause_is_the_doing_of_what_touched_its_shard_then() {
    let strike = |kind, shard, begin_ms, end_ms| Strike { kind, begin_ms, end_ms, shards: [Shard(shard)].into() };
    let strikes = [strike(Kind::FailedOver, 1, 10_000, 11_000), strike(Kind::WorkerKilled, 1, 30_000, 31_000)];
    for (shard, pause, expected) in [
        (1, (9_000, 9_900), Cause::None),
        (1, (9_000, 10_100), Cause::One(Kind::FailedOver)),
        (1, (14_000, 14_100), Cause::One(Kind::FailedOver)),
        (1, (16_000, 16_100), Cause::None),
        (1, (9_000, 40_000), Cause::Several),
        (2, (9_000, 40_000), Cause::None),
    ] {
        assert_eq!(cause(&strikes, Shard(shard), pause), expected, "{shard} {pause:?}");
    }
}
