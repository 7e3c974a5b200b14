//! The boundary between the worker and Redis, at the level of meaning. Two implementations: the real one in
//! [`crate::redis`], and the model in `testing`, which specifies it; conformance tests run the same operations on both.

use std::time::Duration;

use crate::change::{Fields, UserId};
use crate::error::Disposition;
use crate::lease::WorkerId;
use crate::position::EntryId;
use crate::reduce::{Commit, Entry, Job, Jobs, Loaded, Plan, Progress, Roll, ShardState, Survey, Surveyed};
use crate::shard::Shard;

/// Why an operation did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub disposition: Disposition,
    /// A short, stable name for counting, such as `timeout` or `out_of_memory`.
    pub reason: &'static str,
    /// For people: node, what was asked, what came back.
    pub message: String,
}

/// The answer to taking a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The lease is this worker's, with a new generation, which the state carries.
    Mine(ShardState, Cause),
    Held(WorkerId),
}

/// Why a lease was there to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nobody is known to have owned the shard.
    First,
    /// Its last owner gave it up in order.
    Released,
    /// The lease of its last owner ran out: it died, stalled or was cut off.
    Expired,
    /// The taker owned it before and nobody since.
    Same,
}

impl Cause {
    /// For counting and for logs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::First => "first",
            Cause::Released => "released",
            Cause::Expired => "expired",
            Cause::Same => "same",
        }
    }
}

/// The maintenance lock as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// There is none: there never was one, or it ran out.
    None,
    /// There was one, and somebody ended it in order.
    GivenUp,
    On(MaintenanceLock),
}

/// Who keeps the workers from committing, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceLock {
    pub holder: String,
    pub reason: String,
    /// For how long it has been held, by server time.
    pub held_for: Duration,
    /// Until it runs out.
    pub left: Duration,
}

/// Which entries to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Those delivered before and not yet acknowledged, oldest first, from the beginning. Answers at once.
    Pending,
    /// The oldest of those alone, by its id and without its fields: for one that is too large to be read.
    Head,
    /// Those never delivered; waits for the first one as long as this.
    New { block: Duration },
}

/// The answer to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All of it happened. Errors of single commands (a key of a foreign type) are listed; the rest stands.
    Done { errors: Vec<String> },
    /// None of it happened: somebody wrote the shard's state since it was loaded.
    Refused,
}

/// The reason of a read whose answer is larger than can be taken in.
pub const TOO_LARGE: &str = "too_large";

/// A trim that removed as many entries may have left more.
pub const TRIMMED_PART_MIN: u64 = 5000;

/// What waits in a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Entries never delivered. An estimate where the server can only estimate; zero is exact.
    pub unread: u64,
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// The age by server time of the oldest entry after the applied position; none where every entry is settled.
    pub oldest_milliseconds: Option<u64>,
    pub dead_letters: u64,
    /// Entries for other shards that are not relayed yet.
    pub outbox: u64,
    /// Whether the shard's state is gone, as after FLUSHALL or a lost key.
    pub state_lost: bool,
    pub calendar: CalendarNews,
}

/// What a shard's calendar hears from outside: the time, and whether somebody asks for a roll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalendarNews {
    /// Server time, Unix milliseconds.
    pub milliseconds: u64,
    pub roll_asked: bool,
}

/// What an owner must go on with that took the shard over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Entries for other shards.
    pub outbox: u64,
    /// Some of the jobs under way, so many at most as were asked for.
    pub jobs: Jobs,
    /// Whether there may be further ones.
    pub more: bool,
    pub roll: Option<Roll>,
    pub calendar: CalendarNews,
}

/// An entry for another shard, as it lies in the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Its place in the outbox, which the other shard remembers.
    pub id: EntryId,
    /// Whose view it changes first; none where somebody else wrote into the outbox.
    pub user: Option<UserId>,
    pub fields: Fields,
}

/// The reason where too few replicas have what was written.
pub const TOO_FEW_REPLICAS: &str = "replicas";

