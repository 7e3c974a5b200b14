//! Stories about the store in memory: what the real one must do too.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::error::Disposition;
use crate::reduce::{Commit, Decoded, Entry, Jobs, Loaded, Plan, Rules, ShardState, reduce};
use crate::store::{Cause, Committed, Read, ShardLink, Taken};

const NOW: u64 = 1_795_978_800_000;
const SHARD: Shard = Shard(0);
const TTL: Duration = Duration::from_secs(10);
const BLOCK: Read = Read::New { block: Duration::from_secs(2) };

fn model() -> Model {
    Model::new(Layout::new(1).unwrap(), Keys::new("").unwrap(), NOW)
}

fn fields(text: &str) -> Fields {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (Bytes::from(name.to_owned()), Bytes::from(value.to_owned()))).collect()
}

fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}

/// An owner as plain as can be.
struct Owner {
    link: ModelLink,
    state: ShardState,
}

impl Owner {
    async fn new(model: &Model, name: &str) -> Owner {
        let mut link = model.client().connect(SHARD).await.unwrap();
        match link.take(&worker(name), TTL).await.unwrap() {
            Taken::Mine(state, _) => Owner { link, state },
            Taken::Held(holder) => panic!("held by {holder}"),
        }
    }

    async fn prepare(&mut self, entries: Vec<Entry>) -> (Commit, Loaded) {
        let rules = Rules::default();
        let keys = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), SHARD);
        let batch: Vec<_> = entries.into_iter().map(|entry| Decoded::new(entry, &rules.limits)).collect();
        let plan = Plan::of(&batch, &self.state, &Jobs::default(), (&rules, NOW));
        let loaded = self.link.load(&plan).await.unwrap();
        (reduce(&rules, &keys, &self.state, &batch, (&plan, &loaded)), loaded)
    }

    async fn settle(&mut self, which: Read) -> usize {
        let entries = self.link.read(which, 100).await.unwrap();
        let count = entries.len();
        let (commit, _) = self.prepare(entries).await;
        assert_eq!(self.link.commit(&commit).await.unwrap(), Committed::Done { errors: vec![] });
        self.state = commit.state;
        count
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_owner_cannot_commit() {
    let model = model();
    let mut first = Owner::new(&model, "a").await;
    model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    let entries = first.link.read(BLOCK, 100).await.unwrap();
    let (commit, _) = first.prepare(entries).await;
    tokio::time::advance(TTL).await;

    let mut second = Owner::new(&model, "b").await;
    assert!(second.state.generation > first.state.generation);
    assert_eq!(first.link.commit(&commit).await.unwrap(), Committed::Refused);
    assert_eq!(second.settle(Read::Pending).await, 1);
    assert!(model.unsettled(SHARD).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_commit_still_on_its_way_is_refused_once_the_lease_was_taken_anew() {
    let model = model();
    let mut owner = Owner::new(&model, "a").await;
    model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    let entries = owner.link.read(BLOCK, 100).await.unwrap();
    let (commit, _) = owner.prepare(entries).await;
    let cut = Faults { cut: 10_000, late_max: Duration::from_secs(1), arrives_percent: 100, ..Faults::default() };
    model.set_faults(cut);
    assert_eq!(owner.link.commit(&commit).await.unwrap_err().disposition, Disposition::Ambiguous);
    assert!(owner.link.read(Read::Pending, 1).await.is_err(), "the link is dead");
    model.set_faults(Faults::default());

    let mut again = Owner::new(&model, "a").await;
    assert_ne!(again.state.last, commit.state.last);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(again.settle(Read::Pending).await, 1);
    assert_eq!(model.history(SHARD).commits.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_a_commit_whose_id_tells() {
    let model = model();
    let mut owner = Owner::new(&model, "a").await;
    model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    let entries = owner.link.read(BLOCK, 100).await.unwrap();
    let (commit, _) = owner.prepare(entries).await;
    model.set_faults(Faults { reply_lost: 10_000, ..Faults::default() });
    assert_eq!(owner.link.commit(&commit).await.unwrap_err().disposition, Disposition::Ambiguous);
    model.set_faults(Faults::default());
    assert_eq!(Owner::new(&model, "a").await.state.last, commit.state.last);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_read_whose_client_is_gone_swallows_the_next_entry() {
    let model = model();
    let mut zombie = Owner::new(&model, "a").await;
    model.set_faults(Faults { arrives_percent: 100, ..Faults::default() });
    let gone = tokio::time::timeout(Duration::from_secs(1), zombie.link.read(BLOCK, 100)).await;
    assert!(gone.is_err(), "nothing was there to read");
    model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    model.append(SHARD, fields("type=add user=1 friend=3")).unwrap();

    let mut owner = Owner::new(&model, "a").await;
    let entries = owner.link.read(BLOCK, 100).await.unwrap();
    assert_eq!(entries.len(), 2, "it is in the batch all the same");
    let (commit, loaded) = owner.prepare(entries.clone()).await;
    assert_eq!((loaded.pending, loaded.pending_first), (2, Some(entries[0].id)), "the second was the owner's own");
    assert_eq!(owner.link.commit(&commit).await.unwrap(), Committed::Done { errors: vec![] });
    assert_eq!(model.group(SHARD), Some((entries[1].id, BTreeMap::new())));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_read_is_served_when_an_entry_comes() {
    let model = model();
    let mut owner = Owner::new(&model, "a").await;
    let (read, ()) = tokio::join!(owner.link.read(BLOCK, 100), async {
        tokio::task::yield_now().await;
        model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    });
    assert_eq!(read.unwrap().len(), 1);
    assert_eq!(owner.settle(Read::Pending).await, 1);
    let started = Instant::now();
    assert!(owner.link.read(BLOCK, 100).await.unwrap().is_empty());
    assert_eq!(started.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_lost_group_is_made_anew_at_the_stored_position() {
    let model = model();
    let mut owner = Owner::new(&model, "a").await;
    model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    owner.settle(BLOCK).await;
    model.append(SHARD, fields("type=add user=1 friend=3")).unwrap();
    owner.link.read(BLOCK, 100).await.unwrap();
    model.strike(SHARD, Calamity::GroupDestroyed);
    assert_eq!(owner.link.read(BLOCK, 100).await.unwrap_err().disposition, Disposition::Refresh);

    let mut again = Owner::new(&model, "a").await;
    assert_eq!(again.settle(BLOCK).await, 1, "the settled one does not come again, the other one does");
}

#[tokio::test(start_paused = true)]
async fn a_failover_loses_the_last_commits_whole() {
    let model = model();
    model.set_faults(Faults { commits_lost_max: 3, ..Faults::default() });
    let mut owner = Owner::new(&model, "a").await;
    for friend in 2..6 {
        model.append(SHARD, fields(&format!("type=add user=1 friend={friend}"))).unwrap();
        owner.settle(BLOCK).await;
    }
    let before = model.contents();
    model.strike(SHARD, Calamity::Failover { away: Duration::from_secs(1), commits_lost: 2 });
    assert_eq!(model.unsettled(SHARD).len(), 2, "lost commits lose their acknowledgements too");
    assert_eq!(model.log(SHARD).len(), 2);
    assert_eq!(owner.link.read(BLOCK, 1).await.unwrap_err().disposition, Disposition::Ambiguous);
    assert!(model.client().connect(SHARD).await.is_err(), "away");
    tokio::time::advance(Duration::from_secs(1)).await;

    let mut again = Owner::new(&model, "a").await;
    assert!(again.state.generation > owner.state.generation);
    while !model.unsettled(SHARD).is_empty() {
        let which = if again.settle(Read::Pending).await == 0 { BLOCK } else { Read::Pending };
        again.settle(which).await;
    }
    let views = |contents: Contents| contents.into_iter().filter(|(name, _)| name.contains("user")).collect::<Vec<_>>();
    assert_eq!(views(model.contents()), views(before));
    assert!(model.history(SHARD).commits.iter().filter(|record| record.lost).count() == 2);
}

#[tokio::test(start_paused = true)]
async fn full_memory_refuses_writes_alone() {
    let model = model();
    let mut owner = Owner::new(&model, "a").await;
    model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    model.strike(SHARD, Calamity::MemoryFull { lasting: Duration::from_secs(5) });
    assert_eq!(model.append(SHARD, vec![]).unwrap_err().disposition, Disposition::Full);
    let entries = owner.link.read(BLOCK, 100).await.unwrap();
    let (commit, _) = owner.prepare(entries).await;
    assert_eq!(owner.link.commit(&commit).await.unwrap_err().disposition, Disposition::Full);
    assert!(owner.link.renew(&worker("a"), TTL).await.unwrap());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(owner.settle(Read::Pending).await, 1);
}

#[tokio::test(start_paused = true)]
async fn entries_go_once_no_group_needs_them() {
    let model = model();
    let mut owner = Owner::new(&model, "a").await;
    for friend in 2..5 {
        model.append(SHARD, fields(&format!("type=add user=1 friend={friend}"))).unwrap();
    }
    owner.link.read(BLOCK, 2).await.unwrap();
    assert_eq!(owner.link.trim(Duration::ZERO).await.unwrap(), 0, "all are pending or unread");
    let entries = owner.link.read(Read::Pending, 2).await.unwrap();
    let (commit, _) = owner.prepare(entries).await;
    owner.link.commit(&commit).await.unwrap();
    assert_eq!(owner.link.trim(Duration::from_secs(60)).await.unwrap(), 0, "too young");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(owner.link.trim(Duration::ZERO).await.unwrap(), 2);
    let backlog = owner.link.backlog().await.unwrap();
    assert_eq!((backlog.unread, backlog.pending, backlog.oldest_milliseconds), (1, 0, Some(1000)));
}

#[tokio::test(start_paused = true)]
async fn a_trimmed_pending_entry_comes_without_fields() {
    let model = model();
    let mut owner = Owner::new(&model, "a").await;
    model.append(SHARD, fields("type=add user=1 friend=2")).unwrap();
    owner.link.read(BLOCK, 2).await.unwrap();
    model.strike(SHARD, Calamity::PendingTrimmed);
    let entries = owner.link.read(Read::Pending, 2).await.unwrap();
    assert_eq!((entries[0].fields.as_ref(), entries[0].deliveries), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn leases_run_out_and_are_given_up() {
    let model = model();
    let mut first = Owner::new(&model, "a").await;
    let mut link = model.connect(SHARD).await.unwrap();
    assert_eq!(link.take(&worker("b"), TTL).await.unwrap(), Taken::Held(worker("a")));
    tokio::time::advance(TTL / 2).await;
    assert!(first.link.renew(&worker("a"), TTL).await.unwrap());
    tokio::time::advance(TTL / 2).await;
    assert_eq!(model.holders(&[SHARD]).await[0].as_ref().unwrap(), &Some(worker("a")));
    assert!(!model.release(SHARD, &worker("b")).await.unwrap());
    assert!(model.release(SHARD, &worker("a")).await.unwrap());
    assert!(!first.link.renew(&worker("a"), TTL).await.unwrap());
    assert!(matches!(link.take(&worker("b"), TTL).await.unwrap(), Taken::Mine(_, Cause::Released)));
}
