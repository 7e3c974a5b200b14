//! A data set: users with their friends. It comes into a field as a rebuild brings it, through the stream and the workers, so
//! that everything stands there that heyday itself writes; and beside it as the bare hashes of the same friends.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::super::ground::{Field, Ground};
use super::super::workload::{birthday, id};
use crate::change::{Action, Change, Listed, Snapshot, UserId};
use crate::position::EntryId;
use crate::redis::rebuild::Shards;
use crate::redis::{Pipeline, Pipes};
use crate::shard::Shard;
use crate::worker;

/// Friendships that are sent together, and how many such parts may wait in streams besides.
const SENT_TOGETHER: u64 = 100_000;
const AHEAD_MAX: usize = 4;
/// How long all shards may stand still.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a shard may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The numbers of two friends of a user are apart by this at most.
const FRIEND_STEP_MAX: u64 = 100_000;
/// What is loaded is out of the streams soon after it was applied, and a shard stops as soon as it is told.
const TRIM_INTERVAL: Duration = Duration::from_millis(200);
const BLOCK: Duration = Duration::from_millis(50);

/// Users numbered from zero, all with as many friends.
#[derive(Clone, Copy, Debug)]
pub struct DataSet {
    pub seed: u64,
    pub friends: u64,
}

impl DataSet {
    /// Always the same for the same user: in the order of their ids, with dates of all years and days.
    pub fn friends_of(&self, user: u64) -> Vec<Listed> {
        let mut random = SmallRng::seed_from_u64(self.seed ^ user.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut number = u64::from(u32::MAX);
        let listed = (0..self.friends).map(|_| {
            number += random.random_range(1..=FRIEND_STEP_MAX);
            Listed { friend: id(number), birthday: birthday(&mut random), version: None }
        });
        listed.collect()
    }

    fn snapshot_of(&self, user: u64, moment: u64) -> Change {
        let snapshot = Snapshot { friends: self.friends_of(user), ..Snapshot::default() };
        Change { at: Some(moment), ..Change::new(id(user), Action::Snapshot(Box::new(snapshot))) }
    }

    fn users_together(&self) -> u64 {
        (SENT_TOGETHER / self.friends).max(1)
    }

    /// Returns once workers have applied all of these users, the streams are trimmed and the replicas in step.
    pub async fn load(&self, ground: &Ground, field: &Field, users: Range<u64>) -> anyhow::Result<()> {
        let streams = Streams::of(field);
        let moment = streams.0.now().await?;
        streams.0.mark(moment).await?;
        let (mut next, mut ahead) = (users.start, VecDeque::new());
        while next < users.end {
            let end = (next + self.users_together()).min(users.end);
            let changes: Vec<Change> = (next..end).map(|user| self.snapshot_of(user, moment)).collect();
            ahead.push_back(field.append(&changes).await?);
            if ahead.len() > AHEAD_MAX
                && let Some(oldest) = ahead.pop_front()
            {
                streams.until_applied(&oldest).await?;
            }
            next = end;
        }
        for ids in &ahead {
            streams.until_applied(ids).await?;
        }
        let dead: u64 = streams.0.look().await?.iter().map(|seen| seen.dead).sum();
        ensure!(dead == 0, "{dead} users were set aside instead of loaded");
        streams.0.unmark(Some(moment)).await?;
        trimmed(field).await?;
        ground.settled().await
    }

    /// The bare hashes of the same friends, and nothing else.
    pub async fn load_bare(&self, ground: &Ground, field: &Field, users: Range<u64>) -> anyhow::Result<()> {
        let mut next = users.start;
        while next < users.end {
            let end = (next + self.users_together()).min(users.end);
            let commands: Vec<(u16, Pipeline)> = (next..end).map(|user| self.bare(field, user)).collect();
            field.ask(&commands).await?;
            next = end;
        }
        ground.settled().await
    }

    /// The command that writes the hash of one user.
    pub fn bare(&self, field: &Field, user: u64) -> (u16, Pipeline) {
        let user_id = id(user);
        let (keys, mut pipeline) = (field.hub.keys_of(&user_id), Pipeline::new());
        let mut command = pipeline.command("HSET");
        command.arg_parts(&keys.birthdays_parts(&user_id));
        for Listed { friend, birthday, .. } in self.friends_of(user) {
            command.arg(friend.as_str()).arg(birthday.to_string());
        }
        drop(command);
        (keys.slot, pipeline)
    }

    /// Compares so many of the users with what was loaded, whatever else they have by now.
    pub async fn prove(&self, field: &Field, users: u64, sample: u64) -> anyhow::Result<()> {
        let numbers: Vec<u64> = sampled(users, sample).collect();
        let ids: Vec<UserId> = numbers.iter().map(|&number| id(number)).collect();
        let questions = numbers.iter().zip(&ids).map(|(&number, user)| {
            let (keys, mut pipeline) = (field.hub.keys_of(user), Pipeline::new());
            let mut command = pipeline.command("HMGET");
            command.arg_parts(&keys.birthdays_parts(user));
            command.args(self.friends_of(number).iter().map(|listed| listed.friend.as_str()));
            drop(command);
            (keys.slot, pipeline)
        });
        let answers = field.ask(&questions.collect::<Vec<_>>()).await?;
        for (&number, answer) in numbers.iter().zip(&answers) {
            for (listed, stored) in self.friends_of(number).iter().zip(answer.as_array()?) {
                let stored = stored.to_str().unwrap_or("nothing");
                let Listed { friend, birthday, .. } = listed;
                ensure!(stored == birthday.to_string(), "friend {friend} of user {number}: {stored}, not {birthday}");
            }
        }
        Ok(())
    }
}

/// Workers that tend to their shards more often than usual: for what is not measured.
pub fn restless(options: &mut worker::Options) {
    (options.trim_interval, options.block) = (TRIM_INTERVAL, BLOCK);
}

/// So many of all numbers below `all`, in even steps.
pub fn sampled(all: u64, sample: u64) -> impl Iterator<Item = u64> {
    let count = sample.min(all);
    (0..count).map(move |at| at * all / count)
}

/// How far the shards of a field have come. What workers themselves count does not tell: of a commit whose answer was lost
/// they learn later that it was done, and not how much of it.
pub struct Streams(Shards);

impl Streams {
    pub fn of(field: &Field) -> Streams {
        let (topology, hub) = (field.hub.topology(), &field.hub);
        let pipes = Arc::new(Pipes::new(topology.options().clone()));
        Streams(Shards::new((topology.clone(), pipes), hub.keys().clone(), hub.layout().clone(), TIMEOUT))
    }

