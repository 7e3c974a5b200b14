//! What heyday promises while nothing breaks: every change exactly once and in order, whoever wrote it and whoever applies it.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::client::subscriber;
use heyday::client::writer::Options;
use heyday::oracle::Content;
use heyday::redis::ConnectOptions;
use heyday::shard::Shard;
use heyday::testing::generate::{Generator, Settings};

use crate::support::cluster::{shared_cluster, unique_prefix};
use crate::support::eventually;
use crate::support::scene::{Inline, Listener, Load, Plan, Scene, Snapshot, undisturbed};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn entries_of_any_program_give_the_same_views_as_the_writer() {
    let nodes = shared_cluster().await;
    let through_writer = Scene::begin(&nodes, &unique_prefix(), 4).await;
    let by_hand = Scene::begin(&nodes, &unique_prefix(), 4).await;
    let (mut one, mut other) = (through_writer.workers(), by_hand.workers());
    one.start();
    other.start();
    let settings = Settings { malformed_percent: 0.0, ..Settings::new(12, through_writer.today()) };
    let mut generator = Generator::new(1, settings);
    let writer = through_writer.hub.writer(Options::default());
    for _ in 0..150 {
        let entry = generator.entry();
        writer.append_fields(&entry.fields).await.expect("a good change is appended");
        let keys = by_hand.shard_keys(by_hand.layout.shard_of(&entry.route));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("good changes are text");
        let mut words = vec!["XADD".to_owned(), keys.changes.to_string(), "*".to_owned()];
        words.extend(entry.fields.iter().flat_map(|(name, value)| [text(name), text(value)]));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        nodes.cli(owner_of(keys.slot), &words).await.expect("XADD through redis-cli");
    }
    through_writer.settle(WAIT).await;
    by_hand.settle(WAIT).await;
    let (one, other) = (through_writer.prove().await, by_hand.prove().await);
    let views = views(&through_writer, &one);
    assert!(views.len() > 12, "only {} views", views.len());
    assert_eq!(views, self::views(&by_hand, &other));
}

/// The shared cluster keeps the slots that it began with.
fn owner_of(slot: u16) -> usize {
    [5460, 10922, 16383].iter().position(|last| slot <= *last).expect("a slot")
}

/// What users, readers and schedulers see, without prefix, and without the time at which the entry was appended.
fn views(scene: &Scene, snapshot: &Snapshot) -> BTreeMap<String, Content> {
    let seen = snapshot.contents.iter().filter_map(|(name, content)| {
        let bare = name.strip_prefix(scene.keys.prefix())?;
        let mut content = content.clone();
        if let Content::Hash(fields) = &mut content {
            fields.remove("updated_at");
            fields.remove("last_activity");
        }
        ["user:", "users:", "birthdays:"]
            .iter()
            .any(|space| bare.starts_with(space))
            .then(|| (bare.to_owned(), content))
    });
    seen.filter(|(name, _)| !name.ends_with(":versions")).collect()
}

#[tokio::test]
async fn a_hundred_thousand_changes_by_eight_writers_give_what_the_oracle_says() {
    let scene = Scene::begin(&shared_cluster().await, &unique_prefix(), 64).await;
    let mut workers = scene.workers();
    workers.start();
    workers.start();
    let listener = Listener::start(&scene.hub, subscriber::Options::default()).await;
    let load = Load::start(
        &scene,
        Plan { seed: 2, writers: 8, users: 20_000, changes: 12_500, pace: None, mutual_percent: 0 },
    );
    let written = load.finish().await;
    assert_eq!((written.refused.len(), written.unknown.len()), (0, 0), "{:?}", written.refused.iter().next());
    scene.settle(WAIT).await;
    listener.catch_up(&scene).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    assert_eq!(listener.resets(), 0, "nothing was lost that a subscriber would have to know");
    listener.prove(&scene, &snapshot, WAIT);
    workers.assert_running();
    // Nothing else is a dead letter, and each says what its spoiling asks for.
    let told = scene.reasons(&snapshot);
    let expected: BTreeMap<_, _> = written.malformed.into_iter().map(|(trace, reason)| (trace, vec![reason])).collect();
    let strange: Vec<_> = told.iter().filter(|(trace, reasons)| expected.get(*trace) != Some(*reasons)).collect();
    assert!(strange.is_empty(), "{} letters that nobody asked for, the first: {:?}", strange.len(), strange[0]);
    let missing: Vec<_> = expected.keys().filter(|trace| !told.contains_key(*trace)).collect();
    assert!(missing.is_empty(), "no letters of {missing:?}");
    assert!(
        (800..1200).contains(&told.len()),
        "one in a hundred of 100,000 was malformed, {} are dead letters",
        told.len()
    );
}

