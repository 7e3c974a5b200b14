//! A scene: one layout on a real cluster, worker processes, writers, listeners, and the proof that all of it was right.

mod beats;
mod check;
mod detour;
mod figures;
mod inline;
mod leases;
mod listener;
mod load;
mod nodes;
mod probe;
mod proof;
mod settle;
mod snapshot;
mod standing;
mod workers;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use heyday::calendar::Window;
use heyday::client::{self, Hub};
use heyday::key::{Keys, ShardKeys};
use heyday::local::Nodes;
use heyday::redis::{ConnectOptions, Link, NodeAddress, Pipeline, Reply, Topology};
use heyday::reduce::Rules;
use heyday::shard::{Layout, Shard};

pub use beats::Beats;
pub use check::options as check_options;
pub use detour::Detour;
pub use inline::Inline;
pub use leases::LeaseWatch;
pub use listener::Listener;
pub use load::{Load, Plan, Written};
pub use nodes::{calls, crash, fail_over, move_slot};
pub use probe::{Probe, longest_pause};
pub use proof::{Earlier, read_log};
pub use snapshot::Snapshot;
pub use standing::{Standing, undisturbed};
pub use workers::Workers;

/// Longest wait for one node's answer to one of the test's own questions.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// One layout on one cluster.
pub struct Scene {
    nodes: Nodes,
    prefix: String,
    /// Settings beside those that every scene has, for rules and workers alike.
    settings: BTreeMap<String, String>,
    pub keys: Keys,
    pub layout: Layout,
    pub rules: Rules,
    pub hub: Hub,
    /// How much later than foretold a day key may expire: MIGRATE passes on what is left of a life, so a key that moves
    /// lives on by the time it was on the way.
    pub expiry_drift_max: Duration,
    /// How far a server's clock may have been from the test's.
    pub clock_drift_max: Duration,
    /// The moment of a rebuild, where one was on for every entry that came after it.
    pub rebuild: Option<u64>,
    began_milliseconds: u64,
}

impl Scene {
    /// Creates a layout of `shards` shards under `prefix`.
    pub async fn begin(nodes: &Nodes, prefix: &str, shards: u32) -> Scene {
        Scene::begin_with(nodes, prefix, shards, &[]).await
    }

    /// The same with further settings for the workers, such as `("HEYDAY_LOG__LENGTH_MAX", "200")`.
    pub async fn begin_with(nodes: &Nodes, prefix: &str, shards: u32, settings: &[(&str, &str)]) -> Scene {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let rules = rules(&settings);
        let all = environment(nodes, prefix, &settings);
        create_layout(&all, shards);
        let hub = client::connect(connect_options(nodes), prefix).await.expect("a client");
        let began_milliseconds = now_milliseconds();
        Scene {
            nodes: nodes.clone(),
            prefix: prefix.to_owned(),
            settings,
            keys: Keys::new(prefix).expect("a prefix"),
            layout: Layout::new(shards).expect("a number of shards"),
            rules,
            hub,
            expiry_drift_max: Duration::ZERO,
            clock_drift_max: Duration::ZERO,
            rebuild: None,
            began_milliseconds,
        }
    }

    /// No worker yet.
    pub fn workers(&self) -> Workers {
        Workers::new(environment(&self.nodes, &self.prefix, &self.settings))
    }

    /// Creates the layout again, as an operator does after its key was lost.
    pub fn create_layout(&self) {
        create_layout(&environment(&self.nodes, &self.prefix, &self.settings), self.layout.count());
    }

    pub fn connect_options(&self) -> ConnectOptions {
        connect_options(&self.nodes)
    }

    pub fn shard_keys(&self, shard: Shard) -> ShardKeys {
        self.keys.shard(&self.layout, shard)
    }

    /// The days that had a key all the time until now, by whatever clock: a midnight on the way takes one off each end.
    pub fn window(&self) -> Window {
        let drift = self.clock_drift_max.as_millis() as u64;
        let began = self.rules.calendar.window(self.began_milliseconds - drift);
        let now = self.rules.calendar.window(now_milliseconds() + drift);
        Window { first: now.first, last: began.last }
    }

    /// The date where nobody has told a zone.
    pub fn today(&self) -> jiff::civil::Date {
        self.rules.calendar.today(now_milliseconds())
    }

    /// The cluster as it is now.
    pub async fn topology(&self) -> Option<Topology> {
        Topology::connect(Arc::new(self.connect_options())).await.ok()
    }

