//! `heyday status`: what waits where, who works, and since when.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::cluster::{Cluster, block_on};
use super::maintenance::Maintenance;
use super::output::{self, Format};
use super::signals::Signals;
use super::{Context, Exit};
use crate::redis::{Inspector, ShardStatus, Status, WorkerStatus};
use crate::shard::{Layout, Shard};

/// How long nodes may take to answer. One that is down costs no more than this.
const DEADLINE: Duration = Duration::from_secs(3);
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Show each shard and worker: what waits, since when, who owns it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday status\n  heyday status --json | jq .totals.unread\n\n\
    Shows shards with changes that wait, with dead letters, without owner or without answer; --all shows the \
    others too. UNREAD and PENDING changes wait to be applied, the OLDEST of them for that long. UNREAD is an estimate \
    where the server can only estimate; 0 is exact. Figures of a node that does not answer are missing (-), \
    and the exit code is 69.")]
pub struct Arguments {
    /// Only these shards, with how far each has come
    #[arg(long, value_name = "NUMBER")]
    shard: Vec<u32>,
    /// Every shard, also those that are owned and have nothing waiting
    #[arg(long)]
    all: bool,
    /// Show it anew every second, until interrupted
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    shards: Vec<ShardRow>,
    /// Null where the node that knows them does not answer.
    workers: Option<Vec<WorkerRow>>,
    /// The same.
    maintenance: Option<Maintenance>,
    totals: Totals,
}

#[derive(Serialize)]
struct ShardRow {
    shard: u16,
    tag: String,
    node: Option<String>,
    owner: Option<String>,
    /// For how long.
    owned_ms: Option<u64>,
    /// From one worker to another.
    moves: Option<u64>,
    generation: Option<u64>,
    unread: Option<u64>,
    pending: Option<u64>,
    oldest_ms: Option<u64>,
    dead: Option<u64>,
    applied: Option<String>,
    last: Option<String>,
    /// The last day that holds everybody who celebrates.
    rolled: Option<String>,
    /// The roll under way: its days, and how far it has come.
    roll: Option<String>,
    /// Whether another one is asked for.
    roll_asked: Option<bool>,
}

#[derive(Serialize)]
struct WorkerRow {
    worker: String,
    heartbeat_ms: u64,
    shards: usize,
    /// All its shards, for maintenance.
    paused: bool,
}

/// Sums over the shards whose node answered.
#[derive(Serialize, Default)]
struct Totals {
    shards: usize,
    owned: usize,
    /// Shards whose node did not answer.
    silent: usize,
    unread: u64,
    pending: u64,
    oldest_ms: Option<u64>,
    dead: u64,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    if !arguments.watch {
        return block_on(show(&arguments, context));
    }
    block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            biased;
            () = signals.next() => Ok(Exit::Done),
            shown = show(&arguments, context) => shown,
        }
    })
}

/// Once, or again and again for as long as somebody watches.
async fn show(arguments: &Arguments, context: &Context) -> anyhow::Result<Exit> {
    let cluster = Cluster::open(context).await?;
    let shards = shards(&arguments.shard, &cluster.layout)?;
    let detailed = arguments.all || !arguments.shard.is_empty();
    let pipes = cluster.pipes();
    let inspector = Inspector::new(cluster.topology, pipes, cluster.keys, cluster.layout.clone());
    let mut rounds = interval(REFRESH_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let status = inspector.look(&shards, DEADLINE).await;
        let answer = Answer::new(&cluster.layout, &status);
        if arguments.watch && output::is_terminal() && !arguments.format.json {
            clear_screen()?;
        }
        if arguments.format.json {
            output::print_json(&answer)?;
        } else {
            print(&answer, detailed)?;
        }
        status.troubles.iter().for_each(|trouble| eprintln!("heyday: {trouble}"));
        if !arguments.watch {
            return Ok(if status.troubles.is_empty() { Exit::Done } else { Exit::Unavailable });
        }
    }
}

/// These shards, or all of them.
pub fn shards(numbers: &[u32], layout: &Layout) -> Result<Vec<Shard>, crate::shard::Error> {
    if numbers.is_empty() {
        return Ok(layout.shards().collect());
    }
    numbers.iter().map(|number| layout.shard(*number)).collect()
}

