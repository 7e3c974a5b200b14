//! How fast views are read, and at what cost, beside a bare HGETALL of the same hash over two kinds of connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fred::interfaces::HashesInterface;
use fred::types::Value;
use tokio::time::Instant;

use super::drain::heyday::Team;
use super::ground::Ground;
use super::growth::{DataSet, restless};
use super::lane::Lane;
use super::quantile::quantile;
use super::report::{Chapter, Figure, Table};
use super::rounds::{Contestant, Outcome, Sample, Turn, interleave};
use super::servers::between;
use super::workload::id;
use super::{Plan, tell};
use crate::change::UserId;
use crate::client::{self, Hub, Near, Reader, near, reader};
use crate::redis::{Nodes, Pipeline, Pipes};
use crate::task;

/// Reads under way at the same time.
const CALLERS: usize = 64;
const FRIENDS: u64 = 50;
const SHARDS: u32 = 16;
/// How long a reply of the other client library is waited for.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long a near cache may take to be sure of all shards.
const PATIENCE: Duration = Duration::from_secs(15);
/// A hit waits for nothing: every so often the thread goes on with what else there is to do on it.
const HITS_TOGETHER: usize = 64;

pub async fn chapter(ground: &Rc<Ground>, plan: &Plan) -> anyhow::Result<Chapter> {
    let mut chapter = Chapter {
        name: "readers".to_owned(),
        title: "Reads".to_owned(),
        method: format!(
            "One thread reads users with {FRIENDS} friends each, {CALLERS} at a time, for a while; then one at a time, each timed by \
             itself. A near cache has read all of them before. CPU of the reader by getrusage of its thread, of the servers \
             by INFO. The last two only ask for the hash of friends, and leave it as it came: no profile, no position, no order, no days to go."
        ),
        ..Chapter::default()
    };
    let field = ground.field(SHARDS).await?;
    let team = Team::with_options(ground, &field, 1, restless)?;
    team.ready(SHARDS).await?;
    let users = if plan.smoke { 64 } else { 5000 };
    DataSet { seed: ground.seed, friends: FRIENDS }.load(ground, &field, 0..users).await?;
    team.stop().await?;
    let users: Arc<[UserId]> = (0..users).map(id).collect();
    let time = if plan.smoke { Duration::from_millis(100) } else { Duration::from_secs(2) };
    let (mut contestants, mut found): (Vec<Box<dyn Contestant>>, Vec<Found>) = (Vec::new(), Vec::new());
    for way in Way::ALL {
        let seen = Found::default();
        found.push(seen.clone());
        let (ground, prefix) = (ground.clone(), field.hub.keys().prefix().to_owned());
        contestants.push(Box::new(Racer { ground, prefix, way, users: users.clone(), time, found: seen }));
    }
    let outcomes = interleave(plan.rounds, &mut contestants, tell).await;
    ground.clear(field).await?;
    chapter.failed("reads", &outcomes);
    chapter.tables.push(table(&outcomes, &found));
    Ok(chapter)
}

/// How to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    NearRead,
    NearProfile,
    Read,
    Profile,
    Pipe,
    Fred,
}

impl Way {
    const ALL: [Way; 6] = [Way::NearRead, Way::NearProfile, Way::Read, Way::Profile, Way::Pipe, Way::Fred];

    fn name(self) -> &'static str {
        match self {
            Way::NearRead => "Near::read, kept",
            Way::NearProfile => "Near::profile, kept",
            Way::Read => "Reader::read",
            Way::Profile => "Reader::profile",
            Way::Pipe => "HGETALL, heyday's connection",
            Way::Fred => "HGETALL, fred",
        }
    }
}

/// What does not fit into a sample, round by round.
#[derive(Clone, Default)]
struct Found(Rc<RefCell<Vec<Single>>>);

#[derive(Clone, Copy, Default)]
struct Single {
    round_trips: f64,
    median: Duration,
    p99: Duration,
}

struct Racer {
    ground: Rc<Ground>,
    prefix: String,
    way: Way,
    users: Arc<[UserId]>,
    time: Duration,
    found: Found,
}

