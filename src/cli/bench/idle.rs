//! What a worker costs whose shards have nothing to do, and what its servers have to do for it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::drain::heyday::Team;
use super::ground::{Field, Ground};
use super::report::{Chapter, Figure, Table};
use super::servers::{NodeUse, between};
use super::{Plan, tell};

/// After the last shard has its owner, until what comes only once is over.
const SETTLED_AFTER: Duration = Duration::from_secs(6);
/// Several times as long as the longest of a worker's intervals.
const WATCHED_FOR: Duration = Duration::from_secs(20);
const ROUNDS_MAX: usize = 3;
/// Of a core, with as many shards as a layout has by default.
const BUDGET_PERCENT: f64 = 1.0;

pub async fn chapter(ground: &Rc<Ground>, plan: &Plan) -> anyhow::Result<Chapter> {
    let pace = if plan.smoke {
        Pace { settled_after: Duration::from_millis(200), watched_for: Duration::from_secs(1) }
    } else {
        Pace { settled_after: SETTLED_AFTER, watched_for: WATCHED_FOR }
    };
    let mut chapter = Chapter {
        name: "idle".to_owned(),
        title: "Shards with nothing to do".to_owned(),
        method: format!(
            "The servers are watched for {:?} without any worker; then one worker takes all shards of an empty field and, \
             {:?} after it has the last one, both are watched for as long. CPU of the worker by getrusage of its thread, \
             of all six servers by INFO. Memory is by how much this process has grown with the worker.",
            pace.watched_for, pace.settled_after
        ),
        ..Chapter::default()
    };
    let sizes: &[u32] = if plan.smoke { &[16] } else { &[256, 1024] };
    let mut cases = Vec::new();
    for &shards in sizes {
        let field = ground.field(shards).await?;
        let mut looks = Vec::new();
        for round in 0..plan.rounds.min(ROUNDS_MAX) {
            tell(round, &format!("{shards} idle shards"));
            looks.push(look(ground, &field, shards, pace).await?);
        }
        ground.clear(field).await?;
        cases.push((shards, looks));
    }
    chapter.tables.push(table(&cases));
    chapter.tables.push(commands(&cases));
    Ok(chapter)
}

#[derive(Clone, Copy)]
struct Pace {
    settled_after: Duration,
    watched_for: Duration,
}

/// What was seen in one stretch of time, by the second.
#[derive(Clone, Debug, Default)]
struct Seen {
    worker_cpu: f64,
    wakeups: f64,
    servers_cpu: f64,
    connections: f64,
    calls: BTreeMap<String, f64>,
}

/// One round.
#[derive(Clone, Debug, Default)]
struct Look {
    alone: Seen,
    with: Seen,
    /// Of the process, by how much it grew.
    bytes: f64,
}

async fn look(ground: &Ground, field: &Field, shards: u32, pace: Pace) -> anyhow::Result<Look> {
    let alone = watch(ground, None, pace).await?;
    let before = resident_bytes();
    let team = Team::with_options(ground, field, 1, |_| {})?;
    team.ready(shards).await?;
    sleep(pace.settled_after).await;
    let bytes = resident_bytes() - before;
    let with = watch(ground, Some(&team), pace).await?;
    team.stop().await?;
    Ok(Look { alone, with, bytes })
}

async fn watch(ground: &Ground, team: Option<&Team>, pace: Pace) -> anyhow::Result<Seen> {
    let (begun, servers, own) = (Instant::now(), ground.look().await?, used(team).await?);
    sleep(pace.watched_for).await;
    let (now, servers) = (used(team).await?, between(&servers, &ground.look().await?));
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Seen {
        worker_cpu: (now.0 - own.0).as_secs_f64() / seconds,
        wakeups: (now.1 - own.1) as f64 / seconds,
        ..by_the_second(&servers, seconds)
    })
}

fn by_the_second(servers: &[NodeUse], seconds: f64) -> Seen {
    let mut seen = Seen::default();
    for node in servers {
        seen.servers_cpu += node.cpu_seconds / seconds;
        seen.connections += node.connections;
        // What a replica is told to do is the same once more.
        for (command, calls) in node.calls.iter().filter(|_| node.primary) {
            *seen.calls.entry(command.clone()).or_default() += calls / seconds;
        }
    }
    seen
}

