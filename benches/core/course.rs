//! One batch at every stage of its way, so that each stage can be run alone, again and again.

use heyday::key::{Keys, ShardKeys};
use heyday::position::{CommitId, EntryId};
use heyday::redis::Pipeline;
use heyday::redis::bare;
use heyday::reduce::{Commit, Decoded, Jobs, Loaded, Plan, Rules, ShardState, reduce};
use heyday::shard::{Layout, SHARDS_DEFAULT};
use heyday::store::Committed;
use jiff::tz::TimeZone;

use crate::answers::{Answers, entries};
use crate::shapes::{CHANGES, Change, Random, SHARD, TODAY};

/// What each stage begins with.
pub struct Course {
    owner: Owner,
    /// What XREADGROUP answers.
    read: Vec<u8>,
    batch: Vec<Decoded>,
    plan: Plan,
    /// What the plan's commands are answered.
    load: Vec<u8>,
    loaded: Loaded,
    commit: Commit,
    /// What the commit's commands are answered.
    executed: Vec<u8>,
    /// Kept for its memory, as a link keeps its own.
    pipeline: Pipeline,
}

struct Owner {
    rules: Rules,
    layout: Layout,
    keys: ShardKeys,
    state: ShardState,
    jobs: Jobs,
    /// Server time, Unix milliseconds.
    now: u64,
}

impl Course {
    pub fn new(change: Change) -> Course {
        let owner = Owner::new();
        let ShardState { generation, last, .. } = owner.state;
        let id = |at: usize| EntryId::new(owner.now - 1000 + at as u64 / 4, at as u64 % 4);
        let mut random = Random::new(&owner.layout);
        let read: Vec<_> = (0..CHANGES).map(|at| (id(at).to_string(), random.fields(change, at))).collect();
        let read = entries(owner.keys.changes.as_str(), &read);
        let answers = Answers { generation, last: last.to_string(), pending: id(0).to_string(), now: owner.now };

        let batch = owner.decode(&read);
        assert!(batch.len() == CHANGES && batch.iter().all(|decoded| decoded.change.is_ok()), "a good batch");
        let plan = owner.plan(&batch);
        let mut pipeline = Pipeline::new();
        bare::ask_load(&mut pipeline, &owner.keys, &plan);
        let load = answers.to(&pipeline);
        let loaded = owner.take_load(&plan, &load);
        assert!(plan.suffices(&owner.state, &owner.rules.calendar, &loaded), "the plan is good");
        let commit = owner.reduce(&batch, &plan, &loaded);
        pipeline.clear();
        bare::ask_commit(&mut pipeline, &owner.keys, &commit);
        let executed = answers.to(&pipeline);
        assert_eq!(owner.take_commit(&commit, &executed), Committed::Done { errors: Vec::new() });
        Course { owner, read, batch, plan, load, loaded, commit, executed, pipeline }
    }

    pub fn decode(&self) -> Vec<Decoded> {
        self.owner.decode(&self.read)
    }

    /// From each user to the shard and the names of the user's keys.
    pub fn route(&self) -> usize {
        let Owner { layout, keys, .. } = &self.owner;
        let users = self.plan.users.iter().map(|plan| &plan.user);
        let bytes = users.map(|user| {
            let tag = layout.tag(layout.shard_of(user));
            tag.len() + keys.birthdays(user).as_bytes().len() + keys.profile(user).as_bytes().len()
        });
        bytes.sum()
    }

    pub fn plan(&self) -> Plan {
        self.owner.plan(&self.batch)
    }

    pub fn ask_load(&mut self) -> usize {
        self.pipeline.clear();
        bare::ask_load(&mut self.pipeline, &self.owner.keys, &self.plan);
        self.pipeline.bytes().len()
    }

    pub fn take_load(&self) -> Loaded {
        self.owner.take_load(&self.plan, &self.load)
    }

    pub fn reduce(&self) -> Commit {
        self.owner.reduce(&self.batch, &self.plan, &self.loaded)
    }

    pub fn signal(&self) -> Vec<u8> {
        self.commit.signal.encode()
    }

    pub fn ask_commit(&mut self) -> usize {
        self.pipeline.clear();
        bare::ask_commit(&mut self.pipeline, &self.owner.keys, &self.commit);
        self.pipeline.bytes().len()
    }

    pub fn take_commit(&self) -> Committed {
        self.owner.take_commit(&self.commit, &self.executed)
    }
}

impl Owner {
    fn new() -> Owner {
        let layout = Layout::new(SHARDS_DEFAULT).expect("a good number");
        let noon = TimeZone::UTC.to_timestamp(TODAY.at(12, 0, 0, 0)).expect("a moment");
        let now = noon.as_millisecond() as u64;
        let generation = now - 60_000;
        Owner {
            rules: Rules::default(),
            keys: Keys::new("").expect("a good prefix").shard(&layout, SHARD),
            layout,
            state: ShardState { generation, last: CommitId::new(generation, 41), ..ShardState::default() },
            jobs: Jobs::default(),
            now,
        }
    }

    fn decode(&self, read: &[u8]) -> Vec<Decoded> {
        let entries = bare::entries(read).expect("entries").into_iter();
        entries.map(|entry| Decoded::new(entry, &self.rules.limits).at(&self.layout, SHARD)).collect()
    }

    fn plan(&self, batch: &[Decoded]) -> Plan {
        Plan::of(batch, &self.state, &self.jobs, (&self.rules, self.now))
    }

    fn take_load(&self, plan: &Plan, answers: &[u8]) -> Loaded {
        bare::loaded(&self.keys, plan, answers).expect("what was asked for")
    }

    fn reduce(&self, batch: &[Decoded], plan: &Plan, loaded: &Loaded) -> Commit {
        reduce(&self.rules, &self.keys, &self.state, batch, (plan, loaded))
    }

    fn take_commit(&self, commit: &Commit, answers: &[u8]) -> Committed {
        bare::committed(&self.keys, commit, answers).expect("an answer to each command")
    }
}
