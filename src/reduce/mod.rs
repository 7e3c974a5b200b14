//! The core: what a batch of changes does to a shard, with no I/O and no clock.
//!
//! A batch goes through here twice: [`Plan::of`] says what must be loaded, [`reduce`] turns that and the batch into a
//! [`Commit`], a list of plain commands that the store executes in one transaction.

mod activity;
mod batch;
mod changed;
mod days;
mod friends;
mod jobs;
mod named;
mod op;
mod plan;
mod profile;
mod roll;
mod snapshot;
mod step;
mod user;
mod versions;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::Date;

use crate::calendar::{Calendar, Window};
use crate::change::{Action, Change, Fields, Limits, Problem, Rejection};
use crate::position::{CommitId, EntryId, Order};
use crate::shard::{Layout, Shard};
use crate::signal::Signal;

pub use batch::reduce;
pub use changed::is_change_mark;
pub use jobs::{Job, JobChange, Jobs, Progress, Survey, parse as parse_job};
pub use op::Op;
pub use plan::{Loaded, Plan, UserLoaded, UserPlan};
pub use roll::{ROLL_ASKED_FIELD, ROLL_FIELD, ROLLED_AT_FIELD, Roll, RollStep, RolledUser, Surveyed, Turn};
pub use step::{Place, Step};

/// The field of `state` that says at which moment the rebuild stands that is on, Unix milliseconds.
pub const REBUILD_FIELD: &str = "rebuild";
/// Fields looked at for pruning when one is added: more than one, so that what has expired shrinks faster than it grows.
pub const PRUNE_SAMPLE: usize = 16;

/// A change of zone reads and moves all friends of its user: it weighs as much as so many further changes.
const MOVE_WEIGHT: usize = 31;

/// What the rules need to know; alike for every worker of a cluster.
#[derive(Clone, Debug)]
pub struct Rules {
    pub limits: Limits,
    pub calendar: Calendar,
    /// How long an event id is remembered.
    pub dedup_window: Duration,
    /// How long a silent producer's position is remembered.
    pub producer_retention: Duration,
    /// How long a removal's version is remembered.
    pub tombstone_retention: Duration,
    pub log_length_max: u64,
    pub dead_letters_max: u64,
    /// Categories of which a user's sums are kept: the heaviest.
    pub top_max: u64,
    /// Own fields that a profile may have.
    pub profile_fields_max: u64,
    /// How long own fields of a profile outlive its last change; none for ever.
    pub profile_ttl: Option<Duration>,
    /// Own fields that have no such end.
    pub profile_keep: BTreeSet<String>,
}

impl Default for Rules {
    fn default() -> Rules {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Rules {
            limits: Limits::default(),
            calendar: Calendar::default(),
            dedup_window: DAY,
            producer_retention: 30 * DAY,
            tombstone_retention: 30 * DAY,
            log_length_max: 10_000,
            dead_letters_max: 100_000,
            profile_ttl: None,
            profile_keep: BTreeSet::new(),
            top_max: 50,
            profile_fields_max: 128,
        }
    }
}

/// An entry of a shard's stream as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: EntryId,
    /// None where the entry was trimmed while it was pending.
    pub fields: Option<Fields>,
    /// How often it was delivered; 1 for a new entry.
    pub deliveries: u64,
}

/// An entry and what it says.
#[derive(Clone, Debug)]
pub struct Decoded {
    pub entry: Entry,
    pub change: Result<Change, Rejection>,
}

/// What is stored in `state:{tag}`. The lease holder remembers it: every commit is fenced by generation and position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardState {
    pub generation: u64,
    /// The last commit.
    pub last: CommitId,
    /// The last entry whose effects are in the views; every entry up to it is settled.
    pub applied: EntryId,
    /// The highest order of a change to both sides of a friendship that the shard has seen.
    pub order: Order,
    /// The first and the last day that changes keep, once there was a commit. A day that was opened stays so until it is
    /// closed, and one that was over stays over, whatever the clock says meanwhile.
    pub first: Option<Date>,
    pub open: Option<Date>,
    /// The last day that holds everybody who celebrates, as all from the first do, once the shard was rolled.
    pub rolled: Option<Date>,
    /// The moment of the rebuild that is on, as it was loaded last; no commit writes it.
    pub rebuild: Option<u64>,
    pub counts: Counts,
}

