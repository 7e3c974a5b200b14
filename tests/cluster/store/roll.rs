//! What a roll looks at: users in order, whatever else lies about.

use heyday::reduce::{Roll, Surveyed};
use heyday::store::ShardLink;

use super::Ground;

/// Users and friends of every step, one line a step, and how the last step ended.
async fn walk(ground: &mut Ground, count: usize) -> Vec<String> {
    let (mut link, _) = ground.owner("a").await;
    let mut roll: Roll = "2026-11-29 2026-12-08".parse().unwrap();
    let mut steps = Vec::new();
    loop {
        let Surveyed { users, next } = link.survey_days(&roll, count).await.expect("a survey");
        let told = users.iter().map(|rolled| {
            let zone = rolled.zone.as_deref().unwrap_or("-");
            format!("{}@{zone}:{}", rolled.user, rolled.friends.len())
        });
        steps.push(told.collect::<Vec<_>>().join(" "));
        match next {
            Some(next) => roll = next,
            None => return steps,
        }
    }
}

#[tokio::test]
async fn users_come_in_order_a_bounded_part_at_a_time() {
    let mut ground = Ground::shared().await;
    assert_eq!(walk(&mut ground, 10).await, [""], "nobody");
    let keys = ground.keys.clone();
    for (user, friends) in [("a", 3), ("b", 2), ("c", 0), ("d", 5), ("e", 1)] {
        let id = user.parse().unwrap();
        ground.command(&["ZADD", keys.users.as_str(), "0", user]).await;
        for friend in 0..friends {
            ground.command(&["HSET", keys.birthdays(&id).as_str(), &format!("f{friend}"), "--12-01"]).await;
        }
    }
    ground.command(&["HSET", keys.profile(&"d".parse().unwrap()).as_str(), "tz", "Asia/Kathmandu"]).await;
    assert_eq!(walk(&mut ground, 100).await, ["a@-:3 b@-:2 d@Asia/Kathmandu:5 e@-:1"]);
    assert_eq!(walk(&mut ground, 5).await, ["a@-:3 b@-:2", "d@Asia/Kathmandu:5", "e@-:1"]);
}

#[tokio::test]
async fn what_is_no_user_and_what_is_no_view_is_passed_over() {
    let mut ground = Ground::shared().await;
    let keys = ground.keys.clone();
    for name in ["a", "b b", "b:", "spoilt", "z", "{}", "b c d"] {
        ground.command(&["ZADD", keys.users.as_str(), "0", name]).await;
    }
    for user in ["a", "z"] {
        ground.command(&["HSET", keys.birthdays(&user.parse().unwrap()).as_str(), "7", ""]).await;
    }
    let spoilt = "spoilt".parse().unwrap();
    ground.command(&["SET", keys.birthdays(&spoilt).as_str(), "x"]).await;
    ground.command(&["SET", keys.profile(&"z".parse().unwrap()).as_str(), "x"]).await;
    for count in [1, 2, 100] {
        let users: Vec<String> = walk(&mut ground, count).await.into_iter().filter(|step| !step.is_empty()).collect();
        assert_eq!(users.join(" "), "a@-:1 z@-:1", "{count} at a time");
    }
}

#[tokio::test]
async fn somebody_with_very_many_friends_comes_in_parts() {
    let mut ground = Ground::shared().await;
    let keys = ground.keys.clone();
    let many = "many".parse().unwrap();
    for user in ["a", "many", "z"] {
        ground.command(&["ZADD", keys.users.as_str(), "0", user]).await;
        ground.command(&["HSET", keys.birthdays(&user.parse().unwrap()).as_str(), "7", ""]).await;
    }
    let friends: Vec<String> = (0..3000).flat_map(|friend| [format!("f{friend}"), "--12-01".to_owned()]).collect();
    let words: Vec<&str> = friends.iter().map(String::as_str).collect();
    let key = keys.birthdays(&many);
    ground.command(&[&["HSET", key.as_str()], &words[..]].concat()).await;
    let steps = walk(&mut ground, 500).await;
    let found: usize = steps
        .iter()
        .flat_map(|step| step.split(' '))
        .filter_map(|user| user.strip_prefix("many@-:"))
        .map(|friends| friends.parse::<usize>().unwrap())
        .sum();
    assert!(found >= 3001, "{found} of 3001");
    assert!(steps.len() > 4 && steps[0] == "a@-:1", "{steps:?}");
    assert_eq!(steps.last().unwrap(), "z@-:1");
}
