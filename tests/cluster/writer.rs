//! The writer against real nodes: what it says of a change is what the stream holds.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::change::{Action, Change, Producer, UserId};
use heyday::client::Failure;
use heyday::client::writer::{Appended, Error, Options, Receipt, Writer};
use heyday::error::Disposition;
use heyday::redis;
use heyday::shard::Shard;

use super::client::{Ground, WAIT, begin_move, end_move, move_keys, other_primary};
use crate::support::cluster::{own_cluster, redis_cli, shared_cluster};
use crate::support::eventually;
use crate::support::proxy::Cut;

const SHARD: Shard = Shard(0);

/// A change that can be told from all others by its field `friend`.
fn numbered(user: &UserId, number: usize) -> Change {
    Change::new(user.clone(), Action::Remove { friend: format!("f{number}").parse().unwrap(), mutual: false })
}

fn produced(user: &UserId, sequence: usize) -> Change {
    let producer = Some(Producer { name: "relay".to_owned(), sequence: sequence as u64 });
    Change { producer, ..numbered(user, sequence) }
}

fn friends(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("f{number}")).collect()
}

async fn settled(receipts: Vec<Receipt>) -> Vec<Result<Appended, Error>> {
    let mut results = Vec::with_capacity(receipts.len());
    for receipt in receipts {
        results.push(tokio::time::timeout(WAIT, receipt).await.expect("every receipt is settled"));
    }
    results
}

async fn all_appended(receipts: Vec<Receipt>) -> Vec<Appended> {
    settled(receipts).await.into_iter().collect::<Result<_, _>>().expect("every change is appended")
}

async fn enqueue_all(writer: &Writer, changes: impl IntoIterator<Item = Change>) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for change in changes {
        receipts.push(writer.enqueue(&change).await.expect("room in the queue"));
    }
    receipts
}

/// What a worker keeps: sequences that are above all before them.
fn without_repetitions(sequences: &[String]) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for sequence in sequences.iter().map(|text| text.parse().unwrap()) {
        if kept.last().is_none_or(|last| sequence > *last) {
            kept.push(sequence);
        }
    }
    kept
}

#[tokio::test]
async fn an_appended_change_is_in_the_stream_under_its_id() {
    let ground = Ground::new(&shared_cluster().await, 4).await;
    let writer = ground.hub.writer(Options::default());
    let shard = Shard(2);
    let appended = writer.append(&numbered(&ground.user(shard, 0), 7)).await.unwrap();
    assert_eq!(appended.shard, shard);
    let key = ground.hub.shard_keys(shard).changes.clone();
    let id = appended.id.to_string();
    let entries = ground.ask_one(shard, &["XRANGE", key.as_str(), &id, &id]).await;
    assert_eq!(entries.as_array().unwrap().len(), 1);
    assert_eq!(ground.appended(shard, "type").await, ["remove"]);
    assert_eq!(ground.appended(shard, "friend").await, ["f7"]);
}

#[tokio::test]
async fn what_no_worker_would_apply_is_refused_before_it_is_sent() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let writer = ground.hub.writer(Options::default());
    let user = ground.user(SHARD, 0);
    let own = Change::new(user.clone(), Action::Remove { friend: user.clone(), mutual: false });
    for (refused, expected) in [
        (writer.append(&own).await, format!("friend {:?}: the same as user", user.as_str())),
        (
            writer.append_fields(&[("type", "birthday"), ("user", "1"), ("birthday", "1990-02-30")]).await,
            "birthday \"1990-02-30\": no such day".to_owned(),
        ),
        (
            writer.append_fields(&[("type", "birthday"), ("user", "1"), ("birthday", "9990-01-01")]).await,
            "birthday \"9990-01-01\": in the future".to_owned(),
        ),
        (writer.append_fields(&[("type", "add")]).await, "user: missing".to_owned()),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Rejected(_)) && error.disposition() == Disposition::Poison, "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
    assert!(ground.appended(SHARD, "type").await.is_empty());
    let fields = [("type", "remove"), ("user", "1"), ("friend", "2"), ("trace", "abc")];
    writer.append_fields(&fields).await.unwrap();
    assert_eq!(ground.appended(SHARD, "trace").await, ["abc"], "fields go as they are");
}

