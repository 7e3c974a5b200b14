//! The near cache against real nodes and workers: no round trip while nothing changes, nothing older than what was told, and a
//! last known answer where nobody answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use heyday::change::{Action, Change, UserId};
use heyday::client::near::{Events, Near, Options};
use heyday::client::reader::{self, Error, State};
use heyday::client::subscriber::{self, Event};
use heyday::client::writer::{self, Writer};
use heyday::position::CommitId;
use heyday::redis::Pipeline;
use heyday::shard::Shard;
use heyday::signal::Signal;

use super::client::{Ground, WAIT};
use super::reader::{SHARD, store};
use crate::support::cluster::{own_cluster, shared_cluster, unique_prefix};
use crate::support::eventually;
use crate::support::scene::{Scene, crash};

const OFTEN: Duration = Duration::from_millis(50);

/// Patient where Redis should answer, and quick to doubt what it hears.
fn options() -> Options {
    Options {
        reader: reader::Options { timeout: WAIT, ..reader::Options::default() },
        patience: WAIT,
        poll_interval_degraded: OFTEN,
        ..Options::default()
    }
}

async fn sure(near: &Near, shard: Shard) {
    eventually(WAIT, "the shard was sure", async || near.is_sure(shard).then_some(())).await;
}

fn profile_of(user: &UserId, name: &str, value: u64) -> Change {
    Change::new(user.clone(), Action::Profile { fields: vec![(name.to_owned(), Some(value.to_string()))] })
}

async fn told_of(events: &mut Events, user: &UserId) -> CommitId {
    loop {
        let event = tokio::time::timeout(WAIT, events.next_event()).await.expect("an event").expect("the cache lives");
        if let Event::Changed { commit, user: changed, .. } = event
            && changed == *user
        {
            return commit;
        }
    }
}

#[tokio::test]
async fn a_read_takes_a_round_trip_only_after_a_change() {
    let scene = Scene::begin(&shared_cluster().await, &unique_prefix(), 4).await;
    let mut workers = scene.workers();
    workers.start();
    let near = scene.hub.near(options()).await.unwrap();
    let mut events = near.events(64);
    let writer = scene.hub.writer(writer::Options::default());
    let (user, nobody): (UserId, UserId) = ("anna".parse().unwrap(), "nobody".parse().unwrap());
    sure(&near, scene.layout.shard_of(&user)).await;
    sure(&near, scene.layout.shard_of(&nobody)).await;
    for round in 1..=3 {
        writer.append(&profile_of(&user, "n", round)).await.unwrap();
        told_of(&mut events, &user).await;
        let before = near.round_trips();
        for again in 0..4 {
            let profile = near.profile(&user).await.unwrap();
            assert_eq!((profile.profile.version, profile.profile.number("n")), (round, Ok(Some(round))));
            let view = near.read(&user).await.unwrap();
            assert_eq!((view.profile.version, view.age, view.state), (round, Duration::ZERO, State::Live));
            assert_eq!(near.read(&nobody).await.unwrap().state, State::Cold);
            // The cold one is kept too, over all rounds.
            assert_eq!(near.round_trips() - before, if round == 1 { 3 } else { 2 }, "read {again}");
        }
    }
    let counts = near.counts();
    assert_eq!((counts.entries, counts.misses, counts.hits, counts.outdated), (3, 7, 29, 4), "{counts:?}");
    assert!(counts.bytes > 500, "{counts:?}");
}

#[tokio::test]
async fn where_signals_are_not_heard_redis_is_asked() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let user = store(&ground, 0).await;
    proxy.hold_before("SSUBSCRIBE");
    let near = ground.hub.near(options()).await.unwrap();
    proxy.held().await;
    assert!(!near.is_sure(SHARD));
    for read in 1..=3 {
        assert_eq!((near.read(&user).await.unwrap().state, near.round_trips()), (State::Live, read));
    }
    proxy.release();
    sure(&near, SHARD).await;
    assert_eq!((near.read(&user).await.unwrap().state, near.round_trips()), (State::Live, 3));
}

