//! `heyday roll`: has shards fill all their open days again, and waits for it.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::cluster::{Cluster, block_on};
use super::output::{self, Format};
use super::signals::Signals;
use super::{Context, Exit, flags, progress, status};
use crate::redis::roll::{Calendars, Progress};
use crate::shard::Shard;

/// Between two looks at how far the shards have come.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Have shards fill all their days again, from yesterday to the horizon
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday roll --shard 7\n  heyday roll --all --wait 1h\n\n\
    Shards roll by themselves once a day; this is for when a day is missing somebody and nobody knows why. The owner of \
    each shard does it between its batches, within worker.roll_percent of its time, and whoever owns it next goes \
    on with it. Ctrl-C ends the waiting and not the roll. Nobody is taken off a day: heyday check --repair does \
    that. Exits with 1 where a shard has not come to its end within --wait; heyday status --all shows how far it is.")]
pub struct Arguments {
    /// These shards
    #[arg(long, value_name = "NUMBER", required_unless_present = "all", conflicts_with = "all")]
    shard: Vec<u32>,
    /// Every shard
    #[arg(long)]
    all: bool,
    /// How long to wait; 0s only asks
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = wait)]
    wait: Duration,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    shards: Vec<Row>,
    done: usize,
    took_ms: u64,
}

#[derive(Serialize)]
struct Row {
    shard: u16,
    /// Unix milliseconds; null where nobody has ever owned the shard: its first owner rolls it.
    asked_at: Option<u64>,
    done: bool,
    /// The last day that holds everybody who celebrates.
    rolled: Option<String>,
    roll: Option<String>,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    block_on(async {
        let cluster = Cluster::open(context).await?;
        let mut shards = status::shards(&arguments.shard, &cluster.layout)?;
        shards.sort_unstable();
        shards.dedup();
        let pipes = cluster.pipes();
        let mut signals = Signals::new()?;
        let started = Instant::now();
        let calendars = Calendars::new((cluster.topology, pipes), (cluster.keys, cluster.layout));
        let mut rolls = Rolls::ask(calendars, shards).await?;
        tokio::select! {
            biased;
            () = signals.next() => eprintln!("heyday: the shards go on rolling"),
            waited = rolls.wait(started + arguments.wait) => waited?,
        }
        let answer = rolls.answer(started);
        if arguments.format.json {
            output::print_json(&answer)?;
        } else {
            answer.print()?;
        }
        let all = answer.done == answer.shards.len();
        Ok(if all || arguments.wait.is_zero() { Exit::Done } else { Exit::Found })
    })
}

/// Shards that were asked, and how far they are.
struct Rolls {
    calendars: Calendars,
    shards: Vec<Shard>,
    /// When each was asked by its node's clock; 0 where nobody has ever owned it.
    asked_at: Vec<u64>,
    progress: Vec<Progress>,
}

impl Rolls {
    async fn ask(mut calendars: Calendars, shards: Vec<Shard>) -> anyhow::Result<Rolls> {
        let asked_at = calendars.ask(&shards).await?;
        let progress = calendars.look(&shards).await?;
        Ok(Rolls { calendars, shards, asked_at, progress })
    }

    async fn wait(&mut self, end: Instant) -> anyhow::Result<()> {
        let bar = progress::of_items(self.shards.len() as u64);
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.done() < self.shards.len() && Instant::now() < end {
            looks.tick().await;
            self.progress = self.calendars.look(&self.shards).await?;
            bar.set_position(self.done() as u64);
            self.ask_again().await?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Where a failover took the request back, or the shard has its first owner by now.
    async fn ask_again(&mut self) -> anyhow::Result<()> {
        let forgotten = |at: &usize| self.progress[*at].has_forgotten(self.asked_at[*at]);
        let places: Vec<usize> = (0..self.shards.len()).filter(forgotten).collect();
        let shards: Vec<Shard> = places.iter().map(|at| self.shards[*at]).collect();
        for (at, asked_at) in places.into_iter().zip(self.calendars.ask(&shards).await?) {
            self.asked_at[at] = asked_at;
        }
        Ok(())
    }

    /// A shard that had no owner when it was asked has been rolled by its first one.
    fn is_done(&self, at: usize) -> bool {
        self.progress[at].is_done(self.asked_at[at])
    }

    fn done(&self) -> usize {
        (0..self.shards.len()).filter(|at| self.is_done(*at)).count()
    }

    fn answer(&self, started: Instant) -> Answer {
        let row = |at: usize| Row {
            shard: self.shards[at].0,
            asked_at: Some(self.asked_at[at]).filter(|asked_at| *asked_at > 0),
            done: self.is_done(at),
            rolled: self.progress[at].rolled.map(|date| date.to_string()),
            roll: self.progress[at].roll.as_ref().map(ToString::to_string),
        };
        let took_ms = started.elapsed().as_millis() as u64;
        Answer { shards: (0..self.shards.len()).map(row).collect(), done: self.done(), took_ms }
    }
}

impl Answer {
    fn print(&self) -> std::io::Result<()> {
        let left: Vec<&Row> = self.shards.iter().filter(|row| !row.done).collect();
        if !left.is_empty() {
            let mut table = output::table(&["shard", "rolled", "roll"]);
            for row in left {
                let rolled = row.rolled.clone().unwrap_or_else(|| "-".to_owned());
                let waits = if row.asked_at.is_some() { "asked for" } else { "no worker has ever owned it" };
                table.add_row([row.shard.to_string(), rolled, row.roll.clone().unwrap_or_else(|| waits.to_owned())]);
            }
            output::print_table(&table)?;
        }
        let shards = output::counted(self.shards.len() as u64, "shard");
        output::print(&format!("{} of {shards} rolled in {}\n", self.done, output::age(self.took_ms)))
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = flags::duration(text)?;
    (wait <= WAIT_MAX).then_some(wait).ok_or_else(|| "expected 0s to 24h".to_owned())
}
