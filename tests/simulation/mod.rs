//! The worker's real loop on the store in memory, under paused time, with seeded faults: a thousand lives of a cluster a
//! minute, each to be repeated from its seed.
//!
//! `HEYDAY_SEED=17 cargo nextest run simulation` lives one of them, `make simulation SEEDS=10000` lives more of them.

mod beyond;
mod maintenance;
mod shard;
mod silent;
mod verdict;
mod world;
mod years;

use std::ops::Range;
use std::time::Duration;

use heyday::testing::model::{Faults, Sabotage};

use verdict::Verdict;
use world::{BIRTH_DELAY_MAX, Deaths, HEARTBEAT, LEASE_TTL, Life, live};

/// Lives the given seeds, or the one that the environment names.
fn check(seeds: Range<u64>, life: impl Fn(u64) -> Life, further: impl Fn(&Verdict)) {
    let asked = std::env::var("HEYDAY_SEED").ok().map(|seed| seed.parse().expect("HEYDAY_SEED is a number"));
    let seeds = asked.map_or(seeds, |seed: u64| seed..seed + 1);
    let mut settled = 0;
    for seed in seeds.clone() {
        let verdict = live(life(seed));
        settled += verdict.settled;
        assert!(verdict.faults.is_empty(), "seed {seed} (HEYDAY_SEED={seed} repeats it):\n{verdict}");
        further(&verdict);
    }
    assert!(settled as u64 > 20 * (seeds.end - seeds.start), "only {settled} entries were settled in all");
}

/// Everything that may go wrong does.
fn hard(seed: u64) -> Life {
    Life { faults: Faults::all(seed), ..Life::new(seed) }
}

#[test]
fn a_calm_life_settles_every_entry_at_once() {
    let calm = |seed| Life { deaths: Deaths::None, hand_overs: false, maintenance: false, ..Life::new(seed) };
    check(0..40, calm, |verdict| {
        // Shards move when the second and third worker come; an owner that lost its thread would take the lease anew.
        assert!(verdict.takes_max <= 6, "a lease was taken {} times", verdict.takes_max);
        let moved = 2 * HEARTBEAT;
        assert!(verdict.waited_max <= moved, "an entry waited {:?}", verdict.waited_max);
    });
}

#[test]
fn a_dead_owners_shards_flow_again_a_second_after_its_lease_ran_out() {
    let one_dies = |seed| Life { deaths: Deaths::One, hand_overs: false, maintenance: false, ..Life::new(seed) };
    check(0..40, one_dies, |verdict| {
        let bound = LEASE_TTL + Duration::from_secs(1);
        assert!(verdict.waited_max <= bound, "an entry waited {:?}", verdict.waited_max);
    });
}

#[test]
fn nothing_is_committed_once_every_worker_has_paused_for_maintenance() {
    let maintained = |seed| Life { deaths: Deaths::None, hand_overs: false, ..Life::new(seed) };
    let paused = std::cell::Cell::new(Duration::ZERO);
    check(0..40, maintained, |verdict| {
        assert!(verdict.commits_paused.is_empty(), "commits in the meantime: {:?}", verdict.commits_paused);
        paused.set(paused.get() + verdict.paused);
    });
    assert!(paused.get() > Duration::from_secs(60), "all had paused for {:?} only", paused.get());
}

#[test]
fn workers_told_to_stop_hand_over_at_once() {
    let handed_over = |seed| Life { deaths: Deaths::None, maintenance: false, ..Life::new(seed) };
    check(0..40, handed_over, |verdict| {
        // No lease has to run out: all workers may be gone until the next one is born, and then it looks for shards.
        let bound = BIRTH_DELAY_MAX + 2 * HEARTBEAT;
        assert!(verdict.waited_max <= bound, "an entry waited {:?}", verdict.waited_max);
    });
}

#[test]
fn workers_die_at_any_moment() {
    check(0..100, Life::new, |_| {});
}

/// How many hard lives there are: as many as the environment asks for.
fn hard_lives(quarter: u64) {
    let asked = std::env::var("HEYDAY_SEEDS").ok();
    let count = asked.as_ref().map_or(1000, |count| count.parse().expect("HEYDAY_SEEDS is a number"));
    let seeds = count * quarter / 4..count * (quarter + 1) / 4;
    let (lives, begun) = (seeds.end - seeds.start, std::time::Instant::now());
    check(seeds, hard, |_| {});
    if asked.is_some() {
        let seconds = begun.elapsed().as_secs_f64();
        println!("{lives} lives in {seconds:.1} s, {:.0} a second", lives as f64 / seconds);
    }
}

#[test]
fn hard_lives_first_quarter() {
    hard_lives(0);
}

#[test]
fn hard_lives_second_quarter() {
    hard_lives(1);
}

#[test]
fn hard_lives_third_quarter() {
    hard_lives(2);
}

#[test]
fn hard_lives_fourth_quarter() {
    hard_lives(3);
}

/// Stalls, cuts and deaths, and no fault on the server that could be the reason instead.
fn plain(seed: u64) -> Faults {
    Faults { failover: 0, group_destroyed: 0, group_rewound: 0, pending_trimmed: 0, ..Faults::all(seed) }
}

/// Some life of a thousand must show the fault that the guard prevents.
fn must_find(sabotage: Sabotage, faults: impl Fn(u64) -> Faults, found: impl Fn(&Verdict) -> bool) {
    let life = |seed| Life { faults: faults(seed), sabotage: Some(sabotage), ..Life::new(seed) };
    let seen = (0..1000).find(|seed| found(&live(life(*seed))));
    assert!(seen.is_some(), "without {sabotage:?} no life of a thousand went wrong: the simulation is blind");
}

#[test]
fn without_the_fence_a_stalled_owner_applies_entries_twice() {
    must_find(Sabotage::Fence, plain, |verdict| {
        verdict.shows("by a fenced owner") && verdict.shows("settled twice") && verdict.shows("differs")
    });
}

#[test]
fn where_the_group_says_what_comes_next_entries_that_a_zombie_swallowed_are_passed_over() {
    must_find(Sabotage::Order, plain, |verdict| verdict.shows("never settled"));
}

#[test]
fn without_the_applied_position_entries_of_a_batch_that_failed_are_passed_over() {
    must_find(Sabotage::Position, plain, |verdict| verdict.shows("never settled"));
}
