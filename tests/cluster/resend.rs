//! A caller that believes what the writer says, and sends again what is not in the stream for certain.

use std::collections::VecDeque;
use std::time::Duration;

use heyday::change::{Action, Change, Producer};
use heyday::client;
use heyday::client::writer::{Options, Writer};
use heyday::local;
use heyday::redis::ConnectOptions;
use heyday::shard::Shard;

use crate::support::cluster::{own_cluster, redis_cli};
use crate::support::proxy::{Cut, Proxy};
use crate::support::scene::{Scene, move_slot};

const WAIT: Duration = Duration::from_secs(60);
const SHARD: Shard = Shard(0);
const USERS: usize = 4;
/// Rounds in which everything must get through once nothing is wrong any more.
const ROUNDS_MAX: usize = 20;

struct Caller {
    writer: Writer,
    /// What is not in the stream for certain, in order.
    left: VecDeque<Change>,
    made: usize,
}

/// What a round's errors said.
#[derive(Debug, PartialEq, Eq)]
struct Round {
    certain: usize,
    unknown: usize,
}

impl Caller {
    /// So many changes more: a profile counts each time that one is applied to it.
    fn make(&mut self, count: usize) {
        for _ in 0..count {
            self.made += 1;
            let user = format!("u{}", self.made % USERS).parse().expect("an id");
            let fields = vec![("at".to_owned(), Some(self.made.to_string()))];
            let producer = Some(Producer { name: "relay".to_owned(), sequence: self.made as u64 });
            self.left.push_back(Change { producer, ..Change::new(user, Action::Profile { fields }) });
        }
    }

    /// Sends all that is left, in order, and keeps what failed.
    async fn round(&mut self) -> Round {
        let mut receipts = Vec::with_capacity(self.left.len());
        for change in &self.left {
            receipts.push(self.writer.enqueue(change).await);
        }
        let (mut round, mut failed) = (Round { certain: 0, unknown: 0 }, VecDeque::new());
        for (change, receipt) in self.left.drain(..).zip(receipts) {
            let settled = match receipt {
                Ok(receipt) => tokio::time::timeout(WAIT, receipt).await.expect("every receipt is settled"),
                Err(error) => Err(error),
            };
            if let Err(error) = settled {
                *(if error.possibly_appended() { &mut round.unknown } else { &mut round.certain }) += 1;
                failed.push_back(change);
            }
        }
        self.left = failed;
        round
    }

    async fn all_get_through(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.round().await;
            if self.left.is_empty() {
                return;
            }
        }
        panic!("{} changes did not get through within {ROUNDS_MAX} rounds", self.left.len());
    }
}

async fn appended(scene: &Scene) -> u64 {
    scene.command(SHARD, &["XLEN", scene.shard_keys(SHARD).changes.as_str()]).await.as_u64().expect("a length")
}

#[tokio::test]
async fn what_is_sent_again_after_any_trouble_is_applied_once_cluster_own() {
    let config_lines = vec!["appendfsync always".to_owned(), "cluster-node-timeout 5000".to_owned()];
    let mut cluster = own_cluster(local::Options { config_lines, ..local::Options::default() }).await;
    for replica in 3..6 {
        redis_cli(&cluster, replica, &["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).await;
    }
    let scene = Scene::begin(&cluster, "", 1).await;
    let mut workers = scene.workers();
    workers.start();
    let owner = scene.node_of(SHARD).await;
    let address = scene.connect_options().seeds[owner].clone();
    let proxy = Proxy::start(&address).await;
    let map = [(address, proxy.address().clone())].into();
    let connect = ConnectOptions { address_map: map, ..scene.connect_options() };
    let hub = client::connect(connect, scene.keys.prefix()).await.expect("a client");
    let options =
        Options { timeout: Duration::from_secs(1), queue_changes_max: 64, batch_changes_max: 8, ..Options::default() };
    let mut caller = Caller { writer: hub.writer(options), left: VecDeque::new(), made: 0 };
    caller.make(200);
    caller.all_get_through().await;

    // A full server: nothing is in the stream, and all of that is certain.
    redis_cli(&cluster, owner, &["CONFIG", "SET", "maxmemory", "1"]).await;
    caller.make(200);
    assert_eq!(caller.round().await, Round { certain: 200, unknown: 0 });
    assert_eq!(appended(&scene).await, 200);
    redis_cli(&cluster, owner, &["CONFIG", "SET", "maxmemory", "0"]).await;
    caller.all_get_through().await;

    // Answers that are lost, and then a node that is down: some are in the stream, and nobody can say which.
    proxy.stall_answers();
    caller.make(200);
    let lost = caller.round().await;
    assert!(lost.unknown > 0 && lost.unknown + lost.certain == 200, "{lost:?}");
    assert!(appended(&scene).await > 400, "what is unknown has arrived here");
    cluster.kill(owner).unwrap();
    proxy.cut(Cut::Reset);
    proxy.pass();
    // A refusal is about this try: the earlier one may have got there all the same.
    assert_eq!(caller.round().await, Round { certain: 200, unknown: 0 });
    cluster.restart(owner).await.unwrap();
    caller.all_get_through().await;
    assert!(appended(&scene).await > 600, "some are there twice");

    // A slot on its way.
    caller.make(1_000);
    let target = (owner + 1) % 3;
    let slot = scene.shard_keys(SHARD).slot;
    tokio::join!(caller.all_get_through(), move_slot(&cluster, slot, owner, target));
    assert_eq!(scene.node_of(SHARD).await, target);

    scene.settle(WAIT).await;
    workers.assert_running();
    scene.prove().await;
    let keys = scene.shard_keys(SHARD);
    for user in 0..USERS {
        let profile = keys.profile(&format!("u{user}").parse().unwrap());
        let version = scene.command(SHARD, &["HGET", profile.as_str(), "version"]).await;
        assert_eq!(version.as_u64().unwrap(), (caller.made / USERS) as u64, "u{user}");
    }
}
