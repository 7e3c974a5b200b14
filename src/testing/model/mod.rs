//! The store in memory: the specification of the real one, and the ground for simulation.
//!
//! [`Model`] is a whole cluster and a client of it at once: [`Model::client`] makes another client, with a fate of its
//! own, of the same cluster. Time is tokio's, so a paused runtime decides when leases expire and blocked reads end.

mod faults;
mod history;
mod keyspace;
mod link;
mod maintenance;
mod refusal;
mod server;
mod stream;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub use faults::{Calamity, Faults};
pub use history::{History, Record};
pub use link::ModelLink;

use crate::calendar::Calendar;
use crate::change::{Fields, shard_producer};
use crate::key::{Key, Keys};
use crate::lease::WorkerId;
use crate::oracle::Contents;
use crate::position::EntryId;
use crate::shard::{Layout, Shard};
use crate::signal::Signal;
use crate::store::{Error, Maintenance, Relay, Store};
use faults::{Dice, Fate};
use server::{Late, ShardServer};

/// A guard taken out, for the tests of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Commits are executed whatever was written since the load, and a load answers the generation and last commit that
    /// the caller expects.
    Fence,
    /// A read begins with what the group delivers instead of what follows the applied entry, and a load answers that nothing
    /// is pending.
    Order,
    /// A read goes on behind what this link has read, whether or not that was applied.
    Position,
}

#[derive(Clone)]
pub struct Model {
    world: Arc<World>,
    client: Arc<Client>,
}

/// The servers, alike for all clients.
struct World {
    layout: Layout,
    keys: Keys,
    begun: Instant,
    begun_milliseconds: u64,
    /// By how much the servers' clock was wound since, milliseconds.
    wound: AtomicI64,
    shards: Vec<Mutex<ShardServer>>,
    workers: Mutex<BTreeMap<WorkerId, u64>>,
    maintenance: Mutex<Option<maintenance::Stored>>,
    dice: Mutex<Dice>,
    sabotage: Option<Sabotage>,
    /// Requests that have neither arrived nor vanished.
    flights: AtomicUsize,
    /// When the last client thaws.
    frozen_until: Mutex<Option<Instant>>,
}

/// What befalls all links of one process alike.
#[derive(Default)]
struct Client {
    frozen_until: Mutex<Option<Instant>>,
}

impl Model {
    /// An empty cluster without faults. `milliseconds` is the servers' time at the start.
    pub fn new(layout: Layout, keys: Keys, milliseconds: u64) -> Model {
        Model::sabotaged(layout, keys, milliseconds, None)
    }

    /// The same with a guard taken out.
    pub fn sabotaged(layout: Layout, keys: Keys, milliseconds: u64, sabotage: Option<Sabotage>) -> Model {
        let shards = layout.shards().map(|shard| {
            let mut server = ShardServer::new(keys.shard(&layout, shard));
            server.unfenced = sabotage == Some(Sabotage::Fence);
            server.unordered = sabotage == Some(Sabotage::Order);
            Mutex::new(server)
        });
        let world = World {
            shards: shards.collect(),
            layout,
            keys,
            begun: Instant::now(),
            begun_milliseconds: milliseconds,
            wound: AtomicI64::new(0),
            workers: Mutex::default(),
            maintenance: Mutex::default(),
            dice: Mutex::new(Dice::new(Faults::default())),
            sabotage,
            flights: AtomicUsize::new(0),
            frozen_until: Mutex::default(),
        };
        Model { world: Arc::new(world), client: Arc::default() }
    }

    /// Another client of the same cluster.
    pub fn client(&self) -> Model {
        Model { world: self.world.clone(), client: Arc::default() }
    }

    /// From now on; what is on its way stays so.
    pub fn set_faults(&self, faults: Faults) {
        for shard in self.world.layout.shards() {
            self.world.at(shard, |server| server.commits_lost_max = faults.commits_lost_max);
        }
        *lock(&self.world.dice) = Dice::new(faults);
    }

    pub fn layout(&self) -> &Layout {
        &self.world.layout
    }

    pub fn keys(&self) -> &Keys {
        &self.world.keys
    }

    /// The servers' time, Unix milliseconds.
    pub fn milliseconds(&self) -> u64 {
        self.world.now()
    }

    /// Freezes all links of this client, as SIGSTOP does a process.
    pub fn freeze(&self, duration: Duration) {
        self.client.freeze(duration);
        let mut last = lock(&self.world.frozen_until);
        *last = (*last).max(Some(Instant::now() + duration));
    }

    /// Whether something may still arrive that was sent before now, or a client is frozen that may go on from what it knew.
    pub fn is_echoing(&self) -> bool {
        let frozen = lock(&self.world.frozen_until).is_some_and(|until| until > Instant::now());
        let late = |shard| self.world.at(shard, |server| !server.inbox.is_empty());
        frozen || self.world.flights.load(Ordering::SeqCst) > 0 || self.world.layout.shards().any(late)
    }