impl Contestant for Racer {
    fn name(&self) -> String {
        self.way.name().to_owned()
    }

    fn turn(&mut self, _: usize) -> Turn<'_> {
        Box::pin(async move {
            let lane = Lane::start("bench reader")?;
            let (options, prefix, way) = (self.ground.options.clone(), self.prefix.clone(), self.way);
            let users = self.users.clone();
            let opened = lane.run(async move {
                let hub = client::connect(options, &prefix).await?;
                Subject::open(way, hub, users).await
            });
            let subject = Arc::new(opened.await??);
            let (trips, cpu, servers) = (subject.round_trips(), lane.cpu().await?, self.ground.look().await?);
            let (reads, took) = lane.run(subject.clone().all_at_once(self.time)).await??;
            let cpu = lane.cpu().await? - cpu;
            let servers = between(&servers, &self.ground.look().await?);
            let round_trips =
                subject.round_trips().zip(trips).map_or(1.0, |(after, before)| (after - before) as f64 / reads as f64);
            let mut times = lane.run(subject.one_by_one(self.time / 2)).await??;
            let (median, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
            self.found.0.borrow_mut().push(Single { round_trips, median, p99 });
            Ok(Sample {
                changes: reads as f64,
                seconds: took.as_secs_f64(),
                worker_cpu_seconds: cpu.as_secs_f64(),
                servers,
                progress: Vec::new(),
            })
        })
    }
}

/// Who reads, connected and warm.
struct Subject {
    reads: Reads,
    users: Arc<[UserId]>,
    next: AtomicUsize,
}

enum Reads {
    NearRead(Near),
    NearProfile(Near),
    Read(Reader),
    Profile(Reader),
    Pipe(Hub, Pipes),
    Fred(Hub, Nodes),
}

impl Subject {
    async fn open(way: Way, hub: Hub, users: Arc<[UserId]>) -> anyhow::Result<Subject> {
        let topology = hub.topology().clone();
        let reads = match way {
            Way::NearRead => Reads::NearRead(sure(&hub).await?),
            Way::NearProfile => Reads::NearProfile(sure(&hub).await?),
            Way::Read => Reads::Read(hub.reader(reader::Options::default())),
            Way::Profile => Reads::Profile(hub.reader(reader::Options::default())),
            Way::Pipe => Reads::Pipe(hub, Pipes::new(topology.options().clone())),
            Way::Fred => Reads::Fred(hub, Nodes::new(topology)),
        };
        let subject = Subject { reads, users, next: AtomicUsize::new(0) };
        for user in subject.users.iter() {
            let friends = subject.read(user).await?;
            ensure!(friends.is_none_or(|friends| friends as u64 == FRIENDS), "{user} has {friends:?} friends");
        }
        Ok(subject)
    }

    /// How many friends were read, where friends were asked for.
    async fn read(&self, user: &UserId) -> anyhow::Result<Option<usize>> {
        Ok(match &self.reads {
            Reads::NearRead(near) => Some(near.read(user).await?.friends.len()),
            Reads::NearProfile(near) => {
                near.profile(user).await?;
                None
            }
            Reads::Read(reader) => Some(reader.read(user).await?.friends.len()),
            Reads::Profile(reader) => {
                reader.profile(user).await?;
                None
            }
            Reads::Pipe(hub, pipes) => {
                let (keys, mut pipeline) = (hub.keys_of(user), Pipeline::new());
                pipeline.command("HGETALL").arg_parts(&keys.birthdays_parts(user));
                let node = hub.topology().node_of(keys.slot)?;
                let replies = pipes.get(&node.address).await?.submit(pipeline).await?;
                Some(replies.first().context("an answer")?.as_pairs()?.count())
            }
            Reads::Fred(hub, nodes) => {
                let keys = hub.keys_of(user);
                let key = keys.birthdays(user);
                let answer = nodes.read(keys.slot, DEADLINE, |client| {
                    let key = key.as_str().to_owned();
                    async move { client.hgetall::<Value, _>(key).await }
                });
                Some(match answer.await? {
                    Value::Map(friends) => friends.len(),
                    Value::Array(friends) => friends.len() / 2,
                    other => anyhow::bail!("an answer to HGETALL that is no map: {other:?}"),
                })
            }
        })
    }

