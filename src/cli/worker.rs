//! `heyday worker`: turns changes into views until it is told to stop.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::signals::Signals;
use super::{Context, Exit, output};
use crate::admin::{Admin, Shown};
use crate::config::{Config, Preflight};
use crate::lease::WorkerId;
use crate::metrics::{Health, Metrics, Readiness};
use crate::redis::preflight::{Finding, preflight};
use crate::redis::{RedisStore, Topology};
use crate::{task, worker};

/// Turn changes into views until SIGTERM or SIGINT
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  HEYDAY_WORKER__NAME=left heyday --redis 127.0.0.1:17100 worker\n\n\
    Told to stop, a worker finishes its batches, gives its shards to the others and exits with 0, within \
    worker.shutdown_grace. Told twice, it ends at once: nothing is lost, but its shards wait for their \
    leases to run out. Numbers and health are served over HTTP on admin.listen.")]
pub struct Arguments {}

/// A cluster that a worker does not start on.
#[derive(Debug, thiserror::Error)]
#[error("{}", sentences(.0))]
pub struct Unfit(Vec<Finding>);

impl Unfit {
    /// Whether waiting may help, or only other settings.
    pub fn is_passing(&self) -> bool {
        self.0.iter().all(|finding| finding.is_passing())
    }
}

pub fn run(_: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    match context.settings.config.worker.threads {
        0 => &mut runtime,
        threads => runtime.worker_threads(threads),
    };
    let runtime = runtime.enable_all().build()?;
    let result = runtime.block_on(work(context));
    // After a drain there is nothing left that matters; told twice, there is nothing left to wait for.
    runtime.shutdown_background();
    result
}

async fn work(context: &Context) -> anyhow::Result<Exit> {
    // First of all, so that no signal meets a worker that would die of it half started.
    let mut signals = Signals::new()?;
    let config = &context.settings.config;
    let cluster = Cluster::open(context).await?;
    check(&cluster.topology, config.worker.preflight).await?;

    let name = config.worker.id();
    let metrics = Metrics::new(Health::new(config.worker.lease_ttl));
    metrics.health().report(Readiness { preflight_passed: true, ..Readiness::default() });
    let admin = start_admin(config, &metrics, &name)?;
    let address = admin.as_ref().map_or("off".to_owned(), |admin| format!("http://{}", admin.address()));
    let shards = output::counted(cluster.layout.count().into(), "shard");
    eprintln!("heyday worker {name}: {shards}, admin {address}");

    let topology = cluster.topology.clone();
    task::spawn("topology", async move { topology.keep_fresh().await });
    let context = worker::Context {
        store: RedisStore::new(cluster.topology, cluster.keys.clone(), cluster.layout.clone()),
        layout: cluster.layout,
        keys: cluster.keys,
        rules: Arc::new(config.rules()),
        options: Arc::new(config.worker.options(name)),
        metrics,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let working = worker::run(context, async { drop(stopped.await) });
    let told_twice = async {
        signals.next().await;
        drop(stop);
        signals.next().await;
    };
    tokio::select! {
        biased;
        () = told_twice => {
            eprintln!("heyday: told to stop twice: ending at once, the leases run out by themselves");
            Ok(Exit::Found)
        }
        () = working => Ok(Exit::Done),
    }
}

/// Refuses a cluster that may lose data, or warns of it, as the settings say.
async fn check(topology: &Topology, strictness: Preflight) -> Result<(), Unfit> {
    let (advice, faults): (Vec<_>, Vec<_>) = preflight(topology).await.into_iter().partition(|found| found.advice);
    let (refused, told) = match strictness {
        Preflight::Refuse => (faults, advice),
        Preflight::Warn => (Vec::new(), [faults, advice].concat()),
    };
    told.iter().for_each(|finding| tracing::warn!("preflight: {finding}"));
    if refused.is_empty() { Ok(()) } else { Err(Unfit(refused)) }
}

fn sentences(findings: &[Finding]) -> String {
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    format!("{}; worker.preflight = \"warn\" starts all the same", findings.join("; "))
}

fn start_admin(config: &Config, metrics: &Metrics, name: &WorkerId) -> anyhow::Result<Option<Admin>> {
    let Some(listen) = &config.admin.listen else {
        return Ok(None);
    };
    let shown = Shown { metrics: metrics.clone(), worker: name.to_string() };
    Ok(Some(Admin::start(listen, shown)?))
}