    /// Waits until each shard has applied the last of these entries.
    pub async fn until_applied(&self, ids: &BTreeMap<Shard, Vec<EntryId>>) -> anyhow::Result<()> {
        let (mut left, mut moved_at) = (usize::MAX, Instant::now());
        loop {
            let seen = self.0.look().await?;
            let behind = ids
                .iter()
                .filter(|(shard, ids)| ids.last().is_some_and(|last| seen[usize::from(shard.0)].applied < *last));
            let now = behind.count();
            if now == 0 {
                return Ok(());
            }
            if now < left {
                (left, moved_at) = (now, Instant::now());
            }
            ensure!(moved_at.elapsed() < PATIENCE, "{left} shards do not apply what was appended to them");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// Waits until no stream holds anything.
async fn trimmed(field: &Field) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let questions = field.hub.layout().shards().map(|shard| {
            let (keys, mut pipeline) = (field.hub.shard_keys(shard), Pipeline::new());
            pipeline.command("XLEN").arg(keys.changes.as_bytes());
            (keys.slot, pipeline)
        });
        let lengths = field.ask(&questions.collect::<Vec<_>>()).await?;
        let left = lengths.iter().map(|length| length.as_u64()).sum::<Result<u64, _>>()?;
        if left == 0 {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "{left} applied entries are still in the streams");
        tokio::time::sleep(TRIM_INTERVAL / 4).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_always_has_the_same_friends_in_order() {
        let set = DataSet { seed: 7, friends: 300 };
        let friends = set.friends_of(12);
        assert_eq!((friends.len(), &friends), (300, &set.friends_of(12)));
        assert!(friends.windows(2).all(|pair| pair[0].friend < pair[1].friend));
        assert_ne!(friends, set.friends_of(13));
    }

    #[test]
    fn a_sample_is_spread_over_all() {
        assert_eq!(sampled(10, 3).collect::<Vec<_>>(), [0, 3, 6]);
        assert_eq!(sampled(2, 3).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(sampled(0, 3).count(), 0);
    }
}
