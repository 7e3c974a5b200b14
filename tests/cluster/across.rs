//! Changes that concern more than one shard: both sides of friendships, dates that all friends see, forgotten users.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::change::UserId;
use heyday::client::writer::Options;
use heyday::redis::Reply;
use heyday::testing::generate::{Generator, Settings};

use crate::support::cluster::{shared_cluster, unique_prefix};
use crate::support::eventually;
use crate::support::scene::{Scene, Snapshot};

const WAIT: Duration = Duration::from_secs(60);

async fn scene(settings: &[(&str, &str)]) -> Scene {
    Scene::begin_with(&shared_cluster().await, &unique_prefix(), 16, settings).await
}

fn id(user: &str) -> UserId {
    user.parse().expect("a good id")
}

/// Appends as any program does; answers once Redis has it.
async fn append(scene: &Scene, text: &str) {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    let fields: Vec<(&str, &str)> = pairs.collect();
    scene.hub.writer(Options::default()).append_fields(&fields).await.expect("a good change is appended");
}

async fn friends(scene: &Scene, user: &str) -> BTreeMap<String, String> {
    let user = id(user);
    let keys = scene.shard_keys(scene.layout.shard_of(&user));
    let reply = scene.command(keys.shard, &["HGETALL", keys.birthdays(&user).as_str()]).await;
    let text = |reply: &Reply| String::from_utf8_lossy(reply.as_bytes().expect("text")).into_owned();
    reply.as_pairs().expect("a hash").map(|(name, value)| (text(name), text(value))).collect()
}

fn dates<const N: usize>(dates: [(&str, &str); N]) -> BTreeMap<String, String> {
    dates.map(|(friend, date)| (friend.to_owned(), date.to_owned())).into()
}

/// Everything that can be said of a settled scene, and of what its shards have told each other.
async fn prove(scene: &Scene, users: &[UserId]) -> Snapshot {
    let snapshot = scene.prove().await;
    let evidence = scene.evidence(&snapshot);
    let wrong = [evidence.relays(), evidence.friendships(users)].concat();
    assert!(wrong.is_empty(), "{} things are wrong between shards:\n  {}", wrong.len(), wrong.join("\n  "));
    snapshot
}

#[tokio::test]
async fn who_knows_of_a_friendship_and_who_knows_a_date_need_not_know_each_other() {
    let scene = scene(&[]).await;
    let mut workers = scene.workers();
    workers.start();
    append(&scene, "type=birthday user=77 birthday=1990-05-01").await;
    append(&scene, "type=add user=42 friend=77 mutual=1").await;
    append(&scene, "type=add user=43 friend=42 mutual=1").await;
    scene.settle(WAIT).await;
    append(&scene, "type=birthday user=42 birthday=--02-29").await;
    scene.settle(WAIT).await;
    assert_eq!(friends(&scene, "42").await, dates([("77", "1990-05-01"), ("43", "")]));
    assert_eq!(friends(&scene, "77").await, dates([("42", "--02-29")]));
    assert_eq!(friends(&scene, "43").await, dates([("42", "--02-29")]));

    // A date that somebody gives stands until the person tells another.
    append(&scene, "type=add user=42 friend=43 birthday=1985-01-01 mutual=1").await;
    append(&scene, "type=remove user=77 friend=42 mutual=1").await;
    scene.settle(WAIT).await;
    assert_eq!(friends(&scene, "42").await, dates([("43", "1985-01-01")]));
    assert_eq!(friends(&scene, "77").await, dates([]));
    append(&scene, "type=birthday user=43 birthday=1986-01-01").await;
    scene.settle(WAIT).await;
    assert_eq!(friends(&scene, "42").await, dates([("43", "1986-01-01")]));
    prove(&scene, &[id("42"), id("77")]).await;
}

