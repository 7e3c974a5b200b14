//! Profiles, activity and freshness as a reader gives them, and how often it waits for Redis to get them.

use std::time::Duration;

use heyday::activity::Activity;
use heyday::calendar::Calendar;
use heyday::change::UserId;
use heyday::client::reader::{Options, ProfileView, Reader, State};
use heyday::redis::Pipeline;
use jiff::Span;

use super::client::{Ground, WAIT};
use super::reader::{SHARD, append, applied, reader, store};
use crate::support::cluster::shared_cluster;
use crate::support::eventually;
use crate::support::proxy::Proxy;

/// The commands of one read of each kind.
const VIEW_COMMANDS: usize = 6;
const PROFILE_COMMANDS: usize = 8;

/// A worker has read all that is in the stream, and not applied it.
async fn deliver(ground: &Ground) {
    let key = ground.hub.shard_keys(SHARD).changes.clone();
    let group = ["XREADGROUP", "GROUP", "heyday", "owner", "STREAMS", key.as_str(), ">"];
    ground.ask_one(SHARD, &group).await;
}

async fn create_group(ground: &Ground) {
    let key = ground.hub.shard_keys(SHARD).changes.clone();
    ground.ask_one(SHARD, &["XGROUP", "CREATE", key.as_str(), "heyday", "0", "MKSTREAM"]).await;
}

async fn now(ground: &Ground) -> u64 {
    let time = ground.ask_one(SHARD, &["TIME"]).await;
    time.as_array().unwrap()[0].as_u64().unwrap() * 1000
}

#[tokio::test]
async fn a_profile_comes_with_activity_and_categories() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = store(&ground, 0).await;
    let keys = ground.hub.shard_keys(SHARD);
    let today = Calendar::default().today(now(&ground).await);
    let day = |back: i64| today.saturating_sub(Span::new().days(back)).to_string();
    let mut pipeline = Pipeline::new();
    let (activity, top) = (keys.activity(&user), keys.top(&user));
    pipeline.push(&[
        "HSET",
        activity.as_str(),
        &day(0),
        "2",
        &day(6),
        "3",
        &day(7),
        "10",
        &day(29),
        "20",
        &day(30),
        "9",
    ]);
    pipeline.push(&["ZADD", top.as_str(), "5", "music", "7", "films", "5", "art"]);
    pipeline.push(&[
        "HSET",
        keys.profile(&user).as_str(),
        "last_activity",
        "1795978800000",
        "level",
        "3",
        "beta",
        "yes",
    ]);
    ground.ask(SHARD, &pipeline).await;
    let reader = reader(&ground);
    let ProfileView { state, freshness, age, profile, activity, days, top, .. } = reader.profile(&user).await.unwrap();
    assert_eq!((state, freshness, age), (State::Live, Duration::ZERO, Duration::ZERO));
    assert_eq!((profile.version, profile.text("city")), (3, Some("Київ")));
    assert_eq!((profile.number("level"), profile.flag("beta")), (Ok(Some(3u8)), Ok(Some(true))));
    let last = Some(1_795_978_800_000);
    assert_eq!(activity, Activity { today: 2, last_7_days: 5, last_30_days: 35, last });
    assert_eq!((days.len(), days.get(&today)), (5, Some(&2)));
    assert_eq!(top, [("films".to_owned(), 7), ("art".to_owned(), 5), ("music".to_owned(), 5)]);
    let nobody = reader.profile(&ground.user(SHARD, 9)).await.unwrap();
    assert_eq!((nobody.state, nobody.activity, nobody.top), (State::Cold, Activity::default(), vec![]));
}

/// Reads while no answer comes back until everything is asked, and proves that nothing is asked after.
async fn at_once<T>(proxy: &Proxy, commands: usize, read: impl AsyncFnOnce() -> T) -> T {
    let before = proxy.commands();
    proxy.stall_answers();
    let all_asked = async {
        eventually(WAIT, "everything was asked before any answer", async || {
            (proxy.commands() == before + commands).then_some(())
        })
        .await;
        proxy.pass();
    };
    let (value, ()) = tokio::join!(read(), all_asked);
    assert_eq!(proxy.commands(), before + commands, "something was asked after the answers");
    value
}

