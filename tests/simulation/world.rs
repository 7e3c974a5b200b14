//! One life of a cluster: workers that are born and die, a writer, and faults, all from one seed.

use std::sync::Arc;
use std::time::Duration;

use heyday::calendar::Window;
use heyday::key::Keys;
use heyday::metrics::{Health, Metrics};
use heyday::reduce::Rules;
use heyday::shard::{Layout, Shard};
use heyday::testing::generate::{Generator, Settings};
use heyday::testing::model::{Faults, Model, Sabotage};
use heyday::testing::snapshots::Snapshots;
use heyday::worker::{self, Context, Options};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Interval, interval};

use super::beyond;
use super::verdict::{self, Verdict};

/// 2026-11-29T19:00:00Z, and fifteen seconds before 10:00 of the day after it, when a day begins where it begins first.
const EVENING: u64 = 1_795_978_800_000;
const DAYBREAK: u64 = 1_796_032_785_000;
/// How long a lease lasts, and how often a worker looks around.
pub const LEASE_TTL: Duration = Duration::from_secs(4);
pub const HEARTBEAT: Duration = Duration::from_millis(500);
/// Between two steps of the world.
const STEP: Duration = Duration::from_millis(50);
const STEPS: u32 = 600;
/// Within how many milliseconds from the beginning the moments of snapshots lie: some changes come before, some after.
const SNAPSHOTS_SPREAD: u64 = 20_000;
/// Between the end of a worker that was told to stop and the birth of the next one.
pub const BIRTH_DELAY_MAX: Duration = Duration::from_millis(2_500);
/// Steps after the last fault within which everything must be settled: the longest lease, stall, delay and wait fit in
/// several times.
const STEPS_TO_SETTLE_MAX: u32 = 2400;
/// The most steps within which everything arrives that was on its way when the faults ended, and those after which no lease of
/// a dead worker is left.
const STEPS_OF_ECHO_MAX: u32 = 400;
const STEPS_OF_QUIET: u32 = 100;

pub struct Life {
    pub seed: u64,
    pub faults: Faults,
    pub sabotage: Option<Sabotage>,
    pub deaths: Deaths,
    /// Whether workers are told to stop now and then, and others come in their place.
    pub hand_overs: bool,
    /// Whether maintenance begins now and then, and ends in order or is forgotten.
    pub maintenance: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deaths {
    None,
    /// One worker, in the middle of the life, and nobody is born in its place.
    One,
    Many,
}

impl Life {
    pub fn new(seed: u64) -> Life {
        Life {
            seed,
            faults: Faults { seed, latency_max: Duration::from_millis(5), ..Faults::default() },
            sabotage: None,
            deaths: Deaths::Many,
            hand_overs: true,
            maintenance: true,
        }
    }
}

struct World {
    model: Model,
    random: SmallRng,
    generator: Generator,
    rules: Arc<Rules>,
    options: Options,
    workers: Vec<Worker>,
    born: u32,
    steps: Interval,
    windows: Windows,
    /// The moment of the rebuild that is on all the time.
    rebuild: Option<u64>,
}

/// Spans of time, Unix milliseconds, in which every living worker had said that it has paused.
#[derive(Default)]
struct Windows {
    all: Vec<(u64, u64)>,
    /// When the present one began, and when it ends if nobody ends it before.
    open: Option<(u64, u64)>,
}

impl Windows {
    fn look(&mut self, model: &Model) {
        let now = model.milliseconds();
        let state = model.maintenance_paused();
        let paused = state.as_ref().is_some_and(|(_, paused)| model.living().is_subset(paused));
        match (self.open, state) {
            (None, Some((ends_at, _))) if paused => self.open = Some((now, ends_at)),
            (Some((begun, _)), Some((ends_at, _))) if paused => self.open = Some((begun, ends_at)),
            (Some((begun, ends_at)), _) => {
                // Somewhere within the last step.
                self.all.push((begun, ends_at.min(now - STEP.as_millis() as u64)));
                self.open = None;
            }
            (None, _) => {}
        }
    }
}

/// A place for a worker: alive, or dead for some steps more.
enum Worker {
    Alive {
        task: JoinHandle<()>,
        stop: oneshot::Sender<()>,
    },
    /// Told to stop, and giving its shards up.
    Leaving {
        task: JoinHandle<()>,
    },
    Dead {
        steps: u32,
    },
}

/// Lives it to the end and judges it.
pub fn live(life: Life) -> Verdict {
    let before = panics::seen();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let mut verdict = runtime.expect("a runtime").block_on(async { World::new(&life).live(life).await });
    // A worker survives a panic in one of its tasks, and would heal what it broke.
    for _ in before..panics::seen() {
        verdict.faults.push("a task panicked".to_owned());
    }
    verdict
}

/// So narrow that profiles are full and categories pushed out.
fn rules() -> Rules {
    Rules { top_max: 5, profile_fields_max: 4, ..Rules::default() }
}

/// What a worker process with a client of its own works with.
pub fn context(model: &Model, options: Options) -> Context<Model> {
    Context {
        store: model.client(),
        layout: model.layout().clone(),
        keys: model.keys().clone(),
        rules: Arc::new(rules()),
        metrics: Metrics::new(Health::new(options.lease_ttl)),
        options: Arc::new(options),
    }
}

/// Counts the panics of this thread, on which a whole life takes place.
mod panics {
    use std::cell::Cell;
    use std::sync::Once;

