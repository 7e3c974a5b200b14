//! `heyday demo`: the whole path on a cluster of its own, through a killed worker and a failed-over primary, and the proof
//! that nothing was lost.

mod audience;
mod faults;
mod load;
mod progress;
mod proof;
mod screen;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::stage::Stage;
use super::{Context, Exit, output};
use crate::client;
use crate::key::Keys;
use crate::redis::layout::create_layout;
use crate::redis::{ConnectOptions, Inspector, Pipes, Topology};
use crate::shard::Shard;
use crate::task;
use progress::Progress;

/// How long the end of a run waits for the last changes to be applied and heard.
const SETTLE_WAIT: Duration = Duration::from_secs(60);
/// Between two looks at how far the shards are.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// When the faults begin in a run without end.
const FAULTS_AFTER: Duration = Duration::from_secs(7);

/// See all of it at work: a cluster, two workers, a writer and a subscriber; a worker is killed, a primary fails over, and
/// every view is compared with what it must be
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday demo --seconds 30\n\n\
    Everything runs on this machine and is removed at the end. Exits with 0 where nothing was lost, doubled, out \
    of order or not signalled, else with 1.")]
pub struct Arguments {
    /// How long to write; 0: until interrupted
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Leave cluster and data, and say how to look at them
    #[arg(long)]
    keep: bool,
    /// Changes written in a second
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Users that the changes are about
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    users: u32,
    /// A power of two
    #[arg(long, default_value_t = 64, value_parser = super::init::shards)]
    shards: u32,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(play(arguments, context));
    runtime.shutdown_background();
    result
}

async fn play(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    eprintln!("Starting a cluster of three primaries and three replicas on this machine …");
    let mut stage = Stage::open(&context.settings, "demo").await?;
    let result = perform(&arguments, context, &mut stage).await;
    if !matches!(&result, Ok(verdict) if verdict.is_clean()) {
        stage.tell_worker_logs();
    }
    stage.stop_workers().await;
    if let Ok(verdict) = &result {
        verdict.print()?;
    }
    // Whoever wants to keep the cluster wants it most where something went wrong.
    if arguments.keep {
        stage.keep()?;
    }
    let verdict = result?;
    Ok(if verdict.is_clean() { Exit::Done } else { Exit::Found })
}

async fn perform(arguments: &Arguments, context: &Context, stage: &mut Stage) -> anyhow::Result<proof::Verdict> {
    let rules = context.settings.config.rules();
    let hub = open_hub(stage.connect_options()?, arguments.shards).await?;
    stage.start_worker().await?;
    stage.start_worker().await?;

    let progress = Arc::new(Progress::new());
    let calendar = rules.calendar.clone();
    let window_before = calendar.window(now_milliseconds());
    let audience = audience::Audience::open(&hub, progress.clone()).await?;
    let (stop, stopped) = watch::channel(false);
    let load = load::Load { rate: arguments.rate, users: arguments.users, rules };
    let writing = task::spawn("demo writer", load::write(load, hub.clone(), progress.clone(), stopped.clone()));
    let looking = task::spawn("demo status", look(inspector(&hub), progress.clone(), stopped));

    let time = (arguments.seconds > 0).then(|| Duration::from_secs(arguments.seconds));
    let screen = screen::Screen::new(progress.clone(), arguments.shards, time);
    let faults_after = time.map_or(FAULTS_AFTER, |time| time / 3);
    if run_until_told(stage, &screen, time, faults_after).await? {
        screen.tell("interrupted: no more changes, the proof follows");
    }
    stop.send_replace(true);
    looking.await?;
    let oracle = writing.await??;
    screen.tell("no more changes: waiting until everything is applied");
    if !settle(&inspector(&hub), &progress).await {
        screen.tell(&format!("after {SETTLE_WAIT:?} some changes are still not applied"));
    }
    screen.close();

    let window = proof::common(window_before, calendar.window(now_milliseconds()));
    proof::prove(&hub, &oracle, window, audience).await
}

async fn open_hub(options: ConnectOptions, shards: u32) -> anyhow::Result<client::Hub> {
    let topology = Topology::connect(Arc::new(options.clone())).await?;
    create_layout(&topology, &Keys::new("")?, shards).await?;
    Ok(client::connect(options, "").await?)
}

/// The time of the run, with the faults in it. Answers whether it was interrupted.
async fn run_until_told(
    stage: &mut Stage,
    screen: &screen::Screen,
    time: Option<Duration>,
    faults_after: Duration,
) -> anyhow::Result<bool> {
    let started = Instant::now();
    let mut seconds = tokio::time::interval(Duration::from_millis(200));
    let faults = faults::play(stage, screen, faults_after);
    let mut faults = std::pin::pin!(faults);
    let mut played = false;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            biased;
            _ = &mut interrupt => return Ok(true),
            result = &mut faults, if !played => {
                result?;
                played = true;
            }
            _ = seconds.tick() => screen.draw(started.elapsed()),
        }
        // The faults belong to the run: one that is short waits for them.
        if played && time.is_some_and(|time| started.elapsed() >= time) {
            return Ok(false);
        }
    }
}

fn inspector(hub: &client::Hub) -> Inspector {
    let topology = hub.topology().clone();
    let pipes = Arc::new(Pipes::new(topology.options().clone()));
    Inspector::new(topology, pipes, hub.keys().clone(), hub.layout().clone())
}

/// Keeps the figures of the screen up to date.
async fn look(inspector: Inspector, progress: Arc<Progress>, mut stopped: watch::Receiver<bool>) {
    loop {
        look_once(&inspector, &progress).await;
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// Answers how many changes wait; none where a shard's node did not answer.
async fn look_once(inspector: &Inspector, progress: &Progress) -> Option<u64> {
    let shards: Vec<Shard> = inspector.layout().shards().collect();
    let status = inspector.look(&shards, Duration::from_secs(1)).await;
    let waiting: u64 = status
        .shards
        .iter()
        .filter_map(|shard| shard.figures.as_ref())
        .map(|figures| figures.backlog.unread + figures.backlog.pending)
        .sum();
    progress.workers(status.workers.map_or(0, |workers| workers.len()));
    let owned = status.shards.iter().filter_map(|shard| shard.figures.as_ref()?.owner.as_ref()).count();
    progress.owned(owned);
    // A shard whose node does not answer would look as if nothing waited there.
    let known = status.shards.iter().all(|shard| shard.figures.is_some());
    if known {
        progress.lag(waiting);
    }
    known.then_some(waiting)
}

/// Whether everything was applied in time; where it was not, the proof counts what is missing.
async fn settle(inspector: &Inspector, progress: &Progress) -> bool {
    let settled = async {
        while look_once(inspector, progress).await != Some(0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SETTLE_WAIT, settled).await.is_ok()
}

fn now_milliseconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

/// A line that belongs to the answer.
fn say(line: &str) -> std::io::Result<()> {
    output::print(&format!("{line}\n"))
}
