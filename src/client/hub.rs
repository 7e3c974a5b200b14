//! The hub: slot map, layout and connections, made once and shared by all parts of a client.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{near, reader, subscriber, writer};
use crate::change::UserId;
use crate::error::Disposition;
use crate::key::{Keys, PrefixError, ShardKeys};
use crate::redis::layout::{self, read_layout};
use crate::redis::{self, ConnectOptions, Nodes, Pipes, Topology};
use crate::shard::{Layout, Shard};

/// What every part of a client shares. Cheap to clone; connections are opened with their first use.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    topology: Arc<Topology>,
    keys: Keys,
    layout: Layout,
    /// Names by shard, made with the first use of each.
    names: Box<[OnceLock<ShardKeys>]>,
    pipes: Pipes,
    nodes: Nodes,
}

/// Why no client came about.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    #[error(transparent)]
    Redis(#[from] redis::Error),
    /// Nobody has created the layout yet, or it is not one that this build can use.
    #[error(transparent)]
    Layout(#[from] layout::Error),
}

impl ConnectError {
    pub fn disposition(&self) -> Disposition {
        match self {
            ConnectError::Redis(error) => error.disposition(),
            ConnectError::Layout(error) => error.disposition(),
            ConnectError::Prefix(_) => Disposition::Fatal,
        }
    }
}

/// Finds the cluster and reads its layout. `prefix` goes in front of every key; empty for none.
///
/// # Errors
///
/// Where no seed answers within the connect and reply timeouts, where Redis refuses the credentials, and where the
/// stored layout is missing or of another format.
pub async fn connect(options: ConnectOptions, prefix: &str) -> Result<Hub, ConnectError> {
    let keys = Keys::new(prefix)?;
    let options = Arc::new(options);
    let topology = Arc::new(Topology::connect(options.clone()).await?);
    let layout = read_layout(&topology, &keys).await?;
    let names = layout.shards().map(|_| OnceLock::new()).collect();
    let (pipes, nodes) = (Pipes::new(options), Nodes::new(topology.clone()));
    Ok(Hub(Arc::new(Shared { topology, keys, layout, names, pipes, nodes })))
}

impl Hub {
    /// Appends changes. Starts nothing before the first append.
    pub fn writer(&self, options: writer::Options) -> writer::Writer {
        writer::Writer::new(self.clone(), options)
    }

    /// Reads views.
    pub fn reader(&self, options: reader::Options) -> reader::Reader {
        reader::Reader::new(self.clone(), options)
    }

    /// Listens to changes from now on; see [`subscriber::Subscriber`].
    ///
    /// # Errors
    ///
    /// Where the options name a shard that the layout does not have.
    pub async fn subscribe(&self, options: subscriber::Options) -> Result<subscriber::Subscriber, subscriber::Error> {
        subscriber::Subscriber::start(self.clone(), options).await
    }

    /// Reads views and keeps them; see [`near::Near`].
    ///
    /// # Errors
    ///
    /// As with [`Hub::subscribe`].
    pub async fn near(&self, options: near::Options) -> Result<near::Near, subscriber::Error> {
        let reader = self.reader(options.reader.clone());
        let reader = match options.loads.clone() {
            Some(loads) => reader.loading(loads),
            None => reader,
        };
        near::Near::start(self.clone(), reader, options).await
    }

    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    pub fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub fn topology(&self) -> &Arc<Topology> {
        &self.0.topology
    }

    /// The names of one shard's keys.
    pub fn shard_keys(&self, shard: Shard) -> &ShardKeys {
        self.0.names[usize::from(shard.0)].get_or_init(|| self.0.keys.shard(&self.0.layout, shard))
    }

    /// The names of the keys of a user's shard.
    pub fn keys_of(&self, user: &UserId) -> &ShardKeys {
        self.shard_keys(self.layout().shard_of(user))
    }

    pub(super) fn pipes(&self) -> &Pipes {
        &self.0.pipes
    }

    pub(super) fn nodes(&self) -> &Nodes {
        &self.0.nodes
    }

    /// Looks at the cluster again, for no longer than `patience`, and lets go of nodes that have left it. What fails here
    /// shows in the next attempt.
    pub(super) async fn refresh(&self, patience: Duration) {
        match tokio::time::timeout(patience, self.0.topology.refresh()).await {
            Ok(Ok(())) => {
                let members = self.0.topology.all();
                self.0.pipes.retain(|node| members.iter().any(|member| member.address == *node));
                self.0.nodes.prune();
            }
            Ok(Err(error)) => tracing::debug!(%error, "the cluster could not be asked for its slots"),
            Err(_) => tracing::debug!(?patience, "the cluster did not say in time who owns its slots"),
        }
    }
}
