//! A day that is read while everything goes on: workers die and roll, nodes fail over and crash, friends come and go, users travel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heyday::birthday::LeapDay;
use heyday::calendar::Calendar;
use heyday::change::UserId;
use heyday::client::day::{Celebrations, Options};
use heyday::client::{reader, writer};
use heyday::local::{LocalCluster, Options as ClusterOptions};
use jiff::civil::Date;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::support::cluster::own_cluster;
use crate::support::scene::{Scene, Workers, crash, fail_over};

const WAIT: Duration = Duration::from_secs(60);
const STEADY: usize = 1_500;
const RESTLESS: usize = 200;
const ZONES: [&str; 5] = ["Pacific/Kiritimati", "Asia/Kathmandu", "Europe/Berlin", "America/New_York", "Etc/GMT+12"];

type Change = Vec<(&'static str, String)>;

fn add(user: &str, friend: &str, date: Date) -> Change {
    let birthday = date.strftime("--%m-%d").to_string();
    vec![("type", "add".into()), ("user", user.into()), ("friend", friend.into()), ("birthday", birthday)]
}

fn travel(user: &str, zone: &str) -> Change {
    vec![("type", "profile".into()), ("user", user.into()), ("profile.tz", zone.into())]
}

/// Users who keep their zones and friends, and others who will not.
fn first_changes(date: Date) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, count) in [("steady", STEADY), ("restless", RESTLESS)] {
        for number in 0..count {
            let user = format!("{name}{number}");
            changes.push(travel(&user, ZONES[number % ZONES.len()]));
            changes.extend((0..1 + number % 3).map(|friend| add(&user, &format!("f{friend}"), date)));
        }
    }
    changes
}

#[tokio::test]
async fn a_walk_finds_everybody_who_stayed_whatever_dies_meanwhile() {
    let mut cluster = own_cluster(ClusterOptions::default()).await;
    let scene = Scene::begin(&cluster, "", 16).await;
    let mut workers = scene.workers();
    let mut running = vec![workers.start(), workers.start()];
    let (date, writer) = (scene.today(), scene.hub.writer(writer::Options::default()));
    let mut receipts = Vec::new();
    for change in first_changes(date) {
        receipts.push(writer.enqueue_fields(&change).await.expect("a change"));
    }
    for receipt in receipts {
        receipt.await.expect("appended");
    }
    scene.settle(WAIT).await;
    let over = Arc::new(AtomicBool::new(false));
    let unrest = tokio::spawn(disturb(writer, date, over.clone()));

    let calendar = Calendar::default();
    let reader = scene.hub.reader(reader::Options { calendar, timeout: WAIT, ..reader::Options::default() });
    let options = Options { page: 5, timeout: 2 * WAIT, ..Options::default() };
    let mut day = reader.day(date, options.clone());
    let mut found = Vec::new();
    while let Some(item) = day.next_user().await {
        found.push(item.expect("users"));
        if found.len() % 250 == 0 {
            blow(&mut cluster, &mut workers, &mut running, found.len() / 250).await;
            day = reader.day(date, Options { cursor: Some(day.cursor().clone()), ..options.clone() });
        }
    }
    over.store(true, Ordering::Relaxed);
    unrest.await.expect("it ended by itself");
    assert!(found.len() > STEADY);
    prove_steady(&scene, &found);

    // Once all is quiet, a walk finds what the users' own hashes say, and nothing else.
    scene.settle(WAIT).await;
    let mut day = reader.day(date, options);
    let mut found = BTreeMap::new();
    while let Some(item) = day.next_user().await {
        let item = item.expect("users");
        let friends: Vec<UserId> = item.friends.into_iter().map(|celebrant| celebrant.friend).collect();
        assert!(found.insert(item.user, (item.due, friends)).is_none(), "a user came twice");
    }
    assert_eq!(found, hashes(&scene, &reader, date).await);
    workers.assert_running();
}

/// Steady users came once each, whole, and in the order of their shards and moments.
fn prove_steady(scene: &Scene, found: &[Celebrations]) {
    let steady: Vec<&Celebrations> = found.iter().filter(|item| item.user.as_str().starts_with("steady")).collect();
    let order = |item: &&Celebrations| (item.shard, item.due, format!("{}:", item.user));
    assert!(steady.iter().map(order).is_sorted());
    let users: BTreeSet<&UserId> = steady.iter().map(|item| &item.user).collect();
    assert_eq!((users.len(), steady.len()), (STEADY, STEADY));
    for item in steady {
        let number: usize = item.user.as_str().trim_start_matches("steady").parse().expect("a number");
        let friends: Vec<&str> = item.friends.iter().map(|celebrant| celebrant.friend.as_str()).collect();
        assert_eq!(friends, ["f0", "f1", "f2"][..1 + number % 3], "{}", item.user);
        assert_eq!(item.shard, scene.layout.shard_of(&item.user));
    }
}

/// What is due when, by what users' views say.
async fn hashes(scene: &Scene, reader: &reader::Reader, date: Date) -> BTreeMap<UserId, (i64, Vec<UserId>)> {
    let mut all = BTreeMap::new();
    let names = [("steady", STEADY), ("restless", RESTLESS)];
    for user in names.iter().flat_map(|(name, count)| (0..*count).map(move |number| format!("{name}{number}"))) {
        let view = reader.read(&user.parse().expect("an id")).await.expect("a view");
        let zone = scene.rules.calendar.zone(view.profile.fields.get("tz").map(String::as_str));
        let celebrates =
            |friend: &&reader::Friend| friend.birthday.in_year(date.year(), LeapDay::February28) == Some(date);
        let mut friends: Vec<UserId> =
            view.friends.iter().filter(celebrates).map(|friend| friend.friend.clone()).collect();
        friends.sort();
        if !friends.is_empty() {
            all.insert(view.user, (scene.rules.calendar.due(&zone, date), friends));
        }
    }
    all
}

/// Friends of restless users come and go, and they travel, until it is over. What a failing node refuses is left out.
async fn disturb(writer: writer::Writer, date: Date, over: Arc<AtomicBool>) {
    let mut random = SmallRng::seed_from_u64(3);
    while !over.load(Ordering::Relaxed) {
        let user = format!("restless{}", random.random_range(0..RESTLESS));
        let friend = format!("f{}", random.random_range(0..6));
        let change = match random.random_range(0..3) {
            0 => travel(&user, ZONES[random.random_range(0..ZONES.len())]),
            1 => add(&user, &friend, date),
            _ => vec![("type", "remove".into()), ("user", user), ("friend", friend)],
        };
        let _ = writer.append_fields(&change).await;
    }
}

async fn blow(cluster: &mut LocalCluster, workers: &mut Workers, running: &mut Vec<usize>, number: usize) {
    match number {
        1 => fail_over(cluster, 3).await,
        2 => {
            workers.kill(running.remove(0));
            running.push(workers.start());
        }
        3 => {
            crash(cluster, 1, 4).await;
            cluster.restart(1).await.expect("the killed node again");
            cluster.form().await.expect("a whole cluster again");
        }
        4 => fail_over(cluster, 5).await,
        _ => {}
    }
}
