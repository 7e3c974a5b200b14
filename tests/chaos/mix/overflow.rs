//! A subscriber that reads too slowly, until the server cuts it off.

use std::time::Duration;

use heyday::redis::{Link, Pipeline};

use super::schedule::{PAIRS, Side};
use super::stage::Stage;
use super::strike::{Done, Result};
use crate::support::lasts;
use crate::support::proxy::Proxy;

/// What waits for a subscriber at most; the usual value after it.
const BUFFER_SMALL: &str = "pubsub 1000000 0 0";
const BUFFER_USUAL: &str = "pubsub 33554432 8388608 60";
/// Rubbish published at once: more than all buffers on the way hold.
const RUBBISH_BYTES: usize = 1 << 20;
const RUBBISH_COUNT: usize = 24;
const PUBLISHED_WAIT: Duration = Duration::from_secs(5);

/// Rubbish fills the buffers of subscribers whose answers are stalled. It is no signal, and those that are not stalled must not mind.
pub async fn overflow(stage: &Stage, pair: usize, time: Duration) -> Result {
    let nodes = [pair, pair + PAIRS];
    for node in nodes {
        let _ = stage.attempt(node, &["CONFIG", "SET", "client-output-buffer-limit", BUFFER_SMALL]).await;
    }
    let before = cut_off(stage, nodes);
    let proxies = stage.proxies(Side::Subscribers, pair);
    proxies.iter().for_each(|proxy| proxy.stall_answers());
    let published = publish(stage, pair).await;
    lasts(time).await;
    proxies.iter().for_each(|proxy| Proxy::pass(proxy));
    for node in nodes {
        stage.order(node, &["CONFIG", "SET", "client-output-buffer-limit", BUFFER_USUAL]).await?;
    }
    let count = cut_off(stage, nodes) - before;
    Ok(Done::new(format!("{published}; {count} subscribers were cut off"), Default::default()))
}

async fn publish(stage: &Stage, pair: usize) -> String {
    let shards = stage.shards_of_pair(pair).await;
    let Some(shard) = shards.first() else { return "no shard is there".to_owned() };
    let keys = stage.scene.shard_keys(*shard);
    let Some(topology) = stage.scene.topology().await else { return "nobody answered".to_owned() };
    let Ok(node) = topology.node_of(keys.slot) else { return "nobody owns the shard".to_owned() };
    let rubbish = "x".repeat(RUBBISH_BYTES);
    let mut pipeline = Pipeline::new();
    for _ in 0..RUBBISH_COUNT {
        pipeline.push(&["SPUBLISH", keys.push.as_str(), &rubbish]);
    }
    let Ok(mut link) = Link::connect(&node.address, topology.options()).await else {
        return "the node did not answer".to_owned();
    };
    match link.request(&pipeline, PUBLISHED_WAIT).await {
        Ok(_) => format!("{RUBBISH_COUNT} times {RUBBISH_BYTES} bytes of rubbish to shard {shard}"),
        Err(error) => error.to_string(),
    }
}

/// How often the logs of these nodes tell of a client that was cut off.
fn cut_off(stage: &Stage, nodes: [usize; 2]) -> usize {
    nodes.iter().map(|node| stage.server_log(*node).matches("overcoming of output buffer limits").count()).sum()
}
