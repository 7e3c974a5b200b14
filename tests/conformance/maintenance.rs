//! The maintenance lock of both sides: the same steps give the same answers.

use std::sync::Arc;
use std::time::Duration;

use heyday::key::Keys;
use heyday::redis::maintenance::{GivenUp, MaintenanceLocks, Taken};
use heyday::redis::{Pipes, RedisStore};
use heyday::shard::Layout;
use heyday::store::{Maintenance, Store};
use heyday::testing::model::Model;

use crate::support::cluster::{shared_cluster, unique_prefix};

const TTL: Duration = Duration::from_secs(60);

/// What an operator does on one side.
trait Operator {
    /// Whether it is this holder's now.
    async fn on(&self, holder: &str, reason: &str, ttl: Duration) -> bool;
    async fn off(&self);
}

impl Operator for Model {
    async fn on(&self, holder: &str, reason: &str, ttl: Duration) -> bool {
        self.maintenance_on(holder, reason, ttl)
    }

    async fn off(&self) {
        self.maintenance_off();
    }
}

impl Operator for MaintenanceLocks {
    async fn on(&self, holder: &str, reason: &str, ttl: Duration) -> bool {
        match self.take(holder, reason, ttl).await.expect("an answer") {
            Taken::Mine(lock) => {
                assert_eq!((lock.holder.as_str(), lock.reason.as_str()), (holder, reason));
                true
            }
            Taken::Held(lock) => {
                assert!(lock.holder != holder && lock.left > Duration::ZERO, "{lock:?}");
                false
            }
        }
    }

    async fn off(&self) {
        let given_up = self.give_up("nobody", true).await.expect("an answer");
        assert!(matches!(given_up, GivenUp::Done(_) | GivenUp::None), "{given_up:?}");
    }
}

/// What each step gave.
async fn steps(store: &impl Store, operator: &impl Operator) -> Vec<String> {
    let worker = "worker".parse().expect("a name");
    let look = async |paused| match store.maintenance(&worker, paused).await.expect("an answer") {
        Maintenance::On(lock) => {
            assert!(lock.left <= TTL && lock.held_for < TTL, "{lock:?}");
            format!("on: {} {} {}", lock.holder, lock.reason, lock.left > TTL / 2)
        }
        other => format!("{other:?}"),
    };
    let mut told = vec![look(true).await];
    told.push(operator.on("ann", "first", TTL).await.to_string());
    told.push(look(true).await);
    told.push(operator.on("bob", "mine", TTL).await.to_string());
    told.push(operator.on("ann", "second", TTL / 3).await.to_string());
    told.push(look(false).await);
    operator.off().await;
    told.push(look(true).await);
    operator.off().await;
    told.push(look(true).await);
    told.push(operator.on("bob", "mine", TTL).await.to_string());
    told.push(look(true).await);
    told
}

#[tokio::test]
async fn maintenance_gives_the_same_answers_on_both_sides() {
    let (layout, keys) = (Layout::new(4).expect("a layout"), Keys::new(&unique_prefix()).expect("a prefix"));
    let topology = super::topology(&shared_cluster().await).await;
    let pipes = Arc::new(Pipes::new(topology.options().clone()));
    let locks = MaintenanceLocks::new(topology.clone(), pipes, &keys);
    let store = RedisStore::new(topology, keys.clone(), layout.clone());
    let model = Model::new(layout, keys, super::milliseconds());
    let (found, expected) = (steps(&store, &locks).await, steps(&model, &model).await);
    assert_eq!(found, expected, "found is Redis, expected the model");
    let paused = locks.look().await.expect("an answer").paused;
    assert_eq!(paused.into_iter().collect::<Vec<_>>(), ["worker"]);
    let (_, paused) = model.maintenance_paused().expect("it is on");
    assert_eq!(paused.len(), 1);
}