#[tokio::test]
async fn both_sides_end_alike_however_their_changes_meet() {
    let scene = scene(&[("HEYDAY_WORKER__OUTBOX_MAX", "20")]).await;
    let mut workers = scene.workers();
    let (first, second) = (workers.start(), workers.start());
    let settings = Settings {
        malformed_percent: 0.0,
        mutual_percent: 40,
        forgets_per_thousand: 5,
        ..Settings::new(30, scene.today())
    };
    let mut generator = Generator::new(5, settings);
    let writer = scene.hub.writer(Options::default());
    for part in 0..6 {
        let mut receipts = Vec::new();
        for _ in 0..700 {
            receipts.push(writer.enqueue_fields(&generator.entry().fields).await.expect("a good change"));
        }
        for receipt in receipts {
            receipt.await.expect("an appended change");
        }
        match part {
            1 => workers.kill(first),
            2 => workers.restart(first),
            3 => drop(workers.stop(second).await),
            _ => {}
        }
    }
    workers.restart(second);
    scene.settle(WAIT).await;
    let users: Vec<UserId> = (0..30).map(|user| id(&format!("u{user}"))).collect();
    prove(&scene, &users).await;
}

#[tokio::test]
async fn what_is_relayed_twice_is_applied_once() {
    let scene = scene(&[]).await;
    let mut workers = scene.workers();
    workers.start();
    append(&scene, "type=birthday user=42 birthday=1990-05-01").await;
    append(&scene, "type=add user=42 friend=77 mutual=1").await;
    scene.settle(WAIT).await;
    let shard = scene.layout.shard_of(&id("77"));
    let keys = scene.shard_keys(shard);
    let snapshot = Snapshot::take(&scene).await;
    let (_, relayed) = snapshot.entries(&scene, shard).into_iter().next().expect("the other side");
    // The friendship is over; what arrives late must not bring it back.
    append(&scene, "type=remove user=77 friend=42").await;
    scene.settle(WAIT).await;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let mut words = vec!["XADD".to_owned(), keys.changes.to_string(), "*".to_owned()];
    words.extend(relayed.iter().flat_map(|(name, value)| [text(name), text(value)]));
    scene.command(shard, &words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    scene.settle(WAIT).await;
    assert_eq!(friends(&scene, "77").await, dates([]));
    scene.prove().await;
}

#[tokio::test]
async fn a_person_with_very_many_friends_delays_nobody_and_is_told_to_all_through_a_crash() {
    const FRIENDS: usize = 20_000;
    let scene = scene(&[]).await;
    let star = id("star");
    let shard = scene.layout.shard_of(&star);
    let keys = scene.shard_keys(shard);
    // Friendships as twenty thousand changes would have left them.
    for chunk in (0..FRIENDS).collect::<Vec<_>>().chunks(1000) {
        let birthdays = keys.birthdays(&star).to_string();
        let names: Vec<String> = chunk.iter().map(|number| format!("f{number}")).collect();
        let mut words = vec!["HSET", birthdays.as_str()];
        words.extend(names.iter().flat_map(|name| [name.as_str(), ""]));
        scene.command(shard, &words).await;
    }
    let some: Vec<String> = (0..FRIENDS).step_by(500).map(|number| format!("f{number}")).collect();
    for friend in &some {
        append(&scene, &format!("type=add user={friend} friend=star")).await;
    }
    let mut workers = scene.workers();
    let worker = workers.start();
    scene.settle(WAIT).await;
    append(&scene, "type=birthday user=star birthday=1990-05-01").await;
    let under_way = async || {
        let reply = scene.command(shard, &["HGET", keys.fanout.as_str(), "star"]).await;
        reply.as_bytes_or_null().expect("a cursor").filter(|cursor| !cursor.is_empty()).map(|_| ())
    };
    eventually(WAIT, "some friends were told", under_way).await;
    // Somebody else of the same shard is served meanwhile.
    let neighbour = (0..).map(|number| format!("n{number}")).find(|name| scene.layout.shard_of(&id(name)) == shard);
    let neighbour = neighbour.expect("a user of the shard");
    append(&scene, &format!("type=add user={neighbour} friend=1 birthday=1990-05-01")).await;
    let served = async || friends(&scene, &neighbour).await.contains_key("1").then_some(());
    eventually(WAIT, "the neighbour was served", served).await;
    under_way().await.expect("the friends are not all told yet");
    workers.kill(worker);
    workers.restart(worker);
    scene.settle(WAIT).await;
    for friend in &some {
        assert_eq!(friends(&scene, friend).await, dates([("star", "1990-05-01")]), "{friend}");
    }
    // Resumed, not begun anew.
    let snapshot = Snapshot::take(&scene).await;
    let told: usize = scene
        .layout
        .shards()
        .flat_map(|shard| snapshot.entries(&scene, shard))
        .filter(|(_, fields)| fields.iter().any(|(name, value)| name == "type" && value == "mirror.birthday"))
        .map(|(_, fields)| {
            let others = fields.iter().find(|(name, _)| name == "others");
            1 + others.map_or(0, |(_, others)| others.split(|byte| *byte == b' ').count())
        })
        .sum();
    assert!((FRIENDS..FRIENDS + 2000).contains(&told), "{FRIENDS} friends were told {told} times");
}

#[tokio::test]
async fn a_shard_that_takes_nothing_fills_the_outbox_and_nothing_is_lost() {
    let scene = scene(&[("HEYDAY_WORKER__OUTBOX_MAX", "3")]).await;
    let mut workers = scene.workers();
    let source = id("42");
    let (shard, keys) = (scene.layout.shard_of(&source), scene.shard_keys(scene.layout.shard_of(&source)));
    let friends_of = |shard| {
        let scene = &scene;
        (0..).map(|number| format!("f{number}")).filter(move |name| scene.layout.shard_of(&id(name)) == shard)
    };
    let target = scene.layout.shards().find(|other| *other != shard).expect("another shard");
    let there: Vec<String> = friends_of(target).take(40).collect();
    // Not a stream: nothing can be appended there.
    scene.command(target, &["SET", scene.shard_keys(target).changes.as_str(), "x"]).await;
    let worker = workers.start();
    for friend in &there {
        append(&scene, &format!("type=add user=42 friend={friend} mutual=1")).await;
    }
    let waits = async || workers.log(worker).contains("outbox_full").then_some(());
    eventually(WAIT, "the shard told that it waits", waits).await;
    let waiting = scene.command(shard, &["XLEN", keys.outbox.as_str()]).await.as_u64().expect("a length");
    assert!(waiting >= 3, "{waiting} wait in the outbox");
    scene.command(target, &["DEL", scene.shard_keys(target).changes.as_str()]).await;
    scene.settle(WAIT).await;
    for friend in &there {
        assert_eq!(friends(&scene, friend).await, dates([("42", "")]), "{friend}");
    }
    prove(&scene, &[]).await;
}

#[tokio::test]
async fn a_forgotten_user_leaves_nothing_and_begins_clean() {
    let scene = scene(&[]).await;
    let mut workers = scene.workers();
    workers.start();
    append(&scene, "type=birthday user=42 birthday=1990-05-01").await;
    append(&scene, "type=profile user=42 profile.role=admin").await;
    append(&scene, "type=activity user=42 category=music weight=3").await;
    for friend in 0..30 {
        append(&scene, &format!("type=add user=42 friend=f{friend} birthday=1991-0{}-01 mutual=1", 1 + friend % 9))
            .await;
    }
    append(&scene, "type=add user=f0 friend=f1 mutual=1").await;
    let user = id("42");
    let keys = scene.shard_keys(scene.layout.shard_of(&user));
    for malformed in ["user 42 friend 42", "user other friend 42", "user other friend other"] {
        let words = format!("XADD {} * type add {malformed}", keys.changes);
        scene.command(keys.shard, &words.split(' ').collect::<Vec<_>>()).await;
    }
    scene.settle(WAIT).await;
    append(&scene, "type=forget user=42").await;
    scene.settle(WAIT).await;
    let snapshot = prove(&scene, &[id("f0"), id("f1")]).await;
    let left: Vec<_> =
        snapshot.contents.keys().filter(|name| name.contains(":42:") || name.contains("forgotten")).collect();
    assert_eq!(left, [keys.versions(&user).as_str()], "only what keeps late changes away");
    assert_eq!(snapshot.stream(keys.dead_letters.as_str()).len(), 1, "letters about others stay");
    assert!(friends(&scene, "f7").await.is_empty() && friends(&scene, "f0").await == dates([("f1", "")]));

    append(&scene, "type=add user=f7 friend=42 mutual=1").await;
    append(&scene, "type=activity user=42 category=news weight=2").await;
    scene.settle(WAIT).await;
    assert_eq!(
        scene.command(keys.shard, &["ZRANGE", keys.top(&user).as_str(), "0", "-1"]).await.as_array().unwrap().len(),
        1
    );
    assert_eq!(friends(&scene, "f7").await, dates([("42", "")]));
    assert_eq!(friends(&scene, "42").await, dates([("f7", "")]));
    prove(&scene, &[id("42"), id("f7")]).await;
}
