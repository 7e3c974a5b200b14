//! What is measured of a data set once it is there: memory, a roll, reads, and changes on top of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::super::drain::heyday::Team;
use super::super::ground::{Field, Ground};
use super::super::quantile::quantile;
use super::super::rounds::Sample;
use super::super::servers::between;
use super::super::workload::{birthday, id};
use super::super::{Plan, tell};
use super::fill::{DataSet, Streams, restless, sampled};
use super::memory::{self, Kind};
use crate::birthday::Birthday;
use crate::change::{Action, Change, UserId};
use crate::client::reader;
use crate::redis::Pipes;
use crate::redis::inspect::{Check, Options};
use crate::redis::roll::Calendars;
use crate::shard::Shard;

/// How long a roll may take.
const ROLL_MAX: Duration = Duration::from_secs(600);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Users whose friends are compared with what was loaded, and shards that are checked as `heyday check` does.
const PROVEN_USERS: u64 = 1000;
const CHECKED_SHARDS: usize = 8;

/// Everything about one size.
pub struct Point {
    pub friendships: u64,
    pub users: u64,
    /// Until it was loaded, applied, trimmed and replicated.
    pub loaded_in: Duration,
    /// Of the bare hashes alone.
    pub bare_bytes: f64,
    pub bytes: f64,
    pub kinds: Vec<Kind>,
    /// All shards, every user.
    pub roll: Sample,
    pub read_median: Duration,
    pub read_p99: Duration,
    pub drains: Vec<Sample>,
    /// Why there are fewer of them than rounds.
    pub trouble: Option<String>,
}

/// Where it is measured.
pub struct Site<'a> {
    pub ground: &'a Ground,
    pub plan: &'a Plan,
    pub set: DataSet,
    pub shards: u32,
}

