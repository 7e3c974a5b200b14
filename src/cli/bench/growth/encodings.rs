//! Users with few and many friends, their hashes in one piece of memory or as a table: what that saves, and what it costs.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context as _, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::super::drain::heyday::Team;
use super::super::ground::{Field, Ground};
use super::super::report::{Chapter, Figure, Table};
use super::super::rounds::{Contestant, Outcome, Sample, Turn, interleave};
use super::super::servers::{NodeUse, between};
use super::super::workload::{birthday, id};
use super::super::{Plan, tell};
use super::fill::{DataSet, restless};
use super::memory::usage;
use super::room;
use crate::change::{Action, Change};
use crate::redis::Pipeline;

/// Up to so many friends a hash is one piece.
pub const SETTING: &str = "hash-max-listpack-entries";
/// Friends of a user, and the bound.
const CASES: [(u64, u64); 10] = [
    (10, 128),
    (50, 128),
    (150, 128),
    (150, 256),
    (300, 128),
    (300, 512),
    (500, 128),
    (500, 512),
    (1000, 128),
    (1000, 1024),
];
const SMOKE_CASES: [(u64, u64); 2] = [(150, 128), (150, 256)];
const SHARDS: u32 = 16;
/// So that a user comes once in a batch: as many in a shard.
const BATCH: usize = 128;
const CHANGES_MAX: usize = 65_536;
/// Hashes that are written anew, as a rebuild writes them.
const ANEW_MAX: usize = 256;

pub async fn measure(ground: &Rc<Ground>, plan: &Plan, chapter: &mut Chapter) -> anyhow::Result<()> {
    let (cases, users) =
        if plan.smoke { (&SMOKE_CASES[..], 32) } else { (&CASES[..], u64::from(SHARDS) * BATCH as u64) };
    let (cases, note) = fitting(cases, users, room::free());
    let usual = ground.setting(SETTING).await?;
    let mut found: Vec<Found> = Vec::new();
    let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
    for (friends, bound) in cases {
        let set = DataSet { seed: ground.seed, friends };
        let case = Case { ground: ground.clone(), set, bound, users, changes: plan.changes.min(CHANGES_MAX) };
        let seen = Found::default();
        found.push(seen.clone());
        contestants.push(Box::new(Encoded { case, field: None, found: seen }));
    }
    let outcomes = interleave(plan.rounds, &mut contestants, tell).await;
    ground.configure(SETTING, &usual).await?;
    ground.clear(ground.field(SHARDS).await?).await?;
    chapter.failed("encodings", &outcomes);
    let mut table = table(&outcomes, &found);
    table.notes.extend(note);
    chapter.tables.push(table);
    Ok(())
}

/// The cases whose data sets fit into so much free memory side by side, and which are left out. The largest go first.
fn fitting(cases: &[(u64, u64)], users: u64, free: Option<u64>) -> (Vec<(u64, u64)>, Option<String>) {
    let (mut kept, mut left_out) = (cases.to_vec(), Vec::new());
    let large = |kept: &[(u64, u64)]| {
        let friendships = kept.iter().map(|(friends, _)| friends * users).sum();
        free.and_then(|free| room::too_large(friendships, free)).is_some()
    };
    while large(&kept) {
        let largest = kept.iter().map(|(friends, _)| *friends).max();
        let Some(at) = kept.iter().rposition(|(friends, _)| Some(*friends) == largest) else { break };
        let (friends, bound) = kept.remove(at);
        left_out.push(format!("{friends} friends, up to {bound}"));
    }
    let note = (!left_out.is_empty()).then(|| {
        format!(
            "left out, since the data sets lie side by side and memory has no room for all: {}",
            left_out.join("; ")
        )
    });
    (kept, note)
}

/// One size of users under one bound.
struct Case {
    ground: Rc<Ground>,
    set: DataSet,
    bound: u64,
    users: u64,
    changes: usize,
}

/// What does not fit into a sample, round by round.
#[derive(Clone, Default)]
struct Found(Rc<RefCell<Vec<Plain>>>);

