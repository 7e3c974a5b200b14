//! The subscriber against real nodes: every commit in order, or a reset, whatever happens to connections, slots and nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use heyday::change::UserId;
use heyday::client::subscriber::{Error, Event, Options, Subscriber};
use heyday::position::CommitId;
use heyday::redis::Pipeline;
use heyday::shard::Shard;
use heyday::signal::{Signal, Views};

use super::client::{Ground, WAIT, begin_move, end_move, fail_over, move_keys, other_primary};
use crate::support::cluster::{own_cluster, redis_cli, shared_cluster};
use crate::support::eventually;
use crate::support::proxy::Cut;

const SHARD: Shard = Shard(0);
/// So long that within a test it never comes.
const NEVER: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(50);

/// Commits as a worker makes them, in one shard.
struct Commits<'a> {
    ground: &'a Ground,
    shard: Shard,
    last: CommitId,
    count: u64,
}

/// What of a commit takes place.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    /// The signal is heard and the log has it.
    Both,
    LogOnly,
}

impl<'a> Commits<'a> {
    fn new(ground: &'a Ground, shard: Shard) -> Commits<'a> {
        Commits { ground, shard, last: CommitId::ZERO, count: 0 }
    }

    fn user(&self) -> UserId {
        format!("user{}", self.count).parse().unwrap()
    }

    /// The next commit, and the event it must give.
    async fn next(&mut self, told: Told) -> Event {
        let id = CommitId::new(7, self.last.sequence + 1);
        self.commit(id, told).await
    }

    async fn commit(&mut self, id: CommitId, told: Told) -> Event {
        let user = self.user();
        let users = vec![(user.clone(), Views::BIRTHDAYS)];
        let signal = Signal { id, previous: self.last, at_milliseconds: 1, users };
        self.write(id, &signal.encode(), told).await;
        self.last = id;
        self.count += 1;
        Event::Changed { shard: self.shard, commit: id, user, views: Views::BIRTHDAYS }
    }

    async fn several(&mut self, count: usize, told: Told) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.next(told).await);
        }
        events
    }

    async fn write(&self, id: CommitId, payload: &[u8], told: Told) {
        let keys = self.ground.hub.shard_keys(self.shard);
        let mut pipeline = Pipeline::new();
        pipeline.command("MULTI");
        pipeline.command("XADD").arg(keys.log.as_bytes()).arg(id.to_string()).arg("s").arg(payload);
        if told == Told::Both {
            pipeline.command("SPUBLISH").arg(keys.push.as_bytes()).arg(payload);
        }
        pipeline.command("EXEC");
        self.ground.ask(self.shard, &pipeline).await;
    }

    async fn log(&self, words: &[&str]) {
        let key = self.ground.hub.shard_keys(self.shard).log.clone();
        let all: Vec<&str> = [words[0], key.as_str()].into_iter().chain(words[1..].iter().copied()).collect();
        self.ground.ask_one(self.shard, &all).await;
    }
}

async fn next(subscriber: &mut Subscriber) -> Event {
    let event = tokio::time::timeout(WAIT, subscriber.next_event()).await;
    event.expect("an event comes").expect("the stream goes on")
}

/// Exactly these come next.
async fn expect(subscriber: &mut Subscriber, events: Vec<Event>) {
    for (index, event) in events.into_iter().enumerate() {
        assert_eq!(next(subscriber).await, event, "event {index}");
    }
}

fn every(interval: Duration) -> Options {
    Options { poll_interval: interval, poll_interval_degraded: OFTEN, ..Options::default() }
}

async fn subscribe(ground: &Ground, options: Options) -> Subscriber {
    ground.hub.subscribe(options).await.expect("a subscriber")
}

