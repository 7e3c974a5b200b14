//! The demo's writer: skewed users, all kinds of changes, a steady rate; and the oracle that it keeps of what it wrote.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use jiff::civil::Date;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::now_milliseconds;
use super::progress::Progress;
use crate::birthday::Birthday;
use crate::change::{Action, Change, Fields, Producer, UserId};
use crate::client::writer::{self, Receipt};
use crate::client::{Hub, Writer};
use crate::oracle::Oracle;
use crate::reduce::Rules;
use crate::shard::Shard;
use crate::task::{self, JoinHandle};

/// Bursts in a second.
const TICKS: u32 = 100;
/// Skew of the users: the first is in about every tenth change.
const ZIPF_EXPONENT: f64 = 1.0;
/// Friends that one user may have.
const FRIENDS: u32 = 40;
/// One change in this many is for measuring.
const PROBE_EVERY: u64 = 20;
const PROBES: u64 = 500;
/// Acknowledgements of one shard that may wait to be noted.
const RECEIPTS_MAX: usize = 4096;
/// A failover must not make an append give up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Load {
    pub rate: u32,
    pub users: u32,
    pub rules: Rules,
}

/// Writes until told to stop, then waits for every answer. Gives the oracle of everything that was acknowledged.
pub async fn write(
    load: Load,
    hub: Hub,
    progress: Arc<Progress>,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<Oracle> {
    let writer = hub.writer(writer::Options { timeout: WRITE_TIMEOUT, ..writer::Options::default() });
    let oracle = Oracle::new(load.rules.clone(), hub.keys().clone(), hub.layout().clone());
    let mut notes = Notes::new(oracle, progress.clone());
    let mut changes = Changes::new(&load)?;
    let mut ticks = interval(Duration::from_secs(1) / TICKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut owed = 0;
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            _ = ticks.tick() => {}
        }
        owed += load.rate;
        while owed >= TICKS {
            owed -= TICKS;
            let change = changes.next(&progress);
            notes.append(&writer, change).await?;
        }
    }
    notes.finish().await
}

/// Changes in the order of their sequence.
struct Changes {
    random: SmallRng,
    users: Zipf<f64>,
    today: Date,
    sequence: u64,
}

impl Changes {
    fn new(load: &Load) -> anyhow::Result<Changes> {
        Ok(Changes {
            random: SmallRng::seed_from_u64(now_milliseconds()),
            users: Zipf::new(f64::from(load.users), ZIPF_EXPONENT).context("users")?,
            today: load.rules.calendar.today(now_milliseconds()),
            sequence: 0,
        })
    }

    fn next(&mut self, progress: &Progress) -> Change {
        self.sequence += 1;
        let mut change = self.probe(progress).unwrap_or_else(|| self.ordinary());
        change.producer = Some(Producer { name: "demo".into(), sequence: self.sequence });
        // Told by the writer, so that the oracle knows it whatever the entry's own time.
        change.at = Some(now_milliseconds());
        change
    }

    /// A change of a user who has no other on the way, so that its signal can be told from others'.
    fn probe(&self, progress: &Progress) -> Option<Change> {
        if !self.sequence.is_multiple_of(PROBE_EVERY) {
            return None;
        }
        let user = id("probe", (self.sequence / PROBE_EVERY) % PROBES);
        let fields = vec![("probe".to_owned(), Some(self.sequence.to_string()))];
        progress.probe(&user).then(|| Change::new(user, Action::Profile { fields }))
    }

    fn ordinary(&mut self) -> Change {
        let user = id("user", self.users.sample(&mut self.random) as u64);
        let friend = id("friend", self.random.random_range(0..u64::from(FRIENDS)));
        let action = match self.random.random_range(0..100) {
            0..60 => Action::Add { friend, birthday: Some(self.birthday()), mutual: false },
            60..75 => Action::Update { friend, birthday: self.birthday() },
            75..85 => Action::Remove { friend, mutual: false },
            85..95 => Action::Profile { fields: vec![self.field()] },
            _ => Action::Birthday { birthday: self.birthday() },
        };
        Change::new(user, action)
    }

    /// Every third within two weeks of today, so that day keys have something to do.
    fn birthday(&mut self) -> Birthday {
        let days = if self.random.random_bool(1.0 / 3.0) { 14 } else { 180 };
        let shift = jiff::Span::new().days(self.random.random_range(-days..days));
        let day = self.today.saturating_add(shift);
        let years = jiff::Span::new().years(self.random.random_range(1..90));
        match self.random.random_range(0..10) {
            0 => Birthday::Unknown,
            1 => Birthday::Day { month: day.month(), day: day.day() },
            _ => Birthday::Date(day.saturating_sub(years)),
        }
    }

    fn field(&mut self) -> (String, Option<String>) {
        let name = ["role", "segment", "language", "theme"][self.random.random_range(0..4)];
        let value = self.random.random_range(0..5);
        (name.to_owned(), (value > 0).then(|| format!("{name}-{value}")))
    }
}

fn id(kind: &str, number: u64) -> UserId {
    format!("{kind}-{number}").parse().expect("letters, a hyphen and digits")
}

/// Tells the oracle each change once it is acknowledged, in the order of its shard.
struct Notes {
    oracle: Arc<Mutex<Oracle>>,
    progress: Arc<Progress>,
    shards: HashMap<Shard, (mpsc::Sender<Sent>, JoinHandle<anyhow::Result<()>>)>,
}

struct Sent {
    receipt: Receipt,
    fields: Fields,
}

impl Notes {
    fn new(oracle: Oracle, progress: Arc<Progress>) -> Notes {
        Notes { oracle: Arc::new(Mutex::new(oracle)), progress, shards: HashMap::new() }
    }

    async fn append(&mut self, writer: &Writer, change: Change) -> anyhow::Result<()> {
        let receipt = writer.enqueue(&change).await?;
        let fields = change.encode().into_iter().map(|(name, value)| (owned(&name), owned(&value))).collect();
        let shard = receipt.shard();
        let (oracle, progress) = (&self.oracle, &self.progress);
        let (sent, _) = self.shards.entry(shard).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(RECEIPTS_MAX);
            let noting = note(shard, receiver, oracle.clone(), progress.clone());
            (sender, task::spawn("demo notes", noting))
        });
        // Closed only after an append failed, which the end tells.
        let _ = sent.send(Sent { receipt, fields }).await;
        Ok(())
    }

    async fn finish(self) -> anyhow::Result<Oracle> {
        for (sent, noting) in self.shards.into_values() {
            drop(sent);
            noting.await??;
        }
        let oracle = Arc::into_inner(self.oracle).context("somebody still notes what was written")?;
        Ok(oracle.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn note(
    shard: Shard,
    mut sent: mpsc::Receiver<Sent>,
    oracle: Arc<Mutex<Oracle>>,
    progress: Arc<Progress>,
) -> anyhow::Result<()> {
    while let Some(Sent { receipt, fields }) = sent.recv().await {
        let appended = receipt.await?;
        progress.written();
        oracle.lock().unwrap_or_else(PoisonError::into_inner).entry(shard, appended.id, Some(&fields));
    }
    Ok(())
}

fn owned(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
