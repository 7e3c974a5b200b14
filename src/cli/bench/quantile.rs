//! Quantiles of what was timed.

use std::time::Duration;

/// So much of all values is at most what this answers; zero where there is none.
pub fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.max(1) - 1).or(values.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_values_are_not_above_it() {
        let mut values: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        for (share, expected) in [(0.0, 1), (0.5, 100), (0.99, 198), (1.0, 200)] {
            assert_eq!(quantile(&mut values, share), Duration::from_millis(expected), "{share}");
        }
        assert_eq!(quantile(&mut [], 0.5), Duration::ZERO);
    }
}
