//! A day of the calendar read from real nodes, broken off and taken up again, while it changes and while nodes fail.

mod almanac;
mod bounds;
mod changes;
mod faults;

use futures_util::StreamExt;
use heyday::change::UserId;
use heyday::client::day::{Celebrations, Cursor, Options};
use heyday::client::reader::State;
use heyday::local::Nodes;
use heyday::shard::Shard;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use almanac::{Almanac, Entry, entries};

use crate::support::cluster::shared_cluster;

/// Takes at most `count` users and breaks off; answers where to go on by what the last item said, as text.
async fn take(almanac: &Almanac, options: Options, count: usize) -> (Vec<Celebrations>, Option<Cursor>) {
    let stream = almanac.reader().day(almanac.date, options);
    let taken: Vec<Celebrations> = stream.take(count).map(|item| item.expect("celebrations")).collect().await;
    let cursor = taken.last().map(|last| last.cursor.to_string().parse().expect("a cursor"));
    (taken, cursor)
}

/// The whole day, broken off now and then.
async fn walk(almanac: &Almanac, seed: u64) -> Vec<Celebrations> {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let options = Options { cursor: cursor.clone(), page: random.random_range(1..40), ..Options::default() };
        let (taken, behind) = take(almanac, options, random.random_range(1..250)).await;
        if taken.is_empty() {
            return all;
        }
        all.extend(taken);
        cursor = behind;
    }
}

async fn almanac(nodes: &Nodes, users: usize) -> Almanac {
    Almanac::new(nodes, 8, users, 7).await
}

#[tokio::test]
async fn every_celebration_comes_once_and_in_order_however_often_a_walk_is_broken_off() {
    let almanac = almanac(&shared_cluster().await, 2_500).await;
    let expected = almanac.expected();
    assert!(expected.len() > 10_000, "{}", expected.len());
    let moments: std::collections::BTreeSet<i64> = expected.iter().map(|entry| entry.due).collect();
    assert!(moments.len() > 4, "{moments:?}");
    for seed in 0..3 {
        let found = walk(&almanac, seed).await;
        assert_eq!(entries(&found), expected, "seed {seed}");
        let users: std::collections::BTreeSet<_> = found.iter().map(|item| &item.user).collect();
        assert_eq!(users.len(), found.len(), "a user's friends came together");
    }
}

#[tokio::test]
async fn a_user_with_more_friends_than_a_page_comes_whole() {
    let mut almanac = almanac(&shared_cluster().await, 40).await;
    let many = almanac.add_user_with(1_000).await;
    for page in [1, 7, 999, 1_000, 1_001, 5_000] {
        let (found, _) = take(&almanac, Options { page, ..Options::default() }, usize::MAX).await;
        assert_eq!(entries(&found), almanac.expected(), "page {page}");
        assert_eq!(found.iter().filter(|item| item.user == many).count(), 1, "page {page}");
    }
}

#[tokio::test]
async fn what_is_told_of_a_friend_is_the_date_and_the_age() {
    let mut almanac = Almanac::new(&shared_cluster().await, 1, 0, 1).await;
    let day = almanac.date.strftime("%m-%d").to_string();
    almanac.put("u1", "UTC", &[("known", &format!("1992-{day}")), ("yearless", &format!("--{day}"))]).await;
    let (found, cursor) = take(&almanac, Options::default(), usize::MAX).await;
    let friends: Vec<_> = found[0]
        .friends
        .iter()
        .map(|friend| (friend.friend.as_str(), friend.birthday.to_string(), friend.age))
        .collect();
    let age = almanac.date.year() - 1992;
    assert_eq!(friends, [("known", format!("1992-{day}"), Some(age)), ("yearless", format!("--{day}"), None)]);
    let due = almanac.due("UTC");
    assert_eq!((found[0].user.as_str(), found[0].due, found[0].shard.0), ("u1", due, 0));
    assert_eq!(cursor.unwrap().to_string(), format!("{}:0:{due}:u1:yearless", almanac.date));
}

#[tokio::test]
async fn who_is_no_friend_any_more_does_not_come() {
    let mut almanac = Almanac::new(&shared_cluster().await, 1, 3, 5).await;
    let day = almanac.date.strftime("%m-%d").to_string();
    let user = almanac.put("u-left", "UTC", &[("gone", &format!("1992-{day}"))]).await;
    let other =
        almanac.put("u-moved", "UTC", &[("moved", &format!("1992-{day}")), ("stays", &format!("--{day}"))]).await;
    // As if their members had been read a moment before they went.
    let tomorrow = almanac.date.tomorrow().unwrap().to_string();
    almanac.tell_only_the_hash(&user, "gone", None).await;
    almanac.tell_only_the_hash(&other, "moved", Some(&tomorrow)).await;
    let (found, _) = take(&almanac, Options { page: 2, ..Options::default() }, usize::MAX).await;
    assert_eq!(entries(&found), almanac.expected());
    assert!(found.iter().all(|item| item.user != user));
    let entry = |entry: &Entry| entry.user == other && entry.friend.as_str() == "stays";
    assert!(entries(&found).iter().any(entry));
}

#[tokio::test]
async fn upcoming_counts_from_the_users_own_today() {
    let almanac = Almanac::new(&shared_cluster().await, 1, 0, 1).await;
    let reader = almanac.reader();
    let mut todays = Vec::new();
    // Their dates are never the same.
    for zone in ["Pacific/Kiritimati", "Etc/GMT+12"] {
        let user: UserId = zone.replace('/', "-").parse().unwrap();
        let keys = almanac.ground.hub.shard_keys(Shard(0));
        let profile = keys.profile(&user);
        almanac.ground.ask_one(Shard(0), &["HSET", profile.as_str(), "schema", "2", "tz", zone]).await;
        let today = reader.upcoming(&user, 0).await.unwrap().today;
        let mut words = vec!["HSET".to_owned(), keys.birthdays(&user).to_string()];
        for (friend, days) in [("late", 8), ("soon", 7), ("now", 0), ("past", -1)] {
            let date = today.checked_add(jiff::Span::new().days(days)).unwrap();
            words.extend([friend.to_owned(), date.strftime("--%m-%d").to_string()]);
        }
        almanac.ground.ask_one(Shard(0), &words).await;
        let upcoming = reader.upcoming(&user, 7).await.unwrap();
        let found: Vec<_> = upcoming.friends.iter().map(|friend| (friend.friend.as_str(), friend.next.days)).collect();
        // A midnight may lie between the two.
        let passed = upcoming.today == today.tomorrow().unwrap();
        assert!(upcoming.today == today || passed);
        let expected = if passed { vec![("soon", 6), ("late", 7)] } else { vec![("now", 0), ("soon", 7)] };
        assert_eq!((found, upcoming.state), (expected, State::Live), "{zone}");
        todays.push(today);
    }
    assert!(todays[0] > todays[1], "{todays:?}");
}
