//! Leases, generations and the list of living workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heyday::key::Keys;
use heyday::position::CommitId;
use heyday::redis::{ConnectOptions, Link, RedisStore, Topology};
use heyday::shard::{Layout, Shard};
use heyday::store::{Cause, ShardLink, Store, Taken};

use super::{Ground, SHARD, TTL, WAIT, command, id, mine, options};
use crate::support::cluster::{shared_cluster, unique_prefix};
use crate::support::eventually;
use crate::support::proxy::Proxy;

#[tokio::test]
async fn a_lease_has_one_holder_and_each_take_a_higher_generation() {
    let ground = Ground::shared().await;
    let (mut first, state) = ground.owner("a").await;
    assert_eq!((state.last, state.applied), Default::default());
    let mut second = ground.link().await;
    assert_eq!(second.take(&id("b"), TTL).await.unwrap(), Taken::Held(id("a")));
    let again = mine(first.take(&id("a"), TTL).await.unwrap());
    assert!(again.generation > state.generation);

    assert!(!ground.store.release(SHARD, &id("b")).await.unwrap(), "not b's to release");
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap());
    assert!(!ground.store.release(SHARD, &id("a")).await.unwrap(), "released already");
    let after = mine(second.take(&id("b"), TTL).await.unwrap());
    assert!(after.generation > again.generation);
}

#[tokio::test]
async fn a_lease_runs_out_unless_renewed() {
    let ground = Ground::shared().await;
    let (mut first, mut second) = (ground.link().await, ground.link().await);
    mine(first.take(&id("a"), Duration::from_millis(50)).await.unwrap());
    let taken = eventually(WAIT, "the lease ran out", async || match second.take(&id("b"), TTL).await.unwrap() {
        Taken::Mine(state, cause) => Some((state, cause)),
        Taken::Held(_) => None,
    });
    assert_eq!(taken.await.1, Cause::Expired);
    assert!(!first.renew(&id("a"), TTL).await.unwrap(), "it is b's");

    mine(second.take(&id("b"), Duration::from_secs(5)).await.unwrap());
    assert!(second.renew(&id("b"), TTL).await.unwrap());
    let mut ground = ground;
    let lease = ground.keys.lease.clone();
    assert!(ground.number(&["PTTL", lease.as_str()]).await > 50_000);
}

#[tokio::test]
async fn a_take_tells_why_the_shard_was_free_and_the_state_counts_moves() {
    let mut ground = Ground::shared().await;
    let (mut first, mut second) = (ground.link().await, ground.link().await);
    let (lease, state) = (ground.keys.lease.clone(), ground.keys.state.clone());
    let cause = |taken: Taken| match taken {
        Taken::Mine(_, cause) => cause,
        Taken::Held(holder) => panic!("{holder} holds the lease"),
    };
    assert_eq!(cause(first.take(&id("a"), TTL).await.unwrap()), Cause::First);
    assert_eq!(cause(first.take(&id("a"), TTL).await.unwrap()), Cause::Same);
    ground.command(&["DEL", lease.as_str()]).await;
    assert_eq!(cause(first.take(&id("a"), TTL).await.unwrap()), Cause::Same, "nobody else took it meanwhile");
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap());
    assert_eq!(cause(first.take(&id("a"), TTL).await.unwrap()), Cause::Released);
    assert_eq!(
        ground.text(&["HGET", state.as_str(), "moves"]).await.as_deref(),
        Some("0"),
        "a has had it all the time"
    );
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap());
    assert_eq!(cause(second.take(&id("b"), TTL).await.unwrap()), Cause::Released);
    ground.command(&["DEL", lease.as_str()]).await;
    assert_eq!(cause(first.take(&id("a"), TTL).await.unwrap()), Cause::Expired);
    for (field, value) in [("moves", "2"), ("owner", "a")] {
        assert_eq!(ground.text(&["HGET", state.as_str(), field]).await.as_deref(), Some(value));
    }
    ground.command(&["HSET", state.as_str(), "moves", "many"]).await;
    assert!(first.take(&id("a"), TTL).await.unwrap_err().message.contains("moves is not a number"));
}

#[tokio::test]
async fn a_release_leaves_no_state_where_there_was_none() {
    let mut ground = Ground::shared().await;
    ground.owner("a").await;
    let state = ground.keys.state.clone();
    ground.command(&["DEL", state.as_str()]).await;
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap());
    assert!(!ground.exists(&state).await);
    ground.owner("a").await;
    ground.command(&["SET", state.as_str(), "planted"]).await;
    assert!(ground.store.release(SHARD, &id("a")).await.unwrap(), "whoever mends the state finds no lease in the way");
}

