//! Single troubles of one shard, each told apart from all others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use heyday::change::Fields;
use heyday::key::Keys;
use heyday::metrics::{Health, Metrics};
use heyday::oracle::Content;
use heyday::reduce::Rules;
use heyday::shard::{Layout, Shard};
use heyday::store::{Read, ShardLink, Store, TRIMMED_PART_MIN};
use heyday::testing::model::{Calamity, Model};
use heyday::worker::{self, Context, Options};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

const SHARD: Shard = Shard(0);
const MORNING: u64 = 1_795_946_400_000;
const STEP: Duration = Duration::from_millis(50);

struct Scene {
    model: Model,
    metrics: Metrics,
    options: Options,
}

impl Scene {
    fn new() -> Scene {
        let layout = Layout::new(1).expect("a power of two");
        Scene {
            model: Model::new(layout, Keys::new("").expect("a good prefix"), MORNING),
            metrics: Metrics::new(Health::new(Duration::from_secs(10))),
            options: Options::default(),
        }
    }

    fn add(&self, user: &str, friend: usize) {
        let friend = format!("f{friend}");
        let pairs = [("type", "add"), ("user", user), ("friend", &friend), ("birthday", "1990-05-01")];
        let fields: Fields = pairs.map(|(name, value)| (name.into(), Bytes::copy_from_slice(value.as_bytes()))).into();
        self.model.append(SHARD, fields).expect("the shard takes it");
    }

