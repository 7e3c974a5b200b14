//! Load and commit: all of it, none of it, and never by a fenced owner.

use heyday::error::Disposition;
use heyday::redis::{Event, Subscription};
use heyday::reduce::{Op, Plan, UserPlan};
use heyday::signal::Signal;
use heyday::store::{Committed, ShardLink, Store};

use super::{DONE, Ground, NEW, SHARD, TTL, id, mine, refused};

fn fields(reply: &heyday::redis::Reply) -> Vec<(String, String)> {
    let pairs = reply.as_pairs().expect("pairs");
    let mut fields: Vec<_> =
        pairs.map(|(name, value)| (name.to_str().unwrap().to_owned(), value.to_str().unwrap().to_owned())).collect();
    fields.sort();
    fields
}

#[tokio::test]
async fn a_commit_does_all_of_it_at_once() {
    let mut ground = Ground::shared().await;
    let keys = ground.keys.clone();
    let (mut link, state) = ground.owner("a").await;
    let user = "42".parse().unwrap();
    ground.add("42", "77").await;
    ground.append(&["type", "profile", "user", "42", "profile.name", "Ada", "version", "3", "id", "e1"]).await;
    ground.append(&["type", "profile", "user", "42", "profile.name", "No", "producer", "p", "seq", "9"]).await;
    let last = ground.append(&["type", "add", "user", "42"]).await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (loaded, commit) = ground.prepare(&mut link, &state, entries).await;
    assert_eq!((loaded.generation, loaded.last), (state.generation, state.last));
    assert_eq!(link.commit(&commit).await.unwrap(), DONE);

    assert_eq!(
        fields(&ground.command(&["HGETALL", keys.birthdays(&user).as_str()]).await),
        [("77".to_owned(), "1990-05-01".to_owned())]
    );
    let profile = fields(&ground.command(&["HGETALL", keys.profile(&user).as_str()]).await);
    assert!(profile.contains(&("name".to_owned(), "No".to_owned())), "{profile:?}");
    assert_eq!(ground.text(&["HGET", keys.versions(&user).as_str(), ":name"]).await.as_deref(), Some("3"));
    assert_eq!(ground.text(&["GET", keys.dedup("e1").as_str()]).await.as_deref(), Some(""));
    let dedup_ttl = ground.number(&["PTTL", keys.dedup("e1").as_str()]).await;
    assert!((86_000_000..=86_400_000).contains(&dedup_ttl), "{dedup_ttl}");
    let producer = ground.text(&["HGET", keys.producers.as_str(), "p"]).await.unwrap();
    assert!(producer.starts_with("9:"), "{producer}");
    assert_eq!(ground.number(&["ZCARD", keys.users.as_str()]).await, 1);
    assert_eq!(ground.number(&["XLEN", keys.dead_letters.as_str()]).await, 1);
    let pending = ground.command(&["XPENDING", keys.changes.as_str(), "heyday"]).await;
    assert_eq!(pending.as_array().unwrap()[0].as_u64().unwrap(), 0);

    let log = ground.command(&["XRANGE", keys.log.as_str(), "-", "+"]).await;
    let [entry] = log.as_array().unwrap() else { panic!("{log:?}") };
    let [log_id, body] = entry.as_array().unwrap() else { panic!("{entry:?}") };
    assert_eq!(log_id.to_str().unwrap(), commit.state.last.to_string());
    let [name, payload] = body.as_array().unwrap() else { panic!("{body:?}") };
    assert_eq!(name.to_str().unwrap(), "s");
    assert_eq!(Signal::decode(payload.as_bytes().unwrap()).unwrap(), commit.signal);

    let mut stored = fields(&ground.command(&["HGETALL", keys.state.as_str()]).await);
    stored.retain(|(name, _)| !["owner", "owned_at", "moves"].contains(&name.as_str()));
    let expected = [
        ("applied", last),
        ("applied_at", loaded.milliseconds.to_string()),
        ("dead", "1".to_owned()),
        ("entries", "4".to_owned()),
        ("first", commit.state.first.unwrap().to_string()),
        ("generation", state.generation.to_string()),
        ("last", commit.state.last.to_string()),
        ("open", commit.state.open.unwrap().to_string()),
        ("skipped", "0".to_owned()),
    ];
    assert_eq!(stored, expected.map(|(name, value)| (name.to_owned(), value)));
    let again = mine(link.take(&id("a"), TTL).await.unwrap());
    assert_eq!((again.last, again.applied, again.counts, again.open), {
        let state = commit.state;
        (state.last, state.applied, state.counts, state.open)
    });
}