async fn used(team: Option<&Team>) -> anyhow::Result<(Duration, u64)> {
    match team {
        Some(team) => Ok((team.cpu().await?, team.wakeups().await?)),
        None => Ok((Duration::ZERO, 0)),
    }
}

/// Of this process; zero where nobody can tell.
fn resident_bytes() -> f64 {
    const PAGE_BYTES: f64 = 4096.0;
    let pages = std::fs::read_to_string("/proc/self/statm");
    let pages = pages.ok().and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    pages.unwrap_or_default() * PAGE_BYTES
}

type Cases = [(u32, Vec<Look>)];

fn table(cases: &Cases) -> Table {
    let headings = [
        "shards",
        "worker CPU, % of a core",
        "wakeups/s",
        "servers' CPU, %",
        "of it without a worker, %",
        "commands/s",
        "connections",
        "process KiB/shard",
    ];
    let mut table = Table::new("One worker with nothing to do, and six servers", &headings);
    let commands = |seen: &Seen| seen.calls.values().sum::<f64>();
    for (shards, looks) in cases {
        let of = |what: &dyn Fn(&Look) -> f64| Figure::of(looks.iter().map(what));
        let figures = [
            of(&|look| 100.0 * look.with.worker_cpu),
            of(&|look| look.with.wakeups),
            of(&|look| 100.0 * look.with.servers_cpu),
            of(&|look| 100.0 * look.alone.servers_cpu),
            of(&|look| commands(&look.with) - commands(&look.alone)),
            of(&|look| look.with.connections - look.alone.connections),
            of(&|look| look.bytes / 1024.0 / f64::from(*shards)),
        ];
        table.row(shards.to_string(), figures);
    }
    table.notes.push(format!("A worker with 256 idle shards must stay under {BUDGET_PERCENT} % of a core."));
    table.notes.push("Memory of the first round is that of a process that has not held so much before.".to_owned());
    table
}

/// What the servers are asked, over what they are asked without a worker.
fn commands(cases: &Cases) -> Table {
    let headings: Vec<String> = std::iter::once("command".to_owned())
        .chain(cases.iter().map(|(shards, _)| format!("calls/s, {shards} shards")))
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new("What the primaries are asked", &headings);
    let named = cases.iter().flat_map(|(_, looks)| looks).flat_map(|look| look.with.calls.keys());
    let names: std::collections::BTreeSet<&String> = named.collect();
    for name in names {
        let calls = |seen: &Seen| seen.calls.get(name).copied().unwrap_or_default();
        let more = |look: &Look| calls(&look.with) - calls(&look.alone);
        let figures: Vec<Figure> = cases.iter().map(|(_, looks)| Figure::of(looks.iter().map(more))).collect();
        if figures.iter().any(|figure| figure.median.is_some_and(|calls| calls >= 0.5)) {
            table.row(name.clone(), figures);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_that_a_worker_adds() {
        let seen = |calls: &[(&str, f64)]| Seen {
            calls: calls.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect(),
            ..Seen::default()
        };
        let look = Look {
            alone: seen(&[("ping", 3.0), ("info", 1.0)]),
            with: seen(&[("ping", 3.1), ("info", 1.0), ("xreadgroup", 130.0)]),
            bytes: 0.0,
        };
        let table = commands(&[(256, vec![look])]);
        assert_eq!(table.rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["xreadgroup"]);
        assert_eq!(table.rows[0].figures[0].median, Some(130.0));
    }

    #[test]
    fn counters_of_all_servers_are_added_up() {
        let node = |cpu_seconds, calls| NodeUse {
            cpu_seconds,
            primary: true,
            connections: 5.0,
            calls: BTreeMap::from([("get".to_owned(), calls)]),
            ..NodeUse::default()
        };
        let seen = by_the_second(&[node(1.0, 10.0), node(0.5, 30.0)], 2.0);
        assert_eq!((seen.servers_cpu, seen.connections, seen.calls["get"]), (0.75, 10.0, 20.0));
    }
}
