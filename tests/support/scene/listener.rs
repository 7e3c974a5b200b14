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
        verdict(&self.misled(scene, snapshot, late));
    }

    /// Everything that was told wrongly, twice, too late or not at all.
    pub fn misled(&self, scene: &Scene, snapshot: &Snapshot, late: Duration) -> Vec<String> {
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
        wrong
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Walks both lists. Everything told that is in the log was told once and in its order, and without a gap where no reset came
/// between. What is told and not in the log was lost with its node, and then a reset follows, or was trimmed from its beginning.
fn compare(log: &[(CommitId, UserId, Views, u64)], told: &[Told], late: u64) -> Result<(), String> {
    let places: BTreeMap<_, _> = log.iter().enumerate().map(|(at, entry)| ((entry.0, &entry.1), at)).collect();
    let mut at = 0;
    let mut continuous = true;
    let (mut last, mut lost) = (CommitId::ZERO, BTreeSet::new());
    for (number, event) in told.iter().enumerate() {
        let Told::Changed { commit, user, views, at_milliseconds } = event else {
            (continuous, last) = (false, CommitId::ZERO);
            lost.clear();
            continue;
        };
        if *commit < last {
            return Err(format!("event {number}, {event:?}, came after {last}"));
        }
        last = *commit;
        let Some(&found) = places.get(&(*commit, user)) else {
            let trimmed = at == 0 && log.first().is_some_and(|first| *commit < first.0);
            let reset = told[number..].iter().any(|told| matches!(told, Told::Reset));
            if !(trimmed || reset) || !lost.insert((*commit, user)) {
                return Err(format!("event {number}, {event:?}, is not in the log, or came twice"));
            }
            continue;
        };
        let in_place = found == at || (!continuous && found > at);
        if !in_place || log[found].2 != *views {
            return Err(format!("event {number} is {event:?}, expected {:?}", log.get(at)));
        }
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

#[test]
fn a_reset_excuses_what_was_lost_and_nothing_else() {
    // Commits 3 to 5 are in the log: what came before was trimmed, what is told beyond was lost with its node.
    let commit = |number: u64| CommitId::new(1, number);
    let user: UserId = "u".parse().expect("a user");
    let log: Vec<_> = (3..6).map(|number| (commit(number), user.clone(), Views::NONE, 1_000)).collect();
    // 0 stands for a reset.
    let outcome = |told: &[u64]| {
        let event = |number: &u64| match number {
            0 => Told::Reset,
            _ => Told::Changed {
                commit: commit(*number),
                user: user.clone(),
                views: Views::NONE,
                at_milliseconds: 1_001,
            },
        };
        compare(&log, &told.iter().map(event).collect::<Vec<_>>(), 10)
    };
    for good in [&[3, 4, 5][..], &[1, 2, 3, 4, 5], &[3, 4, 5, 6, 7, 0], &[3, 0, 5], &[3, 4, 0], &[0, 6, 0, 3, 4, 5]] {
        assert_eq!(outcome(good), Ok(()), "{good:?}");
    }
    for bad in [
        &[3, 4][..],
        &[3, 4, 5, 6],
        &[3, 5, 0],
        &[4, 3, 5, 0],
        &[3, 3, 4, 5, 0],
        &[3, 4, 4, 0, 5],
        &[3, 4, 5, 6, 6, 0],
        &[2, 1, 3, 4, 5],
        &[1, 1, 3, 4, 5],
        &[3, 0, 3, 4, 5],
        &[3, 0, 4],
    ] {
        assert!(outcome(bad).is_err(), "{bad:?}");
    }
}