#[tokio::test]
async fn the_signal_is_heard_with_the_commit() {
    let mut ground = Ground::shared().await;
    let push = ground.keys.push.clone();
    let (mut link, state) = ground.owner("a").await;
    ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    let node = ground.raw.node().clone();
    let mut listener = Subscription::connect(&node, ground.store.topology().options()).await.unwrap();
    listener.subscribe(push.as_str().to_owned());
    let confirmed = tokio::time::timeout(super::WAIT, listener.next()).await.expect("a confirmation").unwrap();
    assert!(matches!(confirmed, Event::Subscribed { .. }), "{confirmed:?}");
    link.commit(&commit).await.unwrap();
    let heard = tokio::time::timeout(super::WAIT, listener.next()).await.expect("a signal").unwrap();
    let Event::Message { channel, payload } = heard else { panic!("{heard:?}") };
    assert_eq!(channel, push.as_str());
    assert_eq!(Signal::decode(&payload).unwrap(), commit.signal);
}

#[tokio::test]
async fn everything_a_plan_names_is_loaded_in_its_place() {
    let mut ground = Ground::shared().await;
    let keys = ground.keys.clone();
    let (mut link, state) = ground.owner("a").await;
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let plan = |user: &str| UserPlan {
        friends: vec!["1".parse().unwrap(), "2".parse().unwrap()],
        versions: names(["1", ":name"]),
        profile: true,
        fields: names(["city", "tz_text"]),
        birthday: true,
        zone: true,
        everyone: true,
        extent: true,
        sample: true,
        activity: true,
        categories: names(["music", "none"]),
        ..UserPlan::new(user.parse().unwrap(), None)
    };
    let plan = Plan {
        users: vec![
            plan("known"),
            plan("unknown"),
            UserPlan { friends: vec![], profile: false, fields: vec![], ..plan("x") },
        ],
        events: vec!["seen".to_owned(), "new".to_owned()],
        producers: vec!["p".to_owned(), "q".to_owned()],
        outbox: true,
        letters: true,
        window: None,
        rebuild: None,
    };
    let known = &plan.users[0].user;
    ground.command(&["HSET", keys.birthdays(known).as_str(), "2", "--02-29", "3", ""]).await;
    ground.command(&["HSET", keys.versions(known).as_str(), ":name", "7:1"]).await;
    ground
        .command(&[
            "HSET",
            keys.profile(known).as_str(),
            "version",
            "12",
            "tz",
            "Asia/Kathmandu",
            "city",
            "Ulm",
            "a",
            "b",
        ])
        .await;
    ground.command(&["HSET", keys.activity(known).as_str(), "2026-11-29", "7"]).await;
    let top = keys.top(known);
    let scores = ["9007199254740992", "music", "1", "b", "1", "a", "5", "c", "1.5", "odd", "inf", "far"];
    ground.command(&[&["ZADD", top.as_str()], &scores[..]].concat()).await;
    ground.command(&["SET", keys.dedup("seen").as_str(), "1"]).await;
    ground.command(&["HSET", keys.producers.as_str(), "q", "4:5"]).await;
    let appended = ground.add("1", "2").await;
    link.read(NEW, 10).await.unwrap();

    let loaded = link.load(&plan).await.unwrap();
    assert_eq!((loaded.generation, loaded.last), (state.generation, state.last));
    assert_eq!(loaded.pending_first.unwrap().to_string(), appended);
    assert!(loaded.milliseconds > 1_600_000_000_000);
    let text = |text: &str| Some(text.to_owned());
    let user = &loaded.users[0];
    assert_eq!(user.friends, [None, text("--02-29")]);
    assert_eq!(user.versions, [None, text("7:1")]);
    let profile = [("city", "Ulm"), ("tz", "Asia/Kathmandu"), ("version", "12")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!((&user.profile, user.profile_length, user.extent), (&profile.into(), 4, Some((2, true))));
    assert_eq!(user.days, [("2026-11-29".to_owned(), "7".to_owned())]);
    assert_eq!((&user.weights[..], user.top_length), (&[Some(1 << 53), None][..], 6));
    let lightest = [("a", 1), ("b", 1), ("odd", 1), ("c", 5)].map(|(name, weight)| (name.to_owned(), weight));
    assert_eq!(user.lightest, lightest);
    assert_eq!(user.sample, [(":name".to_owned(), "7:1".to_owned())]);
    assert_eq!(user.zone.as_deref(), Some("Asia/Kathmandu"));
    let mut everyone = user.everyone.clone();
    everyone.sort();
    assert_eq!(everyone, [("2".to_owned(), "--02-29".to_owned()), ("3".to_owned(), String::new())]);
    let user = &loaded.users[1];
    assert_eq!((&user.friends[..], &user.versions[..]), (&[None, None][..], &[None, None][..]));
    assert_eq!((user.profile.len(), user.extent, user.sample.len()), (0, Some((0, false)), 0));
    assert_eq!((loaded.users[2].friends.len(), loaded.users[2].versions.len()), (0, 2));
    assert_eq!(loaded.events, [true, false]);
    assert_eq!(loaded.producers, [None, text("4:5")]);
    assert_eq!(loaded.producers_sample, [("q".to_owned(), "4:5".to_owned())]);
}

#[tokio::test]
async fn a_fenced_owner_commits_nothing() {
    let mut ground = Ground::shared().await;
    let (mut stalled, state) = ground.owner("a").await;
    let appended = ground.add("42", "77").await;
    let entries = stalled.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut stalled, &state, entries).await;
    ground.store.release(SHARD, &id("a")).await.unwrap();
    let (mut second, taken) = ground.owner("b").await;
    assert_eq!(stalled.commit(&commit).await.unwrap(), Committed::Refused);
    for key in [ground.keys.log.clone(), ground.keys.birthdays(&"42".parse().unwrap())] {
        assert!(!ground.exists(&key).await, "{key}");
    }
    let pending = second.read(heyday::store::Read::Pending, 10).await.unwrap();
    assert_eq!(pending[0].id.to_string(), appended, "the entry waits for the new owner");
    let loaded = stalled.load(&Plan::default()).await.expect("the link is in order");
    assert_eq!(loaded.generation, taken.generation);
}