impl Site<'_> {
    pub async fn point(&self, friendships: u64) -> anyhow::Result<Point> {
        let (ground, users) = (self.ground, friendships / self.set.friends);
        tell(0, &format!("{friendships} friendships, bare"));
        let bare_bytes = self.bare(users).await?;
        let before = ground.data_bytes().await?;
        let field = ground.field(self.shards).await?;
        tell(0, &format!("{friendships} friendships, loaded"));
        let begun = Instant::now();
        self.fill(&field, users).await?;
        let loaded_in = begun.elapsed();
        self.set.prove(&field, users, PROVEN_USERS).await?;
        let bytes = ground.data_bytes().await? - before;
        let kinds = memory::kinds(ground, &field, users).await?;
        let smoke = self.plan.smoke;
        let team = Team::with_options(ground, &field, 1, |options| {
            if smoke {
                restless(options)
            }
        })?;
        team.ready(self.shards).await?;
        tell(0, &format!("{friendships} friendships, rolled"));
        let roll = self.roll(&field, &team, users).await?;
        self.check(&field).await?;
        let (read_median, read_p99) = self.read(&field, users).await?;
        let mut drains = Vec::new();
        let trouble = self.drains(&field, &team, users, &mut drains).await.err();
        let trouble = trouble.map(|error| format!("changes on {friendships} friendships: {error:#}"));
        team.stop().await?;
        self.set.prove(&field, users, PROVEN_USERS).await?;
        ground.clear(field).await?;
        let point = Point {
            friendships,
            users,
            loaded_in,
            bare_bytes,
            bytes,
            kinds,
            roll,
            read_median,
            read_p99,
            drains,
            trouble,
        };
        Ok(point)
    }

    async fn bare(&self, users: u64) -> anyhow::Result<f64> {
        let before = self.ground.data_bytes().await?;
        let field = self.ground.field(self.shards).await?;
        self.set.load_bare(self.ground, &field, 0..users).await?;
        let bytes = self.ground.data_bytes().await? - before;
        self.ground.clear(field).await?;
        Ok(bytes)
    }

    async fn fill(&self, field: &Field, users: u64) -> anyhow::Result<()> {
        let team = Team::with_options(self.ground, field, 2, restless)?;
        team.ready(self.shards).await?;
        self.set.load(self.ground, field, 0..users).await?;
        team.stop().await
    }

    /// As `heyday roll --all`.
    async fn roll(&self, field: &Field, team: &Team, users: u64) -> anyhow::Result<Sample> {
        let hub = &field.hub;
        let shards: Vec<Shard> = hub.layout().shards().collect();
        let pipes = Arc::new(Pipes::new(hub.topology().options().clone()));
        let ways = ((hub.topology().clone(), pipes), (hub.keys().clone(), hub.layout().clone()));
        let mut calendars = Calendars::new(ways.0, ways.1);
        let (cpu, servers, begun) = (team.cpu().await?, self.ground.look().await?, Instant::now());
        let asked_at = calendars.ask(&shards).await?;
        loop {
            let progress = calendars.look(&shards).await?;
            if progress.iter().zip(&asked_at).all(|(progress, asked_at)| progress.is_done(*asked_at)) {
                break;
            }
            ensure!(begun.elapsed() < ROLL_MAX, "the roll does not end");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let worker_cpu_seconds = (team.cpu().await? - cpu).as_secs_f64();
        let servers = between(&servers, &self.ground.look().await?);
        Ok(Sample { changes: users as f64, seconds, worker_cpu_seconds, servers, progress: Vec::new() })
    }

    /// What `heyday check` finds in some of the shards must be nothing.
    async fn check(&self, field: &Field) -> anyhow::Result<()> {
        let hub = &field.hub;
        let shards: Vec<Shard> = hub.layout().shards().collect();
        let some: Vec<Shard> = shards.iter().copied().step_by(shards.len().div_ceil(CHECKED_SHARDS)).collect();
        let pipes = Arc::new(Pipes::new(hub.topology().options().clone()));
        let (ways, names) = ((hub.topology().clone(), pipes), (hub.keys().clone(), hub.layout().clone()));
        let mut check =
            Check::new(ways, names, self.ground.config.rules(), Options { share: 1.0, ..Options::default() });
        check.run(&some).await?;
        let violations = check.findings.violations.count();
        ensure!(violations == 0, "{violations} violations, the first: {:?}", check.findings.violations.list.first());
        Ok(())
    }

    /// One after the other, of users all over.
    async fn read(&self, field: &Field, users: u64) -> anyhow::Result<(Duration, Duration)> {
        let reader = field.hub.reader(reader::Options::default());
        let count = if self.plan.smoke { 100 } else { 5000 };
        let mut random = SmallRng::seed_from_u64(self.set.seed);
        let mut times = Vec::new();
        for _ in 0..count {
            let user = id(random.random_range(0..users));
            let begun = Instant::now();
            let view = reader.read(&user).await?;
            times.push(begun.elapsed());
            ensure!(view.friends.len() as u64 >= self.set.friends, "{user} has only {} friends", view.friends.len());
        }
        Ok((quantile(&mut times, 0.5), quantile(&mut times, 0.99)))
    }

    /// Each user who changes has one friend more, whose date is told again and again: so nothing grows from round to round.
    async fn drains(&self, field: &Field, team: &Team, users: u64, samples: &mut Vec<Sample>) -> anyhow::Result<()> {
        let plan = self.plan;
        let changing: Vec<UserId> = sampled(users.max(plan.users.into()), plan.users.into()).map(id).collect();
        let mut random = SmallRng::seed_from_u64(self.set.seed);
        let added = changing.iter().map(|user| add(user, birthday(&mut random)));
        let added = field.append(&added.collect::<Vec<_>>()).await?;
        Streams::of(field).until_applied(&added).await?;
        for round in 0..plan.rounds {
            tell(round, &format!("changes on {users} users"));
            let held = team.paused(field, self.shards).await?;
            let changes = (0..plan.changes).map(|at| update(&changing[at % changing.len()], birthday(&mut random)));
            field.append(&changes.collect::<Vec<_>>()).await?;
            self.ground.settled().await?;
            samples.push(team.drain(self.ground, held, plan.changes as u64).await?);
        }
        Ok(())
    }
}

/// Before all friends of the data set.
fn more() -> UserId {
    id(u64::from(u32::MAX))
}

fn add(user: &UserId, birthday: Birthday) -> Change {
    Change::new(user.clone(), Action::Add { friend: more(), birthday: Some(birthday), mutual: false })
}

fn update(user: &UserId, birthday: Birthday) -> Change {
    Change::new(user.clone(), Action::Update { friend: more(), birthday })
}