#[derive(Clone, Copy, Default)]
struct Plain {
    /// Of the birthdays hashes.
    bytes: f64,
    hset_new: f64,
    hdel: f64,
    hgetall: f64,
    /// Of each friend where all come at once.
    hset_all: f64,
}

struct Encoded {
    case: Case,
    field: Option<Field>,
    found: Found,
}

impl Contestant for Encoded {
    fn name(&self) -> String {
        let form = if self.case.set.friends <= self.case.bound { "one piece" } else { "table" };
        format!("{} friends, up to {}: {form}", self.case.set.friends, self.case.bound)
    }

    fn turn(&mut self, round: usize) -> Turn<'_> {
        Box::pin(async move {
            let case = &self.case;
            case.ground.configure(SETTING, &case.bound.to_string()).await?;
            if self.field.is_none() {
                self.field = Some(case.fill().await?);
            }
            let field = self.field.as_ref().context("it was filled")?;
            let team = Team::with_options(&case.ground, field, 1, |options| {
                restless(options);
                options.batch_changes_max = BATCH;
            })?;
            let held = team.paused(field, SHARDS).await?;
            let changes = case.changes(round);
            field.append(&changes).await?;
            case.ground.settled().await?;
            let sample = team.drain(&case.ground, held, changes.len() as u64).await?;
            team.stop().await?;
            let plain = case.plain(field).await?;
            self.found.0.borrow_mut().push(plain);
            Ok(sample)
        })
    }
}

impl Case {
    async fn fill(&self) -> anyhow::Result<Field> {
        let field = self.ground.field(SHARDS).await?;
        let team = Team::with_options(&self.ground, &field, 2, restless)?;
        team.ready(SHARDS).await?;
        self.set.load(&self.ground, &field, 0..self.users).await?;
        team.stop().await?;
        self.set.prove(&field, self.users, 20).await?;
        let user = id(0);
        let (keys, mut question) = (field.hub.keys_of(&user), Pipeline::new());
        question.push(&["OBJECT", "ENCODING", keys.birthdays(&user).as_str()]);
        let answer = field.ask(&[(keys.slot, question)]).await?;
        let (encoding, table) = (answer[0].to_str()?, self.set.friends > self.bound);
        ensure!((encoding == "hashtable") == table, "a hash of {} friends is a {encoding}", self.set.friends);
        Ok(field)
    }

    /// New dates for friends all over, user after user.
    fn changes(&self, round: usize) -> Vec<Change> {
        let mut random = SmallRng::seed_from_u64(self.set.seed.wrapping_add(round as u64));
        let passes = (self.changes as u64).div_ceil(self.users);
        let mut by_pass: Vec<Vec<Change>> = (0..passes).map(|_| Vec::new()).collect();
        for user in 0..self.users {
            let friends = self.set.friends_of(user);
            for pass in &mut by_pass {
                let friend = friends[random.random_range(0..friends.len())].friend.clone();
                let action = Action::Add { friend, birthday: Some(birthday(&mut random)), mutual: false };
                pass.push(Change::new(id(user), action));
            }
        }
        by_pass.concat()
    }

    /// What single commands take, by the servers' own clocks.
    async fn plain(&self, field: &Field) -> anyhow::Result<Plain> {
        let (mut keys, mut commands) = (Vec::new(), Vec::new());
        for number in 0..self.users {
            let user = id(number);
            let names = field.hub.keys_of(&user);
            let key = names.birthdays(&user);
            let friend = id(u64::from(u32::MAX));
            let mut pipeline = Pipeline::new();
            pipeline.push(&["HSET", key.as_str(), friend.as_str(), "1990-05-01"]);
            commands.push((names.slot, std::mem::take(&mut pipeline)));
            pipeline.push(&["HDEL", key.as_str(), friend.as_str()]);
            commands.push((names.slot, std::mem::take(&mut pipeline)));
            pipeline.push(&["HGETALL", key.as_str()]);
            commands.push((names.slot, pipeline));
            keys.push((names.slot, key));
        }
        let before = self.ground.look().await?;
        for part in commands.chunks(300) {
            field.ask(part).await?;
        }
        let used = between(&before, &self.ground.look().await?);
        let bytes: u64 = usage(field, &keys).await?.iter().flatten().sum();
        let bytes = bytes as f64 / (self.users * self.set.friends) as f64;
        let before = self.ground.look().await?;
        let anew = keys.iter().zip(0..).take(ANEW_MAX).map(|((slot, key), user)| {
            let mut pipeline = Pipeline::new();
            pipeline.push(&["DEL", key.as_str()]);
            (*slot, pipeline, self.set.bare(field, user))
        });
        for (slot, removal, all) in anew {
            field.ask(&[(slot, removal), all]).await?;
        }
        let hset_all = took(&between(&before, &self.ground.look().await?), "hset") / self.set.friends as f64;
        let (hset_new, hdel, hgetall) = (took(&used, "hset"), took(&used, "hdel"), took(&used, "hgetall"));
        Ok(Plain { bytes, hset_new, hdel, hgetall, hset_all })
    }
}