    thread_local!(static SEEN: Cell<u32> = const { Cell::new(0) });

    pub fn seen() -> u32 {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let earlier = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                SEEN.set(SEEN.get() + 1);
                earlier(panic);
            }));
        });
        SEEN.get()
    }
}

impl World {
    fn new(life: &Life) -> World {
        let mut random = SmallRng::seed_from_u64(life.seed);
        let rules = Arc::new(rules());
        let begin = if random.random_bool(0.5) { EVENING } else { DAYBREAK };
        let layout = Layout::new([1, 2, 4][random.random_range(0..3)]).expect("a power of two");
        let keys = Keys::new(["", "sim:"][random.random_range(0..2)]).expect("a good prefix");
        let mutual = random.random_bool(0.7);
        let rebuild = random.random_bool(0.4).then_some(begin);
        let snapshots = rebuild.map(|since| Snapshots { since, spread: SNAPSHOTS_SPREAD, one_sided: mutual });
        let settings = Settings {
            snapshots,
            malformed_percent: 2.0,
            mutual_percent: if mutual { 25 } else { 0 },
            forgets_per_thousand: if mutual { random.random_range(0..20) } else { 0 },
            ..Settings::new(12, rules.calendar.today(begin))
        };
        let options = Options {
            batch_changes_max: random.random_range(1..24),
            block: Duration::from_millis(random.random_range(100..2000)),
            lease_ttl: LEASE_TTL,
            heartbeat: HEARTBEAT,
            retention: Duration::from_secs(random.random_range(0..20)),
            trim_interval: Duration::from_secs(2),
            backoff_max: Duration::from_millis(500),
            wait_replicas: random.random_range(0..2),
            outbox_max: if life.faults.refused > 0 { [2, 10_000][random.random_range(0..2)] } else { 10_000 },
            ..Options::default()
        };
        let workers = (0..random.random_range(2..4)).map(|place| Worker::Dead { steps: 10 * place }).collect();
        let model = Model::sabotaged(layout, keys, begin, life.sabotage);
        if rebuild.is_some() {
            model.layout().shards().for_each(|shard| model.rebuild(shard, rebuild));
        }
        World {
            model,
            generator: Generator::new(life.seed, settings),
            random,
            rules,
            options,
            workers,
            born: 0,
            steps: interval(STEP),
            windows: Windows::default(),
            rebuild,
        }
    }

    async fn live(mut self, life: Life) -> Verdict {
        // What goes to another shard before a replica has it is told of a commit that may never have been.
        let sure = self.options.wait_replicas > 0 || life.faults.failover == 0;
        self.model.set_faults(life.faults);
        for step in 0..STEPS {
            self.steps.tick().await;
            self.write();
            self.age(life.deaths == Deaths::Many, life.hand_overs);
            if life.maintenance {
                self.maintain();
            }
            if life.deaths == Deaths::One && step == STEPS / 2 {
                self.kill(0, u32::MAX);
            }
        }
        self.model.set_faults(Faults::default());
        self.model.maintenance_off();
        self.windows.look(&self.model);
        let settled = self.settle().await;
        if settled {
            self.echo().await;
            self.settle().await;
        }
        self.stop(settled).await;
        // Every shard is rolled by now, so every day is complete, whenever it was opened.
        let mut verdict = verdict::judge(&self.model, &self.rules, (self.window(), self.rebuild));
        verdict.look_within(&self.model, &self.windows.all);
        if sure {
            beyond::judge(&mut verdict, &self.model, &self.rules);
        }
        verdict
    }