impl Answer {
    fn new(layout: &Layout, status: &Status) -> Answer {
        let shards: Vec<ShardRow> = status.shards.iter().map(|shard| ShardRow::new(layout, shard)).collect();
        let owned = |worker: &str| shards.iter().filter(|row| row.owner.as_deref() == Some(worker)).count();
        let row = |worker: &WorkerStatus| WorkerRow {
            worker: worker.worker.clone(),
            heartbeat_ms: milliseconds(worker.heartbeat_age),
            shards: owned(&worker.worker),
            paused: status.maintenance.as_ref().is_some_and(|found| found.paused.contains(&worker.worker)),
        };
        let workers = status.workers.as_ref().map(|workers| workers.iter().map(row).collect());
        let maintenance = status.maintenance.as_ref().map(|found| Maintenance::new(found.lock.as_ref()));
        Answer { totals: Totals::of(&shards), workers, maintenance, shards }
    }
}

impl ShardRow {
    /// Owned, and with nothing waiting or set aside: most shards most of the time.
    fn is_quiet(&self) -> bool {
        self.owner.is_some() && [self.unread, self.pending, self.dead] == [Some(0); 3]
    }

    fn new(layout: &Layout, status: &ShardStatus) -> ShardRow {
        let figures = status.figures.as_ref();
        let backlog = figures.map(|figures| figures.backlog);
        let calendar = figures.map(|figures| &figures.calendar);
        ShardRow {
            shard: status.shard.0,
            tag: layout.tag(status.shard).to_owned(),
            node: status.node.as_ref().map(ToString::to_string),
            owner: figures.and_then(|figures| figures.owner.clone()),
            owned_ms: figures.and_then(|figures| figures.owned_for).map(milliseconds),
            moves: figures.map(|figures| figures.moves),
            generation: figures.map(|figures| figures.generation),
            unread: backlog.map(|backlog| backlog.unread),
            pending: backlog.map(|backlog| backlog.pending),
            oldest_ms: backlog.and_then(|backlog| backlog.oldest_milliseconds),
            dead: backlog.map(|backlog| backlog.dead_letters),
            applied: figures.map(|figures| figures.applied.to_string()),
            last: figures.map(|figures| figures.last.to_string()),
            rolled: calendar.and_then(|calendar| calendar.rolled).map(|date| date.to_string()),
            roll: calendar.and_then(|calendar| calendar.roll.as_ref()).map(ToString::to_string),
            roll_asked: calendar.map(|calendar| calendar.asked_at.is_some()),
        }
    }
}

impl Totals {
    fn of(shards: &[ShardRow]) -> Totals {
        let sum = |field: fn(&ShardRow) -> Option<u64>| shards.iter().filter_map(field).sum();
        Totals {
            shards: shards.len(),
            owned: shards.iter().filter(|row| row.owner.is_some()).count(),
            silent: shards.iter().filter(|row| row.generation.is_none()).count(),
            unread: sum(|row| row.unread),
            pending: sum(|row| row.pending),
            oldest_ms: shards.iter().filter_map(|row| row.oldest_ms).max(),
            dead: sum(|row| row.dead),
        }
    }
}

fn print(answer: &Answer, detailed: bool) -> std::io::Result<()> {
    let shown: Vec<&ShardRow> = answer.shards.iter().filter(|row| detailed || !row.is_quiet()).collect();
    if !shown.is_empty() {
        print_shards(&shown, detailed)?;
        output::print("\n")?;
    }
    print_workers(answer.workers.as_deref())?;
    if let Some(maintenance) = answer.maintenance.as_ref().filter(|maintenance| maintenance.is_on()) {
        output::print(&format!("{}\n", maintenance.sentence()))?;
    }
    let quiet = answer.shards.len() - shown.len();
    if quiet > 0 {
        output::print(&format!("{} not shown (--all)\n", output::counted(quiet as u64, "quiet shard")))?;
    }
    let Totals { shards, owned, silent, unread, pending, oldest_ms, dead } = &answer.totals;
    let silent = if *silent > 0 { format!(", {silent} do not answer") } else { String::new() };
    let oldest = oldest_ms.map_or(String::new(), |oldest| format!(", the oldest for {}", output::age(oldest)));
    output::print(&format!(
        "{}, {owned} owned{silent}; {unread} unread, {pending} pending{oldest}; {}\n",
        output::counted(*shards as u64, "shard"),
        output::counted(*dead, "dead letter")
    ))
}