    /// XADD: what a writer does.
    pub fn append(&self, shard: Shard, fields: Fields) -> Result<EntryId, Error> {
        self.world.at(shard, |server| server.reachable().and_then(|()| server.append(None, fields)))
    }

    /// XADD with an id that another server gave.
    pub fn append_at(&self, shard: Shard, id: EntryId, fields: Fields) -> Result<EntryId, Error> {
        self.world.at(shard, |server| server.append(Some(id), fields))
    }

    /// Somebody else writes text where heyday keeps something else.
    pub fn plant(&self, shard: Shard, key: &Key, text: &str) {
        self.world.at(shard, |server| server.keyspace.set(key, text, None));
    }

    /// `heyday rebuild` begins in a shard, or ends where there is no moment.
    pub fn rebuild(&self, shard: Shard, at: Option<u64>) {
        self.world.at(shard, |server| server.rebuild(at));
    }

    /// DEL
    pub fn delete(&self, shard: Shard, key: &Key) {
        self.world.at(shard, |server| server.keyspace.delete(key));
    }

    /// Lets something befall a shard now.
    pub fn strike(&self, shard: Shard, calamity: Calamity) {
        self.world.at(shard, |server| server.strike(calamity));
    }

    /// FLUSHALL of the shard.
    pub fn flush(&self, shard: Shard) {
        self.world.at(shard, ShardServer::flush);
    }

    /// Every key of every shard.
    pub fn contents(&self) -> Contents {
        self.world.layout.shards().flat_map(|shard| self.world.at(shard, |server| server.keyspace.contents())).collect()
    }

    /// When keys expire, Unix milliseconds; those that do not are absent.
    pub fn expiries(&self) -> BTreeMap<String, u64> {
        self.world.layout.shards().flat_map(|shard| self.world.at(shard, |server| server.keyspace.expiries())).collect()
    }

    /// The workers' group where it exists: its last delivered entry, and what is pending with the number of deliveries.
    pub fn group(&self, shard: Shard) -> Option<(EntryId, BTreeMap<EntryId, u64>)> {
        self.world.at(shard, |server| server.group())
    }

    /// Entries that are not settled: unread or pending.
    pub fn unsettled(&self, shard: Shard) -> Vec<EntryId> {
        self.world.at(shard, |server| server.unsettled())
    }

    /// Whether something for other shards, or a job, is left to do.
    pub fn is_unfinished(&self, shard: Shard) -> bool {
        let left = self.world.at(shard, |server| server.unfinished(1));
        left.is_ok_and(|left| left.outbox > 0 || !left.jobs.is_empty())
    }

    /// Somebody sets the servers' clock forward, or back.
    pub fn wind_clock(&self, milliseconds: i64) {
        self.world.wound.fetch_add(milliseconds, Ordering::SeqCst);
    }

    /// Whether every day that the calendar names is complete in the shard.
    pub fn is_rolled(&self, shard: Shard, calendar: &Calendar) -> bool {
        self.world.at(shard, |server| server.is_rolled(calendar))
    }

    pub fn history(&self, shard: Shard) -> History {
        self.world.at(shard, |server| server.history.clone())
    }

    /// The shard's log as it is stored now.
    pub fn log(&self, shard: Shard) -> Vec<Signal> {
        let payloads = self.world.at(shard, |server| server.log_payloads());
        payloads.iter().map(|payload| Signal::decode(payload).expect("the model encoded it")).collect()
    }

    fn fate(&self, shard: Shard) -> Fate {
        let fate = lock(&self.world.dice).fate();
        if let Some(calamity) = fate.calamity {
            self.strike(shard, calamity);
        }
        if !fate.stall.is_zero() {
            self.freeze(fate.stall);
        }
        fate
    }
}

impl Store for Model {
    type Link = ModelLink;

    async fn connect(&self, shard: Shard) -> Result<ModelLink, Error> {
        let fate = self.fate(shard);
        self.client.pass(fate.before).await;
        if let Some(disposition) = fate.refused {
            return Err(refusal::by_chance(disposition));
        }
        let epoch = self.world.at(shard, |server| server.reachable().map(|()| server.epoch))?;
        Ok(ModelLink::new(self.clone(), shard, epoch))
    }

    async fn refresh(&self) {
        let fate = lock(&self.world.dice).fate();
        self.client.pass(fate.before).await;
    }

    async fn heartbeat(&self, worker: &WorkerId, silent_max: Duration) -> Result<Vec<WorkerId>, Error> {
        self.aside().await?;
        let now = self.world.now();
        let mut workers = lock(&self.world.workers);
        workers.insert(worker.clone(), now);
        let oldest = now.saturating_sub(silent_max.as_millis() as u64);
        workers.retain(|_, heard| *heard >= oldest);
        Ok(workers.keys().cloned().collect())
    }

