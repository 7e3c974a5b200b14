//! Questions about many shards at once: all nodes in parallel, so that one that is down delays no answer about the others'
//! shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Answer, RedisStore, failure};
use crate::error::Disposition;
use crate::key::ShardKeys;
use crate::lease::WorkerId;
use crate::redis::{Error, Node, Pipeline, Reply};
use crate::shard::Shard;
use crate::store;
use crate::task;

/// How long the answers of other nodes wait for one that is silent. Its shards are asked for again with the next round.
const NODES_WAIT: Duration = Duration::from_millis(500);

/// What one node is asked: for which places of the answer, and about which shards.
#[derive(Default)]
struct Asked {
    places: Vec<usize>,
    pipeline: Pipeline,
}

impl RedisStore {
    /// Asks the owner of each shard's slot; `question` writes one command. An error for a shard whose node does not answer
    /// in time.
    pub(super) async fn ask_many(
        &self,
        asked: &'static str,
        shards: &[Shard],
        question: impl Fn(&ShardKeys, &mut Pipeline),
    ) -> Vec<Result<Answer<'_>, store::Error>> {
        let mut answers: Vec<_> = Vec::with_capacity(shards.len());
        let mut nodes: BTreeMap<_, (Arc<Node>, Asked)> = BTreeMap::new();
        for (at, shard) in shards.iter().enumerate() {
            let keys = self.shard_keys(*shard);
            answers.push(Err(lost(asked, *shard)));
            match self.owner(asked, keys.slot) {
                Ok(node) => {
                    let (_, to_node) =
                        nodes.entry(node.address.clone()).or_insert_with(|| (node.clone(), Asked::default()));
                    to_node.places.push(at);
                    question(&keys, &mut to_node.pipeline);
                }
                Err(unowned) => answers[at] = Err(unowned),
            }
        }
        let asking: Vec<_> = nodes
            .into_values()
            .map(|(node, Asked { places, pipeline })| {
                let (store, to) = (self.clone(), node.clone());
                let sent = async move { store.shared.links.request(&to.address, store.options(), &pipeline).await };
                (node, places, task::spawn("shards of a node", sent))
            })
            .collect();
        let until = Instant::now() + NODES_WAIT;
        for (node, places, replies) in asking {
            // A task that is left behind ends by the timeouts of its link.
            match timeout_at(until, replies).await {
                Ok(Ok(Ok(replies))) => {
                    for (at, reply) in places.into_iter().zip(replies) {
                        answers[at] = Ok(Answer { store: self, node: node.clone(), asked, reply });
                    }
                }
                Ok(Ok(Err(error))) => {
                    let error = failure::tell(self.topology(), &node.address, asked, &error);
                    places.into_iter().for_each(|at| answers[at] = Err(error.clone()));
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        answers
    }
}

pub(super) fn holder(reply: &Reply) -> Result<Option<WorkerId>, Error> {
    let Some(bytes) = reply.as_bytes_or_null()? else {
        return Ok(None);
    };
    let id = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| Error::protocol("a worker id", format!("{:?}", String::from_utf8_lossy(bytes))))
}

/// A shard that nobody answered for in time.
fn lost(asked: &str, shard: Shard) -> store::Error {
    store::Error {
        disposition: Disposition::Retry,
        reason: "no_answer",
        message: format!("shard {shard}: {asked}: no answer"),
    }
}
