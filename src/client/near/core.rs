//! What is kept, and when it may be given as it is: the rules of the cache, without clock, tasks or Redis.
//!
//! Users are spread over stripes. A change raises its stripe's version and marks what is kept of the user as outdated, both under
//! the stripe's lock. Whoever reads takes a [`Ticket`] first, and what was read is kept only where the version is still the
//! ticket's, under the same lock. So what is current was read after every change told so far, whatever order readers and
//! changes come in. An outdated value stays, as the last known one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::counters::Counters;
use crate::change::UserId;
use crate::position::CommitId;
use crate::shard::Shard;
use crate::signal::Views;

/// Users that share a lock and a version. A change of one makes the readers of the others who are on their way read again.
const STRIPES: usize = 4096;

/// What can be kept of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    View,
    Profile,
}

/// How much is kept at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub entries_max: usize,
    pub bytes_max: u64,
}

pub(super) struct Core<V> {
    stripes: Box<[Mutex<u64>]>,
    hasher: RandomState,
    shards: Box<[Told]>,
    kept: Cache<(UserId, Kind), Arc<Kept<V>>, Weight>,
    pub counters: Arc<Counters>,
}

/// What a shard's signals have told.
#[derive(Default)]
struct Told {
    /// Counts resets and moves: what was read under another count is not current.
    epoch: AtomicU64,
    /// The last commit that was told.
    commit: Mutex<CommitId>,
}

struct Kept<V> {
    value: V,
    bytes: u64,
    commit: CommitId,
    epoch: u64,
    bare: bool,
    outdated: AtomicBool,
    /// Whether another value took its place: then it was not evicted.
    replaced: AtomicBool,
    counters: Arc<Counters>,
}

/// The moment at which a read begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    version: u64,
    epoch: u64,
    commit: CommitId,
}

/// What was read.
pub(super) struct Fill<V> {
    pub value: V,
    pub bytes: u64,
    /// The last commit that it certainly has.
    pub commit: CommitId,
    /// Whether it may be given again as it is; else it is only the last known value.
    pub lasting: bool,
    /// Whether any change of the user may show in it.
    pub bare: bool,
}

/// What is kept of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<V> {
    /// It has every change that was told.
    Current(V),
    /// It may lack some.
    Outdated(V),
    Nothing,
}

/// What became of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// It has every change that was told so far.
    Current,
    /// A change came meanwhile, or somebody answered who did not know of one: read again.
    Overtaken,
}

#[derive(Clone)]
struct Weight {
    /// No entry counts for less: so the bound of bytes is one of entries too.
    least: u64,
}

impl<V> Weighter<(UserId, Kind), Arc<Kept<V>>> for Weight {
    fn weight(&self, _: &(UserId, Kind), kept: &Arc<Kept<V>>) -> u64 {
        kept.bytes.max(self.least)
    }
}

impl Kind {
    /// Whether a change of these views may show in it. What this build does not know may.
    fn shows(self, views: Views) -> bool {
        let own = match self {
            Kind::View => Views::PROFILE.with(Views::BIRTHDAYS),
            Kind::Profile => Views::PROFILE.with(Views::ACTIVITY),
        };
        let known = Views::PROFILE.with(Views::BIRTHDAYS).with(Views::ACTIVITY);
        views.is_empty() || views.bits() & own.bits() != 0 || views.bits() & !known.bits() != 0
    }
}

impl<V: Clone> Core<V> {
    pub fn new(shards: u32, bounds: Bounds) -> Core<V> {
        Core::with_stripes(STRIPES, shards, bounds)
    }

    pub(super) fn with_stripes(stripes: usize, shards: u32, bounds: Bounds) -> Core<V> {
        let entries_max = bounds.entries_max.max(1);
        let least = (bounds.bytes_max / entries_max as u64).max(1);
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(entries_max).weight_capacity(bounds.bytes_max.max(1));
        let options = options.build().expect("both capacities are given");
        let hash = DefaultHashBuilder::default();
        Core {
            stripes: (0..stripes).map(|_| Mutex::new(0)).collect(),
            hasher: RandomState::new(),
            shards: (0..shards).map(|_| Told::default()).collect(),
            kept: Cache::with_options(options, Weight { least }, hash, DefaultLifecycle::default()),
            counters: Arc::default(),
        }
    }

