//! A day that changes while it is read, in front of the cursor, at it and behind it.

use heyday::client::day::{Celebrations, Options};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::almanac::{Almanac, entries};
use super::take;
use crate::support::cluster::shared_cluster;

/// Takes away friends around the cursor, and adds some there, between one page and the next: whoever stood there all the time
/// comes once and in order. Now the walk goes on in the same stream, which knows a rank, and now in a new one.
#[tokio::test]
async fn members_that_come_and_go_at_the_cursor_skip_and_repeat_nobody() {
    for seed in 0..4 {
        let mut almanac = Almanac::new(&shared_cluster().await, 2, 300, 4).await;
        let mut random = SmallRng::seed_from_u64(seed);
        let stood = almanac.expected();
        let (mut found, mut touched): (Vec<Celebrations>, Vec<String>) = (Vec::new(), Vec::new());
        let options = |cursor| Options { cursor, page: 3, ..Options::default() };
        let mut day = almanac.reader().day(almanac.date, options(None));
        while let Some(item) = day.next_user().await {
            found.push(item.unwrap());
            if random.random_bool(0.3) {
                disturb(&mut almanac, &found, &mut random, &mut touched).await;
            }
            if random.random_bool(0.2) {
                day = almanac.reader().day(almanac.date, options(Some(day.cursor().clone())));
            }
        }
        let found = entries(&found);
        assert!(found.is_sorted() && found.windows(2).all(|pair| pair[0] != pair[1]), "seed {seed}");
        assert!(touched.len() > 20, "seed {seed}: {} disturbances", touched.len());
        let left = |entry: &&super::Entry| !touched.contains(&entry.member);
        let found: Vec<_> = found.iter().filter(left).collect();
        let stood: Vec<_> = stood.iter().filter(left).collect();
        assert_eq!(found, stood, "seed {seed}");
    }
}

/// Removes the last friend that was read, and some before, or adds users in front of the cursor.
async fn disturb(almanac: &mut Almanac, found: &[Celebrations], random: &mut SmallRng, touched: &mut Vec<String>) {
    let read = entries(found);
    let last = read.last().expect("somebody was read").clone();
    if random.random_bool(0.5) {
        for entry in read.iter().rev().take(random.random_range(1..30)) {
            if almanac.stored(&entry.user).friends.contains_key(&entry.friend) {
                almanac.remove(&entry.user, &entry.friend).await;
                touched.push(entry.member.clone());
            }
        }
    } else {
        let day = almanac.date.strftime("--%m-%d").to_string();
        for _ in 0..random.random_range(1..30) {
            // The same shard and a moment that is behind or the same.
            let name = format!("n{}", random.random_range(0..u32::MAX));
            let zone = super::almanac::ZONES[random.random_range(0..7)];
            if almanac.shard_of(&name.parse().unwrap()) == last.shard && almanac.due(zone) <= last.due {
                almanac.put(&name, zone, &[("new", &day)]).await;
                touched.push(format!("{name}:new"));
            }
        }
    }
}

#[tokio::test]
async fn a_user_who_travels_comes_as_the_documentation_says() {
    let mut almanac = Almanac::new(&shared_cluster().await, 1, 0, 1).await;
    let day = almanac.date.strftime("--%m-%d").to_string();
    let early = almanac.put("early", "Pacific/Kiritimati", &[("f", &day)]).await;
    almanac.put("middle", "UTC", &[("f", &day)]).await;
    let late = almanac.put("late", "Etc/GMT+12", &[("f", &day), ("g", &day)]).await;
    let names = |found: &[Celebrations]| found.iter().map(|item| item.user.to_string()).collect::<Vec<_>>();
    let (first, cursor) = take(&almanac, Options { page: 1, ..Options::default() }, 2).await;
    assert_eq!(names(&first), ["early", "middle"]);
    // The one who came moves to a later moment, and the other one to an earlier moment.
    almanac.travel(&early, "Etc/GMT+12").await;
    almanac.travel(&late, "Pacific/Kiritimati").await;
    let (rest, _) = take(&almanac, Options { cursor, page: 1, ..Options::default() }, usize::MAX).await;
    assert_eq!(names(&rest), ["early"], "one comes twice, one is missed");
    // A mailer's next run from the beginning, by any later moment, finds everybody.
    let due_until = Some(almanac.due("Etc/GMT+12"));
    let (again, _) = take(&almanac, Options { due_until, ..Options::default() }, usize::MAX).await;
    assert_eq!(names(&again), ["late", "middle", "early"]);
}

#[tokio::test]
async fn friends_who_are_added_behind_the_cursor_come() {
    let mut almanac = Almanac::new(&shared_cluster().await, 1, 0, 1).await;
    let day = almanac.date.strftime("--%m-%d").to_string();
    almanac.put("a", "UTC", &[("f", &day)]).await;
    almanac.put("c", "UTC", &[("f", &day)]).await;
    let mut walk = almanac.reader().day(almanac.date, Options { page: 1, ..Options::default() });
    assert_eq!(walk.next_user().await.unwrap().unwrap().user.as_str(), "a");
    almanac.put("a", "UTC", &[("e", &day), ("f", &day), ("g", &day)]).await;
    almanac.put("b", "UTC", &[("f", &day)]).await;
    let mut rest = Vec::new();
    while let Some(item) = walk.next_user().await {
        let item = item.unwrap();
        rest.extend(item.friends.into_iter().map(|friend| format!("{}:{}", item.user, friend.friend)));
    }
    assert_eq!(rest, ["a:g", "b:f", "c:f"]);
}
