//! What every command that talks to Redis begins with: a runtime, the cluster, the layout. Nothing here tries again: a
//! cluster that cannot be reached at the start is told at once.

use std::future::Future;
use std::sync::Arc;

use super::Context;
use crate::change::{Rejection, UserId};
use crate::client::{self, Hub};
use crate::key::Keys;
use crate::redis::{self, Pipes, Topology, layout};
use crate::shard::Layout;

/// A cluster that answered, with its layout.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub topology: Arc<Topology>,
    pub keys: Keys,
    pub layout: Layout,
}

/// Runs `work` on a small runtime of its own. What it leaves behind, such as a read of stdin, is not waited for.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

/// The cluster of the settings, asked once which node owns which slot.
pub async fn reach(context: &Context) -> anyhow::Result<(Arc<Topology>, Keys)> {
    let settings = &context.settings.config.redis;
    let topology = Topology::connect(Arc::new(settings.connect_options()?)).await;
    let topology = topology.map_err(|error| whose_nodes(error.into(), context))?;
    Ok((Arc::new(topology), Keys::new(&settings.prefix)?))
}

/// What reads, writes and listens, on the cluster of the settings.
pub async fn hub(context: &Context) -> anyhow::Result<Hub> {
    let settings = &context.settings.config.redis;
    let connected = client::connect(settings.connect_options()?, &settings.prefix).await;
    connected.map_err(|error| whose_nodes(error.into(), context))
}

/// Where nobody answers, the nodes are most likely the wrong ones: who gave them?
fn whose_nodes(error: anyhow::Error, context: &Context) -> anyhow::Error {
    let cause = match error.downcast_ref() {
        Some(client::ConnectError::Redis(cause)) => Some(cause),
        _ => error.downcast_ref::<redis::Error>(),
    };
    match cause {
        Some(redis::Error::Unreachable { .. }) => {
            error.context(format!("redis.nodes ({})", context.settings.source("redis.nodes")))
        }
        _ => error,
    }
}

impl Cluster {
    pub async fn open(context: &Context) -> anyhow::Result<Cluster> {
        let (topology, keys) = reach(context).await?;
        let layout = layout::read_layout(&topology, &keys).await?;
        Ok(Cluster { topology, keys, layout })
    }

    /// New connections for many commands at once.
    pub fn pipes(&self) -> Arc<Pipes> {
        Arc::new(Pipes::new(self.topology.options().clone()))
    }
}

/// A user id from the command line.
pub fn user(text: &str) -> Result<UserId, Rejection> {
    text.parse().map_err(|problem| Rejection::new("user", Some(text.as_bytes()), problem))
}