    /// Maintenance begins, goes on for longer, ends or is forgotten.
    fn maintain(&mut self) {
        if self.random.random_bool(0.01) {
            let ttl = Duration::from_millis(self.random.random_range(100..6000));
            self.model.maintenance_on(["a", "b"][self.random.random_range(0..2)], "a test", ttl);
        } else if self.random.random_bool(0.01) {
            self.model.maintenance_off();
        }
        self.windows.look(&self.model);
    }

    fn window(&self) -> Window {
        self.rules.calendar.window(self.model.milliseconds())
    }

    /// Now and then a burst of changes. One that is refused is never written.
    fn write(&mut self) {
        if !self.random.random_bool(0.1) {
            return;
        }
        for _ in 0..self.random.random_range(1..8) {
            let generated = self.generator.entry();
            // A writer that counts shards wrongly appends to somebody else's stream.
            let astray = self.random.random_bool(0.01);
            let layout = self.model.layout();
            let place = self.random.random_range(0..layout.count());
            let shard = if astray { Shard(place as u16) } else { layout.shard_of(&generated.route) };
            let _ = self.model.append(shard, generated.fields);
        }
    }

    /// Workers die at random and others are born in their place.
    fn age(&mut self, deaths: bool, hand_overs: bool) {
        for place in 0..self.workers.len() {
            let dies = deaths && self.random.random_bool(0.008);
            let leaves = hand_overs && self.random.random_bool(0.003);
            match &mut self.workers[place] {
                Worker::Alive { .. } | Worker::Leaving { .. } if dies => {
                    let steps = self.random.random_range(0..150);
                    self.kill(place, steps);
                }
                Worker::Alive { .. } if leaves => self.dismiss(place),
                Worker::Leaving { task } if task.is_finished() => {
                    let steps_max = (BIRTH_DELAY_MAX.as_millis() / STEP.as_millis()) as u32;
                    let steps = self.random.random_range(0..steps_max);
                    self.workers[place] = Worker::Dead { steps };
                }
                Worker::Leaving { .. } => {}
                Worker::Alive { .. } => {}
                Worker::Dead { steps: 0 } => self.workers[place] = self.birth(),
                Worker::Dead { steps } => *steps -= 1,
            }
        }
    }

    /// As SIGKILL does: nothing is given up, and what is on its way stays so.
    fn kill(&mut self, place: usize, steps: u32) {
        if let Worker::Alive { task, .. } | Worker::Leaving { task } = &self.workers[place] {
            task.abort();
        }
        self.workers[place] = Worker::Dead { steps };
    }

    /// As SIGTERM does.
    fn dismiss(&mut self, place: usize) {
        let worker = std::mem::replace(&mut self.workers[place], Worker::Dead { steps: 0 });
        self.workers[place] = match worker {
            Worker::Alive { task, stop } => {
                let _ = stop.send(());
                Worker::Leaving { task }
            }
            other => other,
        };
    }

    fn birth(&mut self) -> Worker {
        self.born += 1;
        let worker = format!("worker-{}", self.born).parse().expect("a good name");
        let context = context(&self.model, Options { worker, ..self.options.clone() });
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        Worker::Alive { task: tokio::spawn(worker::run(context, shutdown)), stop }
    }

    /// Until nothing of what was on its way when the faults ended can arrive any more.
    async fn echo(&mut self) {
        let mut quiet = 0;
        for _ in 0..STEPS_OF_ECHO_MAX {
            quiet = if self.model.is_echoing() { 0 } else { quiet + 1 };
            if quiet > STEPS_OF_QUIET {
                return;
            }
            self.steps.tick().await;
            self.age(false, false);
        }
    }

    /// Whether every entry came to be settled in time.
    async fn settle(&mut self) -> bool {
        for _ in 0..STEPS_TO_SETTLE_MAX {
            let done = |shard| {
                let rolled = self.model.is_rolled(shard, &self.rules.calendar);
                self.model.unsettled(shard).is_empty() && !self.model.is_unfinished(shard) && rolled
            };
            if self.model.layout().shards().all(done) {
                return true;
            }
            self.steps.tick().await;
            self.age(false, false);
        }
        false
    }

    /// In order, if all is well: then no lease may be left.
    async fn stop(&mut self, in_order: bool) {
        for worker in self.workers.drain(..) {
            match worker {
                Worker::Alive { task, stop } if in_order => {
                    let _ = stop.send(());
                    let _ = task.await;
                }
                Worker::Leaving { task } if in_order => drop(task.await),
                Worker::Alive { task, .. } | Worker::Leaving { task } => task.abort(),
                Worker::Dead { .. } => {}
            }
        }
    }
}