/// Tag and positions are for whoever looks closely: with them a line is wider than most terminals.
fn print_shards(rows: &[&ShardRow], detailed: bool) -> std::io::Result<()> {
    let headings = ["shard", "node", "owner", "unread", "pending", "oldest", "dead"];
    let details: &[&str] =
        if detailed { &["since", "moves", "rolled", "tag", "generation", "applied", "last"] } else { &[] };
    let mut table = output::table(&[&headings, details].concat());
    for row in rows {
        let mut cells = vec![
            row.shard.to_string(),
            shown(row.node.as_ref()),
            shown(row.owner.as_ref()),
            shown(row.unread),
            shown(row.pending),
            shown(row.oldest_ms.map(output::age)),
            shown(row.dead),
        ];
        if detailed {
            let positions = [shown(row.generation), shown(row.applied.as_ref()), shown(row.last.as_ref())];
            let since = row.owned_ms.map(|owned| format!("{} ago", output::age(owned)));
            let rolled = row.roll.as_ref().map(|roll| format!("rolling {roll}")).or(row.rolled.clone());
            cells.extend([shown(since), shown(row.moves), shown(rolled), row.tag.clone()].into_iter().chain(positions));
        }
        table.add_row(cells);
    }
    output::right(&mut table, &[0, 3, 4, 5, 6]);
    output::unwrapped(&mut table);
    output::print_table(&table)
}

fn print_workers(workers: Option<&[WorkerRow]>) -> std::io::Result<()> {
    let Some(workers) = workers else {
        return output::print("workers: unknown\n\n");
    };
    if workers.is_empty() {
        return output::print("no workers\n\n");
    }
    let mut table = output::table(&["worker", "heartbeat", "shards"]);
    for row in workers {
        table.add_row([row.worker.clone(), format!("{} ago", output::age(row.heartbeat_ms)), row.shards.to_string()]);
    }
    output::right(&mut table, &[1, 2]);
    output::print_table(&table)?;
    output::print("\n")
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn clear_screen() -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(b"\x1b[H\x1b[2J")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{CommitId, EntryId};
    use crate::redis::ShardFigures;
    use crate::redis::maintenance::Found;
    use crate::redis::roll::Progress;
    use crate::store::Backlog;

    #[test]
    fn answer_is_public_and_keeps_its_shape() {
        let layout = Layout::new(2).unwrap();
        let figures = ShardFigures {
            owner: Some("left-1-0".to_owned()),
            owned_for: Some(Duration::from_millis(65_000)),
            moves: 4,
            generation: 1_700_000_000_000,
            last: CommitId::new(1_700_000_000_000, 7),
            applied: EntryId::new(1_700_000_000_005, 2),
            calendar: Progress {
                rolled: Some(jiff::civil::date(2026, 12, 7)),
                roll: "2026-12-08 2026-12-08 42".parse().ok(),
                ..Progress::default()
            },
            backlog: Backlog {
                unread: 3,
                pending: 2,
                oldest_milliseconds: Some(40),
                dead_letters: 1,
                ..Backlog::default()
            },
        };
        let node = Some("127.0.0.1:7000".parse().unwrap());
        let status = Status {
            shards: vec![
                ShardStatus { shard: Shard(0), node: node.clone(), figures: Some(figures) },
                ShardStatus { shard: Shard(1), node, figures: None },
            ],
            workers: Some(vec![WorkerStatus {
                worker: "left-1-0".to_owned(),
                heartbeat_age: Duration::from_millis(12),
            }]),
            maintenance: Some(Found { lock: None, paused: ["left-1-0".to_owned()].into() }),
            troubles: Vec::new(),
        };
        insta::assert_json_snapshot!(Answer::new(&layout, &status));
    }
}
