//! Everything that a round strikes: a cluster of its own, proxies before its nodes, workers, and who hears of the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex as StdMutex;
use std::time::{Duration, Instant};

use heyday::client::Hub;
use heyday::client::subscriber;
use heyday::local::{LocalCluster, NODES, Nodes, Options};
use heyday::redis::ConnectOptions;
use heyday::shard::Shard;
use tokio::sync::{Mutex, MutexGuard};

use super::schedule::{Clocks, Kind, PAIRS, Side, WORKERS};
use crate::support::cluster::own_cluster;
use crate::support::proxy::Proxy;
use crate::support::scene::{Detour, Listener, Scene, Workers, now_milliseconds};
use crate::support::{lasts, skew};

/// Shards of a round.
const SHARDS: u32 = 16;
/// How long an order to a node is given again until it is taken: a node may be dead, frozen or full for a while.
const ORDER_WAIT: Duration = Duration::from_secs(45);
/// How long one try may take: a frozen node does not answer.
const TRY_WAIT: Duration = Duration::from_secs(2);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(100);
/// How long after a fault whatever it struck may need until it is whole.
const WHOLE_WAIT: Duration = Duration::from_secs(45);
/// The exit code of a worker that found no cluster: whoever runs it starts it again.
const UNAVAILABLE: i32 = 69;

pub struct Stage {
    pub scene: Scene,
    pub nodes: Nodes,
    pub cluster: Mutex<LocalCluster>,
    pub workers: Mutex<Workers>,
    /// Held by whoever moves a slot.
    pub moving: Mutex<()>,
    /// Held by whoever takes a pair apart, in ascending order where it is several.
    pub pairs: [Mutex<()>; PAIRS],
    /// The same for workers.
    pub seats: [Mutex<()>; WORKERS],
    pub listeners: Vec<Listener>,
    pub writers: Hub,
    sides: [Detour; 3],
    log: StdMutex<Log>,
    pub folder: PathBuf,
    started: Instant,
}

#[derive(Default)]
struct Log {
    lines: Vec<String>,
    strikes: Vec<Strike>,
    wrong: Vec<String>,
}

/// What a fault did, and when, Unix milliseconds.
#[derive(Clone, Debug)]
pub struct Strike {
    pub kind: Kind,
    pub begin_ms: u64,
    pub end_ms: u64,
    pub shards: BTreeSet<Shard>,
}