    fn is_near(&self) -> bool {
        matches!(self.reads, Reads::NearRead(_) | Reads::NearProfile(_))
    }

    /// None where nobody counts them.
    fn round_trips(&self) -> Option<u64> {
        match &self.reads {
            Reads::NearRead(near) | Reads::NearProfile(near) => Some(near.round_trips()),
            Reads::Read(reader) | Reads::Profile(reader) => Some(reader.round_trips()),
            Reads::Pipe(..) | Reads::Fred(..) => None,
        }
    }

    fn next(&self) -> &UserId {
        &self.users[self.next.fetch_add(1, Ordering::Relaxed) % self.users.len()]
    }

    /// Reads of all callers, and how long they took.
    async fn all_at_once(self: Arc<Self>, time: Duration) -> anyhow::Result<(usize, Duration)> {
        let begun = Instant::now();
        let callers: Vec<_> =
            (0..CALLERS).map(|_| task::spawn("bench reader", self.clone().until(begun + time))).collect();
        let mut reads = 0;
        for caller in callers {
            reads += caller.await??;
        }
        Ok((reads, begun.elapsed()))
    }

    async fn until(self: Arc<Self>, end: Instant) -> anyhow::Result<usize> {
        let together = if self.is_near() { HITS_TOGETHER } else { 1 };
        let mut reads = 0;
        while Instant::now() < end {
            for _ in 0..together {
                self.read(self.next()).await?;
            }
            reads += together;
            if together > 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(reads)
    }

    /// What each took.
    async fn one_by_one(self: Arc<Self>, time: Duration) -> anyhow::Result<Vec<Duration>> {
        let (begun, mut times) = (Instant::now(), Vec::new());
        while begun.elapsed() < time {
            let started = Instant::now();
            self.read(self.next()).await?;
            times.push(started.elapsed());
            if self.is_near() && times.len() % HITS_TOGETHER == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(times)
    }
}

/// A near cache that is sure of all shards.
async fn sure(hub: &Hub) -> anyhow::Result<Near> {
    let near = hub.near(near::Options::default()).await?;
    let begun = Instant::now();
    while !hub.layout().shards().all(|shard| near.is_sure(shard)) {
        ensure!(begun.elapsed() < PATIENCE, "the near cache is not sure of all shards");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(near)
}

fn table(outcomes: &[Outcome], found: &[Found]) -> Table {
    let headings = [
        "read",
        "reads/s",
        "client CPU us/read",
        "reads/s of a whole core",
        "server CPU us/read",
        "round trips/read",
        "bytes/read",
        "p50 us, one at a time",
        "p99 us, one at a time",
    ];
    let mut table = Table::new(&format!("Reads of users with {FRIENDS} friends, {CALLERS} at a time"), &headings);
    for (outcome, found) in outcomes.iter().zip(found) {
        let singles = found.0.borrow();
        let of = |what: fn(&Sample) -> f64| Figure::of(outcome.samples.iter().map(what));
        let each = |what: fn(&Single) -> f64| Figure::of(singles.iter().map(what));
        let figures = [
            of(Sample::rate),
            of(Sample::worker_cpu),
            of(|sample| 1e6 / sample.worker_cpu()),
            of(Sample::server_cpu),
            each(|single| single.round_trips),
            of(Sample::wire_bytes),
            each(|single| single.median.as_secs_f64() * 1e6),
            each(|single| single.p99.as_secs_f64() * 1e6),
        ];
        table.row(outcome.name.clone(), figures);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names_of_their_own() {
        let names: std::collections::BTreeSet<&str> = Way::ALL.into_iter().map(Way::name).collect();
        assert_eq!(names.len(), Way::ALL.len());
    }
}
