//! Two ways from an appended change to somebody who hears of it, each with the generator, the subscriber and the reader on one
//! thread and what lies between on another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::Instant;

use super::super::drain::heyday::Team;
use super::super::drain::prove;
use super::super::ground::{Field, Ground};
use super::super::lane::Lane;
use super::super::pace::{Pace, Ticker};
use super::super::servers::between;
use super::super::workload::numbered;
use super::board::{Board, Busy, Recording, Turn};
use super::{floor, listen};
use crate::change::Change;
use crate::redis::{NodeAddress, Pipe, Pipeline};
use crate::task;

/// Shards of a field, as in the first chapter.
pub const SHARDS: u32 = 16;
/// Reads a second beside the changes, so that they are not what is measured.
const READS_PER_SECOND: f64 = 200.0;

/// One way, ready to be measured any number of times.
pub struct Rig {
    field: Field,
    seed: u64,
    board: Arc<Board>,
    audience: Lane,
    pipes: Vec<(NodeAddress, Pipe)>,
    between: Between,
    /// Changes sent so far.
    sent: u64,
}

/// What stands between the stream and the channel.
enum Between {
    Floor(Lane),
    Heyday(Team),
}

/// How a turn is driven.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Changes a second.
    pub rate: f64,
    pub seconds: f64,
    /// Whether views are read too.
    pub reads: bool,
}

impl Rig {
    /// Floor B: one blocking reader a shard, which publishes what it read.
    pub async fn floor(ground: &Ground) -> anyhow::Result<Rig> {
        let field = ground.field(SHARDS).await?;
        let (board, audience) = (Arc::new(Board::default()), Lane::start("bench audience")?);
        audience.run(listen::bare(field.hub.clone(), board.clone())).await??;
        let lane = Lane::start("bench floor")?;
        let batch = ground.config.worker.batch_changes_max;
        lane.run(floor::start(field.hub.clone(), batch, board.clone())).await??;
        Rig::new(ground, field, (board, audience), Between::Floor(lane)).await
    }

    pub async fn heyday(ground: &Ground) -> anyhow::Result<Rig> {
        let field = ground.field(SHARDS).await?;
        let (board, audience) = (Arc::new(Board::default()), Lane::start("bench audience")?);
        let team = Team::start(ground, &field, 1, ground.config.worker.batch_changes_max).await?;
        team.ready(SHARDS).await?;
        let (options, prefix) = (ground.options.clone(), field.hub.keys().prefix().to_owned());
        audience.run(listen::subscribed(options, prefix, board.clone())).await??;
        Rig::new(ground, field, (board, audience), Between::Heyday(team)).await
    }

    async fn new(
        ground: &Ground,
        field: Field,
        (board, audience): (Arc<Board>, Lane),
        between: Between,
    ) -> anyhow::Result<Rig> {
        let (topology, options) = (field.hub.topology().clone(), ground.options.clone());
        let opened = async move {
            let mut pipes = Vec::new();
            for node in topology.primaries() {
                pipes.push((node.address.clone(), Pipe::connect(&node.address, &options).await?));
            }
            anyhow::Ok(pipes)
        };
        let pipes = audience.run(opened).await??;
        Ok(Rig { field, seed: ground.seed, board, audience, pipes, between, sent: 0 })
    }

