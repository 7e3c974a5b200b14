//! Writers that append generated changes, and what each append's answer said.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use heyday::change::Fields;
use heyday::client::Hub;
use heyday::client::writer::{Appended, Error, Options, Receipt, Writer};
use heyday::position::EntryId;
use heyday::redis::{Link, NodeAddress, Pipeline};
use heyday::shard::Shard;
use heyday::testing::generate::{Generated, Generator, Settings};
use jiff::civil::Date;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::super::eventually;
use super::Scene;

/// Appends of one writer that are on their way at once.
const UNDERWAY_MAX: usize = 256;
/// A writer that is paced appends so many at each tick.
const BURST: u64 = 20;
/// The field that tells appends apart. No rule knows it, so no view shows it.
pub(super) const TRACE: &str = "trace";

/// What shall be written.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub writers: u64,
    pub users: u32,
    /// Changes of each writer; it ends earlier where it is told to.
    pub changes: u64,
    /// Changes a second of all writers together; as fast as they go where none.
    pub pace: Option<u64>,
    /// Of a hundred changes, how many are to both sides of a friendship.
    pub mutual_percent: u32,
}

/// Writers at work. Nothing of what they do is repeated by the test itself.
pub struct Load {
    writers: Vec<JoinHandle<Written>>,
    stop: Arc<AtomicBool>,
    answers: Arc<Answers>,
    /// Whether to say at the end how it went.
    tells: bool,
}

type Shared = (Arc<AtomicBool>, Arc<Answers>);

/// How many appends were answered so far, and how.
#[derive(Default)]
struct Answers {
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// What the writers know of their appends, by trace.
#[derive(Default)]
pub struct Written {
    /// In the order in which each writer handed them over.
    pub acknowledged: Vec<(String, Appended, Fields)>,
    /// Certainly not in the stream.
    pub refused: BTreeMap<String, String>,
    /// What was meant to be no change, and the reason that its dead letter must give.
    pub malformed: BTreeMap<String, String>,
    /// Perhaps in the stream.
    pub unknown: BTreeMap<String, String>,
}

impl Load {
    pub fn start(scene: &Scene, plan: Plan) -> Load {
        println!("{plan:?}");
        Load { tells: true, ..Load::through(&scene.hub, scene, plan) }
    }

    /// The same over the connections of another client, in silence.
    pub fn through(hub: &Hub, scene: &Scene, plan: Plan) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(Answers::default());
        let writers = (0..plan.writers)
            .map(|number| {
                let today = scene.today();
                let task = Task::new(hub, today, (&plan, number), (stop.clone(), answers.clone()));
                tokio::spawn(task.run(plan.changes))
            })
            .collect();
        Load { writers, stop, answers, tells: false }
    }

    /// Appends that were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.answers.acknowledged.load(Ordering::Relaxed)
    }

    /// Appends that were refused so far.
    pub fn refused(&self) -> u64 {
        self.answers.refused.load(Ordering::Relaxed)
    }

    /// Waits until so many more appends were acknowledged.
    pub async fn goes_on(&self, more: u64) {
        let goal = self.acknowledged() + more;
        let never = format!("the writers got {more} more answers");
        eventually(Duration::from_secs(30), &never, async || (self.acknowledged() >= goal).then_some(())).await;
    }

    /// Tells the writers to stop, and waits until every append has its answer.
    pub async fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.finish().await
    }

    /// Waits until all is written.
    pub async fn finish(self) -> Written {
        let mut all = Written::default();
        for writer in self.writers {
            all.extend(writer.await.expect("a writer"));
        }
        if self.tells {
            let (refused, unknown) = (all.refused.len(), all.unknown.len());
            println!("{} acknowledged, {refused} refused, {unknown} unknown", all.acknowledged.len());
        }
        all
    }
}

impl Written {
    /// What other writers know besides.
    pub fn extend(&mut self, other: Written) {
        self.acknowledged.extend(other.acknowledged);
        self.refused.extend(other.refused);
        self.malformed.extend(other.malformed);
        self.unknown.extend(other.unknown);
    }
}

/// One writer. What is no change goes around [`Writer`], which would not send it.
struct Task {
    name: u64,
    generator: Generator,
    writer: Writer,
    raw: Raw,
    underway: VecDeque<(String, Fields, Receipt)>,
    written: Written,
    stop: Arc<AtomicBool>,
    answers: Arc<Answers>,
    ticks: Option<Interval>,
}

