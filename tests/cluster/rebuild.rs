//! Rebuilding views from a snapshot while writers go on, and while workers and the command itself are killed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heyday::birthday::Birthday;
use heyday::change::{Action, Change};
use heyday::client::Hub;
use heyday::client::writer::Options;
use heyday::oracle::Content;
use heyday::position::EntryId;
use heyday::redis::Pipes;
use heyday::redis::rebuild::{Mark, Shards};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::cluster::{shared_cluster, unique_prefix};
use crate::support::eventually;
use crate::support::scene::{Scene, Snapshot, heyday_in};

const WAIT: Duration = Duration::from_secs(120);
const USERS: u32 = 4000;
const FRIENDS: u32 = 12;
const DATES: [&str; 4] = ["", "--02-29", "1990-12-01", "1985-07-30"];

/// By user, by friend: the date.
type Friends = BTreeMap<String, BTreeMap<String, String>>;

/// What the database says: for the most part something else than the changes did.
fn database(seed: u64) -> Friends {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut friends = Friends::new();
    for user in 0..USERS {
        // Some users of the changes are not in it, and some of its users had no change.
        if random.random_bool(0.2) {
            continue;
        }
        let user = if random.random_bool(0.1) { format!("n{user}") } else { format!("u{user}") };
        let some: Vec<u32> = (0..FRIENDS).filter(|_| random.random_bool(0.5)).collect();
        let date = |friend: u32| (format!("f{friend}"), DATES[random.random_range(0..4)].to_owned());
        friends.insert(user, some.into_iter().map(date).collect());
    }
    friends
}

fn write(path: &Path, friends: &Friends) {
    let mut text = String::new();
    for (user, friends) in friends {
        let profile = json!({"city": "Kyiv", "about": "x".repeat(200)});
        writeln!(text, "{}", json!({"user": user, "profile": profile, "friends": friends})).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// A random change of a friendship, without a version.
fn change(random: &mut SmallRng) -> Change {
    let (user, friend) = (random.random_range(0..USERS), random.random_range(0..FRIENDS));
    let friend = format!("f{friend}").parse().unwrap();
    let date = Birthday::parse(DATES[random.random_range(0..4)]).unwrap();
    let action = match random.random_range(0..5) {
        0 => Action::Add { friend, birthday: None, mutual: false },
        1 => Action::Add { friend, birthday: Some(date), mutual: false },
        2 => Action::Remove { friend, mutual: false },
        _ => Action::Update { friend, birthday: date },
    };
    Change::new(format!("u{user}").parse().unwrap(), action)
}

/// So many changes, all accepted.
async fn append(hub: &Hub, seed: u64, count: usize) {
    let (writer, mut random) = (hub.writer(Options::default()), SmallRng::seed_from_u64(seed));
    let mut receipts = Vec::new();
    for _ in 0..count {
        receipts.push(writer.enqueue(&change(&mut random)).await.expect("room"));
    }
    for receipt in receipts {
        receipt.await.expect("an accepted change");
    }
}

/// A writer that goes on until it is told to stop.
struct Live {
    task: JoinHandle<usize>,
    stop: Arc<AtomicBool>,
}

impl Live {
    fn start(hub: Hub, seed: u64) -> Live {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let task = tokio::spawn(async move {
            let (writer, mut random) = (hub.writer(Options::default()), SmallRng::seed_from_u64(seed));
            let mut count = 0;
            while !told.load(Ordering::Relaxed) {
                writer.append(&change(&mut random)).await.expect("an accepted change");
                count += 1;
            }
            count
        });
        Live { task, stop }
    }

    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("no panic")
    }
}

/// The friends that every view holds.
fn stored(scene: &Scene, snapshot: &Snapshot) -> Friends {
    let mut found = Friends::new();
    for (name, content) in &snapshot.contents {
        let bare = name.strip_prefix(scene.keys.prefix()).unwrap_or(name);
        let user = bare.strip_suffix(":birthdays").and_then(|rest| rest.strip_prefix("user:")?.split(':').nth(1));
        if let (Some(user), Content::Hash(fields)) = (user, content) {
            found.insert(user.to_owned(), fields.clone());
        }
    }
    found
}

/// The changes of all streams after a moment, in their order for each user.
fn changes_after(scene: &Scene, snapshot: &Snapshot, at: u64) -> Vec<BTreeMap<String, String>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entries = scene.layout.shards().flat_map(|shard| snapshot.entries(scene, shard));
    let late = |(id, fields): (EntryId, &heyday::change::Fields)| {
        let fields: BTreeMap<String, String> = fields.iter().map(|(name, value)| (text(name), text(value))).collect();
        (id.milliseconds > at && fields["type"] != "snapshot").then_some(fields)
    };
    entries.filter_map(late).collect()
}

fn apply(friends: &mut Friends, change: &BTreeMap<String, String>) {
    let listed = friends.entry(change["user"].clone()).or_default();
    let (friend, date) = (change["friend"].clone(), change.get("birthday").cloned());
    match change["type"].as_str() {
        "add" => {
            let date = date.or_else(|| listed.get(&friend).cloned()).unwrap_or_default();
            listed.insert(friend, date);
        }
        "remove" => drop(listed.remove(&friend)),
        _ => {
            listed.entry(friend).and_modify(|known| *known = date.unwrap_or_default());
        }
    }
}

