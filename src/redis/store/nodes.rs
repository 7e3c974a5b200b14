//! Links for what concerns a node rather than a shard's strict sequence: one per node, kept between uses, taken in turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::timeout;

use crate::redis::{ConnectOptions, Error, Link, NodeAddress, Pipeline, Reply};

/// Beyond this many nodes all idle links are dropped: most belong to nodes that are gone.
const NODES_MAX: usize = 64;

type Place = Arc<tokio::sync::Mutex<Option<Link>>>;

#[derive(Debug, Default)]
pub(super) struct NodeLinks {
    places: Mutex<HashMap<NodeAddress, Place>>,
}

impl NodeLinks {
    /// Sends `pipeline` to `node` once. Bounded by twice the connect timeout and once the reply timeout.
    pub async fn request(
        &self,
        node: &NodeAddress,
        options: &ConnectOptions,
        pipeline: &Pipeline,
    ) -> Result<Vec<Reply>, Error> {
        let place = self.place(node);
        let Ok(mut place) = timeout(options.connect_timeout, place.lock()).await else {
            return Err(Error::Timeout { node: node.clone(), after: options.connect_timeout, sent: false });
        };
        if let Some(link) = &mut *place {
            match link.request(pipeline, options.reply_timeout).await {
                // It was closed since its last use, and nothing was sent.
                Err(Error::Closed { sent: false, .. }) => *place = None,
                other => return other,
            }
        }
        let link = place.insert(Link::connect(node, options).await?);
        link.request(pipeline, options.reply_timeout).await
    }

    fn place(&self, node: &NodeAddress) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= NODES_MAX && !places.contains_key(node) {
            places.clear();
        }
        places.entry(node.clone()).or_default().clone()
    }
}
