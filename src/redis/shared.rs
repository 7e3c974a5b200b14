//! One shared thing a node, opened with its first use and again with the first use after it broke.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use tokio::{sync::Mutex, time::Instant};

use super::{error::Error, options::NodeAddress};

/// After a failure to open, the next try waits this long, doubled with every further failure.
const OPEN_DELAY_MIN: Duration = Duration::from_millis(50);
const OPEN_DELAY_MAX: Duration = Duration::from_secs(2);

/// What is kept by node.
#[derive(Debug)]
pub struct Shared<T> {
    nodes: DashMap<NodeAddress, Arc<Mutex<Slot<T>>>>,
}

#[derive(Debug)]
struct Slot<T> {
    open: Option<T>,
    failed: Option<Failed>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { open: None, failed: None }
    }
}

#[derive(Debug)]
struct Failed {
    error: Error,
    delay: Duration,
    until: Instant,
}

impl<T: Clone> Shared<T> {
    pub fn new() -> Self {
        Self { nodes: DashMap::new() }
    }

    /// What is open to `node`, or what `open` brings. Callers that come meanwhile wait for the same one. Soon after a
    /// failure the same error comes back at once: a dead node is not dialled by every caller.
    pub async fn get(
        &self,
        node: &NodeAddress,
        is_alive: impl Fn(&T) -> bool,
        open: impl AsyncFnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let slot = self.nodes.entry(node.clone()).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(alive) = slot.open.as_ref().filter(|open| is_alive(open)) {
            return Ok(alive.clone());
        }
        slot.open = None;
        if let Some(failed) = slot.failed.as_ref().filter(|failed| Instant::now() < failed.until) {
            return Err(failed.error.clone());
        }
        match open().await {
            Ok(opened) => {
                slot.failed = None;
                slot.open = Some(opened.clone());
                Ok(opened)
            }
            Err(error) => {
                let longer = slot.failed.as_ref().map(|failed| failed.delay * 2);
                let delay = longer.unwrap_or(OPEN_DELAY_MIN).min(OPEN_DELAY_MAX);
                slot.failed = Some(Failed { error: error.clone(), delay, until: Instant::now() + delay });
                Err(error)
            }
        }
    }

    /// Lets go of what is open to nodes that `keep` does not want.
    pub fn retain(&self, keep: impl Fn(&NodeAddress) -> bool) {
        self.nodes.retain(|node, _| keep(node));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn node() -> NodeAddress {
        NodeAddress::new("node", 1)
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_node_is_tried_ever_less_often() {
        let shared = Shared::<u32>::new();
        let tries = AtomicUsize::new(0);
        let open = async || {
            tries.fetch_add(1, Ordering::Relaxed);
            Err(Error::Unreachable { tried: "it is dead".into() })
        };
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            let error = shared.get(&node(), |_| true, open).await.unwrap_err();
            assert!(error.to_string().contains("it is dead"));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let tries = tries.into_inner();
        assert!((30..40).contains(&tries), "{tries} tries within a minute");
    }

    #[tokio::test]
    async fn what_is_open_is_shared_until_it_breaks() {
        let shared = Shared::new();
        let first = shared.get(&node(), |_| true, async || Ok(1)).await.unwrap();
        let second = shared.get(&node(), |_| true, async || Ok(2)).await.unwrap();
        let third = shared.get(&node(), |_| false, async || Ok(3)).await.unwrap();
        assert_eq!((first, second, third), (1, 1, 3));
        shared.retain(|_| false);
        assert_eq!(shared.get(&node(), |_| true, async || Ok(4)).await.unwrap(), 4);
    }
}