#[tokio::test]
async fn many_on_their_way_keep_their_order_in_every_shard() {
    const CHANGES: usize = 4_000;
    let ground = Ground::new(&shared_cluster().await, 8).await;
    let options = Options { batch_changes_max: 16, queue_changes_max: 64, ..Options::default() };
    let writer = ground.hub.writer(options);
    let users: Vec<UserId> = ground.layout.shards().map(|shard| ground.user(shard, 0)).collect();
    let changes = (0..CHANGES).map(|number| numbered(&users[number % users.len()], number));
    let appended = all_appended(enqueue_all(&writer, changes).await).await;
    for shard in ground.layout.shards() {
        let mine = appended.iter().filter(|appended| appended.shard == shard);
        assert!(mine.map(|appended| appended.id).is_sorted(), "ids of shard {shard}");
        let expected = friends((usize::from(shard.0)..CHANGES).step_by(users.len()));
        assert_eq!(ground.appended(shard, "friend").await, expected, "shard {shard}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_those_behind_it_go_on() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let writer = ground.hub.writer(Options::default());
    let user = ground.user(SHARD, 0);
    writer.append(&numbered(&user, 0)).await.unwrap();
    proxy.stall_answers();
    let sent = enqueue_all(&writer, [numbered(&user, 1)]).await;
    eventually(WAIT, "the second change arrived", async || {
        (ground.appended(SHARD, "friend").await.len() == 2).then_some(())
    })
    .await;
    let behind = enqueue_all(&writer, (2..6).map(|number| numbered(&user, number))).await;
    proxy.cut(Cut::Reset);
    proxy.pass();
    let unknown = settled(sent).await.remove(0).unwrap_err();
    assert!(matches!(unknown, Error::Unknown { .. }) && unknown.possibly_appended(), "{unknown}");
    assert_eq!(unknown.disposition(), Disposition::Ambiguous);
    all_appended(behind).await;
    assert_eq!(ground.appended(SHARD, "friend").await, friends(0..6));
}

#[tokio::test]
async fn what_never_arrived_is_unknown_too_but_not_there() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let writer = ground.hub.writer(Options::default());
    let user = ground.user(SHARD, 0);
    proxy.hold_before("XADD");
    let held = enqueue_all(&writer, [numbered(&user, 1)]).await;
    proxy.held().await;
    proxy.cut(Cut::Fin);
    let error = settled(held).await.remove(0).unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    writer.append(&numbered(&user, 2)).await.unwrap();
    assert_eq!(ground.appended(SHARD, "friend").await, friends([2]));
}

#[tokio::test]
async fn a_producers_lost_answer_is_sent_again_in_order() {
    const CHANGES: usize = 60;
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let writer = ground.hub.writer(Options { batch_changes_max: 8, ..Options::default() });
    let user = ground.user(SHARD, 0);
    // The connection is open before its answers stop.
    writer.append(&produced(&user, 0)).await.unwrap();
    for round in 0..3 {
        let first = round * CHANGES / 3 + 1;
        proxy.stall_answers();
        let sequences = first..first + CHANGES / 3;
        let receipts = enqueue_all(&writer, sequences.map(|sequence| produced(&user, sequence))).await;
        let first = first.to_string();
        eventually(WAIT, "the first of the round arrived", async || {
            ground.appended(SHARD, "seq").await.contains(&first).then_some(())
        })
        .await;
        proxy.cut(Cut::Reset);
        proxy.pass();
        all_appended(receipts).await;
    }
    let sequences = ground.appended(SHARD, "seq").await;
    assert!(sequences.len() > CHANGES + 1, "some were sent twice");
    assert_eq!(without_repetitions(&sequences), (0..=CHANGES).collect::<Vec<_>>(), "{sequences:?}");
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_a_certain_refusal() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    proxy.refuse(true);
    let timeout = Duration::from_millis(300);
    let writer = ground.hub.writer(Options { timeout, ..Options::default() });
    let user = ground.user(SHARD, 0);
    let error = writer.append(&numbered(&user, 1)).await.unwrap_err();
    let Error::Refused { why: Failure { node: Some(node), .. }, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*node, ground.owner(SHARD));
    assert!(!error.possibly_appended() && error.to_string().contains(&node.to_string()), "{error}");
    proxy.refuse(false);
    eventually(WAIT, "appends went on", async || writer.append(&numbered(&user, 2)).await.ok()).await;
    assert_eq!(ground.appended(SHARD, "friend").await, friends([2]));
}

#[tokio::test]
async fn a_full_queue_makes_the_caller_wait() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let user = ground.user(SHARD, 0);
    let warm = ground.hub.writer(Options::default());
    warm.append(&numbered(&user, 0)).await.unwrap();
    proxy.stall();
    let options = Options { timeout: Duration::from_millis(400), queue_changes_max: 3, ..Options::default() };
    let writer = ground.hub.writer(options);
    let receipts = enqueue_all(&writer, (1..=3).map(|number| numbered(&user, number))).await;
    let error = writer.enqueue(&numbered(&user, 4)).await.unwrap_err();
    assert!(matches!(error, Error::Full { .. }) && !error.possibly_appended(), "{error}");
    proxy.pass();
    settled(receipts).await;
    eventually(WAIT, "there was room again", async || writer.append(&numbered(&user, 5)).await.ok()).await;
}

