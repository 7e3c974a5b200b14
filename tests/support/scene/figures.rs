//! What may grow when it should not.

use heyday::redis::{Link, Pipeline};

use super::{ANSWER_WAIT, Scene};

/// What a cluster holds and who is connected to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub keys: i64,
    pub connections: i64,
    pub memory_bytes: i64,
    /// Scripts in the cache: one that is made anew each time would fill it.
    pub scripts: i64,
}

impl Scene {
    /// The sums over all primaries.
    pub async fn figures(&self) -> Figures {
        let topology = self.topology().await.expect("a cluster that answers");
        let mut sum = Figures { keys: 0, connections: 0, memory_bytes: 0, scripts: 0 };
        for node in topology.primaries() {
            let mut link = Link::connect(&node.address, topology.options()).await.expect("a link");
            let mut pipeline = Pipeline::new();
            pipeline.push(&["DBSIZE"]);
            pipeline.push(&["INFO", "everything"]);
            let replies = link.request(&pipeline, ANSWER_WAIT).await.expect("answers");
            let info = replies[1].to_str().expect("a text").to_owned();
            let field = |name: &str| -> i64 {
                let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("INFO has no number {name}"))
            };
            sum.keys += replies[0].as_i64().expect("a count");
            sum.connections += field("connected_clients");
            sum.memory_bytes += field("used_memory_dataset");
            sum.scripts += field("number_of_cached_scripts");
        }
        sum
    }
}
