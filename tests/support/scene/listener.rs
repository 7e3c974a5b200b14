//! A subscriber that remembers everything it was told, and the proof that it missed nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heyday::change::UserId;
use heyday::client::Hub;
use heyday::client::subscriber::{Event, Options};
use heyday::position::CommitId;
use heyday::shard::Shard;
use heyday::signal::Views;
use tokio::task::JoinHandle;

use super::super::eventually;
use super::proof::{read_log, verdict};
use super::{Scene, Snapshot, now_milliseconds};

/// How much later than the poll interval a busy test machine may tell of a commit.
const LATE_MARGIN: Duration = Duration::from_millis(1500);

/// What was told of one shard, in order.
#[derive(Clone, Debug)]
enum Told {
    Changed { commit: CommitId, user: UserId, views: Views, at_milliseconds: u64 },
    Reset,
}

/// Listens until it is dropped.
pub struct Listener {
    told: Arc<Mutex<BTreeMap<Shard, Vec<Told>>>>,
    task: JoinHandle<()>,
    poll_interval: Duration,
}

impl Listener {
    /// Listens to every shard from now on. To be called before the first commit: the proof begins with the log.
    pub async fn start(hub: &Hub, options: Options) -> Listener {
        let poll_interval = options.poll_interval;
        let mut subscriber = hub.subscribe(options).await.expect("a subscriber");
        let told = Arc::new(Mutex::new(BTreeMap::<Shard, Vec<Told>>::new()));
        let list = told.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = subscriber.next_event().await {
                let at_milliseconds = now_milliseconds();
                let mut list = list.lock().expect("the list");
                match event {
                    Event::Changed { shard, commit, user, views } => {
                        let told = Told::Changed { commit, user, views, at_milliseconds };
                        list.entry(shard).or_default().push(told);
                    }
                    Event::Reset { shard } => list.entry(shard).or_default().push(Told::Reset),
                }
            }
        });
        Listener { told, task, poll_interval }
    }

    /// How many resets there were.
    pub fn resets(&self) -> usize {
        let told = self.told.lock().expect("the list");
        told.values().flatten().filter(|told| matches!(told, Told::Reset)).count()
    }

    /// The shards of which a reset was told.
    pub fn reset_shards(&self) -> BTreeSet<Shard> {
        let told = self.told.lock().expect("the list");
        let reset = told.iter().filter(|(_, told)| told.iter().any(|told| matches!(told, Told::Reset)));
        reset.map(|(shard, _)| *shard).collect()
    }

    /// Waits until there were so many resets.
    pub async fn reset(&self, count: usize) {
        let never = format!("the subscriber was told of {count} resets");
        let deadline = 2 * self.poll_interval + LATE_MARGIN;
        eventually(deadline, &never, async || (self.resets() >= count).then_some(())).await;
    }

    /// How many changes were told.
    pub fn changes(&self) -> usize {
        let told = self.told.lock().expect("the list");
        told.values().flatten().filter(|told| matches!(told, Told::Changed { .. })).count()
    }

    /// Waits until the last commit of every shard was told of, or a reset came after the one before it.
    pub async fn catch_up(&self, scene: &Scene) {
        let snapshot = Snapshot::take(scene).await;
        let goals: BTreeMap<Shard, CommitId> = scene
            .layout
            .shards()
            .filter_map(|shard| {
                let log = read_log(&snapshot, scene.shard_keys(shard).log.as_str()).expect("a log");
                Some((shard, log.iter().rfind(|signal| !signal.users.is_empty())?.id))
            })
            .collect();
        let deadline = 2 * self.poll_interval + LATE_MARGIN;
        let never = "the subscriber was told of the last commit of every shard, or of a reset";
        eventually(deadline, never, async || {
            let told = self.told.lock().expect("the list");
            let reached = |(shard, goal): (&Shard, &CommitId)| match told.get(shard).and_then(|told| told.last()) {
                Some(Told::Changed { commit, .. }) => commit == goal,
                Some(Told::Reset) => true,
                None => false,
            };
            goals.iter().all(reached).then_some(())
        })
        .await;
    }

    /// Every change of the log in order and once, but for what a reset stands for. `late` is how much later than the poll
    /// interval a change may have been told, because nothing answered meanwhile.
    pub fn prove(&self, scene: &Scene, snapshot: &Snapshot, late: Duration) {
        let told = self.told.lock().expect("the list").clone();
        let mut wrong = Vec::new();
        for shard in scene.layout.shards() {
            let log = read_log(snapshot, scene.shard_keys(shard).log.as_str()).expect("a log");
            let log: Vec<_> = log
                .into_iter()
                .flat_map(|signal| {
                    let (id, at) = (signal.id, signal.at_milliseconds);
                    signal.users.into_iter().map(move |(user, views)| (id, user, views, at))
                })
                .collect();
            let told = told.get(&shard).map(Vec::as_slice).unwrap_or_default();
            let late = (self.poll_interval + LATE_MARGIN + late).as_millis() as u64;
            if let Err(what) = compare(&log, told, late) {
                wrong.push(format!("shard {shard}: {what}"));
            }
        }
        verdict(&wrong);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Walks both lists. After a reset the log may be ahead; before one, the subscriber may have been told of commits that were
/// lost with their node.
fn compare(log: &[(CommitId, UserId, Views, u64)], told: &[Told], late: u64) -> Result<(), String> {
    let mut at = 0;
    let mut continuous = true;
    for (number, event) in told.iter().enumerate() {
        let Told::Changed { commit, user, views, at_milliseconds } = event else {
            continuous = false;
            continue;
        };
        let next = log.get(at);
        let is = |entry: &(CommitId, UserId, Views, u64)| (entry.0, &entry.1, entry.2) == (*commit, user, *views);
        let found = match next {
            Some(entry) if is(entry) => at,
            _ if !continuous => match (at..log.len()).find(|at| is(&log[*at])) {
                Some(later) => later,
                None => return Err(format!("event {number}, {event:?}, is not in the log after a reset")),
            },
            // Told before the node was lost that held it; a reset must follow.
            _ if told[number..].iter().any(|told| matches!(told, Told::Reset)) => continue,
            _ => return Err(format!("event {number} is {event:?}, expected {next:?}")),
        };
        let committed_at = log[found].3;
        if continuous && at_milliseconds.saturating_sub(committed_at) > late {
            return Err(format!("{event:?} came {} ms after its commit", at_milliseconds - committed_at));
        }
        (at, continuous) = (found + 1, true);
    }
    if continuous && at < log.len() {
        return Err(format!("{} changes from {:?} on were never told", log.len() - at, log[at]));
    }
    Ok(())
}