#[tokio::test]
async fn a_producer_cannot_overtake_its_own_failed_change() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let user = ground.user(SHARD, 0);
    proxy.refuse(true);
    let writer = ground.hub.writer(Options { timeout: Duration::from_millis(300), ..Options::default() });
    let receipts = enqueue_all(&writer, (1..=3).map(|sequence| produced(&user, sequence))).await;
    for (index, result) in settled(receipts).await.into_iter().enumerate() {
        let error = result.unwrap_err();
        let expected = match index {
            0 => matches!(error, Error::Refused { .. }),
            _ => matches!(error, Error::Behind { sequence: 1, .. }),
        };
        assert!(expected && !error.possibly_appended(), "{index}: {error}");
    }
    proxy.refuse(false);
    let error = writer.append(&produced(&user, 4)).await.unwrap_err();
    assert_eq!(error.to_string(), "shard 0: not appended: sequence 1 of producer \"relay\" comes first");
    writer.append(&numbered(&user, 9)).await.expect("others are not concerned");
    let patient = Options::default();
    let writer = ground.hub.writer(patient);
    all_appended(enqueue_all(&writer, (1..=4).map(|sequence| produced(&user, sequence))).await).await;
    assert_eq!(ground.appended(SHARD, "seq").await, ["", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_producer_cannot_overtake_what_was_abandoned() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let user = ground.user(SHARD, 0);
    let writer = ground.hub.writer(Options { batch_changes_max: 1, ..Options::default() });
    proxy.stall();
    // The task that appends lives in a runtime that ends before any answer came.
    let doomed = tokio::runtime::Runtime::new().unwrap();
    let (cloned, changes) = (writer.clone(), (1..=3).map(move |sequence| produced(&user, sequence)));
    let sent = doomed.spawn(async move { enqueue_all(&cloned, changes).await }).await.unwrap();
    doomed.shutdown_background();
    for result in settled(sent).await {
        assert!(matches!(result, Err(Error::Abandoned { .. })), "{result:?}");
    }
    proxy.pass();
    let user = ground.user(SHARD, 0);
    let error = writer.append(&produced(&user, 4)).await.unwrap_err();
    assert!(matches!(error, Error::Behind { sequence: 1, .. }), "{error}");
    all_appended(enqueue_all(&writer, (1..=4).map(|sequence| produced(&user, sequence))).await).await;
    assert!(ground.appended(SHARD, "seq").await.ends_with(&["1", "2", "3", "4"].map(str::to_owned)));
}

#[tokio::test]
async fn a_foreign_key_in_the_streams_place_is_refused_at_once() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let key = ground.hub.shard_keys(SHARD).changes.clone();
    ground.ask_one(SHARD, &["SET", key.as_str(), "x"]).await;
    let writer = ground.hub.writer(Options::default());
    let user = ground.user(SHARD, 0);
    let receipts = enqueue_all(&writer, (0..40).map(|number| numbered(&user, number))).await;
    for result in settled(receipts).await {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, Error::Refused { why, .. } if matches!(why.error, redis::Error::Server(_))),
            "{error}"
        );
        assert_eq!(error.disposition(), Disposition::Poison, "{error}");
    }
}

#[tokio::test]
async fn full_memory_holds_appends_back_in_order_cluster_own() {
    const CHANGES: usize = 500;
    let cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 1).await;
    let owner = ground.index_of(&ground.owner(SHARD));
    let user = ground.user(SHARD, 0);
    let writer = ground.hub.writer(Options { batch_changes_max: 10, ..Options::default() });
    let refusals = async || {
        let stats = redis_cli(&cluster, owner, &["INFO", "errorstats"]).await;
        stats.lines().any(|line| line.starts_with("errorstat_OOM")).then_some(())
    };
    let mut receipts = enqueue_all(&writer, (0..CHANGES / 2).map(|number| numbered(&user, number))).await;
    redis_cli(&cluster, owner, &["CONFIG", "SET", "maxmemory", "1"]).await;
    receipts.extend(enqueue_all(&writer, (CHANGES / 2..CHANGES).map(|number| numbered(&user, number))).await);
    eventually(WAIT, "Redis refused for lack of memory", refusals).await;
    let impatient = ground.hub.writer(Options { timeout: Duration::from_millis(200), ..Options::default() });
    let error = impatient.append(&numbered(&user, CHANGES)).await.unwrap_err();
    assert_eq!(error.disposition(), Disposition::Full, "{error}");
    redis_cli(&cluster, owner, &["CONFIG", "SET", "maxmemory", "0"]).await;
    all_appended(receipts).await;
    assert_eq!(ground.appended(SHARD, "friend").await, friends(0..CHANGES));
}

