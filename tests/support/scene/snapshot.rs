//! All keys of all primaries as they are now, in the form in which the oracle compares.

use std::collections::BTreeMap;

use heyday::change::Fields;
use heyday::oracle::{Content, Contents};
use heyday::position::EntryId;
use heyday::redis::{Link, NodeAddress, Pipeline, Reply};
use heyday::shard::Shard;

use super::{ANSWER_WAIT, Scene};

/// Keys asked about at once.
const KEYS_ASKED_MAX: usize = 500;

/// Everything under the scene's prefix.
pub struct Snapshot {
    pub contents: Contents,
    /// When each key that expires does so, Unix milliseconds.
    pub expires: BTreeMap<String, i64>,
}

impl Snapshot {
    /// All nodes at once; nothing may change meanwhile but leases and heartbeats.
    pub async fn take(scene: &Scene) -> Snapshot {
        let topology = scene.topology().await.expect("a cluster that answers");
        let pattern = format!("{}*", scene.keys.prefix());
        let reading: Vec<_> = topology
            .primaries()
            .into_iter()
            .map(|node| {
                let (topology, pattern) = (topology.options().clone(), pattern.clone());
                tokio::spawn(async move {
                    let link = Link::connect(&node.address, &topology).await.expect("a link");
                    Reading { node: node.address.clone(), link, contents: Contents::new(), expires: BTreeMap::new() }
                        .read(&pattern)
                        .await
                })
            })
            .collect();
        let mut snapshot = Snapshot { contents: Contents::new(), expires: BTreeMap::new() };
        for node in reading {
            let node = node.await.expect("a snapshot of a node");
            for (name, content) in node.contents {
                let earlier = snapshot.contents.insert(name.clone(), content);
                assert!(earlier.is_none(), "{name} is on two nodes, one of them {}", node.node);
            }
            snapshot.expires.extend(node.expires);
        }
        snapshot
    }

    /// The entries of a shard's stream, in order.
    pub fn entries(&self, scene: &Scene, shard: Shard) -> Vec<(EntryId, &Fields)> {
        let entries = self.stream(scene.shard_keys(shard).changes.as_str());
        entries.iter().map(|(id, fields)| (id.parse().expect("an entry id"), fields)).collect()
    }

    /// A stream's entries; none where there is no such key.
    pub fn stream(&self, name: &str) -> &[(String, Fields)] {
        match self.contents.get(name) {
            Some(Content::Stream(entries)) => entries,
            None => &[],
            Some(other) => panic!("{name} is no stream but {other:?}"),
        }
    }

    /// A hash's fields; none where there is no such key.
    pub fn hash(&self, name: &str) -> BTreeMap<String, String> {
        match self.contents.get(name) {
            Some(Content::Hash(fields)) => fields.clone(),
            None => BTreeMap::new(),
            Some(other) => panic!("{name} is no hash but {other:?}"),
        }
    }
}

/// One node being read.
struct Reading {
    node: NodeAddress,
    link: Link,
    contents: Contents,
    expires: BTreeMap<String, i64>,
}

impl Reading {
    async fn read(mut self, pattern: &str) -> Reading {
        let names = self.names(pattern).await;
        for names in names.chunks(KEYS_ASKED_MAX) {
            let mut pipeline = Pipeline::new();
            names.iter().for_each(|name| pipeline.push(&["TYPE", name]));
            let kinds = self.ask(&pipeline).await;
            pipeline.clear();
            let present: Vec<(&String, &str)> = names
                .iter()
                .zip(&kinds)
                .map(|(name, kind)| (name, kind.as_status().expect("a type")))
                .filter(|(_, kind)| *kind != "none")
                .collect();
            for (name, kind) in &present {
                pipeline.push(&["PEXPIRETIME", name]);
                match *kind {
                    "string" => pipeline.push(&["GET", name]),
                    "hash" => pipeline.push(&["HGETALL", name]),
                    "zset" => pipeline.push(&["ZRANGE", name, "0", "-1", "WITHSCORES"]),
                    "stream" => pipeline.push(&["XRANGE", name, "-", "+"]),
                    other => panic!("{name} is of the type {other}, which heyday never writes"),
                }
            }
            let answers = self.ask(&pipeline).await;
            for ((name, kind), answers) in present.iter().zip(answers.chunks_exact(2)) {
                self.note(name, kind, answers);
            }
        }
        self
    }

    fn note(&mut self, name: &str, kind: &str, answers: &[Reply]) {
        let expires = answers[0].as_i64().expect("a time");
        let content = match kind {
            // A lease may run out between two questions.
            "string" if answers[1].is_null() => return,
            "string" => Content::Text(text(&answers[1])),
            // One field of the layout is msgpack.
            "hash" => Content::Hash(pairs(&answers[1]).map(|(name, value)| (text(name), lossy(value))).collect()),
            "zset" => {
                let score = |reply: &Reply| text(reply).parse().expect("a whole score");
                Content::Sorted(pairs(&answers[1]).map(|(member, due)| (text(member), score(due))).collect())
            }
            _ => Content::Stream(entries(&answers[1])),
        };
        if expires >= 0 {
            self.expires.insert(name.to_owned(), expires);
        }
        self.contents.insert(name.to_owned(), content);
    }

    async fn names(&mut self, pattern: &str) -> Vec<String> {
        let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let mut pipeline = Pipeline::new();
            pipeline.push(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "5000"]);
            let reply = self.ask(&pipeline).await.pop().expect("one reply").into_array().expect("a page");
            names.extend(reply[1].as_array().expect("names").iter().map(text));
            cursor = text(&reply[0]);
            if cursor == "0" {
                // SCAN may tell a name twice.
                names.sort();
                names.dedup();
                return names;
            }
        }
    }

    async fn ask(&mut self, pipeline: &Pipeline) -> Vec<Reply> {
        if pipeline.is_empty() {
            return Vec::new();
        }
        self.link.request(pipeline, ANSWER_WAIT).await.expect("answers")
    }
}

/// The entries of a stream as XRANGE answers them.
pub(super) fn entries(reply: &Reply) -> Vec<(String, Fields)> {
    let entry = |reply: &Reply| {
        let parts = reply.as_array().expect("an entry");
        let fields = parts[1].as_pairs().expect("fields");
        let bytes = |reply: &Reply| reply.as_bytes().expect("a field").clone();
        (text(&parts[0]), fields.map(|(name, value)| (bytes(name), bytes(value))).collect())
    };
    reply.as_array().expect("entries").iter().map(entry).collect()
}

fn pairs(reply: &Reply) -> impl Iterator<Item = (&Reply, &Reply)> {
    reply.as_pairs().expect("pairs")
}

fn lossy(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.as_bytes().expect("a string")).into_owned()
}

pub(super) fn text(reply: &Reply) -> String {
    reply.to_str().expect("text in UTF-8").to_owned()
}
