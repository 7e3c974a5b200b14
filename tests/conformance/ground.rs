//! What happens beside the trait on each side: writers, other people's commands, and a look at every key.

use std::collections::BTreeMap;

use heyday::change::Fields;
use heyday::key::{GROUP, Key, Keys, ShardKeys};
use heyday::oracle::{Content, Contents};
use heyday::position::EntryId;
use heyday::redis::{ConnectOptions, Link, Pipeline, RedisStore, Reply};
use heyday::reduce::REBUILD_FIELD;
use heyday::store::Store;
use heyday::testing::model;
use heyday::testing::model::{Calamity, Model};

use super::SHARD;

const WAIT: std::time::Duration = std::time::Duration::from_secs(20);

/// The group's last delivered entry, and what is pending with the number of deliveries.
pub type Group = Option<(EntryId, BTreeMap<EntryId, u64>)>;

/// One side of the comparison.
pub trait Ground {
    type Store: Store;

    fn store(&self) -> &Self::Store;
    async fn append(&mut self, fields: Fields, id: Option<EntryId>) -> EntryId;
    async fn lose_lease(&mut self);
    async fn destroy_group(&mut self);
    async fn rewind(&mut self, entries: usize);
    async fn trim_pending(&mut self);
    async fn plant(&mut self, key: &Key);
    async fn delete(&mut self, key: &Key);
    async fn contents(&mut self) -> Contents;
    async fn expiries(&mut self) -> BTreeMap<String, u64>;
    async fn group(&mut self) -> Group;
    /// Returns once the server's clock is past every entry's time.
    async fn pass_millisecond(&mut self);
}

pub struct ModelGround {
    model: Model,
    keys: ShardKeys,
}

impl ModelGround {
    pub fn new(model: Model, keys: ShardKeys) -> ModelGround {
        ModelGround { model, keys }
    }

    pub fn rebuild(&self, at: u64) {
        self.model.rebuild(SHARD, Some(at));
    }
}

impl Ground for ModelGround {
    type Store = model::Model;

    fn store(&self) -> &Model {
        &self.model
    }

    async fn append(&mut self, fields: Fields, id: Option<EntryId>) -> EntryId {
        self.model.append_at(SHARD, id.expect("the real side's id"), fields).expect("an entry")
    }

    async fn lose_lease(&mut self) {
        self.model.strike(SHARD, Calamity::LeaseLost);
    }

    async fn destroy_group(&mut self) {
        self.model.strike(SHARD, Calamity::GroupDestroyed);
    }

    async fn rewind(&mut self, entries: usize) {
        self.model.strike(SHARD, Calamity::GroupRewound { entries });
    }

    async fn trim_pending(&mut self) {
        self.model.strike(SHARD, Calamity::PendingTrimmed);
    }

    async fn plant(&mut self, key: &Key) {
        self.model.plant(SHARD, key, "planted");
    }

    async fn delete(&mut self, key: &Key) {
        self.model.delete(SHARD, key);
    }

    async fn contents(&mut self) -> Contents {
        self.model.contents()
    }

    async fn expiries(&mut self) -> BTreeMap<String, u64> {
        self.model.expiries()
    }

    async fn group(&mut self) -> Group {
        self.model.group(SHARD)
    }

    async fn pass_millisecond(&mut self) {
        let last = self.model.history(SHARD).entries.last().map_or(0, |(id, _)| id.milliseconds);
        while self.model.milliseconds() <= last {
            tokio::task::yield_now().await;
        }
        let _ = &self.keys;
    }
}

pub struct RealGround {
    store: RedisStore,
    prefix: String,
    keys: ShardKeys,
    raw: Link,
    last: EntryId,
}

impl RealGround {
    pub async fn new(store: RedisStore, keys: &Keys, names: ShardKeys) -> RealGround {
        let node = store.topology().node_of(names.slot).expect("an owner");
        let raw = Link::connect(&node.address, &ConnectOptions::default()).await.expect("a connection");
        RealGround { store, prefix: keys.prefix().to_owned(), keys: names, raw, last: EntryId::ZERO }
    }

    pub async fn rebuild(&mut self, at: u64) {
        let state = self.keys.state.clone();
        self.command(&["HSET", state.as_str(), REBUILD_FIELD, &at.to_string()]).await;
    }

    async fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        let mut pipeline = Pipeline::new();
        pipeline.push(words);
        self.raw.request(&pipeline, WAIT).await.expect("an answer").remove(0)
    }

    async fn texts(&mut self, words: &[&str]) -> Vec<String> {
        texts(&self.command(words).await)
    }

    async fn content(&mut self, name: &str) -> Content {
        let kind = self.command(&["TYPE", name]).await.as_status().expect("a type").to_owned();
        match kind.as_str() {
            "string" => Content::Text(text(&self.command(&["GET", name]).await)),
            "hash" => Content::Hash(pairs(self.texts(&["HGETALL", name]).await).collect()),
            "zset" => {
                let members = pairs(self.texts(&["ZRANGE", name, "0", "-1", "WITHSCORES"]).await);
                Content::Sorted(members.map(|(member, score)| (member, score.parse().expect("a score"))).collect())
            }
            "stream" => {
                let entries = self.command(&["XRANGE", name, "-", "+"]).await;
                Content::Stream(entries.as_array().expect("entries").iter().map(entry).collect())
            }
            other => panic!("{name} is a {other}"),
        }
    }
}

