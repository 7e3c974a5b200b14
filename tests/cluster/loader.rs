//! Cold users and who knows more of them: asked once, appended as ordinary changes, and never in the way of an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use heyday::birthday::Birthday;
use heyday::change::{Action, Change, UserId};
use heyday::client::loader::{Counts, Loader, Loading, Loads, Options};
use heyday::client::near;
use heyday::client::reader::{self, Profile, Reader, State};
use heyday::client::writer;
use tokio::sync::Semaphore;

use crate::support::cluster::{shared_cluster, unique_prefix};
use crate::support::eventually;
use crate::support::scene::Scene;

const WAIT: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(3600);

/// Knows everybody but those whose id begins with `x`; fails for those that begin with `f`, panics for those with `p`, and
/// knows a friend and no profile of those with `n`, and of those with `v` only that there is none.
#[derive(Clone)]
struct Database {
    asked: Arc<AtomicUsize>,
    /// How many may be answered.
    gate: Arc<Semaphore>,
}

impl Database {
    fn new() -> Database {
        Database { asked: Arc::default(), gate: Arc::new(Semaphore::new(1000)) }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Loader for Database {
    fn load<'a>(&'a self, user: &'a UserId) -> Loading<'a> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await?.forget();
            match user.as_str().as_bytes()[0] {
                b'x' => Ok(Vec::new()),
                b'f' => Err("the database is away".into()),
                b'o' => Ok(vec![Change::new("another".parse().unwrap(), Action::Forget)]),
                b'p' => panic!("on purpose"),
                b'n' => Ok(vec![Change::new(user.clone(), add_friend())]),
                b'v' => Ok(vec![Change::new(user.clone(), Action::Remove { friend: friend(), mutual: false })]),
                _ => {
                    let fields = vec![("role".to_owned(), Some("admin".to_owned()))];
                    let changes = [Action::Profile { fields }, add_friend()];
                    Ok(changes.map(|action| Change::new(user.clone(), action)).into())
                }
            }
        })
    }
}

fn friend() -> UserId {
    "friend".parse().unwrap()
}

fn add_friend() -> Action {
    Action::Add { friend: friend(), birthday: Birthday::parse("1990-05-01").ok(), mutual: false }
}

fn options() -> Options {
    Options { retry_after: LONG, timeout: WAIT, ..Options::default() }
}

fn reader(scene: &Scene, database: &Database, options: Options) -> (Reader, Loads) {
    let loads = Loads::new(database.clone(), scene.hub.writer(writer::Options::default()), options);
    (scene.hub.reader(patient()).loading(loads.clone()), loads)
}

fn patient() -> reader::Options {
    reader::Options { timeout: WAIT, ..reader::Options::default() }
}

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

async fn scene() -> Scene {
    Scene::begin(&shared_cluster().await, &unique_prefix(), 4).await
}

#[tokio::test]
async fn a_cold_user_is_loaded_once_and_answered_at_once() {
    let scene = scene().await;
    let mut workers = scene.workers();
    workers.start();
    let database = Database { gate: Arc::new(Semaphore::new(0)), ..Database::new() };
    let (reader, loads) = reader(&scene, &database, options());
    let anna = user("anna");
    // No answer waits for the database, which is silent still.
    for answer in join_all((0..20).map(|_| reader.read(&anna))).await {
        assert_eq!(answer.unwrap().state, State::Cold);
    }
    assert_eq!(reader.profile(&anna).await.unwrap().state, State::Cold);
    database.gate.add_permits(1);
    let view = eventually(WAIT, "the user was loaded", async || {
        let view = reader.read(&anna).await.unwrap();
        (view.profile.role() == Some("admin") && view.friends.len() == 1).then_some(view)
    })
    .await;
    assert_eq!((view.friends[0].friend.as_str(), view.profile.version), ("friend", 1));
    assert_eq!((database.asked(), loads.counts()), (1, Counts { loaded: 1, ..Counts::default() }));
}

