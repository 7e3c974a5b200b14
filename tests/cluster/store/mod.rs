//! The real store against real servers: every operation of the traits, and what each does when something is wrong.

mod commit;
mod faults;
mod layout;
mod lease;
mod read;
mod roll;
mod trim;

use std::sync::Arc;
use std::time::Duration;

use heyday::error::Disposition;
use heyday::key::{Key, Keys, ShardKeys};
use heyday::lease::WorkerId;
use heyday::local::Nodes;
use heyday::redis::{ConnectOptions, Link, NodeAddress, Pipeline, RedisLink, RedisStore, Reply, Topology};
use heyday::reduce::{Commit, Decoded, Entry, Jobs, Loaded, Plan, Rules, ShardState, reduce};
use heyday::shard::{Layout, Shard};
use heyday::store::{Committed, Error, Read, ShardLink, Store, Taken};

use crate::support::cluster::{shared_cluster, unique_prefix};

const WAIT: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(60);
const SHARD: Shard = Shard(1);

/// A store with a prefix of its own, and a plain connection to the node of its shard.
struct Ground {
    store: RedisStore,
    registry: Keys,
    keys: ShardKeys,
    raw: Link,
}

impl Ground {
    async fn shared() -> Ground {
        Ground::on(&shared_cluster().await).await
    }

    async fn on(nodes: &Nodes) -> Ground {
        let prefix = unique_prefix();
        let mut options = options(nodes);
        options.client_name = Some(prefix.clone());
        let topology = Arc::new(Topology::connect(Arc::new(options)).await.expect("a cluster"));
        let keys = Keys::new(&prefix).unwrap();
        let layout = Layout::new(4).unwrap();
        let names = keys.shard(&layout, SHARD);
        let node = topology.node_of(names.slot).expect("an owner");
        let raw = Link::connect(&node.address, &ConnectOptions::default()).await.expect("a connection");
        Ground { store: RedisStore::new(topology, keys.clone(), layout), registry: keys, keys: names, raw }
    }

    async fn link(&self) -> RedisLink {
        self.store.connect(SHARD).await.expect("a link")
    }

    /// A link whose worker holds the lease.
    async fn owner(&self, worker: &str) -> (RedisLink, ShardState) {
        let mut link = self.link().await;
        let state = mine(link.take(&id(worker), TTL).await.expect("take"));
        (link, state)
    }

    async fn command(&mut self, words: &[&str]) -> Reply {
        command(&mut self.raw, words).await
    }

    /// A command whose answer is text, or nothing.
    async fn text(&mut self, words: &[&str]) -> Option<String> {
        let reply = self.command(words).await;
        reply.as_bytes_or_null().expect("text").map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    async fn number(&mut self, words: &[&str]) -> i64 {
        self.command(words).await.as_i64().expect("a number")
    }

    async fn exists(&mut self, key: &Key) -> bool {
        self.number(&["EXISTS", key.as_str()]).await == 1
    }

    /// Also where its slot is on its way.
    async fn exists_here(&mut self, key: &Key) -> bool {
        let slot = key.slot().to_string();
        let keys = self.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]).await;
        keys.as_array().expect("keys").iter().any(|name| name.to_str().is_ok_and(|name| name == key.as_str()))
    }

    /// Appends an `add` as any writer does; answers the entry's id.
    async fn add(&mut self, user: &str, friend: &str) -> String {
        self.append(&["type", "add", "user", user, "friend", friend, "birthday", "1990-05-01"]).await
    }

    async fn append(&mut self, fields: &[&str]) -> String {
        let changes = self.keys.changes.clone();
        self.text(&[&["XADD", changes.as_str(), "*"], fields].concat()).await.expect("an id")
    }

    /// What the group holds as delivered and not acknowledged.
    async fn pending(&mut self) -> Vec<String> {
        let changes = self.keys.changes.clone();
        let rows = self.command(&["XPENDING", changes.as_str(), "heyday", "-", "+", "1000"]).await;
        let id = |row: &Reply| row.as_array().expect("a row")[0].to_str().expect("an id").to_owned();
        rows.as_array().expect("rows").iter().map(id).collect()
    }

    /// Loads for a batch and reduces it.
    async fn prepare(&self, link: &mut RedisLink, state: &ShardState, entries: Vec<Entry>) -> (Loaded, Commit) {
        let rules = Rules::default();
        let batch: Vec<_> = entries.into_iter().map(|entry| Decoded::new(entry, &rules.limits)).collect();
        let plan = Plan::of(
            &batch,
            state,
            &Jobs::default(),
            (&rules, batch.last().map_or(0, |decoded| decoded.entry.id.milliseconds)),
        );
        let loaded = link.load(&plan).await.expect("load");
        let commit = reduce(&rules, &self.keys, state, &batch, (&plan, &loaded));
        (loaded, commit)
    }

    /// Everything unread in one batch, done.
    async fn settle(&self, link: &mut RedisLink, state: &ShardState) -> ShardState {
        let entries = link.read(NEW, 1000).await.expect("read");
        let (_, commit) = self.prepare(link, state, entries).await;
        assert_eq!(link.commit(&commit).await.expect("commit"), DONE);
        commit.state
    }
}

const NEW: Read = Read::New { block: Duration::ZERO };
const DONE: Committed = Committed::Done { errors: Vec::new() };

fn options(nodes: &Nodes) -> ConnectOptions {
    ConnectOptions::new(nodes.nodes().into_iter().map(|(host, port)| NodeAddress::new(host, port)).collect())
}

async fn topology(nodes: &Nodes) -> Arc<Topology> {
    Arc::new(Topology::connect(Arc::new(options(nodes))).await.expect("a cluster"))
}

async fn command(link: &mut Link, words: &[&str]) -> Reply {
    let mut pipeline = Pipeline::new();
    pipeline.push(words);
    link.request(&pipeline, WAIT).await.expect("an answer").remove(0)
}

fn id(worker: &str) -> WorkerId {
    worker.parse().unwrap()
}

fn mine(taken: Taken) -> ShardState {
    match taken {
        Taken::Mine(state, _) => state,
        Taken::Held(holder) => panic!("{holder} holds the lease"),
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, disposition: Disposition, words: &[&str]) {
    let error = result.expect_err("an error");
    assert_eq!(error.disposition, disposition, "{error}");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in {error}");
    }
}
