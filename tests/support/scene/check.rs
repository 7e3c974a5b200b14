//! `heyday check` on a scene, as a library call.

use std::sync::Arc;

use heyday::redis::inspect::{Check, Findings, Options};
use heyday::redis::{ConnectOptions, Error, Pipes, Topology};

use super::Scene;

impl Scene {
    /// All that the check finds, without pauses.
    pub async fn check(&self) -> Findings {
        let (findings, done) = self.check_with(self.connect_options(), options(false)).await;
        done.expect("a cluster that answers");
        findings
    }

    /// The same with repair.
    pub async fn repair(&self) -> Findings {
        let (findings, done) = self.check_with(self.connect_options(), options(true)).await;
        done.expect("a cluster that answers");
        findings
    }

    /// Over connections that `connect` describes; what was found before an error holds all the same.
    pub async fn check_with(&self, connect: ConnectOptions, options: Options) -> (Findings, Result<(), Error>) {
        let topology = match Topology::connect(Arc::new(connect)).await {
            Ok(topology) => Arc::new(topology),
            Err(error) => return (Findings::default(), Err(error)),
        };
        let pipes = Arc::new(Pipes::new(topology.options().clone()));
        let names = (self.keys.clone(), self.layout.clone());
        let mut check = Check::new((topology, pipes), names, self.rules.clone(), options);
        let shards: Vec<_> = self.layout.shards().collect();
        let done = check.run(&shards).await;
        (std::mem::take(&mut check.findings), done)
    }
}

/// Without pauses.
pub fn options(repair: bool) -> Options {
    Options { share: 1.0, repair, ..Options::default() }
}