/// Since the shard began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries settled in any way.
    pub entries: u64,
    /// Entries that became dead letters.
    pub dead: u64,
    /// Entries that changed nothing: repeated, outdated, or without effect.
    pub skipped: u64,
}

/// How an entry was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Applied,
    /// The view already said so.
    Unchanged,
    /// A newer version was applied before.
    Outdated,
    /// An event id or a producer's sequence seen before, or an entry settled before.
    Duplicate,
    /// An update of a friendship that does not exist.
    NoSuchFriend,
    Dead,
}

/// One transaction: all of it happens, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Every entry of the batch, in order; none of a step that no entry asked for.
    pub settled: Vec<EntryId>,
    /// Those of them that may be pending.
    pub acks: Vec<EntryId>,
    pub ops: Vec<Op>,
    pub signal: Signal,
    /// The state after it.
    pub state: ShardState,
    pub log_length_max: u64,
    /// One for each entry, in order.
    pub outcomes: Vec<Outcome>,
    /// The kinds of the dead letters.
    pub dead_kinds: Vec<&'static str>,
    /// How many entries it writes for other shards.
    pub relays: u64,
    /// Jobs that begin, go on or, where there is no progress, end.
    pub jobs: Vec<JobChange>,
}

impl Outcome {
    pub const ALL: [Outcome; 6] = [
        Outcome::Applied,
        Outcome::Unchanged,
        Outcome::Outdated,
        Outcome::Duplicate,
        Outcome::NoSuchFriend,
        Outcome::Dead,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Outcome::Applied => "applied",
            Outcome::Unchanged => "unchanged",
            Outcome::Outdated => "outdated",
            Outcome::Duplicate => "duplicate",
            Outcome::NoSuchFriend => "no_such_friend",
            Outcome::Dead => "dead",
        }
    }
}

impl ShardState {
    /// The days that changes keep at a moment: those that the calendar names, and those that were opened before, but for those
    /// that were over before.
    pub fn window(&self, calendar: &Calendar, milliseconds: u64) -> Window {
        let named = calendar.window(milliseconds);
        let later = |stored: Option<Date>, named: Date| stored.map_or(named, |stored| stored.max(named));
        Window { first: later(self.first, named.first), last: later(self.open, named.last) }
    }

    /// The same after one more commit of this generation, with these days open.
    fn next(&self, window: Window) -> ShardState {
        let sequence = if self.last.generation == self.generation { self.last.sequence + 1 } else { 1 };
        ShardState {
            last: CommitId::new(self.generation, sequence),
            first: Some(window.first),
            open: Some(window.last),
            ..*self
        }
    }
}

impl Decoded {
    pub fn new(entry: Entry, limits: &Limits) -> Decoded {
        let change = match &entry.fields {
            Some(fields) => Change::decode(fields, limits, entry.id.milliseconds),
            None => Err(Rejection::new("entry", None, Problem::Trimmed)),
        };
        Decoded { entry, change }
    }

    /// The same, where it is about a user of the shard it was found in; otherwise nobody would ever look where it went.
    pub fn at(self, layout: &Layout, found: Shard) -> Decoded {
        match &self.change {
            Ok(change) => {
                let Some(stray) = change.users().find(|user| layout.shard_of(user) != found) else { return self };
                let belongs = layout.shard_of(stray);
                let user = stray.as_str().as_bytes();
                let rejection = Rejection::new("user", Some(user), Problem::WrongShard { belongs, found });
                Decoded { change: Err(rejection), ..self }
            }
            Err(_) => self,
        }
    }

    /// How many views it changes at most.
    pub fn weight(&self) -> usize {
        self.change.as_ref().map_or(1, |change| match &change.action {
            Action::Snapshot(snapshot) => snapshot.weight(),
            action if action.moves() => 1 + MOVE_WEIGHT,
            _ => 1 + change.others.len(),
        })
    }

    /// Whether it must be a batch of its own.
    pub fn stands_alone(&self) -> bool {
        self.change.as_ref().is_ok_and(|change| match &change.action {
            Action::Forget => true,
            Action::Snapshot(snapshot) => snapshot.is_of_nobody(),
            _ => false,
        })
    }

    /// The entry as a dead letter, for a reason that lies outside it.
    pub fn rejected(entry: Entry, problem: Problem) -> Decoded {
        Decoded { entry, change: Err(Rejection::new("entry", None, problem)) }
    }
}

#[cfg(test)]
mod tests;
