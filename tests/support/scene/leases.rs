//! A scan of all leases at the servers, again and again: who had which shard, and for how long nobody did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heyday::redis::{Link, NodeAddress, Pipeline};
use heyday::shard::Shard;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::super::eventually;
use super::{ANSWER_WAIT, Scene};

/// Between two scans.
const SCAN_INTERVAL: Duration = Duration::from_millis(10);

/// One owner of a shard, or nobody, as long as every scan found the same.
#[derive(Clone, Debug)]
struct Seen {
    owner: Option<String>,
    /// When the answer of the first scan had come.
    from: Instant,
    /// When the last scan was sent.
    to: Instant,
}

/// Scans until it is dropped.
pub struct LeaseWatch {
    seen: Arc<Mutex<BTreeMap<Shard, Vec<Seen>>>>,
    task: JoinHandle<()>,
}

impl LeaseWatch {
    /// Returns once every lease was looked at. The slots must stay where they are.
    pub async fn start(scene: &Scene) -> LeaseWatch {
        let topology = scene.topology().await.expect("a cluster that answers");
        let mut nodes: BTreeMap<NodeAddress, (Vec<Shard>, Pipeline)> = BTreeMap::new();
        for shard in scene.layout.shards() {
            let keys = scene.shard_keys(shard);
            let node = topology.node_of(keys.slot).expect("an owner");
            let (shards, pipeline) = nodes.entry(node.address.clone()).or_default();
            shards.push(shard);
            pipeline.push(&["GET", keys.lease.as_str()]);
        }
        let mut scans = Vec::new();
        for (node, (shards, pipeline)) in nodes {
            let link = Link::connect(&node, topology.options()).await.expect("a link");
            scans.push((link, shards, pipeline));
        }
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let task = tokio::spawn(scan(scans, seen.clone()));
        let watch = LeaseWatch { seen, task };
        let count = scene.layout.count() as usize;
        eventually(ANSWER_WAIT, "every lease was looked at", async || (watch.owners().len() == count).then_some(()))
            .await;
        watch
    }

    /// As of the last scan, by shard.
    pub fn owners(&self) -> Vec<Option<String>> {
        let seen = self.seen.lock().expect("the scans");
        seen.values().filter_map(|seen| seen.last()).map(|seen| seen.owner.clone()).collect()
    }

    /// How many shards each of these workers owns, named by how their ids begin.
    pub fn shares(&self, workers: &[&str]) -> Vec<usize> {
        let owners = self.owners();
        let of = |worker: &&str| owners.iter().flatten().filter(|owner| owner.starts_with(*worker)).count();
        workers.iter().map(of).collect()
    }

    /// Waits until they own all shards, with at most one between the largest share and the smallest; answers when the last
    /// shard had come to its owner.
    pub async fn shared_between(&self, workers: &[&str], deadline: Duration) -> Instant {
        let never = format!("{workers:?} shared all shards fairly");
        eventually(deadline, &never, async || {
            let shares = self.shares(workers);
            let (least, most) = (shares.iter().min()?, shares.iter().max()?);
            let shards = self.owners().len();
            (shares.iter().sum::<usize>() == shards && most - least <= 1).then_some(())
        })
        .await;
        let seen = self.seen.lock().expect("the scans");
        seen.values().filter_map(|seen| seen.last()).map(|seen| seen.from).max().expect("a shard")
    }

    /// The longest that a shard had no owner since the watch began, at the most: from the last scan that found one owner
    /// to the first that found the next one.
    pub fn ownerless_max(&self) -> Duration {
        let seen = self.seen.lock().expect("the scans");
        let of_shard = |seen: &Vec<Seen>| {
            let owned: Vec<&Seen> = seen.iter().filter(|seen| seen.owner.is_some()).collect();
            owned.windows(2).map(|pair| pair[1].from - pair[0].to).max()
        };
        seen.values().filter_map(of_shard).max().unwrap_or_default()
    }

    /// How many shards changed their owner since the watch began, however often.
    pub fn changed(&self) -> usize {
        self.seen.lock().expect("the scans").values().filter(|seen| seen.len() > 1).count()
    }
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn scan(mut scans: Vec<(Link, Vec<Shard>, Pipeline)>, seen: Arc<Mutex<BTreeMap<Shard, Vec<Seen>>>>) {
    let mut rounds = interval(SCAN_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        for (link, shards, pipeline) in &mut scans {
            let sent = Instant::now();
            let replies = link.request(pipeline, ANSWER_WAIT).await.expect("all leases of a node");
            let answered = Instant::now();
            let mut seen = seen.lock().expect("the scans");
            for (shard, reply) in shards.iter().zip(replies) {
                let owner = reply.as_bytes().ok().map(|owner| String::from_utf8_lossy(owner).into_owned());
                let before = seen.entry(*shard).or_default();
                match before.last_mut().filter(|last| last.owner == owner) {
                    Some(last) => last.to = sent,
                    None => before.push(Seen { owner, from: answered, to: sent }),
                }
            }
        }
    }
}
