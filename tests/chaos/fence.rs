//! A commit that stops on its way, at the one point where only the fence helps: after WATCH, before EXEC. And a read that
//! goes on waiting for an owner that is gone, where it helps that a batch is what follows the applied entry.

use std::time::Duration;

use heyday::key::{CONSUMER, GROUP};
use heyday::local::{LocalCluster, Options};
use heyday::redis::{ConnectOptions, Link, NodeAddress, Pipeline};
use heyday::shard::Shard;

use crate::support::cluster::{own_cluster, redis_cli};
use crate::support::eventually;
use crate::support::proxy::{Cut, Proxy};
use crate::support::scene::{Inline, Scene, calls};

const WAIT: Duration = Duration::from_secs(30);
/// Longer than the test: an owner that waits for its EXEC's answer does not give up by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// EXEC as it is on the wire, without the end of the line before it: the proxy holds back what may be a beginning.
const EXEC: &str = "*1\r\n$4\r\nEXEC\r\n";

/// One shard, on a node that the first owner reaches only through the proxy.
struct Held {
    cluster: LocalCluster,
    scene: Scene,
    proxy: Proxy,
    node: usize,
    first: Inline,
}

impl Held {
    /// An owner whose first commit has arrived at the server, but for its EXEC.
    async fn at_exec(reply_timeout: Duration) -> Held {
        let cluster = own_cluster(Options::default()).await;
        let scene = Scene::begin(&cluster, "", 1).await;
        let node = scene.node_of(Shard(0)).await;
        let (host, port) = cluster.nodes()[node].clone();
        let address = NodeAddress::new(host, port);
        let proxy = Proxy::start(&address).await;
        let through = ConnectOptions {
            address_map: [(address, proxy.address().clone())].into(),
            reply_timeout,
            ..scene.connect_options()
        };
        // Where there are two workers and one shard, it is due to the one whose name comes first.
        let first = Inline::start(&scene, "b-first", through).await;
        scene.owned_by("b-first", WAIT).await;
        redis_cli(&cluster, node, &["CONFIG", "RESETSTAT"]).await;
        proxy.hold_before(EXEC);
        let held = Held { cluster, scene, proxy, node, first };
        held.append("1990-05-01").await;
        held.proxy.held().await;
        held
    }

    async fn append(&self, birthday: &str) {
        let changes = self.scene.shard_keys(Shard(0)).changes.to_string();
        let words = ["XADD", &changes, "*", "type", "add", "user", "42", "friend", "77", "birthday", birthday];
        self.scene.command(Shard(0), &words).await;
    }

    /// Another worker, which reaches the node directly, and owns the shard when this returns.
    async fn second_owner(&self) -> Inline {
        let second = Inline::start(&self.scene, "a-second", self.scene.connect_options()).await;
        self.scene.owned_by("a-second", WAIT).await;
        self.scene.settle(WAIT).await;
        second
    }

    async fn calls(&self, command: &str) -> u64 {
        calls(&self.cluster, self.node, command).await
    }