#[tokio::test]
async fn appends_follow_a_slot_through_its_whole_move_cluster_own() {
    let cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 1).await;
    let (source, target) = (ground.index_of(&ground.owner(SHARD)), other_primary(&ground, SHARD));
    let writer = ground.hub.writer(Options::default());
    let user = ground.user(SHARD, 0);
    let append = async |numbers: std::ops::Range<usize>| {
        all_appended(enqueue_all(&writer, numbers.map(|number| numbered(&user, number))).await).await
    };
    append(0..50).await;
    begin_move(&ground, SHARD, target).await;
    append(50..100).await;
    let key = ground.hub.shard_keys(SHARD).changes.clone();
    move_keys(&ground, source, target, &[key.as_str()]).await;
    // The owner says ASK now, for one alone as for many.
    append(100..101).await;
    append(101..150).await;
    end_move(&ground, SHARD, source, target).await;
    append(150..200).await;
    assert_eq!(ground.appended(SHARD, "friend").await, friends(0..200));
    assert_eq!(ground.index_of(&ground.owner(SHARD)), target, "the client knows the new owner");
}

#[tokio::test]
async fn a_killed_node_leaves_no_wrong_word_cluster_own() {
    const CHANGES: usize = 6_000;
    // What a killed server has answered is in its append-only file: with `everysec` it may still hold it back. No replica takes
    // over, which could know less.
    let config_lines = vec!["appendfsync always".to_owned()];
    let mut cluster = own_cluster(heyday::local::Options { config_lines, ..Default::default() }).await;
    for replica in 3..6 {
        redis_cli(&cluster, replica, &["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).await;
    }
    let ground = Ground::new(&cluster, 1).await;
    let owner = ground.index_of(&ground.owner(SHARD));
    let user = ground.user(SHARD, 0);
    let options = Options { batch_changes_max: 8, queue_changes_max: 128, timeout: WAIT, ..Options::default() };
    let writer = ground.hub.writer(options);
    let load = tokio::spawn({
        let (writer, user) = (writer.clone(), user.clone());
        async move {
            let mut receipts = Vec::new();
            for number in 0..CHANGES {
                let change = if number % 2 == 0 { numbered(&user, number) } else { produced(&user, number) };
                receipts.push(writer.enqueue(&change).await);
            }
            receipts
        }
    });
    for round in 1..=3 {
        eventually(WAIT, "a quarter more was appended", async || {
            (ground.appended(SHARD, "friend").await.len() >= round * CHANGES / 4).then_some(())
        })
        .await;
        cluster.kill(owner).unwrap();
        cluster.restart(owner).await.unwrap();
    }
    let receipts = load.await.unwrap().into_iter().collect::<Result<Vec<_>, _>>().expect("all are accepted");
    let results = settled(receipts).await;
    let found = ground.appended(SHARD, "friend").await;
    let mut copies_of = BTreeMap::new();
    for friend in &found {
        *copies_of.entry(friend.as_str()).or_insert(0) += 1;
    }
    for (number, result) in results.iter().enumerate() {
        let copies = copies_of.get(format!("f{number}").as_str()).copied().unwrap_or(0);
        match result {
            Ok(_) if number % 2 == 0 => assert_eq!(copies, 1, "f{number}"),
            Ok(_) => assert!(copies >= 1, "f{number}"),
            Err(Error::Unknown { .. }) => assert!(copies <= 1, "f{number}"),
            Err(error) => panic!("f{number}: {error}"),
        }
    }
    let odd: Vec<String> = ground.appended(SHARD, "seq").await.into_iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(without_repetitions(&odd), (1..CHANGES).step_by(2).collect::<Vec<_>>());
    let plain: Vec<usize> = found.iter().map(|friend| friend[1..].parse().unwrap()).filter(|n| n % 2 == 0).collect();
    assert!(plain.is_sorted(), "changes without a producer keep their order");
}