#[tokio::test]
async fn a_commit_needs_a_load_of_its_own() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    let mut other = ground.link().await;
    assert_eq!(other.commit(&commit).await.unwrap(), Committed::Refused, "nothing was loaded here");
    // A generation of one's own breaks the watch too, and a load after it begins anew.
    mine(link.take(&id("a"), TTL).await.unwrap());
    assert_eq!(link.commit(&commit).await.unwrap(), Committed::Refused);
    let stored = ground.keys.state.clone();
    link.load(&Plan::default()).await.unwrap();
    ground.command(&["HSET", stored.as_str(), "note", "1"]).await;
    link.load(&Plan::default()).await.unwrap();
    assert_eq!(link.commit(&commit).await.unwrap(), DONE, "what was written before the last load does not count");
    assert_eq!(link.commit(&commit).await.unwrap(), Committed::Refused, "one load, one commit");
}

#[tokio::test]
async fn a_foreign_user_key_is_poison_and_named() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    let birthdays = ground.keys.birthdays(&"42".parse().unwrap());
    ground.command(&["SET", birthdays.as_str(), "x"]).await;
    ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let user = UserPlan { friends: vec!["77".parse().unwrap()], ..UserPlan::new("42".parse().unwrap(), None) };
    let plan = Plan { users: vec![user], ..Plan::default() };
    refused(link.load(&plan).await, Disposition::Poison, &["WRONGTYPE", birthdays.as_str(), "shard 1"]);
    // The link is in order, and what the failed load watched does not count.
    ground.command(&["DEL", birthdays.as_str()]).await;
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    assert_eq!(link.commit(&commit).await.unwrap(), DONE);
}

