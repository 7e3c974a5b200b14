//! What every command that talks to Redis begins with: a runtime, the cluster, the layout. Nothing here tries again: a
//! cluster that cannot be reached at the start is told at once.

use std::future::Future;
use std::sync::Arc;

use anyhow::Context as _;

use super::Context;
use crate::change::{Rejection, UserId};
use crate::key::Keys;
use crate::redis::{Pipes, Topology, layout};
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
    let topology = Topology::connect(Arc::new(settings.connect_options()?)).await?;
    Ok((Arc::new(topology), Keys::new(&settings.prefix)?))
}

impl Cluster {
    pub async fn open(context: &Context) -> anyhow::Result<Cluster> {
        let (topology, keys) = reach(context).await?;
        let layout = layout::read_layout(&topology, &keys).await.map_err(layout_error)?;
        Ok(Cluster { topology, keys, layout })
    }

    /// New connections for many commands at once.
    pub fn pipes(&self) -> Arc<Pipes> {
        Arc::new(Pipes::new(self.topology.options().clone()))
    }
}

/// The cause alone: it says everything, and an error that repeats its cause would say it twice.
pub fn layout_error(error: layout::Error) -> anyhow::Error {
    match error {
        layout::Error::Redis(cause) => Err::<(), _>(cause).context("layout").expect_err("it is an error"),
        other => other.into(),
    }
}

/// A user id from the command line.
pub fn user(text: &str) -> Result<UserId, Rejection> {
    text.parse().map_err(|problem| Rejection::new("user", Some(text.as_bytes()), problem))
}
