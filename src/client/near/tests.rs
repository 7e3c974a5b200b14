//! The rules of the cache against a model: whatever order reads, changes, signals and resets come in.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::core::{Bounds, Core, Fill, Filled, Found, Kind, Ticket};
use crate::change::UserId;
use crate::position::CommitId;
use crate::shard::Shard;
use crate::signal::Views;

const USERS: usize = 5;
const SHARDS: usize = 2;
const ROOM: Bounds = Bounds { entries_max: 1000, bytes_max: 1_000_000 };

#[derive(Clone, Debug)]
enum Step {
    /// A commit changes a user; its signal is on its way.
    Write(usize),
    /// The shard's next signal arrives.
    Signal(usize),
    /// Signals on their way are lost, and it is known.
    Reset(usize),
    /// Another node has the shard.
    Forget(usize),
    Begin(usize, Kind),
    /// A read under way sees what is stored, or what was some commits ago: an old primary answers.
    See(usize, usize),
    Finish(usize),
    Look(usize, Kind),
}

/// What is stored of a shard: the number of each user's last commit, after each commit.
struct Stored {
    history: Vec<BTreeMap<usize, u64>>,
    /// Commits whose signals are on their way, each with its user.
    signals: Vec<(u64, usize)>,
}

struct Read {
    user: usize,
    kind: Kind,
    ticket: Ticket,
    /// How much was told, and what, when it began.
    told: usize,
    commit: u64,
    seen: Option<(u64, u64)>,
}

struct Model {
    core: Core<u64>,
    users: Vec<UserId>,
    shards: Vec<Stored>,
    reads: Vec<Read>,
    /// The last commit of each user that was told, and of each shard.
    told: [u64; USERS],
    told_shard: [u64; SHARDS],
    /// Counts everything told.
    count: usize,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::View), Just(Kind::Profile)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..USERS).prop_map(Step::Write),
        3 => (0..SHARDS).prop_map(Step::Signal),
        1 => (0..SHARDS).prop_map(Step::Reset),
        1 => (0..SHARDS).prop_map(Step::Forget),
        4 => (0..USERS, kind()).prop_map(|(user, kind)| Step::Begin(user, kind)),
        4 => (0..8usize, prop_oneof![4 => Just(0usize), 1 => 0..4usize]).prop_map(|(read, back)| Step::See(read, back)),
        4 => (0..8usize).prop_map(Step::Finish),
        4 => (0..USERS, kind()).prop_map(|(user, kind)| Step::Look(user, kind)),
    ]
}

fn shard_of(user: usize) -> usize {
    user % SHARDS
}

impl Model {
    fn new(stripes: usize) -> Model {
        Model {
            core: Core::with_stripes(stripes, SHARDS as u32, ROOM),
            users: (0..USERS).map(|user| format!("u{user}").parse().unwrap()).collect(),
            shards: (0..SHARDS).map(|_| Stored { history: vec![BTreeMap::new()], signals: Vec::new() }).collect(),
            reads: Vec::new(),
            told: [0; USERS],
            told_shard: [0; SHARDS],
            count: 0,
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Write(user) => {
                let stored = &mut self.shards[shard_of(user)];
                let commit = stored.history.len() as u64;
                let mut next = stored.history.last().unwrap().clone();
                next.insert(user, commit);
                stored.history.push(next);
                stored.signals.push((commit, user));
            }
            Step::Signal(shard) => {
                if self.shards[shard].signals.is_empty() {
                    return;
                }
                let (commit, user) = self.shards[shard].signals.remove(0);
                let at = Shard(shard as u16);
                self.core.changed(at, CommitId::new(1, commit), &self.users[user], Views::PROFILE);
                (self.told[user], self.told_shard[shard], self.count) = (commit, commit, self.count + 1);
            }
            Step::Reset(shard) => {
                let stored = &mut self.shards[shard];
                stored.signals.clear();
                let tip = stored.history.len() as u64 - 1;
                self.core.reset(Shard(shard as u16), CommitId::new(1, tip));
                for user in (0..USERS).filter(|user| shard_of(*user) == shard) {
                    self.told[user] = stored.history.last().unwrap().get(&user).copied().unwrap_or(0);
                }
                (self.told_shard[shard], self.count) = (tip, self.count + 1);
            }
            Step::Forget(shard) => {
                self.core.forget(Shard(shard as u16));
                self.count += 1;
            }
            Step::Begin(user, kind) => {
                let shard = shard_of(user);
                let ticket = self.core.begin(Shard(shard as u16), &self.users[user]);
                let (told, commit) = (self.count, self.told_shard[shard]);
                self.reads.push(Read { user, kind, ticket, told, commit, seen: None });
            }
            Step::See(read, back) => {
                if let Some(read) = self.reads.get_mut(read) {
                    let history = &self.shards[shard_of(read.user)].history;
                    let at = history.len() - 1 - back.min(history.len() - 1);
                    read.seen = Some((history[at].get(&read.user).copied().unwrap_or(0), at as u64));
                }
            }
            Step::Finish(read) => {
                if self.reads.get(read).is_some_and(|read| read.seen.is_some()) {
                    let read = self.reads.remove(read);
                    self.finish(&read);
                }
            }
            Step::Look(user, kind) => {
                if let Found::Current(value) = self.look(user, kind) {
                    assert!(value >= self.told[user], "user {user}: {value} after {} was told", self.told[user]);
                }
            }
        }
    }

