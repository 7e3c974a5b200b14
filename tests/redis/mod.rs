//! The boundary to Redis against real servers, and against networks that fail.

mod link;
mod nodes;
mod pipe;
mod proxy;
mod pubsub;
mod tls;
mod topology;

use std::time::Duration;

use heyday::local;
use heyday::redis::{ConnectOptions, Link, NodeAddress, Pipeline, Reply};

/// Longer than anything here takes.
const WAIT: Duration = Duration::from_secs(20);

fn pipeline(commands: &[&[&str]]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for words in commands {
        pipeline.push(words);
    }
    pipeline
}

/// One command over a connection of its own.
async fn command(node: &NodeAddress, words: &[&str]) -> Reply {
    let mut link = Link::connect(node, &ConnectOptions::default()).await.expect("a connection");
    let replies = link.request(&pipeline(&[words]), WAIT).await;
    replies.expect("a reply").remove(0)
}

/// Options whose dialled address for `node` is `proxy`.
fn through(node: &NodeAddress, proxy: &NodeAddress) -> ConnectOptions {
    let mut options = ConnectOptions::new(vec![node.clone()]);
    options.address_map.insert(node.clone(), proxy.clone());
    options
}

fn addresses(nodes: &local::Nodes) -> Vec<NodeAddress> {
    nodes.nodes().into_iter().map(|(host, port)| NodeAddress::new(host, port)).collect()
}