    /// Asks the owner of each shard's slot; none where somebody did not answer. Replies come by shard.
    pub async fn ask_shards(
        &self,
        question: impl Fn(&ShardKeys, &mut Pipeline),
    ) -> Option<BTreeMap<Shard, Vec<Reply>>> {
        let topology = self.topology().await?;
        let mut asked: BTreeMap<NodeAddress, Vec<ShardKeys>> = BTreeMap::new();
        for shard in self.layout.shards() {
            let keys = self.shard_keys(shard);
            asked.entry(topology.node_of(keys.slot).ok()?.address.clone()).or_default().push(keys);
        }
        let mut answers = BTreeMap::new();
        for (node, shards) in asked {
            let mut link = Link::connect(&node, topology.options()).await.ok()?;
            let mut pipeline = Pipeline::new();
            shards.iter().for_each(|keys| question(keys, &mut pipeline));
            let each = pipeline.len() / shards.len();
            let mut replies = link.request(&pipeline, ANSWER_WAIT).await.ok()?.into_iter();
            for keys in shards {
                answers.insert(keys.shard, replies.by_ref().take(each).collect());
            }
        }
        Some(answers)
    }

    /// One command to the owner of a shard's slot; the test ends where it is refused.
    pub async fn command(&self, shard: Shard, words: &[&str]) -> Reply {
        let topology = self.topology().await.expect("a cluster that answers");
        let node = topology.node_of(self.shard_keys(shard).slot).expect("an owner");
        let mut link = Link::connect(&node.address, topology.options()).await.expect("a link");
        let mut pipeline = Pipeline::new();
        pipeline.push(words);
        let reply = link.request(&pipeline, ANSWER_WAIT).await.expect("an answer").pop().expect("one reply");
        assert!(reply.error().is_none(), "{words:?}: {reply:?}");
        reply
    }
}

/// The built binary with these settings and nothing else in its environment that could be one.
pub fn heyday(settings: &[(String, String)], arguments: &[&str]) -> Command {
    let mut command = crate::cli::command(arguments, &[]);
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    command
}

/// The same with the settings of a scene.
pub fn heyday_in(scene: &Scene, arguments: &[&str]) -> Command {
    heyday(&environment(&scene.nodes, &scene.prefix, &scene.settings), arguments)
}

pub fn now_milliseconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as u64
}

fn create_layout(settings: &[(String, String)], shards: u32) {
    let output = heyday(settings, &["init", "--shards", &shards.to_string()]).output().expect("the binary");
    assert!(output.status.success(), "heyday init: {}", String::from_utf8_lossy(&output.stderr));
}

fn connect_options(nodes: &Nodes) -> ConnectOptions {
    let seeds = nodes.nodes().into_iter().map(|(host, port)| NodeAddress::new(host, port)).collect();
    ConnectOptions { password: nodes.password().map(str::to_owned), ..ConnectOptions::new(seeds) }
}

/// Short times, so that what takes over does so within a test; a stream that keeps what was applied, so that the oracle
/// can read it afterwards.
fn environment(nodes: &Nodes, prefix: &str, settings: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let seeds = nodes.seeds();
    let fixed = [
        ("HEYDAY_REDIS__NODES", seeds.as_str()),
        ("HEYDAY_REDIS__PREFIX", prefix),
        ("HEYDAY_REDIS__CONNECT_TIMEOUT", "500ms"),
        ("HEYDAY_REDIS__REPLY_TIMEOUT", "1s"),
        ("HEYDAY_WORKER__LEASE_TTL", "2s"),
        ("HEYDAY_WORKER__BLOCK", "500ms"),
        ("HEYDAY_WORKER__BACKOFF_MAX", "500ms"),
        ("HEYDAY_WORKER__RETENTION", "1h"),
        ("HEYDAY_WORKER__TRIM_INTERVAL", "1s"),
        ("HEYDAY_WORKER__THREADS", "2"),
        ("HEYDAY_ADMIN__LISTEN", ""),
    ];
    let mut all: BTreeMap<String, String> =
        fixed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if let Some(password) = nodes.password() {
        all.insert("HEYDAY_REDIS__PASSWORD".to_owned(), password.to_owned());
    }
    all.extend(settings.clone());
    all.into_iter().collect()
}

/// The rules under these settings. What a scene may change of them is read here too.
fn rules(settings: &BTreeMap<String, String>) -> Rules {
    let mut rules = Rules::default();
    if let Some(length) = settings.get("HEYDAY_LOG__LENGTH_MAX") {
        rules.log_length_max = length.parse().expect("a number");
    }
    rules
}
