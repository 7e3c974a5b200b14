//! What an idle owner must do by itself: nothing further comes that would wake it.

use std::time::Duration;

use bytes::Bytes;
use heyday::key::Keys;
use heyday::shard::{Layout, Shard};
use heyday::store::{Read, ShardLink, Store};
use heyday::testing::model::{Faults, Model};
use heyday::worker::{self, Options};
use tokio::time::{Instant, interval, timeout};

use super::world::context;

const SHARD: Shard = Shard(0);
const BLOCK: Duration = Duration::from_millis(500);

/// Looks at a condition once a step of paused time.
async fn until(deadline: Duration, never: &str, condition: impl Fn() -> bool) {
    let (begun, mut steps) = (Instant::now(), interval(Duration::from_millis(10)));
    while !condition() {
        assert!(begun.elapsed() <= deadline, "within {deadline:?} it never happened that {never}");
        steps.tick().await;
    }
}

fn model() -> Model {
    Model::new(Layout::new(1).unwrap(), Keys::new("").unwrap(), 1_795_946_400_000)
}

fn friendship(friend: &str) -> Vec<(Bytes, Bytes)> {
    let fields = [("type", "add"), ("user", "42"), ("friend", friend)];
    fields.map(|(name, value)| (Bytes::from(name.to_owned()), Bytes::from(value.to_owned()))).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_predecessors_pending_entries_are_settled_before_any_waiting() {
    let model = model();
    let mut predecessor = model.client().connect(SHARD).await.unwrap();
    let lease_ttl = Duration::from_secs(10);
    predecessor.take(&"predecessor".parse().unwrap(), lease_ttl).await.unwrap();
    model.append(SHARD, friendship("1")).unwrap();
    let read = predecessor.read(Read::New { block: BLOCK }, 10).await.unwrap();
    assert_eq!(read.len(), 1);
    drop(predecessor);

    let options = Options { block: 100 * BLOCK, lease_ttl, ..Options::default() };
    let owner = tokio::spawn(worker::run(context(&model, options), std::future::pending()));
    let never = "the predecessor's entry was settled";
    until(lease_ttl + Duration::from_secs(1), never, || model.unsettled(SHARD).is_empty()).await;
    owner.abort();
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_a_zombie_swallowed_is_settled_within_a_block_period() {
    let model = model();
    let owner = tokio::spawn(worker::run(
        context(&model, Options { block: BLOCK, ..Options::default() }),
        std::future::pending(),
    ));
    until(Duration::from_secs(1), "the shard was taken", || model.group(SHARD).is_some()).await;
    model.append(SHARD, friendship("1")).unwrap();
    until(Duration::from_secs(1), "the first entry was settled", || model.unsettled(SHARD).is_empty()).await;

    // A read of somebody who dies while it is blocked, which the server does not notice.
    let mut zombie = model.client().connect(SHARD).await.unwrap();
    model.set_faults(Faults { arrives_percent: 100, ..Faults::default() });
    let swallow = Read::New { block: 10 * BLOCK };
    assert!(timeout(Duration::from_millis(1), zombie.read(swallow, 10)).await.is_err());
    // Until the owner stands behind it in the queue.
    let queued = Instant::now();
    until(2 * BLOCK, "the owner read anew", || queued.elapsed() > BLOCK + BLOCK / 10).await;

    model.append(SHARD, friendship("2")).unwrap();
    let (_, pending) = model.group(SHARD).unwrap();
    assert_eq!(pending.len(), 1, "the zombie swallowed it");
    let never = "the owner found the swallowed entry";
    until(BLOCK + BLOCK / 10, never, || model.unsettled(SHARD).is_empty()).await;
    owner.abort();
}
