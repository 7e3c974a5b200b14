//! What the tests share: clusters, prefixes that keep tests apart, and waiting for a condition.

pub mod beyond;
pub mod cluster;
pub mod process;
pub mod proxy;
pub mod scene;
pub mod single;
pub mod skew;

use std::time::{Duration, Instant};

/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Lets time pass, where the passing of time is what happens: a fault that lasts, or the time between two of them. Never to wait
/// for something that may take longer on a busy machine.
pub async fn lasts(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Looks again and again until `condition` answers with a value, and returns it. Where it never does, the test ends by naming
/// `never`: what did not happen within the deadline.
///
/// ```text
/// let owner = eventually(Duration::from_secs(10), "shard 3 was taken over", async || lease(3).await).await;
/// ```
pub async fn eventually<T>(deadline: Duration, never: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(started.elapsed() < deadline, "within {deadline:?} it never happened that {never}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
