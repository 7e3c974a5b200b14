//! A change to every shard at a steady pace, to see whether a shard's commits ever pause.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::redis::{Link, NodeAddress, Pipeline};
use heyday::shard::Shard;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::proof::read_log;
use super::{ANSWER_WAIT, Scene, Snapshot, now_milliseconds};

/// Appends until it is stopped.
pub struct Probe {
    task: JoinHandle<()>,
    began_milliseconds: u64,
}

impl Probe {
    /// One change to each shard every `pace`. The slots must stay where they are.
    pub async fn start(scene: &Scene, pace: Duration) -> Probe {
        let topology = scene.topology().await.expect("a cluster that answers");
        let mut users = users(scene);
        let mut nodes: BTreeMap<NodeAddress, Pipeline> = BTreeMap::new();
        for shard in scene.layout.shards() {
            let keys = scene.shard_keys(shard);
            let node = topology.node_of(keys.slot).expect("an owner").address.clone();
            let user = users.remove(&shard).expect("a user of every shard");
            let words = ["XADD", keys.changes.as_str(), "*", "type", "add", "user", &user, "friend", "probe"];
            nodes.entry(node).or_default().push(&words);
        }
        let mut links = Vec::new();
        for (node, pipeline) in nodes {
            links.push((Link::connect(&node, topology.options()).await.expect("a link"), pipeline));
        }
        let task = tokio::spawn(async move {
            let mut ticks = interval(pace);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                for (link, pipeline) in &mut links {
                    let replies = link.request(pipeline, ANSWER_WAIT).await.expect("answers");
                    assert!(replies.iter().all(|reply| reply.error().is_none()), "{replies:?}");
                }
            }
        });
        Probe { task, began_milliseconds: now_milliseconds() }
    }

    /// Stops, and answers a span of time in which it was at work, for [`longest_pause`].
    pub fn stop(self) -> (u64, u64) {
        self.task.abort();
        (self.began_milliseconds, now_milliseconds())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The longest time between two commits of one of these shards within a span of time, Unix milliseconds.
pub fn longest_pause(scene: &Scene, snapshot: &Snapshot, shards: &[Shard], (begun, ended): (u64, u64)) -> Duration {
    let of_shard = |shard: &Shard| {
        let log = read_log(snapshot, scene.shard_keys(*shard).log.as_str()).expect("a log");
        let within = log.iter().map(|signal| signal.at_milliseconds).filter(|at| (begun..=ended).contains(at));
        let mut moments: Vec<u64> = within.collect();
        assert!(moments.len() > 1, "shard {shard} committed {} times", moments.len());
        moments.push(ended.max(moments[moments.len() - 1]));
        moments.windows(2).map(|pair| pair[1] - pair[0]).max()
    };
    Duration::from_millis(shards.iter().filter_map(of_shard).max().unwrap_or(0))
}

/// One user of each shard.
fn users(scene: &Scene) -> BTreeMap<Shard, String> {
    let (mut users, count) = (BTreeMap::new(), scene.layout.count() as usize);
    for number in 0u32.. {
        if users.len() == count {
            break;
        }
        let user = format!("probe{number}");
        let shard = scene.layout.shard_of(&user.parse().expect("an id"));
        users.entry(shard).or_insert(user);
    }
    users
}
