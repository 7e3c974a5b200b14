//! The worker's real loop on the store in memory, under paused time, with seeded faults: a thousand lives of a cluster a
//! minute, each to be repeated from its seed.
//!
//! `HEYDAY_SEED=17 cargo nextest run simulation` lives one of them.

mod verdict;
mod world;

use std::ops::Range;

use heyday::testing::model::{Faults, Sabotage};

use verdict::Verdict;
use world::{Life, live};

/// Lives the given seeds, or the one that the environment names.
fn check(seeds: Range<u64>, life: impl Fn(u64) -> Life) {
    let asked = std::env::var("HEYDAY_SEED").ok().map(|seed| seed.parse().expect("HEYDAY_SEED is a number"));
    let seeds = asked.map_or(seeds, |seed: u64| seed..seed + 1);
    let mut settled = 0;
    for seed in seeds.clone() {
        let verdict = live(life(seed));
        settled += verdict.settled;
        assert!(verdict.faults.is_empty(), "seed {seed} (HEYDAY_SEED={seed} repeats it):\n{verdict}");
    }
    assert!(settled > 20 * (seeds.end - seeds.start) as usize, "only {settled} entries were settled in all");
}

/// Everything that may go wrong does.
fn hard(seed: u64) -> Life {
    Life { faults: Faults::all(seed), ..Life::new(seed) }
}

#[test]
fn a_calm_life_settles_every_entry() {
    check(0..40, |seed| Life { deaths: false, ..Life::new(seed) });
}

#[test]
fn workers_die_at_any_moment() {
    check(0..100, Life::new);
}

#[test]
fn hard_lives_0_to_249() {
    check(0..250, hard);
}

#[test]
fn hard_lives_250_to_499() {
    check(250..500, hard);
}

#[test]
fn hard_lives_500_to_749() {
    check(500..750, hard);
}

#[test]
fn hard_lives_750_to_999() {
    check(750..1000, hard);
}

/// Some life of a thousand must show the fault that the guard prevents.
fn must_find(sabotage: Sabotage, faults: impl Fn(u64) -> Faults, found: impl Fn(&Verdict) -> bool) {
    let life = |seed| Life { faults: faults(seed), sabotage: Some(sabotage), ..Life::new(seed) };
    let seen = (0..1000).find(|seed| found(&live(life(*seed))));
    assert!(seen.is_some(), "without {sabotage:?} no life of a thousand went wrong: the simulation is blind");
}

#[test]
fn without_the_fence_a_stalled_owner_applies_entries_twice() {
    // Nothing but stalls: no other fault may be the reason.
    let stalls = |seed| Faults { failover: 0, group_destroyed: 0, pending_trimmed: 0, ..Faults::all(seed) };
    must_find(Sabotage::Fence, stalls, |verdict| {
        verdict.shows("by a fenced owner") && verdict.shows("settled twice") && verdict.shows("differs")
    });
}

#[test]
fn without_the_order_guard_entries_overtake_those_a_zombie_swallowed() {
    let swallows = |seed| Faults { failover: 0, group_destroyed: 0, pending_trimmed: 0, ..Faults::all(seed) };
    must_find(Sabotage::Order, swallows, |verdict| verdict.shows("out of order") && verdict.shows("differs"));
}

#[test]
fn without_the_drain_entries_of_a_dead_owner_are_never_settled() {
    let deaths = |seed| Faults { group_destroyed: 0, pending_trimmed: 0, ..Faults::all(seed) };
    must_find(Sabotage::Drain, deaths, |verdict| verdict.shows("never settled"));
}
