//! Waiting between tries: twice as long each time, with jitter, up to a bound.

use std::time::Duration;

/// The jitter follows from the seed, so that a simulation can be repeated and two shards still never march in step.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    seed: u64,
    tries: u32,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration, seed: u64) -> Backoff {
        Backoff { min, max, seed, tries: 0 }
    }

    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// Between half and all of the doubled minimum.
    pub fn next(&mut self) -> Duration {
        let whole = self.min.saturating_mul(1 << self.tries.min(16)).min(self.max);
        self.tries = self.tries.saturating_add(1);
        let mixed = (self.seed ^ u64::from(self.tries)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let fraction = (mixed >> 40) as f64 / (1u64 << 24) as f64;
        whole.mul_f64(0.5 + fraction / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_begin_anew() {
        let (min, max) = (Duration::from_millis(20), Duration::from_secs(2));
        let mut backoff = Backoff::new(min, max, 7);
        for tries in 0..200 {
            let whole = min.saturating_mul(1 << tries.min(16)).min(max);
            let wait = backoff.next();
            assert!(wait >= whole / 2 && wait <= whole, "try {tries}: {wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= min);
    }
}