#[tokio::test]
async fn after_a_reset_everything_of_the_shard_is_read_again() {
    let ground = Ground::new(&shared_cluster().await, 1).await;
    let user = store(&ground, 0).await;
    let near = ground.hub.near(Options { poll_interval: OFTEN, ..options() }).await.unwrap();
    let mut events = near.events(8);
    sure(&near, SHARD).await;
    near.read(&user).await.unwrap();
    let keys = ground.hub.shard_keys(SHARD);
    let mut pipeline = Pipeline::new();
    pipeline.push(&["MULTI"]);
    pipeline.push(&["HSET", keys.profile(&user).as_str(), "version", "4"]);
    pipeline.push(&["HSET", keys.state.as_str(), "last", "9-5"]);
    // A log that begins in the middle: nobody can say what came before.
    let (id, previous) = (CommitId::new(9, 5), CommitId::new(9, 4));
    let signal = Signal { id, previous, at_milliseconds: 1, users: Vec::new() };
    pipeline.command("XADD").arg(keys.log.as_bytes()).arg("9-5").arg("s").arg(signal.encode());
    pipeline.command("EXEC");
    ground.ask(SHARD, &pipeline).await;
    let event = tokio::time::timeout(WAIT, events.next_event()).await.expect("an event");
    assert_eq!(event, Some(Event::Reset { shard: SHARD }));
    let view = near.read(&user).await.unwrap();
    assert_eq!((view.profile.version, view.state, near.counts().resets), (4, State::Live, 1));
}

