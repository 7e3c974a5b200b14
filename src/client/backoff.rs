//! How long to wait before the next try: twice as long each time, within bounds, never the same for two who wait.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The waits of one who tries again.
#[derive(Clone, Debug)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(shortest: Duration, longest: Duration) -> Backoff {
        Backoff { shortest, longest, next: shortest }
    }

    /// The next wait: between half of and the whole doubled time.
    pub fn wait(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        whole / 2 + jitter(whole / 2)
    }

    /// It went well: the next failure begins anew.
    pub fn reset(&mut self) {
        self.next = self.shortest;
    }
}

/// Each new hasher of the standard library has keys of its own, which is all the chance that is needed here.
fn jitter(range: Duration) -> Duration {
    let chance = RandomState::new().hash_one(0) >> 32;
    range.mul_f64(chance as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_bounds() {
        let (shortest, longest) = (Duration::from_millis(50), Duration::from_millis(300));
        let mut backoff = Backoff::new(shortest, longest);
        for whole in [50, 100, 200, 300, 300] {
            let (wait, whole) = (backoff.wait(), Duration::from_millis(whole));
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= shortest);
    }

    #[test]
    fn two_who_wait_do_not_wait_alike() {
        let waits: std::collections::BTreeSet<_> = (0..16).map(|_| jitter(Duration::from_secs(1))).collect();
        assert!(waits.len() > 8, "{waits:?}");
    }
}