    /// One turn.
    pub async fn measure(&mut self, ground: &Ground, drive: Drive) -> anyhow::Result<Recording> {
        let count = ((drive.rate * drive.seconds) as u64).max(1);
        let first = self.sent;
        self.sent += count;
        let is_read = drive.reads && matches!(self.between, Between::Heyday(_));
        let read_every = if is_read { (drive.rate / READS_PER_SECOND).ceil() as u64 } else { 0 };
        let load = self.load(first, count)?;
        let board = self.board.clone();
        let turn = async move {
            let pace = Pace::soon(drive.rate);
            board.begin(Turn { pace, first, count, read_every });
            load.send(&pace, &board).await?;
            board.end().await
        };
        let (begun, cpu, servers) = (Instant::now(), self.cpu().await?, ground.look().await?);
        let mut found = self.audience.run(turn).await??;
        let (after, seconds) = (self.cpu().await?, begun.elapsed().as_secs_f64());
        let servers = between(&servers, &ground.look().await?);
        let sum = |primary: bool| {
            let nodes = servers.iter().filter(|node| node.primary == primary);
            nodes.map(|node| node.cpu_seconds).sum::<f64>() / seconds
        };
        let signals: f64 =
            servers.iter().filter(|node| node.primary).filter_map(|node| node.calls.get("spublish")).sum();
        found.busy = Busy {
            worker: (after.0 - cpu.0).as_secs_f64() / seconds,
            audience: (after.1 - cpu.1).as_secs_f64() / seconds,
            primaries: sum(true),
            replicas: sum(false),
            batch: count as f64 / signals,
        };
        Ok(found)
    }

    /// Of the thread between, and of the audience's, so far.
    async fn cpu(&self) -> anyhow::Result<(Duration, Duration)> {
        let between = match &self.between {
            Between::Floor(lane) => lane.cpu().await?,
            Between::Heyday(team) => team.cpu().await?,
        };
        Ok((between, self.audience.cpu().await?))
    }

    /// Proves that heyday did its work, and ends everything. Clearing one field may clear all: heyday's is closed first.
    pub async fn close(self, ground: &Ground) -> anyhow::Result<()> {
        drop(self.audience);
        match self.between {
            Between::Floor(lane) => drop(lane),
            Between::Heyday(team) => {
                team.stop().await?;
                let changes: Vec<Change> = (0..self.sent).map(|number| numbered(self.seed, number)).collect();
                prove::views(&self.field, &changes).await?;
            }
        }
        ground.clear(self.field).await
    }

    /// The commands, encoded before the clock starts.
    fn load(&self, first: u64, count: u64) -> anyhow::Result<Load> {
        let places: BTreeMap<&NodeAddress, usize> =
            self.pipes.iter().enumerate().map(|(at, (node, _))| (node, at)).collect();
        let append = |number: u64| {
            let change = numbered(self.seed, number);
            let keys = self.field.hub.keys_of(&change.user);
            let node = self.field.hub.topology().node_of(keys.slot)?;
            let mut pipeline = Pipeline::new();
            let mut command = pipeline.command("XADD");
            command.arg(keys.changes.as_bytes()).arg("*");
            for (name, value) in change.encode() {
                command.arg(name.as_bytes()).arg(value.as_bytes());
            }
            drop(command);
            let place = places.get(&node.address).copied();
            Ok((place.with_context(|| format!("{} was no primary at first", node.address))?, pipeline))
        };
        let appends = (first..first + count).map(append).collect::<anyhow::Result<_>>()?;
        Ok(Load { appends, pipes: self.pipes.iter().map(|(_, pipe)| pipe.clone()).collect() })
    }
}

/// Appends ready to be sent: to which pipe, and what.
struct Load {
    appends: Vec<(usize, Pipeline)>,
    pipes: Vec<Pipe>,
}

impl Load {
    /// Sends each at its time without waiting for answers, which are looked at in the end.
    async fn send(self, pace: &Pace, board: &Board) -> anyhow::Result<()> {
        let mut ticker = Ticker::new()?;
        let (all, mut sent) = (self.appends.len() as u64, 0);
        let mut answers = Vec::new();
        while sent < all {
            let due = ticker.next(pace, sent).await?.min(all);
            let mut parts = vec![Pipeline::new(); self.pipes.len()];
            for (place, append) in &self.appends[sent as usize..due as usize] {
                parts[*place].append(append);
            }
            board.sent(sent, due);
            for (part, pipe) in parts.into_iter().zip(&self.pipes).filter(|(part, _)| !part.is_empty()) {
                let pipe = pipe.clone();
                answers.push(task::spawn("bench append", async move { pipe.submit(part).await }));
            }
            sent = due;
        }
        for answer in answers {
            for reply in answer.await?? {
                ensure!(reply.error().is_none(), "an append was refused: {reply:?}");
            }
        }
        Ok(())
    }
}