    pub fn entries(&self) -> usize {
        self.kept.len()
    }

    pub fn look(&self, shard: Shard, user: &UserId, kind: Kind) -> Found<V> {
        match self.kept.get(&(user.clone(), kind)) {
            None => Found::Nothing,
            Some(kept) if self.is_current(shard, &kept) => Found::Current(kept.value.clone()),
            Some(kept) => Found::Outdated(kept.value.clone()),
        }
    }

    /// A read of this user begins now.
    pub fn begin(&self, shard: Shard, user: &UserId) -> Ticket {
        let told = self.told(shard);
        let epoch = told.epoch.load(Ordering::Acquire);
        Ticket { version: *self.stripe(user), epoch, commit: *lock(&told.commit) }
    }

    /// A read is over.
    pub fn finish(&self, ticket: Ticket, shard: Shard, (user, kind): (&UserId, Kind), fill: Fill<V>) -> Filled {
        let Fill { value, bytes, commit, lasting, bare } = fill;
        let version = self.stripe(user);
        let overtaken = *version != ticket.version
            || self.told(shard).epoch.load(Ordering::Acquire) != ticket.epoch
            || commit < ticket.commit;
        let key = (user.clone(), kind);
        let before = self.kept.peek(&key);
        let outdated = overtaken || !lasting;
        if before.as_ref().is_none_or(|before| self.gives_way(shard, before, commit, outdated)) {
            before.inspect(|before| before.replaced.store(true, Ordering::Relaxed));
            let counters = self.counters.clone();
            counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            let (outdated, replaced) = (AtomicBool::new(outdated), AtomicBool::new(false));
            let kept = Kept { value, bytes, commit, epoch: ticket.epoch, bare, outdated, replaced, counters };
            self.kept.insert(key, Arc::new(kept));
        }
        drop(version);
        if overtaken { Filled::Overtaken } else { Filled::Current }
    }

    /// A commit has changed these views of a user.
    pub fn changed(&self, shard: Shard, commit: CommitId, user: &UserId, views: Views) {
        let mut version = self.stripe(user);
        *version += 1;
        {
            let mut told = lock(&self.told(shard).commit);
            *told = commit.max(*told);
        }
        for kind in [Kind::View, Kind::Profile] {
            if let Some(kept) = self.kept.peek(&(user.clone(), kind))
                && (kept.bare || kind.shows(views))
                && !kept.outdated.swap(true, Ordering::AcqRel)
            {
                self.counters.outdated.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Nobody knows what has changed in this shard up to this commit.
    pub fn reset(&self, shard: Shard, tip: CommitId) {
        *lock(&self.told(shard).commit) = tip;
        self.forget(shard);
    }

    /// What was read of this shard so far may never have been.
    pub fn forget(&self, shard: Shard) {
        self.told(shard).epoch.fetch_add(1, Ordering::AcqRel);
        self.counters.resets.fetch_add(1, Ordering::Relaxed);
    }

    fn is_current(&self, shard: Shard, kept: &Kept<V>) -> bool {
        !kept.outdated.load(Ordering::Acquire) && kept.epoch == self.told(shard).epoch.load(Ordering::Acquire)
    }

    /// Whether what is kept is no better than what was just read, which has this commit.
    fn gives_way(&self, shard: Shard, kept: &Kept<V>, commit: CommitId, outdated: bool) -> bool {
        let newer = commit > kept.commit;
        match (self.is_current(shard, kept), outdated) {
            (true, true) => false,
            // Alike is better too: it was read later.
            (true, false) => commit >= kept.commit,
            (false, false) => true,
            // Positions before and after a reset tell nothing of each other.
            (false, true) => {
                newer || commit == kept.commit || kept.epoch != self.told(shard).epoch.load(Ordering::Acquire)
            }
        }
    }

    fn stripe(&self, user: &UserId) -> MutexGuard<'_, u64> {
        let hash = self.hasher.hash_one(user) as usize;
        lock(&self.stripes[hash % self.stripes.len()])
    }

    fn told(&self, shard: Shard) -> &Told {
        &self.shards[usize::from(shard.0)]
    }
}

impl<V> Drop for Kept<V> {
    fn drop(&mut self) {
        self.counters.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if !self.replaced.load(Ordering::Relaxed) {
            self.counters.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