/// Microseconds a call on the primaries.
pub fn took(servers: &[NodeUse], command: &str) -> f64 {
    let of = |counters: fn(&NodeUse) -> &std::collections::BTreeMap<String, f64>| -> f64 {
        let primaries = servers.iter().filter(|node| node.primary);
        primaries.filter_map(|node| counters(node).get(command)).sum()
    };
    of(|node| &node.busy) / of(|node| &node.calls)
}

fn table(outcomes: &[Outcome], found: &[Found]) -> Table {
    let headings = [
        "users and the bound of one piece",
        "bytes/friendship, hash alone",
        "changes/s",
        "server CPU us/change",
        "worker CPU us/change",
        "HMGET us",
        "HSET us",
        "HSET of a new friend us",
        "HDEL us",
        "HGETALL us",
        "HSET of all at once us/friend",
    ];
    let mut table = Table::new(&format!("Users with few and many friends, by {SETTING}"), &headings);
    for (outcome, found) in outcomes.iter().zip(found) {
        let plain = found.0.borrow();
        let of = |what: fn(&Sample) -> f64| Figure::of(outcome.samples.iter().map(what));
        let each = |what: fn(&Plain) -> f64| Figure::of(plain.iter().map(what));
        let figures = [
            each(|plain| plain.bytes),
            of(Sample::rate),
            of(Sample::server_cpu),
            of(Sample::worker_cpu),
            of(|sample| took(&sample.servers, "hmget")),
            of(|sample| took(&sample.servers, "hset")),
            each(|plain| plain.hset_new),
            each(|plain| plain.hdel),
            each(|plain| plain.hgetall),
            each(|plain| plain.hset_all),
        ];
        table.row(outcome.name.clone(), figures);
    }
    table.notes.push(format!(
        "Each change tells the date of a friend anew; batches of at most {BATCH}. HMGET and HSET are those of the changes, of \
         which each batch has one more for its state; all by the servers' own clocks, from the beginning to the end of a command."
    ));
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_largest_data_sets_are_left_out_until_the_others_fit() {
        let gibibyte = 1024 * 1024 * 1024;
        assert_eq!(fitting(&CASES, 2048, None), (CASES.to_vec(), None));
        assert_eq!(fitting(&CASES, 2048, Some(16 * gibibyte)), (CASES.to_vec(), None));
        let (kept, note) = fitting(&CASES, 2048, Some(2 * gibibyte));
        assert_eq!(kept, CASES[..9]);
        assert!(note.is_some_and(|note| note.ends_with("all: 1000 friends, up to 1024")));
        assert!(fitting(&CASES, 2048, Some(0)).0.is_empty());
    }

    #[test]
    fn a_call_takes_its_share_of_all() {
        let counters = |number: f64| BTreeMap::from([("hset".to_owned(), number)]);
        let node = |primary, calls, busy| NodeUse { primary, calls, busy, ..NodeUse::default() };
        let nodes = [
            node(true, counters(10.0), counters(20.0)),
            node(true, counters(10.0), counters(40.0)),
            node(false, counters(10.0), counters(1000.0)),
        ];
        assert_eq!(took(&nodes, "hset"), 3.0);
        assert!(took(&nodes, "hget").is_nan());
    }
}