#[tokio::test]
async fn a_lease_is_shortened_only_while_it_is_that_holders_and_only_if_it_is_too_long() {
    let mut ground = Ground::shared().await;
    let lease = ground.keys.lease.clone();
    let ttl = Duration::from_secs(5);
    ground.command(&["SET", lease.as_str(), "planted"]).await;
    let shorten = async |holder: &str, ttl| {
        let mut answers = ground.store.shorten(&[(SHARD, id(holder))], ttl).await;
        answers.pop().unwrap().unwrap()
    };
    assert!(!shorten("other", ttl).await);
    assert!(shorten("planted", TTL).await);
    assert!(!shorten("planted", TTL).await, "it lasts no longer by now");
    assert!(shorten("planted", ttl).await);
    assert!((1..=5_000).contains(&ground.number(&["PTTL", lease.as_str()]).await));
    ground.command(&["DEL", lease.as_str()]).await;
    let gone = ground.store.shorten(&[(SHARD, id("planted"))], ttl).await;
    assert_eq!(gone.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [false]);
}

#[tokio::test]
async fn holders_are_told_shard_by_shard_over_all_nodes() {
    let ground = Ground::shared().await;
    ground.owner("a").await;
    let shards: Vec<Shard> = (0..4).map(Shard).collect();
    let holders: Vec<_> =
        ground.store.holders(&shards).await.into_iter().map(|holder| holder.expect("an answer")).collect();
    assert_eq!(holders, [None, Some(id("a")), None, None]);
    assert!(ground.store.holders(&[]).await.is_empty());
}

#[tokio::test]
async fn a_silent_node_holds_up_no_answer_about_the_others_shards() {
    let nodes = shared_cluster().await;
    let mut options = options(&nodes);
    let silent = options.seeds[0].clone();
    let proxy = Proxy::start(&silent).await;
    options.address_map.insert(silent, proxy.address().clone());
    let topology = Arc::new(Topology::connect(Arc::new(options)).await.unwrap());
    let store = RedisStore::new(topology, Keys::new(&unique_prefix()).unwrap(), Layout::new(4).unwrap());
    let shards: Vec<Shard> = (0..4).map(Shard).collect();
    assert!(store.holders(&shards).await.iter().all(Result::is_ok));
    proxy.stall();
    let begun = Instant::now();
    let silent: Vec<bool> = store.holders(&shards).await.iter().map(Result::is_err).collect();
    assert_eq!(silent, [true, false, false, false]);
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_living_are_those_who_were_heard_of_late() {
    let ground = Ground::shared().await;
    let long = Duration::from_secs(60);
    assert_eq!(ground.store.heartbeat(&id("a"), long).await.unwrap(), [id("a")]);
    let mut living = ground.store.heartbeat(&id("b"), long).await.unwrap();
    living.sort();
    assert_eq!(living, [id("a"), id("b")]);
    eventually(WAIT, "a was forgotten", async || {
        let living = ground.store.heartbeat(&id("b"), Duration::ZERO).await.unwrap();
        (living == [id("b")]).then_some(())
    })
    .await;
    ground.store.leave(&id("b")).await.unwrap();
    ground.store.leave(&id("b")).await.unwrap();
    assert_eq!(ground.store.heartbeat(&id("c"), long).await.unwrap(), [id("c")]);
}

#[tokio::test]
async fn who_was_heard_of_before_the_clock_went_back_is_not_waited_for() {
    let ground = Ground::shared().await;
    let workers = ground.registry.workers();
    let node = ground.store.topology().node_of(workers.slot()).unwrap();
    let mut link = Link::connect(&node.address, &ConnectOptions::default()).await.unwrap();
    let long = Duration::from_secs(60);
    let added = command(&mut link, &["ZADD", workers.as_str(), "5000000000000", "gone"]).await;
    assert_eq!(added.as_i64().unwrap(), 1);
    assert_eq!(ground.store.heartbeat(&id("a"), long).await.unwrap(), [id("a")]);
}

#[tokio::test]
async fn commit_ids_are_never_issued_twice() {
    let mut ground = Ground::shared().await;
    let (log, state) = (ground.keys.log.clone(), ground.keys.state.clone());
    // A clock that was far ahead, whose state a failover has lost: the log is all that knows.
    ground.text(&["XADD", log.as_str(), "5000000000000-7", "s", "x"]).await;
    ground.command(&["XTRIM", log.as_str(), "MAXLEN", "0"]).await;
    let (mut link, taken) = ground.owner("a").await;
    assert_eq!(taken.generation, 5_000_000_000_001);
    // The other way round.
    ground.command(&["HSET", state.as_str(), "generation", "6000000000000", "last", "6000000000000-3"]).await;
    let taken = mine(link.take(&id("a"), TTL).await.unwrap());
    assert_eq!((taken.generation, taken.last), (6_000_000_000_001, CommitId::new(6_000_000_000_000, 3)));
}