impl Task {
    fn new(hub: &Hub, today: Date, (plan, number): (&Plan, u64), (stop, answers): Shared) -> Task {
        let ticks = plan.pace.map(|pace| {
            let mut ticks = interval(Duration::from_secs(1) * (plan.writers * BURST) as u32 / pace as u32);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        let settings = Settings {
            mutual_percent: plan.mutual_percent,
            mutual_versions: false,
            ..Settings::new(plan.users, today)
        };
        Task {
            name: number,
            generator: Generator::new(plan.seed.wrapping_add(number), settings),
            writer: hub.writer(Options::default()),
            raw: Raw { hub: hub.clone(), links: BTreeMap::new() },
            underway: VecDeque::new(),
            written: Written::default(),
            stop,
            answers,
            ticks,
        }
    }

    async fn run(mut self, changes: u64) -> Written {
        for number in 0..changes {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Some(ticks) = &mut self.ticks
                && number % BURST == 0
            {
                ticks.tick().await;
            }
            let mut generated = self.generator.entry();
            let trace = format!("{}.{number}", self.name);
            generated.fields.push((Bytes::from_static(TRACE.as_bytes()), Bytes::from(trace.clone())));
            self.append(trace, generated).await;
            if self.underway.len() >= UNDERWAY_MAX {
                self.answer().await;
            }
        }
        while !self.underway.is_empty() {
            self.answer().await;
        }
        self.written
    }

    async fn append(&mut self, trace: String, generated: Generated) {
        if let Some(reason) = generated.reason() {
            self.written.malformed.insert(trace.clone(), reason);
        }
        let Generated { route, fields, .. } = generated;
        match self.writer.enqueue_fields(&fields).await {
            Ok(receipt) => self.underway.push_back((trace, fields, receipt)),
            Err(Error::Rejected(_)) => {
                let shard = self.writer_shard(&route);
                match self.raw.append(shard, &fields).await {
                    Ok(id) => self.acknowledge(trace, Appended { shard, id }, fields),
                    Err(RawError::Refused(why)) => self.refused(trace, why),
                    Err(RawError::Unknown(why)) => drop(self.written.unknown.insert(trace, why)),
                }
            }
            Err(error) => self.failed(trace, &fields, &error),
        }
    }

    fn writer_shard(&self, user: &heyday::change::UserId) -> Shard {
        self.raw.hub.layout().shard_of(user)
    }

    /// Waits for the oldest append on its way.
    async fn answer(&mut self) {
        let Some((trace, fields, receipt)) = self.underway.pop_front() else { return };
        match receipt.await {
            Ok(appended) => self.acknowledge(trace, appended, fields),
            Err(error) => self.failed(trace, &fields, &error),
        }
    }

    fn acknowledge(&mut self, trace: String, appended: Appended, fields: Fields) {
        self.answers.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.written.acknowledged.push((trace, appended, fields));
    }

    fn failed(&mut self, trace: String, fields: &Fields, error: &Error) {
        // The next sequence goes on without the failed one: here the oracle, and not the producer, says what became of it.
        if let Some((_, producer)) = fields.iter().find(|(name, _)| name == "producer") {
            self.writer.release(&String::from_utf8_lossy(producer));
        }
        if error.possibly_appended() {
            self.written.unknown.insert(trace, error.to_string());
        } else {
            self.refused(trace, error.to_string());
        }
    }

    fn refused(&mut self, trace: String, why: String) {
        self.answers.refused.fetch_add(1, Ordering::Relaxed);
        self.written.refused.insert(trace, why);
    }
}

/// XADD as any program sends it: one command, one answer, no second try.
struct Raw {
    hub: Hub,
    links: BTreeMap<NodeAddress, Link>,
}

enum RawError {
    Refused(String),
    Unknown(String),
}

impl Raw {
    async fn append(&mut self, shard: Shard, fields: &Fields) -> Result<EntryId, RawError> {
        let keys = self.hub.shard_keys(shard).clone();
        let topology = self.hub.topology().clone();
        let refused = |error: heyday::redis::Error| RawError::Refused(error.to_string());
        let node = topology.node_of(keys.slot).map_err(refused)?.address.clone();
        let mut link = match self.links.remove(&node) {
            Some(link) => link,
            None => match Link::connect(&node, topology.options()).await {
                Ok(link) => link,
                Err(error) => {
                    let _ = topology.refresh().await;
                    return Err(refused(error));
                }
            },
        };
        let mut pipeline = Pipeline::new();
        let mut command = pipeline.command("XADD");
        command.arg(keys.changes.as_str()).arg("*");
        for (name, value) in fields {
            command.arg(name).arg(value);
        }
        drop(command);
        let answer = link.request(&pipeline, topology.options().reply_timeout).await;
        let reply = answer.map_err(|error| RawError::Unknown(error.to_string()))?.pop().expect("one reply");
        self.links.insert(node, link);
        if let Some(error) = reply.error() {
            let _ = topology.refresh().await;
            return Err(RawError::Refused(error.to_string()));
        }
        Ok(reply.to_str().expect("an id").parse().expect("an entry id"))
    }
}
