//! What every part of a rebuild works with.

use std::sync::Arc;

use crate::cli::{Context, cluster};
use crate::client::Hub;
use crate::redis::rebuild::Shards;
use crate::redis::{ConnectOptions, Pipes};

pub(super) struct Way {
    pub hub: Hub,
    pub shards: Shards,
}

impl Way {
    pub async fn open(context: &Context) -> anyhow::Result<Way> {
        let hub = cluster::hub(context).await?;
        let options: Arc<ConnectOptions> = hub.topology().options().clone();
        let roads = (hub.topology().clone(), Arc::new(Pipes::new(options)));
        let timeout = context.settings.config.writer.timeout;
        let shards = Shards::new(roads, hub.keys().clone(), hub.layout().clone(), timeout);
        Ok(Way { hub, shards })
    }
}
