//! Other libraries that do the same work: `benches/peers`.

use anyhow::{bail, ensure};
use tokio::time::Instant;

use super::super::ground::Field;
use super::super::peer::{Bounds, Program};
use super::super::rounds::{Contestant, Sample, Turn};
use super::super::servers::between;
use super::{Common, field_days, prove};
use crate::change::Change;

/// A peer, and why it cannot be measured where it could not be prepared.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub program: Program,
    pub trouble: Option<String>,
}

pub struct Peer {
    pub common: Common,
    pub prepared: Prepared,
}

impl Contestant for Peer {
    fn name(&self) -> String {
        self.common.name.clone()
    }

    fn turn(&mut self, round: usize) -> Turn<'_> {
        Box::pin(async move {
            if let Some(why) = &self.prepared.trouble {
                bail!("{why}");
            }
            let Common { ground, task, .. } = &self.common;
            let changes = super::changes(task, round);
            let field = ground.field(task.shards).await?;
            let drained = self.drain(&field, &changes).await;
            // Whatever it has left must not burden the next contestant.
            ground.clear(field).await?;
            drained
        })
    }
}

impl Peer {
    async fn drain(&self, field: &Field, changes: &[Change]) -> anyhow::Result<Sample> {
        let ground = &self.common.ground;
        field.append(changes).await?;
        let settings = self.settings(field, changes.len())?;
        let mut running = self.prepared.program.start(&settings, Bounds::of(changes.len())).await?;
        ground.settled().await?;
        let servers = ground.look().await?;
        let begun = Instant::now();
        running.go().await?;
        let told = running.result().await?;
        let seconds = begun.elapsed().as_secs_f64();
        let servers = between(&servers, &ground.look().await?);
        running.end().await?;
        ensure!(told.changes == changes.len() as u64, "it says that {} of {} were done", told.changes, changes.len());
        prove::views(field, changes).await?;
        let changes = changes.len() as f64;
        Ok(Sample { changes, seconds, worker_cpu_seconds: told.cpu_seconds, servers, progress: Vec::new() })
    }

    fn settings(&self, field: &Field, changes: usize) -> anyhow::Result<Vec<(&'static str, String)>> {
        let Common { ground, task, .. } = &self.common;
        let options = &ground.options;
        let plain = options.tls.is_none() && options.username.is_none() && options.address_map.is_empty();
        ensure!(plain, "peers are for clusters without TLS, user names and translated addresses");
        let nodes: Vec<String> = ground.topology.primaries().iter().map(|node| node.address.to_string()).collect();
        let window = field_days(ground).window;
        Ok(vec![
            ("PEER_NODES", nodes.join(",")),
            ("PEER_PASSWORD", options.password.clone().unwrap_or_default()),
            ("PEER_PREFIX", field.hub.keys().prefix().to_owned()),
            ("PEER_TAGS", field.hub.layout().tags().join(",")),
            ("PEER_CHANGES", changes.to_string()),
            ("PEER_BATCH", task.batch.to_string()),
            ("PEER_FIRST", window.first.to_string()),
            ("PEER_LAST", window.last.to_string()),
        ])
    }
}

/// Has each of them install and build what it lacks, before anything is measured.
pub async fn prepare(programs: &[Program], changes: usize) -> Vec<Prepared> {
    let mut prepared = Vec::new();
    for program in programs.iter().cloned() {
        eprintln!("preparing {}", program.name);
        let trouble = program.prepare(Bounds::of(changes)).await.err().map(|error| format!("{error:#}"));
        prepared.push(Prepared { program, trouble });
    }
    prepared
}