    /// Waits until the first worker knows that it owns nothing.
    async fn first_gave_up(&self) {
        eventually(WAIT, "the first owner noticed that the shard is another's", async || {
            (self.first.metrics.shards_owned() == 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn an_exec_that_arrives_after_a_takeover_is_refused() {
    let held = Held::at_exec(PATIENCE).await;
    let second = held.second_owner().await;
    assert_eq!(held.calls("exec").await, 1, "the second owner's commit and no other");
    held.proxy.release();
    eventually(WAIT, "the held EXEC reached the server", async || (held.calls("exec").await == 2).then_some(())).await;
    held.first_gave_up().await;
    assert_eq!((held.first.metrics.commits(), second.metrics.commits()), (0, 1));
    held.append("1991-06-02").await;
    held.scene.settle(WAIT).await;
    // The proof has transactions of its own.
    let executed = held.calls("exec").await;
    held.scene.prove().await;
    assert_eq!(executed, 3, "nothing was sent again");
}

#[tokio::test]
async fn a_commit_cut_off_before_exec_is_not_sent_again_by_an_owner_that_lost_its_shard() {
    for how in [Cut::Fin, Cut::Reset] {
        let held = Held::at_exec(PATIENCE).await;
        let second = held.second_owner().await;
        held.proxy.cut(how);
        held.first_gave_up().await;
        held.append("1991-06-02").await;
        held.scene.settle(WAIT).await;
        let executed = held.calls("exec").await;
        held.scene.prove().await;
        assert_eq!((held.first.metrics.commits(), second.metrics.commits()), (0, 2), "{how:?}");
        assert_eq!(executed, 2, "{how:?}: each of the second owner's commits, and no other");
    }
}

#[tokio::test]
async fn a_commit_cut_off_before_exec_is_prepared_anew_by_its_owner() {
    let held = Held::at_exec(PATIENCE).await;
    held.proxy.cut(Cut::Reset);
    held.scene.settle(WAIT).await;
    // A transaction sent again as it was would be one EXEC too, but without a WATCH of its own.
    let [watch, multi, exec] = [held.calls("watch").await, held.calls("multi").await, held.calls("exec").await];
    held.scene.prove().await;
    assert_eq!(held.first.metrics.commits(), 1);
    assert_eq!((multi, exec), (2, 1), "one transaction was left unfinished, one was executed");
    assert!(watch >= 2, "the second transaction was sent without a WATCH");
    // What was held back was lost with its connection.
    held.proxy.release();
    held.append("1991-06-02").await;
    held.scene.settle(WAIT).await;
    held.scene.prove().await;
}

#[tokio::test]
async fn an_exec_that_its_own_owner_gave_up_on_is_refused() {
    // The owner waits half a second, takes a new generation and commits the same entries again, while the EXEC is on its way.
    let held = Held::at_exec(Duration::from_millis(500)).await;
    held.scene.settle(WAIT).await;
    assert_eq!(held.calls("exec").await, 1);
    held.proxy.release();
    eventually(WAIT, "the held EXEC reached the server", async || (held.calls("exec").await == 2).then_some(())).await;
    held.append("1991-06-02").await;
    held.scene.settle(WAIT).await;
    held.scene.prove().await;
    assert_eq!(held.first.metrics.commits(), 2);
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_not_done_twice() {
    let held = Held::at_exec(Duration::from_millis(500)).await;
    held.proxy.stall_answers();
    held.proxy.release();
    eventually(WAIT, "the EXEC reached the server", async || (held.calls("exec").await == 1).then_some(())).await;
    held.proxy.cut(Cut::Reset);
    held.proxy.pass();
    held.append("1991-06-02").await;
    held.scene.settle(WAIT).await;
    let executed = held.calls("exec").await;
    held.scene.prove().await;
    assert_eq!(executed, 2, "one for each entry");
}

/// The read of an owner that is gone may still wait at the server, and takes what comes next: delivered, and never to be
/// applied by whoever asked. The owner that reads on must notice, or it would apply the entry behind it first.
#[tokio::test]
async fn an_entry_that_a_dead_owners_read_swallowed_comes_before_the_next_one() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin(&cluster, "", 1).await;
    let node = scene.node_of(Shard(0)).await;
    let changes = scene.shard_keys(Shard(0)).changes.to_string();
    scene.command(Shard(0), &["XGROUP", "CREATE", &changes, GROUP, "0", "MKSTREAM"]).await;
    let (host, port) = cluster.nodes()[node].clone();
    let address = NodeAddress::new(host, port);
    let blocked = async |count: u64| {
        let line = format!("blocked_clients:{count}");
        let never = format!("{count} reads waited at the server");
        eventually(WAIT, &never, async || {
            redis_cli(&cluster, node, &["INFO", "clients"]).await.lines().any(|found| found == line).then_some(())
        })
        .await;
    };

    // It waits from before the worker's first read, so it is served first.
    let mut dead = Link::connect(&address, &scene.connect_options()).await.expect("a link");
    let words = ["XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", "1", "BLOCK", "60000", "STREAMS", &changes, ">"];
    let mut read = Pipeline::new();
    read.push(&words);
    let swallowed = tokio::spawn(async move { dead.request_blocking(&read, PATIENCE).await });
    blocked(1).await;
    let worker = Inline::start(&scene, "living", scene.connect_options()).await;
    blocked(2).await;

    // Both in one step: the dead owner's read takes the first, the living owner's the second.
    let mut both = Pipeline::new();
    both.push(&["MULTI"]);
    for birthday in ["1990-05-01", "1991-06-02"] {
        both.push(&["XADD", &changes, "*", "type", "add", "user", "42", "friend", "77", "birthday", birthday]);
    }
    both.push(&["EXEC"]);
    let mut link = Link::connect(&address, &scene.connect_options()).await.expect("a link");
    link.request(&both, WAIT).await.expect("two entries");
    let taken = swallowed.await.expect("the read").expect("an answer");
    assert!(format!("{taken:?}").contains("1990-05-01"), "{taken:?}");
    scene.settle(WAIT).await;
    scene.prove().await;
    assert!(worker.metrics.commits() > 0);
}