/// Waits until a signal that the log does not have goes out to somebody: only the subscription can hear it.
async fn subscribed(ground: &Ground, shard: Shard) {
    let push = ground.hub.shard_keys(shard).push.clone();
    eventually(WAIT, "somebody listened at the owner", async || {
        let heard = ground.ask_one(shard, &["PUBSUB", "SHARDNUMSUB", push.as_str()]).await;
        let node = ground.owner(shard);
        let here = redis_cli(&ground.nodes, ground.index_of(&node), &["PUBSUB", "SHARDNUMSUB", push.as_str()]).await;
        (heard.as_array().unwrap().len() == 2 && here.ends_with('1')).then_some(())
    })
    .await;
}

#[tokio::test]
async fn signals_come_in_commit_order_without_any_poll() {
    let ground = Ground::new(&shared_cluster().await, 4).await;
    let mut shards = [Commits::new(&ground, Shard(0)), Commits::new(&ground, Shard(3))];
    for commits in &mut shards {
        commits.several(3, Told::Both).await;
    }
    let options = Options { poll_interval_degraded: NEVER, ..every(NEVER) };
    let mut subscriber = subscribe(&ground, options).await;
    for _ in 0..20 {
        for commits in &mut shards {
            let event = commits.next(Told::Both).await;
            assert_eq!(subscriber.next().await, Some(event), "as a stream, and only what is new");
        }
    }
}

#[tokio::test]
async fn commits_without_a_signal_are_told_by_the_log() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(OFTEN)).await;
    let mut events = commits.several(150, Told::LogOnly).await;
    events.extend(commits.several(2, Told::Both).await);
    expect(&mut subscriber, events).await;
}

#[tokio::test]
async fn a_signal_after_a_gap_brings_what_is_between() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(NEVER)).await;
    subscribed(&ground, SHARD).await;
    for _ in 0..10 {
        let mut events = commits.several(3, Told::LogOnly).await;
        events.extend(commits.several(3, Told::Both).await);
        expect(&mut subscriber, events).await;
    }
}

#[tokio::test]
async fn a_cut_connection_loses_nothing() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(NEVER)).await;
    for how in [Cut::Fin, Cut::Reset, Cut::Fin] {
        let mut events = commits.several(5, Told::Both).await;
        proxy.refuse(true);
        proxy.cut(how);
        events.extend(commits.several(5, Told::Both).await);
        proxy.refuse(false);
        events.extend(commits.several(5, Told::Both).await);
        expect(&mut subscriber, events).await;
    }
}

#[tokio::test]
async fn a_connection_gone_silent_is_noticed_and_replaced() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(NEVER)).await;
    let before = commits.several(3, Told::Both).await;
    expect(&mut subscriber, before).await;
    let accepted = proxy.accepted();
    proxy.stall();
    let mut events = commits.several(3, Told::Both).await;
    eventually(WAIT, "the client connected anew", async || (proxy.accepted() > accepted).then_some(())).await;
    proxy.pass();
    events.extend(commits.several(3, Told::Both).await);
    expect(&mut subscriber, events).await;
}

#[tokio::test]
async fn a_log_that_no_longer_reaches_back_gives_one_reset() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(OFTEN)).await;
    let before = commits.several(3, Told::Both).await;
    expect(&mut subscriber, before).await;
    proxy.refuse(true);
    proxy.cut(Cut::Fin);
    proxy.open(0).await;
    commits.several(20, Told::Both).await;
    commits.log(&["XTRIM", "MAXLEN", "5"]).await;
    proxy.refuse(false);
    expect(&mut subscriber, vec![Event::Reset { shard: SHARD }]).await;
    let after = commits.several(3, Told::Both).await;
    expect(&mut subscriber, after).await;
}

#[tokio::test]
async fn commits_lost_in_a_failover_give_a_reset_and_their_successors_follow() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(OFTEN)).await;
    let before = commits.several(5, Told::Both).await;
    expect(&mut subscriber, before).await;
    // What a primary that knew less would have, with its own next commit.
    commits.log(&["DEL"]).await;
    let lost = commits.last;
    commits.last = CommitId::ZERO;
    commits.commit(CommitId::new(7, 2), Told::LogOnly).await;
    expect(&mut subscriber, vec![Event::Reset { shard: SHARD }]).await;
    assert!(commits.last < lost);
    let next = commits.commit(CommitId::new(9, 1), Told::Both).await;
    expect(&mut subscriber, vec![next]).await;
}