#[tokio::test]
async fn a_failed_load_allows_no_commit() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, commit) = ground.prepare(&mut link, &state, entries).await;
    let producers = ground.keys.producers.clone();
    ground.command(&["SET", producers.as_str(), "x"]).await;
    let plan = Plan { producers: vec!["p".to_owned()], ..Plan::default() };
    // No entry is to blame for a shard's own key.
    refused(link.load(&plan).await, Disposition::Refresh, &["WRONGTYPE", producers.as_str()]);
    assert_eq!(link.commit(&commit).await.unwrap(), Committed::Refused);
    let taken = link.take(&id("a"), TTL).await;
    refused(taken, Disposition::Fatal, &[producers.as_str(), "is a string, expected a hash"]);
}

#[tokio::test]
async fn errors_of_single_commands_are_listed_and_the_rest_stands() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    ground.add("42", "77").await;
    let entries = link.read(NEW, 10).await.unwrap();
    let (_, mut commit) = ground.prepare(&mut link, &state, entries).await;
    let day = ground.keys.day(jiff::civil::date(2026, 1, 2));
    ground.command(&["SET", day.as_str(), "x"]).await;
    commit.ops.push(Op::SortedAdd { key: day.clone(), members: vec![(1, "42:77".to_owned())] });
    let Committed::Done { errors } = link.commit(&commit).await.unwrap() else { panic!("refused") };
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert!(error.starts_with(&format!("ZADD {day}: WRONGTYPE")), "{error}");
    assert!(ground.exists(&ground.keys.log.clone()).await);
}

#[tokio::test]
async fn every_kind_of_op_is_the_command_it_names() {
    let mut ground = Ground::shared().await;
    let (mut link, state) = ground.owner("a").await;
    let user = "42".parse().unwrap();
    let keys = ground.keys.clone();
    let (hash, set, stream) = (keys.birthdays(&user), keys.users.clone(), keys.dead_letters.clone());
    let text = |text: &str| text.to_owned();
    let (_, mut commit) = ground.prepare(&mut link, &state, Vec::new()).await;
    commit.ops = vec![
        Op::HashSet { key: hash.clone(), fields: vec![(text("1"), text("")), (text("2"), text("b c\r\n"))] },
        Op::HashDelete { key: hash.clone(), fields: vec![text("1"), text("9")] },
        Op::ExpireAt { key: hash.clone(), at_seconds: 5_000_000_000 },
        Op::SortedAdd { key: set.clone(), members: vec![(-3, text("x")), (4, text("y"))] },
        Op::SortedRemove { key: set.clone(), members: vec![text("y")] },
        Op::ExpireAfter { key: set.clone(), after: TTL },
        Op::Persist { key: set.clone() },
        Op::Append { key: stream.clone(), length_max: 10, fields: vec![("f".into(), vec![0, 255].into())] },
    ];
    assert_eq!(link.commit(&commit).await.unwrap(), DONE);
    assert_eq!(fields(&ground.command(&["HGETALL", hash.as_str()]).await), [(text("2"), text("b c\r\n"))]);
    assert_eq!(ground.number(&["EXPIRETIME", hash.as_str()]).await, 5_000_000_000);
    assert_eq!(ground.text(&["ZSCORE", set.as_str(), "x"]).await.as_deref(), Some("-3"));
    assert_eq!((ground.number(&["ZCARD", set.as_str()]).await, ground.number(&["TTL", set.as_str()]).await), (1, -1));
    let letters = ground.command(&["XRANGE", stream.as_str(), "-", "+"]).await;
    let letter = letters.as_array().unwrap()[0].as_array().unwrap()[1].clone();
    assert_eq!(letter.as_array().unwrap()[1].as_bytes().unwrap()[..], [0, 255]);
}

#[tokio::test]
async fn a_spoilt_key_of_the_shard_is_found_before_anything_is_acknowledged() {
    let mut ground = Ground::shared().await;
    let keys = ground.keys.clone();
    let (mut link, _) = ground.owner("a").await;
    for key in [&keys.log, &keys.dead_letters, &keys.users] {
        ground.command(&["SET", key.as_str(), "spoilt"]).await.checked().unwrap();
        refused(link.load(&Plan::default()).await, Disposition::Refresh, &["WRONGTYPE", key.as_str()]);
        ground.command(&["DEL", key.as_str()]).await.checked().unwrap();
        link.load(&Plan::default()).await.expect("all keys are mended");
    }
}