    fn finish(&mut self, read: &Read) {
        let (user, (value, commit)) = (read.user, read.seen.unwrap());
        let shard = Shard(shard_of(user) as u16);
        let fill = Fill { value, bytes: 1, commit: CommitId::new(1, commit), lasting: true, bare: false };
        let filled = self.core.finish(read.ticket, shard, (&self.users[user], read.kind), fill);
        let found = self.look(user, read.kind);
        if filled == Filled::Current {
            assert!(value >= self.told[user], "user {user}: {value} was kept after {} was told", self.told[user]);
            assert!(matches!(found, Found::Current(kept) if kept >= self.told[user]), "it is kept: {found:?}");
        } else {
            let undisturbed = read.told == self.count && commit >= read.commit;
            assert!(!undisturbed, "user {user}: read again although nothing came in between");
            assert_ne!(found, Found::Nothing, "it is the last known value at least");
        }
    }

    fn look(&self, user: usize, kind: Kind) -> Found<u64> {
        self.core.look(Shard(shard_of(user) as u16), &self.users[user], kind)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_current_is_older_than_what_was_told(
        stripes in 1usize..4,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut model = Model::new(stripes);
        for step in &steps {
            model.run(step);
        }
    }
}

/// A core that has read this value of a user.
fn filled(core: &Core<u64>, user: &UserId, kind: Kind, value: u64) {
    let ticket = core.begin(Shard(0), user);
    let fill = Fill { value, bytes: 10, commit: CommitId::new(1, value), lasting: true, bare: false };
    assert_eq!(core.finish(ticket, Shard(0), (user, kind), fill), Filled::Current);
}

fn user(number: usize) -> UserId {
    format!("user{number}").parse().unwrap()
}

#[test]
fn a_change_outdates_what_it_shows_in_and_keeps_it_as_the_last_known() {
    let (core, user) = (Core::new(1, ROOM), user(1));
    for (views, view, profile) in [
        (Views::PROFILE, false, false),
        (Views::BIRTHDAYS, false, true),
        (Views::ACTIVITY, true, false),
        (Views::ACTIVITY.with(Views::BIRTHDAYS), false, false),
        (Views::NONE, false, false),
    ] {
        filled(&core, &user, Kind::View, 1);
        filled(&core, &user, Kind::Profile, 1);
        core.changed(Shard(0), CommitId::new(1, 1), &user, views);
        for (kind, stays) in [(Kind::View, view), (Kind::Profile, profile)] {
            let expected = if stays { Found::Current(1) } else { Found::Outdated(1) };
            assert_eq!(core.look(Shard(0), &user, kind), expected, "{kind:?} after {:?}", views.names());
        }
    }
}

#[test]
fn what_does_not_last_is_only_the_last_known() {
    let (core, user) = (Core::new(1, ROOM), user(1));
    let ticket = core.begin(Shard(0), &user);
    let fill = Fill { value: 7, bytes: 10, commit: CommitId::ZERO, lasting: false, bare: false };
    assert_eq!(core.finish(ticket, Shard(0), (&user, Kind::View), fill), Filled::Current);
    assert_eq!(core.look(Shard(0), &user, Kind::View), Found::Outdated(7));
}

#[test]
fn what_says_nothing_of_a_user_is_outdated_by_any_change() {
    let (core, user) = (Core::new(1, ROOM), user(1));
    let ticket = core.begin(Shard(0), &user);
    let fill = Fill { value: 7, bytes: 10, commit: CommitId::ZERO, lasting: true, bare: true };
    assert_eq!(core.finish(ticket, Shard(0), (&user, Kind::Profile), fill), Filled::Current);
    core.changed(Shard(0), CommitId::new(1, 1), &user, Views::BIRTHDAYS);
    assert_eq!(core.look(Shard(0), &user, Kind::Profile), Found::Outdated(7));
}

#[test]
fn of_a_forgotten_user_nothing_is_left_with_the_first_read_after_the_signal() {
    for overtaken in [false, true] {
        let (core, user) = (Core::new(1, ROOM), user(1));
        filled(&core, &user, Kind::View, 1);
        core.changed(Shard(0), CommitId::new(1, 2), &user, Views::PROFILE.with(Views::BIRTHDAYS));
        assert_eq!(core.look(Shard(0), &user, Kind::View), Found::Outdated(1), "the last known one");
        let ticket = core.begin(Shard(0), &user);
        if overtaken {
            core.changed(Shard(0), CommitId::new(1, 3), &user, Views::PROFILE);
        }
        let cold = Fill { value: 0, bytes: 1, commit: CommitId::new(1, 2), lasting: true, bare: false };
        core.finish(ticket, Shard(0), (&user, Kind::View), cold);
        let expected = if overtaken { Found::Outdated(0) } else { Found::Current(0) };
        assert_eq!(core.look(Shard(0), &user, Kind::View), expected);
    }
}

#[test]
fn entries_and_bytes_are_bounded_and_counted() {
    let by_entries = Core::new(1, Bounds { entries_max: 100, bytes_max: 1_000_000 });
    let by_bytes = Core::new(1, Bounds { entries_max: 1_000_000, bytes_max: 2_000 });
    for number in 0..1000 {
        filled(&by_entries, &user(number), Kind::View, 1);
        filled(&by_bytes, &user(number), Kind::View, 1);
    }
    for (core, most) in [(&by_entries, 100), (&by_bytes, 200)] {
        let counts = core.counters.counts(core.entries());
        assert!(counts.entries <= most && counts.entries > most / 2, "{counts:?}");
        assert_eq!((counts.bytes, counts.evicted), (counts.entries * 10, 1000 - counts.entries));
    }
    // One in place of another is no eviction.
    let last = by_entries.counters.counts(by_entries.entries());
    filled(&by_entries, &user(999), Kind::View, 2);
    assert_eq!(by_entries.counters.counts(by_entries.entries()), last);
}