#[tokio::test]
async fn an_unreadable_signal_is_looked_up_and_an_unreadable_log_entry_resets() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(NEVER)).await;
    subscribed(&ground, SHARD).await;
    let told = commits.next(Told::LogOnly).await;
    let push = ground.hub.shard_keys(SHARD).push.clone();
    ground.ask_one(SHARD, &["SPUBLISH", push.as_str(), "nonsense"]).await;
    expect(&mut subscriber, vec![told]).await;
    let id = CommitId::new(7, 100);
    commits.write(id, b"nonsense", Told::Both).await;
    expect(&mut subscriber, vec![Event::Reset { shard: SHARD }]).await;
    commits.last = id;
    let next = commits.next(Told::Both).await;
    expect(&mut subscriber, vec![next]).await;
}

#[tokio::test]
async fn a_slow_caller_gets_everything_in_order() {
    let ground = Ground::new(&shared_cluster().await, 2).await;
    let mut commits = Commits::new(&ground, SHARD);
    let options = Options { events_max: 1, ..every(OFTEN) };
    let mut subscriber = subscribe(&ground, options).await;
    let events = commits.several(500, Told::Both).await;
    expect(&mut subscriber, events).await;
}

#[tokio::test]
async fn only_the_wanted_users_and_shards_are_told() {
    let ground = Ground::new(&shared_cluster().await, 4).await;
    let wanted: UserId = "user3".parse().unwrap();
    let shard = ground.layout.shard_of(&wanted);
    let mut commits = Commits::new(&ground, shard);
    let users = Some(BTreeSet::from([wanted.clone()]));
    let mut subscriber = subscribe(&ground, Options { users, ..every(NEVER) }).await;
    let events = commits.several(6, Told::Both).await;
    expect(&mut subscriber, vec![events[3].clone()]).await;
    commits.count = 3;
    let again = commits.next(Told::Both).await;
    expect(&mut subscriber, vec![again]).await;

    let shards = Some(BTreeSet::from([Shard(4)]));
    let error = ground.hub.subscribe(Options { shards, ..Options::default() }).await.unwrap_err();
    assert!(matches!(error, Error::Shard(_)) && error.to_string().contains("shards 0 to 3"), "{error}");
}