#[tokio::test]
async fn whom_the_database_does_not_know_or_give_is_left_alone_for_a_while() {
    let scene = scene().await;
    let database = Database::new();
    let (reader, loads) = reader(&scene, &database, options());
    for name in ["xavier", "fanny", "otto", "paul"] {
        let known = loads.counts();
        reader.read(&user(name)).await.unwrap();
        eventually(WAIT, "the database has answered", async || (loads.counts() != known).then_some(())).await;
        for _ in 0..20 {
            assert_eq!(reader.read(&user(name)).await.unwrap().state, State::Cold);
        }
    }
    assert_eq!((database.asked(), loads.counts()), (4, Counts { unknown: 1, failed: 3, ..Counts::default() }));
    let (reader, _) = self::reader(&scene, &database, Options { retry_after: Duration::from_millis(1), ..options() });
    eventually(WAIT, "the database was asked again", async || {
        reader.read(&user("xavier")).await.unwrap();
        (database.asked() >= 6).then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_more_users_are_on_their_way_than_allowed() {
    let scene = scene().await;
    let database = Database { gate: Arc::new(Semaphore::new(0)), ..Database::new() };
    let (reader, loads) = reader(&scene, &database, Options { concurrency_max: 2, ..options() });
    for number in 0..10 {
        reader.read(&user(&format!("x{number}"))).await.unwrap();
    }
    eventually(WAIT, "two were asked for", async || (database.asked() == 2).then_some(())).await;
    assert_eq!(loads.counts(), Counts { full: 8, ..Counts::default() });
    database.gate.add_permits(1000);
    eventually(WAIT, "all were asked for in the end", async || {
        for number in 0..10 {
            reader.read(&user(&format!("x{number}"))).await.unwrap();
        }
        (loads.counts().unknown == 10).then_some(())
    })
    .await;
    assert_eq!(database.asked(), 10);
}

#[tokio::test]
async fn a_read_that_waits_gets_what_was_loaded() {
    let scene = scene().await;
    let mut workers = scene.workers();
    workers.start();
    let database = Database::new();
    let (reader, loads) = reader(&scene, &database, Options { wait: true, ..options() });
    assert_eq!(reader.profile(&user("anna")).await.unwrap().profile.role(), Some("admin"));
    assert_eq!(reader.read(&user("xavier")).await.unwrap().state, State::Cold, "nothing to wait for");
    let near = near::Options {
        loads: Some(loads),
        reader: reader::Options { timeout: WAIT, ..Default::default() },
        ..Default::default()
    };
    let near = scene.hub.near(near).await.unwrap();
    let bert = near.profile(&user("bert")).await.unwrap();
    assert_eq!((bert.profile.role(), bert.state), (Some("admin"), State::Live));
}

#[tokio::test]
async fn whom_friends_alone_make_known_is_not_loaded_again() {
    let scene = scene().await;
    let mut workers = scene.workers();
    workers.start();
    let database = Database::new();
    let again = Options { wait: true, retry_after: Duration::ZERO, ..options() };
    let (reader, loads) = reader(&scene, &database, again);
    for _ in 0..3 {
        let nora = reader.profile(&user("nora")).await.unwrap();
        assert_eq!((nora.state, nora.profile), (State::Live, Profile::default()));
    }
    assert_eq!((database.asked(), loads.counts()), (1, Counts { loaded: 1, ..Counts::default() }));
    // A kept answer that says nothing learns of the first friend.
    let near = scene.hub.near(near::Options { reader: patient(), ..Default::default() }).await.unwrap();
    let mia = user("mia");
    assert_eq!(near.profile(&mia).await.unwrap().state, State::Cold);
    let writer = scene.hub.writer(writer::Options::default());
    writer.append(&Change::new(mia.clone(), add_friend())).await.unwrap();
    eventually(WAIT, "the user was known", async || {
        (near.profile(&mia).await.unwrap().state == State::Live).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_read_waits_no_longer_than_for_what_was_loaded() {
    let scene = scene().await;
    let mut workers = scene.workers();
    workers.start();
    let database = Database::new();
    // No test waits as long as this reader would.
    let (_, loads) = reader(&scene, &database, Options { wait: true, ..options() });
    let reader = scene.hub.reader(reader::Options { timeout: LONG, ..Default::default() }).loading(loads.clone());
    let vera = tokio::time::timeout(WAIT, reader.read(&user("vera"))).await.expect("an answer").unwrap();
    assert_eq!((vera.state, loads.counts().loaded), (State::Cold, 1));
}
