//! The work of heyday's worker, done with sea-streamer-redis (reading, acknowledging) and redis-rs (pipelines of writes).

mod apply;
mod settings;
mod source;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::task::JoinSet;

use crate::apply::Writer;
use crate::settings::Settings;
use crate::source::Source;

/// Without progress for this long the peer gives up.
const STALL_MAX: Duration = Duration::from_secs(120);
/// redis-rs waits half a second for a reply by default, which a loaded machine may need for a large pipeline.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let ended = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let ended = runtime.block_on(run());
        // A thread may still wait for stdin.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sea-streamer-redis: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let settings = Arc::new(Settings::read()?);
    let connection = connect(&settings).await?;
    let mut sources = Vec::new();
    for tag in &settings.tags {
        sources.push(Source::open(&settings, connection.clone(), tag).await?);
    }
    let found: usize = sources.iter().map(|source| source.left).sum();
    if found != settings.changes {
        bail!("the streams hold {found} entries, not {}", settings.changes);
    }
    println!("ready");
    wait_for_go().await?;

    let (began, cpu_began) = (Instant::now(), cpu_seconds()?);
    let streams: Vec<String> = sources.iter().map(|source| source.stream.clone()).collect();
    consume(&settings, connection.clone(), sources).await?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu_began);
    println!("{}", serde_json::json!({"changes": found, "seconds": seconds, "cpu_seconds": cpu}));
    // What tidying up costs belongs to no measurement.
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    source::remove(connection, &streams).await
}

async fn connect(settings: &Settings) -> Result<ClusterConnection> {
    let nodes: Vec<String> = settings.nodes.iter().map(|node| format!("redis://{node}")).collect();
    let mut builder = ClusterClient::builder(nodes).response_timeout(RESPONSE_TIMEOUT);
    if let Some(password) = &settings.password {
        builder = builder.password(password.clone());
    }
    builder.build()?.get_async_connection().await.context("cannot connect to the cluster")
}

async fn wait_for_go() -> Result<()> {
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    if line.trim() != "go" {
        bail!("no `go` on stdin");
    }
    Ok(())
}

/// All streams at once, a task each, until everything is acknowledged.
async fn consume(settings: &Arc<Settings>, connection: ClusterConnection, sources: Vec<Source>) -> Result<()> {
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for source in sources {
        let writer = Writer::new(settings.clone(), connection.clone(), &source.tag);
        tasks.spawn(consume_one(source, writer, settings.batch, done.clone()));
    }
    let mut seen = (0, Instant::now());
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => return Ok(()),
                Some(result) => result??,
            },
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        let now = done.load(Ordering::Relaxed);
        if now != seen.0 {
            seen = (now, Instant::now());
        } else if seen.1.elapsed() > STALL_MAX {
            bail!("no progress for {} s after {now} changes", STALL_MAX.as_secs());
        }
    }
}

async fn consume_one(mut source: Source, mut writer: Writer, batch: usize, done: Arc<AtomicUsize>) -> Result<()> {
    while source.left > 0 {
        let messages = source.batch(batch).await?;
        writer.apply(&messages).await?;
        source.acknowledge(&messages).await?;
        done.fetch_add(messages.len(), Ordering::Relaxed);
    }
    Ok(())
}

fn cpu_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
