//! heyday on the shared cluster, under a prefix of the test's own.

use heyday::local::Nodes;

use super::{Run, run};
use crate::support::cluster::{foreign_prefix, shared_cluster, unique_prefix};
use crate::support::process::Process;

/// Commands and workers that share a layout, and nothing with other tests.
pub struct Stage {
    pub nodes: Nodes,
    pub prefix: String,
    seeds: String,
}

impl Stage {
    /// Without a layout.
    pub async fn bare() -> Stage {
        let nodes = shared_cluster().await;
        let seeds = nodes.seeds();
        Stage { nodes, prefix: unique_prefix(), seeds }
    }

    /// With a layout of so many shards.
    pub async fn with_shards(shards: u32) -> Stage {
        Stage::bare().await.laid_out(shards)
    }

    /// The same for a test that puts keys there which no row of the registry names.
    pub async fn foreign_with_shards(shards: u32) -> Stage {
        let bare = Stage::bare().await;
        Stage { prefix: foreign_prefix(), ..bare }.laid_out(shards)
    }

    fn laid_out(self, shards: u32) -> Stage {
        let stage = self;
        let created = stage.heyday(&["init", "--shards", &shards.to_string()]);
        assert_eq!((created.code, created.stderr.as_str()), (0, ""));
        stage
    }

    /// One command.
    pub fn heyday(&self, arguments: &[&str]) -> Run {
        run(arguments, &self.variables())
    }

    /// One command that must succeed and answer in JSON, all in one line.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let done = self.heyday(arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stdout))
    }

    /// A command that goes on beside the test.
    pub fn start(&self, arguments: &[&str]) -> Process {
        Process::start(arguments, &self.variables())
    }

    /// A worker that has said that it works.
    pub async fn worker(&self) -> Process {
        let worker = self.start(&["worker"]);
        worker.says("heyday worker ").await;
        worker
    }

    /// One command of Redis, sent to whichever node owns its key.
    pub async fn redis(&self, arguments: &[&str]) -> String {
        self.nodes.cli(0, &[&["-c"], arguments].concat()).await.expect("redis-cli")
    }

    pub fn variables(&self) -> [(&str, &str); 5] {
        [
            ("HEYDAY_REDIS__NODES", &self.seeds),
            ("HEYDAY_REDIS__PREFIX", &self.prefix),
            ("HEYDAY_ADMIN__LISTEN", ""),
            ("HEYDAY_WORKER__LEASE_TTL", "5s"),
            ("HEYDAY_WORKER__BLOCK", "200ms"),
        ]
    }
}