impl Ground for RealGround {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.store
    }

    async fn append(&mut self, fields: Fields, _: Option<EntryId>) -> EntryId {
        let mut pipeline = Pipeline::new();
        pipeline.command("XADD").arg(self.keys.changes.as_bytes()).arg("*").arg_pairs(&fields);
        let reply = self.raw.request(&pipeline, WAIT).await.expect("an answer").remove(0);
        self.last = text(&reply).parse().expect("an entry id");
        self.last
    }

    async fn lose_lease(&mut self) {
        self.command(&["DEL", self.keys.lease.clone().as_str()]).await;
    }

    async fn destroy_group(&mut self) {
        self.command(&["XGROUP", "DESTROY", self.keys.changes.clone().as_str(), GROUP]).await;
    }

    async fn rewind(&mut self, entries: usize) {
        let Some((delivered, _)) = self.group().await else { return };
        let (changes, count) = (self.keys.changes.clone(), (entries + 1).to_string());
        let words = ["XREVRANGE", changes.as_str(), &delivered.to_string(), "-", "COUNT", &count];
        let read = self.command(&words).await;
        let before = read.as_array().expect("entries").get(entries).map_or("0-0".to_owned(), |reply| entry(reply).0);
        let set = self.command(&["XGROUP", "SETID", changes.as_str(), GROUP, &before]).await;
        set.expect_status("OK").expect("the group goes back");
    }

    async fn trim_pending(&mut self) {
        let Some((_, pending)) = self.group().await else { return };
        let Some(first) = pending.keys().next() else { return };
        let least = EntryId::new(first.milliseconds, first.sequence + 1).to_string();
        self.command(&["XTRIM", self.keys.changes.clone().as_str(), "MINID", "=", &least]).await;
    }

    async fn plant(&mut self, key: &Key) {
        self.command(&["SET", key.as_str(), "planted"]).await;
    }

    async fn delete(&mut self, key: &Key) {
        self.command(&["DEL", key.as_str()]).await;
    }

    async fn contents(&mut self) -> Contents {
        let mut contents = Contents::new();
        for name in self.texts(&["KEYS", &format!("{}*", self.prefix.clone())]).await {
            let content = self.content(&name).await;
            contents.insert(name, content);
        }
        contents
    }

    async fn expiries(&mut self) -> BTreeMap<String, u64> {
        let mut expiries = BTreeMap::new();
        for name in self.texts(&["KEYS", &format!("{}*", self.prefix.clone())]).await {
            let at = self.command(&["PEXPIRETIME", &name]).await.as_i64().expect("a time");
            expiries.extend(u64::try_from(at).ok().map(|at| (name, at)));
        }
        expiries
    }

    async fn group(&mut self) -> Group {
        let changes = self.keys.changes.clone();
        let info = self.command(&["XINFO", "GROUPS", changes.as_str()]).await;
        // No stream, no groups.
        let group = info.as_array().ok()?.first()?.clone();
        let fields: BTreeMap<String, Reply> =
            group.as_pairs().expect("fields").map(|(name, value)| (text(name), value.clone())).collect();
        let delivered = text(&fields["last-delivered-id"]).parse().expect("an entry id");
        let pending = self.command(&["XPENDING", changes.as_str(), GROUP, "-", "+", "100000"]).await;
        let row = |row: &Reply| {
            let row = row.as_array().expect("a row");
            (text(&row[0]).parse().expect("an entry id"), row[3].as_u64().expect("a count"))
        };
        Some((delivered, pending.as_array().expect("rows").iter().map(row).collect()))
    }

    async fn pass_millisecond(&mut self) {
        loop {
            let time = self.texts(&["TIME"]).await;
            let number = |at: usize| time[at].parse::<u64>().expect("a number");
            if number(0) * 1000 + number(1) / 1000 > self.last.milliseconds {
                return;
            }
        }
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.as_bytes().expect("text")).into_owned()
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.as_array().expect("a list").iter().map(text).collect()
}

fn pairs(words: Vec<String>) -> impl Iterator<Item = (String, String)> {
    let mut words = words.into_iter();
    std::iter::from_fn(move || Some((words.next()?, words.next()?)))
}

fn entry(reply: &Reply) -> (String, Fields) {
    let parts = reply.as_array().expect("an entry");
    let words = parts[1].as_array().expect("fields");
    let bytes = |reply: &Reply| reply.as_bytes().expect("bytes").clone();
    (text(&parts[0]), words.chunks(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect())
}
