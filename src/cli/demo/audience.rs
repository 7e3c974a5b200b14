//! The demo's subscriber, and the proof that it heard every commit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::progress::Progress;
use crate::change::UserId;
use crate::client::subscriber::{Event, Options};
use crate::client::{Hub, Subscriber};
use crate::position::CommitId;
use crate::shard::Shard;
use crate::signal::{Signal, Views};
use crate::task::{self, JoinHandle};

/// What is remembered of one shard: a run without end must not grow for ever.
const HEARD_MAX: usize = 100_000;

/// One user of one commit.
type Heard = (CommitId, UserId, Views);

pub struct Audience {
    heard: Arc<Mutex<BTreeMap<Shard, History>>>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct History {
    heard: VecDeque<Heard>,
    /// The newest commit of which something was forgotten to keep the bound.
    forgotten: CommitId,
    resets: u64,
}

impl Audience {
    pub async fn open(hub: &Hub, progress: Arc<Progress>) -> anyhow::Result<Audience> {
        let subscriber = hub.subscribe(Options::default()).await?;
        let heard = Arc::new(Mutex::new(BTreeMap::new()));
        let listening = task::spawn("demo subscriber", listen(subscriber, heard.clone(), progress));
        Ok(Audience { heard, listening })
    }

    /// Users of commits in this shard's log that were not heard, or not in this order. A log that reaches further back
    /// than what is remembered is compared from there.
    pub fn missed(&self, shard: Shard, log: &[Signal]) -> u64 {
        let histories = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let none = History::default();
        let history = histories.get(&shard).unwrap_or(&none);
        let mut heard = history.heard.iter().peekable();
        let mut missed = 0;
        for signal in log.iter().filter(|signal| signal.id > history.forgotten) {
            for (user, views) in &signal.users {
                let expected = (signal.id, user.clone(), *views);
                while heard.next_if(|heard| heard.0 < signal.id).is_some() {}
                match heard.next_if(|heard| **heard == expected) {
                    Some(_) => {}
                    None => missed += 1,
                }
            }
        }
        missed
    }

    /// How often continuity could not be proven.
    pub fn resets(&self) -> u64 {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).values().map(|history| history.resets).sum()
    }
}

impl Drop for Audience {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(mut subscriber: Subscriber, heard: Arc<Mutex<BTreeMap<Shard, History>>>, progress: Arc<Progress>) {
    while let Some(event) = subscriber.next_event().await {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Changed { shard, commit, user, views } => {
                progress.heard(&user);
                heard.entry(shard).or_default().push((commit, user, views));
            }
            Event::Reset { shard } => heard.entry(shard).or_default().resets += 1,
        }
    }
}

impl History {
    fn push(&mut self, heard: Heard) {
        if self.heard.len() == HEARD_MAX
            && let Some((commit, ..)) = self.heard.pop_front()
        {
            self.forgotten = commit;
        }
        self.heard.push_back(heard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audience(heard: &[(u64, &str)]) -> Audience {
        let mut history = History::default();
        heard.iter().for_each(|(sequence, user)| history.push(one(*sequence, user)));
        let heard = Arc::new(Mutex::new(BTreeMap::from([(Shard(0), history)])));
        Audience { heard, listening: task::spawn("nothing", async {}) }
    }

    fn one(sequence: u64, user: &str) -> Heard {
        (CommitId::new(1, sequence), user.parse().unwrap(), Views::BIRTHDAYS)
    }

    fn log(commits: &[(u64, &[&str])]) -> Vec<Signal> {
        let signal = |(sequence, users): &(u64, &[&str])| Signal {
            id: CommitId::new(1, *sequence),
            previous: CommitId::new(1, sequence - 1),
            at_milliseconds: 0,
            users: users.iter().map(|user| (user.parse().unwrap(), Views::BIRTHDAYS)).collect(),
        };
        commits.iter().map(signal).collect()
    }

    #[tokio::test]
    async fn every_user_of_every_commit_must_be_heard_in_order() {
        let written = log(&[(1, &["a", "b"]), (2, &[]), (3, &["a"])]);
        for (heard, missed) in [
            (&[(1, "a"), (1, "b"), (3, "a")][..], 0),
            (&[(1, "a"), (3, "a")], 1),
            (&[(3, "a"), (1, "a"), (1, "b")], 2),
            (&[], 3),
        ] {
            assert_eq!(audience(heard).missed(Shard(0), &written), missed, "{heard:?}");
        }
        assert_eq!(audience(&[]).missed(Shard(1), &written), 3, "a shard that was never heard");
    }

    #[tokio::test]
    async fn what_was_forgotten_to_keep_the_bound_is_not_missed() {
        let audience = audience(&[]);
        {
            let mut histories = audience.heard.lock().unwrap();
            let history = histories.get_mut(&Shard(0)).unwrap();
            (1..=HEARD_MAX as u64 + 5).for_each(|sequence| history.push(one(sequence, "a")));
            assert_eq!(history.heard.len(), HEARD_MAX);
        }
        let all: Vec<(u64, &[&str])> = (1..=HEARD_MAX as u64 + 6).map(|sequence| (sequence, &["a"][..])).collect();
        assert_eq!(audience.missed(Shard(0), &log(&all)), 1, "only the newest, which nobody heard");
    }
}