/// Both reads, each in one round trip.
async fn in_one_round_trip(proxy: &Proxy, reader: &Reader, user: &UserId) -> (State, Duration) {
    let begun = reader.round_trips();
    let view = at_once(proxy, VIEW_COMMANDS, async || reader.read(user).await.unwrap()).await;
    assert_eq!(reader.round_trips(), begun + 1);
    let profile = at_once(proxy, PROFILE_COMMANDS, async || reader.profile(user).await.unwrap()).await;
    assert_eq!(reader.round_trips(), begun + 2);
    assert_eq!((profile.state, profile.profile), (view.state, view.profile));
    (view.state, view.freshness)
}

#[tokio::test]
async fn one_round_trip_answers_for_a_live_a_cold_and_a_waiting_user() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let (user, nobody) = (store(&ground, 0).await, ground.user(SHARD, 9));
    let reader = reader(&ground);
    // Opens the connection.
    reader.read(&user).await.unwrap();
    assert_eq!(in_one_round_trip(&proxy, &reader, &user).await, (State::Live, Duration::ZERO), "no stream yet");
    assert_eq!(in_one_round_trip(&proxy, &reader, &nobody).await, (State::Cold, Duration::ZERO));
    create_group(&ground).await;
    let now = now(&ground).await;
    let (done, old, recent) = (now - 90_000, now - 60_000, now - 1_000);
    for at in [done, old, recent] {
        append(&ground, &format!("{at}-0")).await;
    }
    deliver(&ground).await;
    applied(&ground, &format!("{done}-0")).await;
    let key = ground.hub.shard_keys(SHARD).changes.clone();
    ground.ask_one(SHARD, &["XACK", key.as_str(), "heyday", &format!("{done}-0")]).await;
    let (state, behind) = in_one_round_trip(&proxy, &reader, &user).await;
    assert_eq!(state, State::Stale);
    assert!(behind >= Duration::from_secs(60) && behind < Duration::from_secs(60) + WAIT, "{behind:?}");
    assert_eq!(in_one_round_trip(&proxy, &reader, &nobody).await.0, State::Cold);
}

#[tokio::test]
async fn what_no_worker_has_read_takes_a_second_round_trip() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = store(&ground, 0).await;
    create_group(&ground).await;
    let now = now(&ground).await;
    append(&ground, &format!("{}-0", now - 60_000)).await;
    append(&ground, &format!("{}-0", now - 1_000)).await;
    let reader = reader(&ground);
    let view = reader.read(&user).await.unwrap();
    assert_eq!((view.state, reader.round_trips()), (State::Stale, 2));
    assert!(view.freshness >= Duration::from_secs(60), "{:?}", view.freshness);
}

#[tokio::test]
async fn what_is_pending_below_the_position_is_not_taken_for_the_oldest() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = store(&ground, 0).await;
    create_group(&ground).await;
    let now = now(&ground).await;
    // Between a commit's effects and the look at what is pending, as a reader may find them.
    append(&ground, &format!("{}-0", now - 60_000)).await;
    deliver(&ground).await;
    applied(&ground, &format!("{}-0", now - 60_000)).await;
    append(&ground, &format!("{}-0", now - 1_000)).await;
    let reader = reader(&ground);
    let view = reader.read(&user).await.unwrap();
    assert_eq!((view.state, reader.round_trips()), (State::Live, 2));
    assert!(view.freshness >= Duration::from_secs(1) && view.freshness < Duration::from_secs(60));
}

#[tokio::test]
async fn own_fields_of_an_expired_profile_are_gone_for_readers() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = store(&ground, 0).await;
    let key = ground.hub.shard_keys(SHARD).profile(&user);
    ground.ask_one(SHARD, &["HSET", key.as_str(), "schema", "2", "plan", "gold", "expires_at", "1000"]).await;
    let options = Options { timeout: WAIT, profile_keep: ["plan".to_owned()].into(), ..Options::default() };
    let view = ground.hub.reader(options).read(&user).await.unwrap();
    assert_eq!((view.profile.text("city"), view.profile.text("plan")), (None, Some("gold")));
    assert_eq!(view.profile.birthday.to_string(), "1990-05-01");
}