/// The command, which goes on beside the test.
fn start(scene: &Scene, arguments: &[&str]) -> Child {
    let mut command = heyday_in(scene, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("the built binary")
}

/// SIGKILL, in the middle of its work.
fn kill(mut command: Child) {
    assert_eq!(command.try_wait().expect("its status"), None, "the command was at work still");
    command.kill().expect("it is killed");
    command.wait().expect("it has ended");
}

/// The line up to which the file is applied, as the command has written it down.
fn applied(path: &Path) -> u64 {
    let text = std::fs::read(path.with_extension("ndjson.progress")).unwrap_or_default();
    serde_json::from_slice::<Value>(&text).map_or(0, |position| position["line"].as_u64().unwrap())
}

async fn rebuild(authoritative: bool, seed: u64) {
    let settings = [("HEYDAY_WORKER__BATCH_CHANGES_MAX", "16")];
    let mut scene = Scene::begin_with(&shared_cluster().await, &unique_prefix(), 8, &settings).await;
    let mut workers = scene.workers();
    let (first, second) = (workers.start(), workers.start());
    append(&scene.hub, seed, 6000).await;
    scene.settle(WAIT).await;
    let before = stored(&scene, &Snapshot::take(&scene).await);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.ndjson");
    let file = database(seed);
    write(&path, &file);
    let begun = heyday_in(&scene, &["rebuild", "--begin", "--json"]).output().expect("the built binary");
    let begun: Value = serde_json::from_slice(&begun.stdout).expect("an answer");
    let at = begun["moment"].as_u64().expect("a moment");
    scene.rebuild = Some(at);

    let live = Live::start(scene.hub.clone(), seed + 1);
    let mut arguments = vec!["rebuild", "--file", path.to_str().unwrap()];
    if authoritative {
        arguments.extend(["--authoritative", "--yes"]);
    }
    // Entries in the streams of which nothing is applied yet, and nothing written down.
    workers.freeze(first);
    workers.freeze(second);
    let command = start(&scene, &arguments);
    let long = async || {
        let lengths = scene.ask_shards(|keys, pipeline| pipeline.push(&["XLEN", keys.changes.as_str()])).await?;
        let sum: u64 = lengths.values().flatten().map(|length| length.as_u64().unwrap()).sum();
        (sum > 7000).then_some(())
    };
    eventually(WAIT, "entries of the file were appended", long).await;
    kill(command);
    workers.thaw(second);
    workers.kill(first);
    workers.restart(first);

    // In the middle of the file.
    let command = start(&scene, &arguments);
    eventually(WAIT, "a part of the file was applied", async || (applied(&path) > 0).then_some(())).await;
    workers.kill(second);
    kill(command);
    workers.restart(second);
    let resumed = applied(&path);

    assert!(live.stop().await > 100, "changes went on all the time");
    scene.settle(WAIT).await;
    let done = heyday_in(&scene, &arguments).output().expect("the built binary");
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{told}");
    assert!(told.contains(&format!("goes on behind line {resumed}")), "{told}");
    assert!(!path.with_extension("ndjson.progress").exists(), "nothing is left to go on with");
    scene.settle(WAIT).await;

    let snapshot = scene.prove().await;
    let mut expected = if authoritative { Friends::new() } else { before };
    for (user, friends) in file {
        expected.entry(user).or_default().extend(friends);
    }
    changes_after(&scene, &snapshot, at).iter().for_each(|change| apply(&mut expected, change));
    expected.retain(|_, friends| !friends.is_empty());
    let found = stored(&scene, &snapshot);
    let users: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    for user in users {
        assert_eq!(found.get(user), expected.get(user), "{user}: found is stored");
    }
    let check = heyday_in(&scene, &["check"]).output().expect("the built binary");
    assert_eq!(check.status.code(), Some(0), "{}", String::from_utf8_lossy(&check.stdout));
    workers.assert_running();
}

#[tokio::test]
async fn a_snapshot_is_loaded_while_writers_go_on_and_everything_is_killed() {
    rebuild(false, 1).await;
}

#[tokio::test]
async fn what_an_authoritative_snapshot_does_not_have_goes_and_what_came_since_stays() {
    rebuild(true, 2).await;
}

#[tokio::test]
async fn the_end_of_a_rebuild_leaves_one_that_has_begun_since() {
    let scene = Scene::begin(&shared_cluster().await, &unique_prefix(), 4).await;
    let topology = scene.hub.topology().clone();
    let pipes = Arc::new(Pipes::new(topology.options().clone()));
    let shards = Shards::new((topology, pipes), scene.hub.keys().clone(), scene.layout.clone(), WAIT);
    let left = async |ended: Option<u64>| {
        shards.mark(7).await.expect("a mark");
        shards.unmark(ended).await.expect("an answer");
        Mark::of(&shards.look().await.expect("a look"))
    };
    assert_eq!(left(Some(6)).await, Mark::On(7));
    assert_eq!(left(Some(7)).await, Mark::None);
    assert_eq!(left(None).await, Mark::None);
}