    fn start(&self) -> (JoinHandle<()>, oneshot::Sender<()>) {
        let context = Context {
            store: self.model.client(),
            layout: self.model.layout().clone(),
            keys: self.model.keys().clone(),
            rules: Arc::new(Rules::default()),
            options: Arc::new(self.options.clone()),
            metrics: self.metrics.clone(),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        (tokio::spawn(worker::run(context, shutdown)), stop)
    }

    async fn until(&self, what: &str, holds: impl Fn(&Scene) -> bool) {
        self.within(Duration::from_secs(120), what, holds).await;
    }

    async fn within(&self, longest: Duration, what: &str, holds: impl Fn(&Scene) -> bool) {
        let (begun, mut steps) = (Instant::now(), interval(STEP));
        while !holds(self) {
            assert!(begun.elapsed() < longest, "{what} within {longest:?}: never happened");
            steps.tick().await;
        }
    }

    /// The kinds of the dead letters, in order.
    fn dead_kinds(&self) -> Vec<String> {
        let key = self.model.keys().shard(self.model.layout(), SHARD).dead_letters;
        let contents = self.model.contents();
        let Some(Content::Stream(letters)) = contents.get(key.as_str()) else {
            return Vec::new();
        };
        let kind = |fields: &Fields| fields.iter().find(|(name, _)| name == "kind").map(|(_, kind)| kind.clone());
        letters.iter().map(|(_, fields)| String::from_utf8_lossy(&kind(fields).unwrap_or_default()).into()).collect()
    }

    /// The number after a line's name and labels.
    fn metric(&self, name: &str) -> Option<f64> {
        let text = self.metrics.encode();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }
}

#[tokio::test(start_paused = true)]
async fn entries_behind_many_bad_ones_are_applied() {
    let scene = Scene::new();
    let keys = scene.model.keys().shard(scene.model.layout(), SHARD);
    scene.model.plant(SHARD, &keys.birthdays(&"spoilt".parse().expect("an id")), "no hash");
    (0..150).for_each(|friend| scene.add("spoilt", friend));
    (0..150).for_each(|friend| scene.add("sound", friend));
    let _worker = scene.start();
    scene.until("every entry is settled", |scene| scene.model.unsettled(SHARD).is_empty()).await;
    assert_eq!(scene.dead_kinds(), vec!["refused"; 150]);
}

#[tokio::test(start_paused = true)]
async fn entries_that_a_bad_server_had_delivered_often_are_applied() {
    let scene = Scene::new();
    (0..300).for_each(|friend| scene.add("sound", friend));
    let earlier = "earlier".parse().expect("a name");
    let mut link = scene.model.connect(SHARD).await.expect("a link");
    link.take(&earlier, Duration::from_secs(10)).await.expect("the lease");
    link.read(Read::New { block: STEP }, 300).await.expect("entries");
    for _ in 0..scene.options.deliveries_max + 1 {
        link.read(Read::Pending, 300).await.expect("entries");
    }
    drop(link);
    assert!(scene.model.release(SHARD, &earlier).await.expect("an answer"));
    let _worker = scene.start();
    scene.until("every entry is settled", |scene| scene.model.unsettled(SHARD).is_empty()).await;
    assert_eq!(scene.dead_kinds(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_grew_long_is_trimmed_without_a_pause() {
    let mut scene = Scene::new();
    scene.options.trim_interval = Duration::from_secs(60);
    // Half as many again as one call removes.
    let entries = 3 * TRIMMED_PART_MIN;
    (0..entries as usize).for_each(|friend| scene.add("sound", friend % 10));
    let _worker = scene.start();
    // One interval, and some rounds of an idle shard.
    let longest = scene.options.trim_interval + 6 * scene.options.block;
    let trimmed = |scene: &Scene| scene.metric("heyday_trimmed_total ") == Some(entries as f64);
    scene.within(longest, "all is trimmed", trimmed).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_found_memory_full_and_is_idle_now_does_not_count_as_waiting() {
    let scene = Scene::new();
    scene.model.strike(SHARD, Calamity::MemoryFull { lasting: Duration::from_secs(3) });
    let _worker = scene.start();
    scene.until("the shard waits for room", |scene| scene.metric("heyday_backpressure ") == Some(1.0)).await;
    scene.until("the shard flows", |scene| scene.metric("heyday_backpressure ") == Some(0.0)).await;
}

#[tokio::test(start_paused = true)]
async fn what_only_a_person_can_mend_is_tried_again_seldom() {
    let scene = Scene::new();
    let keys = scene.model.keys().shard(scene.model.layout(), SHARD);
    scene.model.plant(SHARD, &keys.state, "no hash");
    let _worker = scene.start();
    let tries = |scene: &Scene| scene.metric("heyday_retries_total{reason=\"foreign_key\"} ").unwrap_or(0.0);
    let begun = Instant::now();
    scene.until("the shard is tried some times", |scene| tries(scene) >= 5.0).await;
    assert!(begun.elapsed() >= 3 * scene.options.lease_ttl, "five tries within {:?}", begun.elapsed());
    scene.model.delete(SHARD, &keys.state);
    scene.until("the shard is served", |scene| scene.metrics.shards_owned() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_waits_tells_how_long_its_changes_wait() {
    let scene = Scene::new();
    let _worker = scene.start();
    scene.until("the shard is served", |scene| scene.metrics.shards_owned() == 1).await;
    scene.add("sound", 1);
    scene.model.strike(SHARD, Calamity::MemoryFull { lasting: Duration::from_secs(60) });
    let waited =
        |scene: &Scene| scene.metric("heyday_shard_oldest_seconds{shard=\"0\"} ").is_some_and(|age| age > 20.0);
    scene.within(Duration::from_secs(50), "the age of the oldest change rises", waited).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_nobody_that_would_last_for_ever_lasts_one_lease() {
    let scene = Scene::new();
    let keys = scene.model.keys().shard(scene.model.layout(), SHARD);
    scene.model.plant(SHARD, &keys.lease, "somebody");
    let _worker = scene.start();
    let longest = scene.options.lease_ttl + Duration::from_secs(1);
    scene.within(longest, "the shard is served", |scene| scene.metrics.shards_owned() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_lost_is_no_takeover() {
    let scene = Scene::new();
    let keys = scene.model.keys().shard(scene.model.layout(), SHARD);
    let _worker = scene.start();
    scene.add("sound", 1);
    scene.until("the entry is settled", |scene| scene.model.unsettled(SHARD).is_empty()).await;
    scene.model.delete(SHARD, &keys.state);
    scene.add("sound", 2);
    let settled = |scene: &Scene| scene.model.unsettled(SHARD).is_empty();
    scene.within(Duration::from_secs(1), "the next entry is settled", settled).await;
    assert_eq!(scene.metric("heyday_retries_total{reason=\"state_lost\"} "), Some(1.0));
    assert_eq!(scene.metric("heyday_fenced_total "), Some(0.0));
    assert_eq!(scene.metric("heyday_takeovers_total{cause=\"first\"} "), Some(2.0));
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_lost_while_nothing_changes_is_noticed_all_the_same() {
    let scene = Scene::new();
    let keys = scene.model.keys().shard(scene.model.layout(), SHARD);
    let calendar = heyday::calendar::Calendar::default();
    let _worker = scene.start();
    scene.until("the days are complete", |scene| scene.model.is_rolled(SHARD, &calendar)).await;
    scene.model.delete(SHARD, &keys.state);
    let looked = 2 * scene.options.trim_interval + Duration::from_secs(1);
    scene.within(looked, "they are so again", |scene| scene.model.is_rolled(SHARD, &calendar)).await;
    assert_eq!(scene.metric("heyday_retries_total{reason=\"state_lost\"} "), Some(1.0));
}