#[tokio::test]
async fn a_dropped_subscriber_leaves_no_subscription() {
    let ground = Ground::new(&shared_cluster().await, 4).await;
    let subscriber = subscribe(&ground, Options::default()).await;
    for shard in ground.layout.shards() {
        subscribed(&ground, shard).await;
    }
    drop(subscriber);
    for shard in ground.layout.shards() {
        let push = ground.hub.shard_keys(shard).push.clone();
        let owner = ground.index_of(&ground.owner(shard));
        eventually(WAIT, "the subscription ended", async || {
            let left = redis_cli(&ground.nodes, owner, &["PUBSUB", "SHARDNUMSUB", push.as_str()]).await;
            left.ends_with('0').then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_moving_slot_is_followed_cluster_own() {
    let cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 1).await;
    let mut commits = Commits::new(&ground, SHARD);
    let (source, target) = (ground.index_of(&ground.owner(SHARD)), other_primary(&ground, SHARD));
    // As often as by default: the longest silence is still far below what the test waits.
    let mut subscriber = subscribe(&ground, Options::default()).await;
    let mut events = commits.several(5, Told::Both).await;
    begin_move(&ground, SHARD, target).await;
    // Redis 7.0 takes a channel for a missing key while its slot moves, and refuses a transaction with a signal.
    events.extend(commits.several(5, Told::LogOnly).await);
    expect(&mut subscriber, events).await;
    let log = ground.hub.shard_keys(SHARD).log.clone();
    move_keys(&ground, source, target, &[log.as_str()]).await;
    // Now the log is at the target, and a signal sent there reaches nobody.
    let id = CommitId::new(7, commits.last.sequence + 1);
    let signal =
        Signal { id, previous: commits.last, at_milliseconds: 1, users: vec![(commits.user(), Views::PROFILE)] };
    append_while_moving(&ground, target, log.as_str(), &signal).await;
    let event = Event::Changed { shard: SHARD, commit: id, user: commits.user(), views: Views::PROFILE };
    expect(&mut subscriber, vec![event]).await;
    (commits.last, commits.count) = (id, commits.count + 1);
    end_move(&ground, SHARD, source, target).await;
    let events = commits.several(5, Told::Both).await;
    expect(&mut subscriber, events).await;
    subscribed(&ground, SHARD).await;
    let events = commits.several(5, Told::Both).await;
    expect(&mut subscriber, events).await;
}

async fn append_while_moving(ground: &Ground, target: usize, log: &str, signal: &Signal) {
    let node = super::client::seeds(&ground.nodes)[target].clone();
    let mut link = heyday::redis::Link::connect(&node, &Default::default()).await.unwrap();
    let mut pipeline = Pipeline::new();
    pipeline.command("ASKING");
    pipeline.command("XADD").arg(log).arg(signal.id.to_string()).arg("s").arg(signal.encode());
    let replies = link.request(&pipeline, WAIT).await.unwrap();
    assert!(replies.iter().all(|reply| reply.error().is_none()), "{replies:?}");
}

#[tokio::test]
async fn a_manual_failover_is_followed_although_the_connection_stays_cluster_own() {
    let cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 1).await;
    let mut commits = Commits::new(&ground, SHARD);
    let mut subscriber = subscribe(&ground, every(NEVER)).await;
    let before = commits.several(5, Told::Both).await;
    expect(&mut subscriber, before).await;
    let mut primary = ground.index_of(&ground.owner(SHARD));
    for _ in 0..2 {
        let replica = (primary + 3) % 6;
        fail_over(&cluster, replica).await;
        let events = commits.several(10, Told::Both).await;
        expect(&mut subscriber, events).await;
        eventually(WAIT, "the client knew the new primary", async || {
            (ground.index_of(&ground.owner(SHARD)) == replica).then_some(())
        })
        .await;
        // Only signals can bring these soon.
        subscribed(&ground, SHARD).await;
        let events = commits.several(5, Told::Both).await;
        expect(&mut subscriber, events).await;
        primary = replica;
    }
}

#[tokio::test]
async fn a_killed_primary_delays_no_other_node_cluster_own() {
    let mut cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 4).await;
    let mut subscriber = subscribe(&ground, every(NEVER)).await;
    let (mut lost, mut sound) = (Commits::new(&ground, Shard(0)), Commits::new(&ground, Shard(3)));
    let before = [lost.several(3, Told::Both).await, sound.several(3, Told::Both).await].concat();
    for _ in &before {
        assert!(before.contains(&next(&mut subscriber).await));
    }
    // Every commit is on the replica, so that none is lost.
    let killed = ground.index_of(&ground.owner(Shard(0)));
    let log = ground.hub.shard_keys(Shard(0)).log.clone();
    let slot = ground.layout.slot(Shard(0)).to_string();
    eventually(WAIT, "the replica had the log", async || {
        let keys = redis_cli(&cluster, killed + 3, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
        keys.lines().any(|key| key == log.as_str()).then_some(())
    })
    .await;
    let offset = async |index: usize| {
        let info = redis_cli(&cluster, index, &["INFO", "replication"]).await;
        info.lines().find_map(|line| line.trim().strip_prefix("master_repl_offset:").map(str::to_owned))
    };
    eventually(WAIT, "the replica was in step", async || {
        (offset(killed).await == offset(killed + 3).await).then_some(())
    })
    .await;
    cluster.kill(killed).unwrap();
    let events = sound.several(5, Told::Both).await;
    expect(&mut subscriber, events).await;
    let events = lost.several(5, Told::Both).await;
    expect(&mut subscriber, events).await;
}
