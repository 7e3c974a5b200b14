//! A worker within the test process: for what must be held still at one exact point, or started a thousand times.

use std::sync::Arc;
use std::time::Duration;

use heyday::metrics::{Health, Metrics};
use heyday::redis::{ConnectOptions, RedisStore, Topology};
use heyday::worker::{self, Context, Options};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Scene;

/// Runs until it is stopped; dropped, it ends without giving anything up.
pub struct Inline {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    pub metrics: Metrics,
}

impl Inline {
    /// Over connections of its own, which `connect` describes.
    pub async fn start(scene: &Scene, name: &str, connect: ConnectOptions) -> Inline {
        let topology = Topology::connect(Arc::new(connect)).await.expect("a cluster that answers");
        Inline::over(scene, name, Arc::new(topology))
    }

    pub fn over(scene: &Scene, name: &str, topology: Arc<Topology>) -> Inline {
        let metrics = Metrics::new(Health::new(Duration::from_secs(2)));
        let options = Options {
            worker: name.parse().expect("a name"),
            lease_ttl: Duration::from_secs(2),
            block: Duration::from_millis(500),
            backoff_max: Duration::from_millis(500),
            retention: Duration::from_secs(3600),
            trim_interval: Duration::from_secs(1),
            ..Options::default()
        };
        let context = Context {
            store: RedisStore::new(topology, scene.keys.clone(), scene.layout.clone()),
            layout: scene.layout.clone(),
            keys: scene.keys.clone(),
            rules: Arc::new(scene.rules.clone()),
            options: Arc::new(options),
            metrics: metrics.clone(),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(worker::run(context, async { drop(stopped.await) }));
        Inline { stop: Some(stop), task, metrics }
    }

    /// Gives everything up in order.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.expect("the worker");
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        self.task.abort();
    }
}