/// Where shards live.
pub trait Store: Clone + Send + Sync + 'static {
    type Link: ShardLink;

    /// A link to the node that owns the shard's slot now.
    fn connect(&self, shard: Shard) -> impl Future<Output = Result<Self::Link, Error>> + Send;

    /// Something said that the topology changed: look before the next connect.
    fn refresh(&self) -> impl Future<Output = ()> + Send;

    /// Tells that this worker lives, forgets those silent for longer than `silent_max`, and lists the living.
    fn heartbeat(
        &self,
        worker: &WorkerId,
        silent_max: Duration,
    ) -> impl Future<Output = Result<Vec<WorkerId>, Error>> + Send;

    /// This worker is no longer among the living.
    fn leave(&self, worker: &WorkerId) -> impl Future<Output = Result<(), Error>> + Send;

    /// The maintenance lock, and tells whether all of this worker's shards have `paused`. Works when memory is full.
    fn maintenance(&self, worker: &WorkerId, paused: bool) -> impl Future<Output = Result<Maintenance, Error>> + Send;

    /// The holders of these shards' leases; an error for a shard whose node does not answer.
    fn holders(&self, shards: &[Shard]) -> impl Future<Output = Vec<Result<Option<WorkerId>, Error>>> + Send;

    /// Makes these leases last no longer than `ttl`, each as long as it is still this holder's; answers which lasted longer.
    /// Works when memory is full.
    fn shorten(
        &self,
        leases: &[(Shard, WorkerId)],
        ttl: Duration,
    ) -> impl Future<Output = Vec<Result<bool, Error>>> + Send;

    /// Gives the lease up if it is this worker's, and notes that this was done in order. Safe to call twice and from beside
    /// the link. Works when memory is full.
    fn release(&self, shard: Shard, worker: &WorkerId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// What lies in a shard's outbox above `after`, oldest first, at most `count`. Safe from beside the link: nothing in it
    /// ever changes, and it is never taken out unsent.
    fn outbox(
        &self,
        shard: Shard,
        after: EntryId,
        count: usize,
    ) -> impl Future<Output = Result<Vec<Relay>, Error>> + Send;

    /// Appends entries of `source`'s outbox to `target`'s stream, all of them in order or none, and waits until so many
    /// replicas have them. Safe to repeat: the target drops what it has had from this source.
    fn relay(
        &self,
        source: Shard,
        target: Shard,
        relays: &[Relay],
        replicas: u32,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes entries that were relayed out of the outbox.
    fn relayed(&self, shard: Shard, ids: &[EntryId]) -> impl Future<Output = Result<(), Error>> + Send;
}

/// One shard's connection, used in strict sequence. After an error that is not clean
/// ([`Disposition::is_clean`]) or after a dropped call it is dead: every later call fails.
pub trait ShardLink: Send + 'static {
    /// Takes the lease where it is free or this worker's already, raises the generation and makes sure that the group
    /// exists, at the stored position where it was lost; a stream that was lost is begun anew above that position. The
    /// generation is above the log's tip too. One atomic step, refused whole when memory is full.
    fn take(&mut self, worker: &WorkerId, ttl: Duration) -> impl Future<Output = Result<Taken, Error>> + Send;

    /// Extends the lease; false where it is no longer this worker's. Works when memory is full.
    fn renew(&mut self, worker: &WorkerId, ttl: Duration) -> impl Future<Output = Result<bool, Error>> + Send;

    /// At most `count` entries in stream order. Reading a pending entry delivers it once more, unless its body is gone. A
    /// lost group is an error that says to take up again.
    fn read(&mut self, which: Read, count: usize) -> impl Future<Output = Result<Vec<Entry>, Error>> + Send;

    /// Begins to watch the shard's state, forgetting any earlier watch, then reads what the plan names. A user's key of a
    /// foreign type is [`Disposition::Poison`]; a key of the shard's own never is.
    fn load(&mut self, plan: &Plan) -> impl Future<Output = Result<Loaded, Error>> + Send;

    /// Executes the commit unless the watched state was written since [`ShardLink::load`], by whomever. Each load serves
    /// one commit: without a successful load since the last commit, whatever became of that, it is refused.
    fn commit(&mut self, commit: &Commit) -> impl Future<Output = Result<Committed, Error>> + Send;

    /// Removes entries that no group needs and that are older than `retention`; answers how many. Of very many, a
    /// part: [`TRIMMED_PART_MIN`] at the least.
    /// Nothing is removed while the workers' group is lost. Works when memory is full.
    fn trim(&mut self, retention: Duration) -> impl Future<Output = Result<u64, Error>> + Send;

    /// What was begun and is not done: entries for other shards, and at most so many jobs.
    fn unfinished(&mut self, jobs_max: usize) -> impl Future<Output = Result<Unfinished, Error>> + Send;

    /// The next part, of about `count`, of what a job works through.
    fn survey(
        &mut self,
        job: &Job,
        progress: &Progress,
        count: usize,
    ) -> impl Future<Output = Result<Survey, Error>> + Send;

    /// The next part of what a roll looks at: users in order, of about `count` friends together, and of as many users at most.
    /// A user's key of a foreign type is passed over.
    fn survey_days(&mut self, roll: &Roll, count: usize) -> impl Future<Output = Result<Surveyed, Error>> + Send;

    /// Whether so many replicas have all that this link has written, and whatever was written before it took the lease;
    /// waits for them so long at most.
    fn replicated(&mut self, replicas: u32, wait: Duration) -> impl Future<Output = Result<bool, Error>> + Send;

    /// What waits in the shard now.
    fn backlog(&mut self) -> impl Future<Output = Result<Backlog, Error>> + Send;
}