#[tokio::test]
async fn a_silent_node_leaves_the_last_known_answer_and_its_age() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let (user, unknown) = (store(&ground, 0).await, ground.user(SHARD, 9));
    let timeout = Duration::from_secs(1);
    let reader = reader::Options { timeout, ..reader::Options::default() };
    let options = Options { reader, patience: OFTEN, poll_interval: OFTEN, ..options() };
    let near = ground.hub.near(options).await.unwrap();
    sure(&near, SHARD).await;
    assert_eq!(near.read(&user).await.unwrap().state, State::Live);
    assert_eq!(near.profile(&user).await.unwrap().state, State::Live);
    proxy.stall();
    let stale = eventually(WAIT, "the answer was stale", async || {
        let view = near.read(&user).await.expect("the last known answer");
        (view.state == State::Stale).then_some(view)
    })
    .await;
    assert!(stale.age > Duration::ZERO, "{:?}", stale.age);
    assert_eq!((stale.profile.version, stale.friends.len()), (3, 2));
    let profile = near.profile(&user).await.unwrap();
    assert_eq!((profile.state, profile.profile.text("city")), (State::Stale, Some("Київ")));
    let error = tokio::time::timeout(timeout + WAIT, near.read(&unknown)).await.expect("an answer").unwrap_err();
    let Error::Redis { user: named, .. } = &error;
    assert_eq!(named, &unknown);
    assert!(near.counts().stale >= 2, "{:?}", near.counts());
    proxy.pass();
    eventually(WAIT, "the answer was live again", async || {
        (near.read(&user).await.ok()?.state == State::Live).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_read_that_was_not_waited_for_goes_on() {
    let (ground, proxy) = Ground::with_proxy(&shared_cluster().await, 1, SHARD).await;
    let user = store(&ground, 0).await;
    let near = ground.hub.near(Options { patience: OFTEN, poll_interval: OFTEN, ..options() }).await.unwrap();
    sure(&near, SHARD).await;
    near.read(&user).await.unwrap();
    proxy.stall_answers();
    let stale = async || (near.read(&user).await.expect("the last known answer").state == State::Stale).then_some(());
    eventually(WAIT, "the answer was stale", stale).await;
    let round_trips = near.round_trips();
    proxy.pass();
    // Nobody asks again.
    eventually(WAIT, "the read came to its end", async || (near.round_trips() > round_trips).then_some(())).await;
}

#[tokio::test]
async fn a_killed_node_leaves_the_last_known_answer_until_its_replica_answers_cluster_own() {
    let mut cluster = own_cluster(heyday::local::Options::default()).await;
    let ground = Ground::new(&cluster, 1).await;
    let user = store(&ground, 0).await;
    let reader = reader::Options { timeout: Duration::from_secs(1), ..reader::Options::default() };
    let near = ground.hub.near(Options { reader, patience: OFTEN, poll_interval: OFTEN, ..options() }).await.unwrap();
    sure(&near, SHARD).await;
    near.read(&user).await.unwrap();
    let primary = ground.index_of(&ground.owner(SHARD));
    ground.ask_one(SHARD, &["WAIT", "1", "10000"]).await;
    let over = Arc::new(AtomicBool::new(false));
    let reading = {
        let (near, user, over) = (near.clone(), user.clone(), over.clone());
        tokio::spawn(async move {
            let mut states = BTreeMap::new();
            while !over.load(Ordering::SeqCst) {
                let view = near.read(&user).await.expect("an answer all the time");
                assert_eq!((view.profile.version, view.friends.len()), (3, 2));
                *states.entry(view.state.name()).or_insert(0) += 1;
                tokio::task::yield_now().await;
            }
            states
        })
    };
    crash(&mut cluster, primary, primary + 3).await;
    eventually(WAIT, "the new primary was heard", async || {
        (near.is_sure(SHARD) && ground.index_of(&ground.owner(SHARD)) == primary + 3).then_some(())
    })
    .await;
    over.store(true, Ordering::SeqCst);
    let states = reading.await.unwrap();
    assert!(states.contains_key("live") && states.contains_key("stale") && states.len() == 2, "{states:?}");
    assert_eq!(near.read(&user).await.unwrap().state, State::Live);
    assert!(near.counts().resets >= 1, "what the dead node said is not trusted: {:?}", near.counts());
}

/// Users whose changes are told one by one: with each event one more is in the profile.
struct Race {
    users: Vec<UserId>,
    /// How many changes of each user were told.
    told: Vec<AtomicU64>,
    over: AtomicBool,
    /// Live answers that were compared.
    checked: AtomicU64,
}

impl Race {
    fn told(&self, user: usize) -> u64 {
        self.told[user].load(Ordering::SeqCst)
    }

    /// Counts what is told, and keeps the order of commits in each shard.
    async fn listen(&self, mut events: Events, total: u64) -> BTreeMap<Shard, Vec<CommitId>> {
        let mut order = BTreeMap::<Shard, Vec<CommitId>>::new();
        for _ in 0..total {
            match tokio::time::timeout(WAIT, events.next_event()).await.expect("an event").expect("the cache lives") {
                Event::Changed { shard, commit, user, .. } => {
                    order.entry(shard).or_default().push(commit);
                    let user = self.users.iter().position(|known| *known == user).expect("a user of this test");
                    self.told[user].fetch_add(1, Ordering::SeqCst);
                }
                Event::Reset { shard } => panic!("shard {shard} was reset though nothing broke"),
            }
        }
        order
    }

    async fn write(&self, writer: &Writer, user: usize, changes: u64) {
        for change in 1..=changes {
            writer.append(&profile_of(&self.users[user], "n", change)).await.expect("it is appended");
            eventually(WAIT, "the change was told", async || (self.told(user) >= change).then_some(())).await;
        }
    }

    /// A read that begins after so many changes were told has as many.
    async fn check(&self, near: &Near, user: usize) {
        let told = self.told(user);
        let (version, state) = if told.is_multiple_of(2) {
            let view = near.read(&self.users[user]).await.expect("an answer");
            (view.profile.version, view.state)
        } else {
            let profile = near.profile(&self.users[user]).await.expect("an answer");
            (profile.profile.version, profile.state)
        };
        if state != State::Stale {
            assert!(version >= told, "user {user}: {version} changes in a live answer after {told} were told");
            self.checked.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn read(&self, near: &Near, first: usize) {
        let mut user = first;
        while !self.over.load(Ordering::SeqCst) {
            self.check(near, user % self.users.len()).await;
            user += 1;
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_live_answer_is_older_than_what_was_told() {
    const CHANGES: u64 = 40;
    let scene = Scene::begin(&shared_cluster().await, &unique_prefix(), 4).await;
    let mut workers = scene.workers();
    workers.start();
    let near = scene.hub.near(options()).await.unwrap();
    let mut observer = scene.hub.subscribe(subscriber::Options::default()).await.unwrap();
    for shard in scene.layout.shards() {
        sure(&near, shard).await;
    }
    let users: Vec<UserId> = (0..12).map(|number| format!("user{number}").parse().unwrap()).collect();
    let told = users.iter().map(|_| AtomicU64::new(0)).collect();
    let race = Arc::new(Race { users, told, over: AtomicBool::new(false), checked: AtomicU64::new(0) });
    let total = race.users.len() as u64 * CHANGES;
    let listening = tokio::spawn({
        let (race, events) = (race.clone(), near.events(16));
        async move { race.listen(events, total).await }
    });
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let (race, near) = (race.clone(), near.clone());
            tokio::spawn(async move { race.read(&near, reader * 3).await })
        })
        .collect();
    let writer = scene.hub.writer(writer::Options::default());
    join_all((0..race.users.len()).map(|user| race.write(&writer, user, CHANGES))).await;
    race.over.store(true, Ordering::SeqCst);
    for reading in readers {
        reading.await.unwrap();
    }
    let order = listening.await.unwrap();
    let mut observed = BTreeMap::<Shard, Vec<CommitId>>::new();
    for _ in 0..total {
        if let Some(Event::Changed { shard, commit, .. }) = observer.next_event().await {
            observed.entry(shard).or_default().push(commit);
        }
    }
    assert_eq!(order, observed, "the cache tells the same commits in the same order as a subscriber");
    for user in 0..race.users.len() {
        race.check(&near, user).await;
        let view = near.read(&race.users[user]).await.unwrap();
        assert_eq!((view.profile.version, view.profile.number("n")), (CHANGES, Ok(Some(CHANGES))));
    }
    let counts = near.counts();
    assert!(counts.hits > 0 && counts.outdated > 0, "{counts:?}");
    assert!(race.checked.load(Ordering::Relaxed) > total, "{counts:?}");
}