impl Stage {
    pub async fn open(clocks: Clocks) -> Stage {
        let wrong = clocks.nodes.iter().enumerate().filter(|(_, seconds)| **seconds != 0);
        let environment = wrong.map(|(node, seconds)| (node, skew::environment(*seconds))).collect();
        let cluster = own_cluster(Options { environment, ..Options::default() }).await;
        let nodes = Nodes::clone(&cluster);
        let [workers_side, writers_side, subscribers_side] = [
            Detour::around(&nodes, NODES).await,
            Detour::around(&nodes, NODES).await,
            Detour::around(&nodes, NODES).await,
        ];
        let (name, map) = workers_side.setting();
        // Longer than clocks are wrong: the oracle reads the streams.
        let settings = [(name, map.as_str()), ("HEYDAY_WORKER__RETENTION", "1day")];
        let mut scene = Scene::begin_with(&nodes, "", SHARDS, &settings).await;
        let drift = clocks.nodes.iter().map(|seconds| seconds.unsigned_abs()).max().unwrap_or(0);
        // From one node's clock to another's.
        scene.clock_drift_max = Duration::from_secs(2 * drift);
        // A key that moves lives on by the time it is on the way, and may move several times.
        scene.expiry_drift_max = Duration::from_secs(600);
        let connect = ConnectOptions {
            connect_timeout: Duration::from_millis(500),
            reply_timeout: Duration::from_secs(1),
            ..scene.connect_options()
        };
        let writers = writers_side.hub(&scene, connect.clone()).await;
        let through = subscribers_side.hub(&scene, connect).await;
        let often = subscriber::Options { poll_interval: Duration::from_secs(1), ..subscriber::Options::default() };
        let listeners = vec![
            Listener::start(&scene.hub, subscriber::Options::default()).await,
            Listener::start(&through, often).await,
            Listener::start(&through, subscriber::Options::default()).await,
        ];
        let mut workers = scene.workers();
        for seconds in clocks.workers {
            match seconds {
                0 => workers.start(),
                _ => workers.start_with(skew::environment(seconds)),
            };
        }
        Stage {
            folder: cluster.folder().to_owned(),
            nodes,
            cluster: Mutex::new(cluster),
            workers: Mutex::new(workers),
            moving: Mutex::default(),
            pairs: Default::default(),
            seats: Default::default(),
            listeners,
            writers,
            sides: [workers_side, writers_side, subscribers_side],
            log: StdMutex::new(Log::default()),
            scene,
            started: Instant::now(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A line of the fault log.
    pub fn note(&self, line: impl AsRef<str>) {
        let line = format!("{:>7.3} s  {}", self.elapsed().as_secs_f64(), line.as_ref());
        self.log.lock().expect("the log").lines.push(line);
    }

    pub fn noted(&self) -> Vec<String> {
        self.log.lock().expect("the log").lines.clone()
    }

    /// What no fault excuses.
    pub fn wrong(&self, what: String) {
        self.note(format!("WRONG {what}"));
        self.log.lock().expect("the log").wrong.push(what);
    }

    pub fn all_wrong(&self) -> Vec<String> {
        self.log.lock().expect("the log").wrong.clone()
    }

    pub fn struck(&self, strike: Strike) {
        self.log.lock().expect("the log").strikes.push(strike);
    }

    pub fn strikes(&self) -> Vec<Strike> {
        self.log.lock().expect("the log").strikes.clone()
    }

    /// The proxies before both nodes of a pair, on one side.
    pub fn proxies(&self, side: Side, pair: usize) -> [&Proxy; 2] {
        let proxies = &self.sides[side as usize].proxies;
        [&proxies[pair], &proxies[pair + PAIRS]]
    }

    /// One command to one node, once.
    pub async fn attempt(&self, node: usize, words: &[&str]) -> Result<String, String> {
        match tokio::time::timeout(TRY_WAIT, self.nodes.cli(node, words)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("node {node} did not answer {} within {TRY_WAIT:?}", words.join(" "))),
        }
    }

    /// The same until the node takes it.
    pub async fn order(&self, node: usize, words: &[&str]) -> Result<String, String> {
        let started = Instant::now();
        loop {
            match self.attempt(node, words).await {
                Ok(answer) => return Ok(answer),
                Err(error) if started.elapsed() > ORDER_WAIT => return Err(error),
                Err(_) => lasts(AGAIN).await,
            }
        }
    }

    /// Primary and replica of a pair, once the replica follows the primary.
    pub async fn whole(&self, pair: usize) -> Result<(usize, usize), String> {
        let started = Instant::now();
        loop {
            let nodes = [pair, pair + PAIRS];
            let mut roles = Vec::new();
            for node in nodes {
                roles.push(self.attempt(node, &["ROLE"]).await.unwrap_or_else(|error| error));
            }
            let leads = |role: &String| role.starts_with("master");
            let follows = |role: &String| role.starts_with("slave") && role.contains("\nconnected\n");
            match &roles[..] {
                [one, other] if leads(one) && follows(other) => return Ok((nodes[0], nodes[1])),
                [one, other] if follows(one) && leads(other) => return Ok((nodes[1], nodes[0])),
                _ if started.elapsed() > WHOLE_WAIT => {
                    return Err(format!(
                        "within {WHOLE_WAIT:?} nodes {nodes:?} were no primary and replica: {roles:?}"
                    ));
                }
                _ => lasts(AGAIN).await,
            }
        }
    }

    /// The shards by the node that owns them, as far as anybody answers.
    pub async fn shards_by_node(&self) -> BTreeMap<usize, BTreeSet<Shard>> {
        let mut shards: BTreeMap<usize, BTreeSet<Shard>> = BTreeMap::new();
        let Ok(Some(topology)) = tokio::time::timeout(TRY_WAIT, self.scene.topology()).await else { return shards };
        for shard in self.scene.layout.shards() {
            if let Ok(node) = topology.node_of(self.scene.shard_keys(shard).slot) {
                let index = usize::from(node.address.port - self.nodes.port_first());
                shards.entry(index).or_default().insert(shard);
            }
        }
        shards
    }

    /// The shards on a pair; all where nobody could tell.
    pub async fn shards_of_pair(&self, pair: usize) -> BTreeSet<Shard> {
        let shards = self.shards_by_node().await;
        if shards.is_empty() {
            return self.all_shards();
        }
        let of_pair = shards.into_iter().filter(|(node, _)| node % PAIRS == pair);
        of_pair.flat_map(|(_, shards)| shards).collect()
    }

    /// The shards of a worker; all where nobody could tell.
    pub async fn shards_of_worker(&self, worker: usize) -> BTreeSet<Shard> {
        let name = self.workers.lock().await.name(worker);
        let Ok(Some(owners)) = tokio::time::timeout(TRY_WAIT, self.scene.owners()).await else {
            return self.all_shards();
        };
        let owned = self.scene.layout.shards().zip(owners);
        let owned = owned.filter(|(_, owner)| owner.as_ref().is_some_and(|owner| owner.starts_with(&name)));
        owned.map(|(shard, _)| shard).collect()
    }

    /// Takes all pairs.
    pub async fn all_pairs(&self) -> Vec<MutexGuard<'_, ()>> {
        let mut held = Vec::new();
        for pair in &self.pairs {
            held.push(pair.lock().await);
        }
        held
    }

    pub fn all_shards(&self) -> BTreeSet<Shard> {
        self.scene.layout.shards().collect()
    }

    /// What a node has logged.
    pub fn server_log(&self, node: usize) -> String {
        let path = self.folder.join((node + 1).to_string()).join("redis.log");
        std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The pairs of which a replica took over because the others took its primary for dead: they may have lost something, also where
    /// nobody struck them and the machine was too slow. A failover by hand waits for nothing before its election.
    pub fn pairs_promoted(&self) -> BTreeSet<usize> {
        let promoted = (0..NODES).filter(|node| promoted_by_itself(&self.server_log(*node)));
        promoted.map(|node| node % PAIRS).collect()
    }

    /// What runs the workers starts those again that found no cluster. Any other end is wrong.
    pub fn look_after_workers(&self) {
        // A fault that has them now may wait for whoever looks: the next look comes soon.
        let Ok(mut workers) = self.workers.try_lock() else { return };
        for (worker, status) in workers.ended() {
            if status.code() == Some(UNAVAILABLE) {
                self.note(format!("worker {worker} found no cluster and is started again"));
            } else {
                self.wrong(format!("worker {worker} ended by itself: {status}"));
            }
            workers.restart(worker);
        }
    }

    /// Takes back whatever faults may have left, and waits until the cluster is whole.
    pub async fn heal(&self) -> Result<(), String> {
        for side in &self.sides {
            side.each(Proxy::pass);
            side.each(|proxy| proxy.refuse(false));
        }
        let mut cluster = self.cluster.lock().await;
        for node in 0..NODES {
            if cluster.pid(node) == 0 {
                cluster.restart(node).await.map_err(|error| error.to_string())?;
            } else {
                cluster.cont(node).map_err(|error| error.to_string())?;
            }
        }
        let started = Instant::now();
        while let Err(error) = cluster.form().await {
            if started.elapsed() > WHOLE_WAIT {
                return Err(format!("the cluster did not become whole: {error}"));
            }
        }
        drop(cluster);
        let mut workers = self.workers.lock().await;
        for worker in 0..workers.count() {
            if !workers.is_running(worker) {
                workers.restart(worker);
            }
        }
        Ok(())
    }
}

/// Whether a server's log tells of an election that it won after a delay.
fn promoted_by_itself(log: &str) -> bool {
    let mut delayed = false;
    for line in log.lines() {
        if let Some((_, delay)) = line.split_once("Start of election delayed for ") {
            delayed = !delay.starts_with("0 ");
        } else if delayed && line.contains("Failover election won") {
            return true;
        }
    }
    false
}

#[test]
fn an_election_by_hand_is_told_from_one_after_a_death() {
    let by_hand =
        "Start of election delayed for 0 milliseconds (rank #0, offset 9)\nFailover election won: I'm the new master.";
    assert!(!promoted_by_itself(by_hand));
    assert!(promoted_by_itself(&by_hand.replace("for 0 ", "for 561 ")));
}

/// Now, for a strike.
pub fn now_ms() -> u64 {
    now_milliseconds()
}
