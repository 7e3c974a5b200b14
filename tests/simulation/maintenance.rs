//! Maintenance on one worker: what pauses, what goes on, and how it ends.

use std::time::Duration;

use bytes::Bytes;
use heyday::key::Keys;
use heyday::lease::WorkerId;
use heyday::metrics::Metrics;
use heyday::shard::{Layout, Shard};
use heyday::testing::model::{Calamity, Model};
use heyday::worker::{self, Options};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

use super::world::context;

const SHARD: Shard = Shard(0);
const MORNING: u64 = 1_795_946_400_000;
const LOOK: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(600);

struct Scene {
    model: Model,
    metrics: Metrics,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Scene {
    /// One worker on a model of one shard.
    fn on(model: &Model) -> Scene {
        let context = context(model, Options::default());
        let (metrics, (stop, stopped)) = (context.metrics.clone(), oneshot::channel::<()>());
        let task = tokio::spawn(worker::run(context, async { drop(stopped.await) }));
        Scene { model: model.clone(), metrics, task, stop }
    }

    fn append(&self, friend: &str) {
        let fields = [("type", "add"), ("user", "42"), ("friend", friend)];
        let fields = fields.map(|(name, value)| (Bytes::from_static(name.as_bytes()), Bytes::from(value.to_owned())));
        self.model.append(SHARD, fields.to_vec()).expect("the shard takes it");
    }

    fn is_settled(&self) -> bool {
        self.model.unsettled(SHARD).is_empty()
    }

    fn commits(&self) -> usize {
        self.model.history(SHARD).commits.len()
    }

    /// Whether the worker says in the lock that it has paused.
    fn says_paused(&self) -> bool {
        let worker: WorkerId = "worker".parse().expect("a name");
        self.model.maintenance_paused().is_some_and(|(_, paused)| paused.contains(&worker))
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.metrics.encode();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name}"))
    }

    async fn until(&self, never: &str, holds: impl Fn(&Scene) -> bool) {
        let (begun, mut looks) = (Instant::now(), interval(LOOK));
        while !holds(self) {
            assert!(begun.elapsed() <= PATIENCE, "it never happened that {never}");
            looks.tick().await;
        }
    }

    async fn pass(&self, span: Duration) {
        let (begun, mut looks) = (Instant::now(), interval(LOOK));
        while begun.elapsed() < span {
            looks.tick().await;
        }
    }

    async fn serves(&self) {
        self.append("first");
        self.until("the first entry was settled", Scene::is_settled).await;
    }

    async fn pauses(&self) {
        assert!(self.model.maintenance_on("ann", "upgrade", TTL));
        self.until("the worker said that it has paused", Scene::says_paused).await;
    }
}

fn model() -> Model {
    Model::new(Layout::new(1).expect("a layout"), Keys::new("").expect("a prefix"), MORNING)
}

fn paused_and_expired(scene: &Scene) -> (f64, f64) {
    (scene.metric("heyday_maintenance_paused"), scene.metric("heyday_maintenance_expired_total"))
}

#[tokio::test(start_paused = true)]
async fn a_paused_shard_commits_nothing_keeps_its_lease_and_tells_what_waits() {
    let scene = Scene::on(&model());
    scene.serves().await;
    scene.pauses().await;
    assert_eq!(paused_and_expired(&scene), (1.0, 0.0));
    let readiness = scene.metrics.health().readiness();
    assert_eq!(readiness.maintenance.as_deref(), Some("ann: upgrade"));
    let (commits, takes) = (scene.commits(), scene.model.history(SHARD).takes);
    scene.append("second");
    // Several leases long.
    scene.pass(Duration::from_secs(60)).await;
    assert_eq!((scene.commits(), scene.model.history(SHARD).takes), (commits, takes));
    assert!(scene.metric("heyday_shard_oldest_seconds{shard=\"0\"}") > 40.0, "{}", scene.metrics.encode());

    scene.model.maintenance_off();
    scene.until("the second entry was settled", Scene::is_settled).await;
    assert_eq!(paused_and_expired(&scene), (0.0, 0.0));
    assert_eq!(scene.model.history(SHARD).takes, takes, "the link and the generation are the same");
    scene.until("the worker was ready", |scene| scene.metrics.health().readiness().maintenance.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_lock_runs_out_and_that_is_counted() {
    let scene = Scene::on(&model());
    scene.serves().await;
    scene.pauses().await;
    assert!(scene.model.maintenance_on("ann", "upgrade", Duration::from_secs(2)), "ann may change it");
    assert!(!scene.model.maintenance_on("bob", "other", TTL), "bob may not");
    scene.append("second");
    scene.until("the second entry was settled", Scene::is_settled).await;
    assert_eq!(paused_and_expired(&scene), (0.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_begins_during_maintenance_takes_its_shards_and_commits_nothing() {
    let model = model();
    assert!(model.maintenance_on("ann", "upgrade", TTL));
    let scene = Scene::on(&model);
    scene.append("first");
    scene.until("the worker said that it has paused", Scene::says_paused).await;
    scene.until("the shard was taken", |scene| scene.metrics.shards_owned() == 1).await;
    scene.pass(Duration::from_secs(30)).await;
    assert_eq!((scene.commits(), scene.says_paused()), (0, true));
    model.maintenance_off();
    scene.until("the entry was settled", Scene::is_settled).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_to_stop_during_maintenance_gives_its_shards_up() {
    let scene = Scene::on(&model());
    scene.serves().await;
    scene.pauses().await;
    let (model, commits) = (scene.model.clone(), scene.commits());
    drop(scene.stop);
    tokio::time::timeout(PATIENCE, scene.task).await.expect("it ends in time").expect("it ends in peace");
    let lease = model.keys().shard(model.layout(), SHARD).lease;
    assert!(!model.contents().contains_key(lease.as_str()));
    assert_eq!(model.history(SHARD).commits.len(), commits);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_waits_for_room_pauses_too() {
    let scene = Scene::on(&model());
    scene.serves().await;
    scene.append("second");
    scene.model.strike(SHARD, Calamity::MemoryFull { lasting: Duration::from_secs(20) });
    scene.until("the shard waited for room", |scene| scene.metric("heyday_backpressure") > 0.0).await;
    scene.pauses().await;
    let commits = scene.commits();
    scene.pass(Duration::from_secs(60)).await;
    assert_eq!(scene.commits(), commits, "there is room by now");
    scene.model.maintenance_off();
    scene.until("the entry was settled", Scene::is_settled).await;
}
