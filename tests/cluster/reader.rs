//! The reader against real nodes: what is stored, in one answer, marked with how far it can be relied on.

use std::time::Duration;

use heyday::birthday::Birthday;
use heyday::client::reader::{Error, Options, Profile, Reader, State};
use heyday::redis::Pipeline;
use heyday::shard::Shard;

use super::client::{Ground, WAIT, begin_move, end_move, fail_over, move_keys, other_primary};
use crate::support::cluster::{own_cluster, shared_cluster};
use crate::support::eventually;

pub const SHARD: Shard = Shard(0);

/// A user with a profile and two friends, as a worker writes them.
pub async fn store(ground: &Ground, number: usize) -> heyday::change::UserId {
    let user = ground.user(SHARD, number);
    let keys = ground.hub.shard_keys(SHARD);
    let mut pipeline = Pipeline::new();
    pipeline
        .command("HSET")
        .arg(keys.profile(&user).as_bytes())
        .arg("schema")
        .arg("1")
        .arg("version")
        .arg("3")
        .arg("updated_at")
        .arg("1700000000000")
        .arg("birthday")
        .arg("1990-05-01")
        .arg("city")
        .arg("Київ");
    pipeline.command("HSET").arg(keys.birthdays(&user).as_bytes()).arg("unknown").arg("").arg("friend").arg("--02-29");
    ground.ask(SHARD, &pipeline).await;
    user
}

pub async fn append(ground: &Ground, id: &str) {
    let key = ground.hub.shard_keys(SHARD).changes.clone();
    ground.ask_one(SHARD, &["XADD", key.as_str(), id, "type", "remove"]).await;
}

pub async fn applied(ground: &Ground, id: &str) {
    let key = ground.hub.shard_keys(SHARD).state.clone();
    ground.ask_one(SHARD, &["HSET", key.as_str(), "applied", id, "applied_at", "5"]).await;
}

pub fn reader(ground: &Ground) -> Reader {
    ground.hub.reader(Options { timeout: WAIT, ..Options::default() })
}

#[tokio::test]
async fn a_view_holds_what_is_stored() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = store(&ground, 0).await;
    let view = reader(&ground).read(&user).await.unwrap();
    assert_eq!((view.user, view.shard, view.state, view.freshness), (user, SHARD, State::Live, Duration::ZERO));
    let profile = Profile {
        schema: 1,
        version: 3,
        updated_at: Some(1_700_000_000_000),
        birthday: Birthday::parse("1990-05-01").unwrap(),
        fields: [("city".to_owned(), "Київ".to_owned())].into(),
        ..Profile::default()
    };
    assert_eq!(view.profile, profile);
    let friends: Vec<_> = view.friends.iter().map(|friend| (friend.friend.as_str(), friend.next.is_some())).collect();
    assert_eq!(friends, [("friend", true), ("unknown", false)]);
}

#[tokio::test]
async fn nobody_is_an_empty_view() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let view = reader(&ground).read(&ground.user(SHARD, 0)).await.unwrap();
    assert_eq!((view.state, view.profile, view.friends), (State::Cold, Profile::default(), vec![]));
}

#[tokio::test]
async fn freshness_is_the_age_of_the_oldest_change_not_applied() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = store(&ground, 0).await;
    let time = ground.ask_one(SHARD, &["TIME"]).await;
    let now: u64 = time.as_array().unwrap()[0].as_u64().unwrap() * 1000;
    let reader = reader(&ground);
    let state = async || {
        let view = reader.read(&user).await.unwrap();
        (view.state, view.freshness)
    };
    let old = format!("{}-0", now - 60_000);
    append(&ground, &old).await;
    let recent = format!("{}-0", now - 1_000);
    append(&ground, &recent).await;
    let (stale, behind) = state().await;
    assert_eq!(stale, State::Stale);
    assert!(behind >= Duration::from_secs(60) && behind < Duration::from_secs(60) + WAIT, "{behind:?}");
    applied(&ground, &old).await;
    let (_, behind) = state().await;
    assert!(behind >= Duration::from_secs(1) && behind < Duration::from_secs(1) + WAIT, "{behind:?}");
    applied(&ground, &recent).await;
    assert_eq!(state().await, (State::Live, Duration::ZERO));
}

#[tokio::test]
async fn a_silent_node_is_an_error_that_names_it_within_the_timeout() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let user = store(&ground, 0).await;
    let reader = ground.hub.reader(Options { timeout: Duration::from_millis(500), ..Options::default() });
    reader.read(&user).await.unwrap();
    proxy.stall();
    let error = tokio::time::timeout(WAIT, reader.read(&user)).await.expect("an answer").unwrap_err();
    let Error::Redis { shard, .. } = &error;
    assert_eq!(*shard, SHARD);
    assert!(error.to_string().contains(&ground.owner(SHARD).to_string()), "{error}");
    proxy.pass();
    eventually(WAIT, "reads went on", async || reader.read(&user).await.ok()).await;
}

#[tokio::test]
async fn a_foreign_key_in_a_views_place_is_refused_by_name() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = ground.user(SHARD, 0);
    let key = ground.hub.shard_keys(SHARD).profile(&user);
    ground.ask_one(SHARD, &["SET", key.as_str(), "x"]).await;
    let error = reader(&ground).read(&user).await.unwrap_err();
    assert_eq!(error.disposition(), heyday::error::Disposition::Poison, "{error}");
    assert!(error.to_string().contains("WRONGTYPE") && error.to_string().contains(user.as_str()), "{error}");
}

#[tokio::test]
async fn reads_follow_a_slot_through_its_whole_move_cluster_own() {
    let cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 1).await;
    let (source, target) = (ground.index_of(&ground.owner(SHARD)), other_primary(&ground, SHARD));
    let (moved, stays) = (store(&ground, 0).await, store(&ground, 1).await);
    append(&ground, "5-0").await;
    applied(&ground, "5-0").await;
    let reader = reader(&ground);
    let whole = async |step: &str| {
        for user in [&moved, &stays] {
            let view = reader.read(user).await.unwrap();
            assert_eq!((view.profile.version, view.friends.len(), view.state), (3, 2, State::Live), "{step}");
        }
        assert_eq!(reader.read(&ground.user(SHARD, 9)).await.unwrap().state, State::Cold, "{step}");
    };
    whole("before").await;
    begin_move(&ground, SHARD, target).await;
    whole("under way").await;
    let keys = ground.hub.shard_keys(SHARD);
    let (profile, birthdays) = (keys.profile(&moved), keys.birthdays(&stays));
    let some = [profile.as_str(), birthdays.as_str(), keys.changes.as_str()];
    move_keys(&ground, source, target, &some).await;
    whole("with some keys here and some there").await;
    end_move(&ground, SHARD, source, target).await;
    whole("after").await;
}

#[tokio::test]
async fn reads_follow_a_failover_cluster_own() {
    let cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 1).await;
    let user = store(&ground, 0).await;
    let reader = reader(&ground);
    reader.read(&user).await.unwrap();
    let primary = ground.index_of(&ground.owner(SHARD));
    fail_over(&cluster, primary + 3).await;
    // Up to then the old primary answers, and it answers rightly.
    eventually(WAIT, "the new primary was asked", async || {
        assert_eq!(reader.read(&user).await.unwrap().profile.version, 3);
        (ground.index_of(&ground.owner(SHARD)) == primary + 3).then_some(())
    })
    .await;
}
