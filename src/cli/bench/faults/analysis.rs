//! From what was heard when to pauses and the return to normal. Moments are seconds since the first change was planned.

use std::collections::BTreeMap;

use crate::shard::Shard;

/// Of throughput and latency over time.
pub const SLICE: f64 = 0.1;
/// What counts as usual is taken from so long before a fault.
const BEFORE: f64 = 2.0;
/// How much slower than before is still as before.
const SLOWER_MAX: f64 = 2.0;
/// So many slices in a row must be as before: one may be so by chance.
const STEADY: usize = 5;

/// A change that a subscriber was told of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heard {
    pub shard: Shard,
    pub planned: f64,
    pub heard: f64,
}

/// A tenth of a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    pub begin: f64,
    /// Changes heard of in it, whenever they were planned.
    pub heard: usize,
    /// Seconds that 99 of 100 changes planned in it took at most; none where there were none.
    pub p99: Option<f64>,
}

/// The longest time between two signals of one and the same shard, of those `among`, that has a part between the two moments.
pub fn longest_gap(heard: &[Heard], among: impl Fn(Shard) -> bool, (from, until): (f64, f64)) -> Option<f64> {
    let mut last: BTreeMap<Shard, f64> = BTreeMap::new();
    let mut longest: Option<f64> = None;
    for one in heard.iter().filter(|one| among(one.shard)) {
        let before = last.insert(one.shard, one.heard);
        if let Some(before) = before.filter(|before| *before < until && one.heard > from) {
            longest = Some(longest.unwrap_or(0.0).max(one.heard - before));
        }
    }
    longest
}

/// From the beginning until the last change.
pub fn slices(heard: &[Heard]) -> Vec<Slice> {
    let mut slices: Vec<Slice> = Vec::new();
    let mut latencies: Vec<Vec<f64>> = Vec::new();
    // What lies on a border belongs behind it, whatever binary fractions say.
    let at = |moment: f64| (moment.max(0.0) / SLICE + 1e-6) as usize;
    for one in heard {
        let (planned, arrived) = (at(one.planned), at(one.heard));
        let length = slices.len().max(planned.max(arrived) + 1);
        slices.resize_with(length, Slice::default);
        latencies.resize_with(length, Vec::new);
        slices[arrived].heard += 1;
        latencies[planned].push(one.heard - one.planned);
    }
    for (at, (slice, latencies)) in slices.iter_mut().zip(&mut latencies).enumerate() {
        slice.begin = at as f64 * SLICE;
        slice.p99 = p99(latencies);
    }
    slices
}

/// What was usual before a fault: the median of the slices' 99th percentiles.
pub fn usual(slices: &[Slice], from: f64) -> Option<f64> {
    let before = slices.iter().filter(|slice| slice.begin >= from - BEFORE && slice.begin + SLICE <= from);
    let mut before: Vec<f64> = before.filter_map(|slice| slice.p99).collect();
    before.sort_by(f64::total_cmp);
    before.get(before.len() / 2).copied()
}

/// Seconds from a fault until changes are as fast as before, counted by when they are sent: after the worst slice, the first
/// of several in a row. Zero where none was slower, none where it did not come about until the next fault.
pub fn caught_up(slices: &[Slice], (from, until): (f64, f64), usual: f64) -> Option<f64> {
    let within: Vec<(f64, f64)> = slices
        .iter()
        .filter(|slice| slice.begin + SLICE > from && slice.begin < until)
        .filter_map(|slice| Some((slice.begin, slice.p99?)))
        .collect();
    let worst = within.iter().enumerate().max_by(|(_, one), (_, other)| one.1.total_cmp(&other.1))?.0;
    let is_usual = |(_, p99): &(f64, f64)| *p99 <= usual * SLOWER_MAX;
    if is_usual(&within[worst]) {
        return Some(0.0);
    }
    let steady = within[worst..].windows(STEADY).find(|some| some.iter().all(is_usual))?;
    Some((steady[0].0 - from).max(0.0))
}

fn p99(latencies: &mut [f64]) -> Option<f64> {
    latencies.sort_by(f64::total_cmp);
    let rank = (latencies.len() as f64 * 0.99).ceil() as usize;
    latencies.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(shard: u16, planned: f64, heard: f64) -> Heard {
        Heard { shard: Shard(shard), planned, heard }
    }

    /// Two shards with a change every 10 ms for 4 s, each heard of 1 ms later, but for one of them: what is sent from 2 s on
    /// is heard of at 3 s, all at once.
    fn with_a_pause() -> Vec<Heard> {
        let mut all = Vec::new();
        for step in 0..400 {
            let planned = f64::from(step) / 100.0;
            all.push(heard(0, planned, planned + 0.001));
            let paused = (200..300).contains(&step);
            all.push(heard(1, planned, if paused { 3.0 } else { planned + 0.001 }));
        }
        all.sort_by(|one, other| one.heard.total_cmp(&other.heard));
        all
    }

    #[test]
    fn a_pause_is_that_of_its_own_shard_and_its_own_time() {
        let all = with_a_pause();
        let gap = |shard: u16, window| longest_gap(&all, |one| one == Shard(shard), window).unwrap();
        assert!((gap(1, (2.0, 4.0)) - 1.009).abs() < 1e-9, "{}", gap(1, (2.0, 4.0)));
        assert!((gap(1, (2.5, 2.6)) - 1.009).abs() < 1e-9, "one that goes over the window counts whole");
        for (shard, window) in [(0, (2.0, 4.0)), (1, (0.0, 1.9)), (1, (3.5, 4.0))] {
            assert!((gap(shard, window) - 0.01).abs() < 1e-9, "shard {shard}, {window:?}");
        }
        assert_eq!(longest_gap(&all, |_| false, (0.0, 4.0)), None);
    }

    #[test]
    fn slices_count_by_arrival_and_are_slow_by_when_a_change_was_sent() {
        let slices = slices(&with_a_pause());
        assert_eq!(slices.len(), 40);
        assert_eq!([5, 25, 30].map(|at| slices[at].heard), [20, 10, 120]);
        let p99 = |at: usize| (slices[at].p99.unwrap() * 1e3).round();
        assert_eq!([p99(5), p99(20), p99(29), p99(35)], [1.0, 1000.0, 100.0, 1.0]);
        assert!((usual(&slices, 2.0).unwrap() - 0.001).abs() < 1e-9);
        assert_eq!(usual(&slices, 0.0), None);
    }

    #[test]
    fn catching_up_ends_where_changes_are_as_fast_as_before_for_a_while() {
        let slices = slices(&with_a_pause());
        let caught_up = |window| caught_up(&slices, window, 0.001);
        let after = caught_up((2.0, 4.0)).unwrap();
        assert!((after - 1.0).abs() < 1e-6, "{after}");
        assert_eq!(caught_up((1.0, 1.9)), Some(0.0), "nothing was slower");
        assert_eq!(caught_up((2.0, 3.0)), None, "not until the next fault");
        assert_eq!(caught_up((5.0, 6.0)), None, "nothing was sent");
    }

    #[test]
    fn one_good_slice_among_bad_ones_is_no_end() {
        let slice = |at: usize, p99: f64| Slice { begin: at as f64 * SLICE, heard: 1, p99: Some(p99) };
        let mut slices: Vec<Slice> = (0..30).map(|at| slice(at, 1.0)).collect();
        for (at, p99) in [(10, 9.0), (11, 5.0), (13, 3.0)] {
            slices[at].p99 = Some(p99);
        }
        let after = caught_up(&slices, (1.0, 3.0), 1.0).unwrap();
        assert!((after - 0.4).abs() < 1e-6, "{after}");
    }
}