    async fn leave(&self, worker: &WorkerId) -> Result<(), Error> {
        self.aside().await?;
        lock(&self.world.workers).remove(worker);
        Ok(())
    }

    async fn maintenance(&self, worker: &WorkerId, paused: bool) -> Result<Maintenance, Error> {
        self.aside().await?;
        Ok(self.look(worker, paused))
    }

    async fn holders(&self, shards: &[Shard]) -> Vec<Result<Option<WorkerId>, Error>> {
        if let Err(error) = self.aside().await {
            return shards.iter().map(|_| Err(error.clone())).collect();
        }
        let holder = |shard: &Shard| self.world.at(*shard, |server| server.reachable().and_then(|()| server.holder()));
        shards.iter().map(holder).collect()
    }

    async fn shorten(&self, leases: &[(Shard, WorkerId)], ttl: Duration) -> Vec<Result<bool, Error>> {
        if let Err(error) = self.aside().await {
            return leases.iter().map(|_| Err(error.clone())).collect();
        }
        let shorten = |(shard, holder): &(Shard, WorkerId)| {
            self.world.at(*shard, |server| server.reachable().and_then(|()| server.shorten(holder, ttl)))
        };
        leases.iter().map(shorten).collect()
    }

    async fn release(&self, shard: Shard, worker: &WorkerId) -> Result<bool, Error> {
        self.aside().await?;
        self.world.at(shard, |server| server.reachable().and_then(|()| server.release(worker)))
    }

    async fn outbox(&self, shard: Shard, after: EntryId, count: usize) -> Result<Vec<Relay>, Error> {
        self.aside().await?;
        self.world.at(shard, |server| server.reachable().and_then(|()| server.outbox(after, count)))
    }

    /// The answer may be lost on its way back, and the request may arrive long after its sender has given up.
    async fn relay(&self, source: Shard, target: Shard, relays: &[Relay], _: u32) -> Result<(), Error> {
        let (producer, relays) = (shard_producer(source), relays.to_vec());
        let fate = lock(&self.world.dice).fate();
        self.client.pass(fate.before).await;
        if let Some(disposition) = fate.refused {
            return Err(refusal::by_chance(disposition));
        }
        if fate.cut {
            if let Some(late) = fate.late {
                self.world.at(target, |server| {
                    let effect = move |server: &mut ShardServer| drop(server.take_in(&producer, &relays));
                    let at = server.keyspace.now + late.as_millis() as u64;
                    server.inbox.push(Late { at, effect: Box::new(effect) });
                });
            }
            return Err(refusal::lost());
        }
        let answer =
            self.world.at(target, |server| server.reachable().and_then(|()| server.take_in(&producer, &relays)));
        if fate.reply_lost {
            return Err(refusal::lost());
        }
        self.client.pass(fate.after).await;
        answer
    }

    async fn relayed(&self, shard: Shard, ids: &[EntryId]) -> Result<(), Error> {
        self.aside().await?;
        self.world.at(shard, |server| server.reachable().and_then(|()| server.relayed(ids)))
    }
}

impl Model {
    /// An operation beside the links: latency, and now and then a refusal. Calamities come with links alone.
    async fn aside(&self) -> Result<(), Error> {
        let fate = lock(&self.world.dice).fate();
        self.client.pass(fate.before).await;
        fate.refused.map_or(Ok(()), |disposition| Err(refusal::by_chance(disposition)))
    }
}

impl World {
    fn now(&self) -> u64 {
        let milliseconds = self.begun_milliseconds + self.begun.elapsed().as_millis() as u64;
        milliseconds.saturating_add_signed(self.wound.load(Ordering::SeqCst))
    }

    /// One atomic step on a shard, now.
    fn at<T>(&self, shard: Shard, step: impl FnOnce(&mut ShardServer) -> T) -> T {
        let mut server = lock(&self.shards[usize::from(shard.0)]);
        server.advance(self.now());
        step(&mut server)
    }
}

impl ShardServer {
    fn reachable(&self) -> Result<(), Error> {
        if self.keyspace.now < self.away_until { Err(refusal::away()) } else { Ok(()) }
    }
}

impl Client {
    fn freeze(&self, duration: Duration) {
        let until = Instant::now() + duration;
        let mut frozen = lock(&self.frozen_until);
        *frozen = Some(frozen.map_or(until, |earlier| earlier.max(until)));
    }

    /// Lets a latency pass, and then as long as the client is frozen.
    async fn pass(&self, latency: Duration) {
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        loop {
            let until = *lock(&self.frozen_until);
            match until {
                Some(until) if until > Instant::now() => tokio::time::sleep_until(until).await,
                _ => return,
            }
        }
    }
}

/// A panic in a test's step leaves the model as it is: the test has failed already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