#[tokio::test]
async fn a_worker_told_to_stop_hands_over_under_load_and_nobody_else_notices() {
    // Were the shards taken over only when leases run out, ten seconds would pass.
    let settings = [("HEYDAY_WORKER__LEASE_TTL", "10s")];
    let scene = Scene::begin_with(&shared_cluster().await, &unique_prefix(), 16, &settings).await;
    let mut workers = scene.workers();
    let (leaving, staying) = (workers.start(), workers.start());
    scene.shared_between(&[&workers.name(leaving), &workers.name(staying)], WAIT).await;
    let load = Load::start(
        &scene,
        Plan { seed: 3, writers: 2, users: 500, changes: 100_000, pace: Some(1000), mutual_percent: 0 },
    );
    load.goes_on(500).await;
    let before = scene.standing().await;

    assert_eq!(workers.stop(leaving).await.code(), Some(0), "told to stop, a worker drains and exits in peace");
    scene.owned_by(&workers.name(staying), Duration::from_secs(3)).await;
    let after = scene.standing().await;
    undisturbed(&before, &after);

    load.goes_on(500).await;
    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
    workers.assert_running();
}

#[tokio::test]
async fn workers_that_join_and_leave_take_only_their_share() {
    let scene = Scene::begin(&shared_cluster().await, &unique_prefix(), 16).await;
    let mut workers = scene.workers();
    let first = workers.start();
    scene.owned_by(&workers.name(first), WAIT).await;
    let load = Load::start(
        &scene,
        Plan { seed: 4, writers: 2, users: 500, changes: 100_000, pace: Some(600), mutual_percent: 0 },
    );
    let alone = scene.standing().await;

    let second = workers.start();
    let (first, second_name) = (workers.name(first), workers.name(second));
    scene.shared_between(&[&first, &second_name], WAIT).await;
    let two = scene.standing().await;
    undisturbed(&alone, &two);

    let third = workers.start();
    let third_name = workers.name(third);
    scene.shared_between(&[&first, &second_name, &third_name], WAIT).await;
    let three = scene.standing().await;
    undisturbed(&two, &three);

    assert_eq!(workers.stop(third).await.code(), Some(0));
    scene.shared_between(&[&first, &second_name], WAIT).await;
    undisturbed(&three, &scene.standing().await);

    let written = load.stop().await;
    scene.settle(WAIT).await;
    let snapshot = scene.prove().await;
    scene.prove_written(&snapshot, &written, true);
}

#[tokio::test]
async fn an_entry_too_large_to_be_read_is_set_aside_and_the_rest_goes_on() {
    let nodes = shared_cluster().await;
    let scene = Scene::begin(&nodes, &unique_prefix(), 1).await;
    let keys = scene.shard_keys(Shard(0)).clone();
    let node = owner_of(keys.slot);
    let append = async |fields: &[&str]| {
        let words = [&["XADD", keys.changes.as_str(), "*"], fields].concat();
        nodes.cli(node, &words).await.expect("XADD through redis-cli")
    };
    append(&["type", "add", "user", "42", "friend", "before"]).await;
    let giant = append(&["type", "profile", "user", "42", "profile.bio", &"x".repeat(100_000)]).await;
    append(&["type", "add", "user", "42", "friend", "after"]).await;

    let connect = ConnectOptions { reply_bytes_max: 64 * 1024, ..scene.connect_options() };
    let worker = Inline::start(&scene, "small", connect).await;
    let friends = keys.birthdays(&"42".parse().unwrap());
    eventually(WAIT, "the entries around it were applied", async || {
        let count = nodes.cli(node, &["HLEN", friends.as_str()]).await.expect("HLEN");
        (count == "2").then_some(())
    })
    .await;
    worker.stop().await;
    let letters = nodes.cli(node, &["XRANGE", keys.dead_letters.as_str(), "-", "+"]).await.expect("XRANGE");
    assert!(letters.contains("too large for a worker to read") && letters.contains(&giant), "{letters}");
    assert_eq!(nodes.cli(node, &["XLEN", keys.dead_letters.as_str()]).await.expect("XLEN"), "1");
}
