//! One writer for each shard that appends a small change again and again, each after the answer to the one before: the commits that
//! follow show how long the shard stood still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use heyday::change::{Fields, UserId};
use heyday::client::Hub;
use heyday::client::writer::{Options, Writer};
use heyday::shard::Shard;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::super::eventually;
use super::load::TRACE;
use super::{Scene, Written};

/// Between two beats of a shard.
pub const BEAT: Duration = Duration::from_millis(50);
/// How long a beat is tried.
const TRIED: Duration = Duration::from_secs(2);
/// How long a shard may need, once nothing strikes it any more, until it takes a beat.
const AGAIN_WAIT: Duration = Duration::from_secs(30);

/// The writers at work.
pub struct Beats {
    writers: Vec<JoinHandle<Written>>,
    counts: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
}

impl Beats {
    pub fn start(hub: &Hub, scene: &Scene) -> Beats {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut writers, mut counts) = (Vec::new(), Vec::new());
        for shard in scene.layout.shards() {
            let count = Arc::new(AtomicU64::new(0));
            let writer = hub.writer(Options { timeout: TRIED, ..Options::default() });
            let user = user_of(scene, shard);
            writers.push(tokio::spawn(beat(writer, (shard, user), count.clone(), stop.clone())));
            counts.push(count);
        }
        Beats { writers, counts, stop }
    }

    /// Waits until every shard has taken a further beat.
    pub async fn go_on(&self) -> Result<(), String> {
        let before: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let late = || {
            let counts = self.counts.iter().zip(&before).enumerate();
            let late = counts.filter(|(_, (count, before))| count.load(Ordering::Relaxed) <= **before);
            late.map(|(shard, _)| shard).collect::<Vec<_>>()
        };
        let waited =
            eventually(2 * AGAIN_WAIT, "a look at the beats was taken", async || late().is_empty().then_some(()));
        match tokio::time::timeout(AGAIN_WAIT, waited).await {
            Ok(()) => Ok(()),
            Err(_) => Err(format!("within {AGAIN_WAIT:?} shards {:?} took no further append", late())),
        }
    }

    pub async fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        for writer in self.writers {
            all.extend(writer.await.expect("a writer"));
        }
        all
    }
}

async fn beat(writer: Writer, (shard, user): (Shard, UserId), count: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> Written {
    let mut written = Written::default();
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let trace = format!("beat{shard}.{number}");
        let fields = fields(&user, number, &trace);
        match writer.append_fields(&fields).await {
            Ok(appended) => {
                written.acknowledged.push((trace, appended, fields));
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.possibly_appended() => drop(written.unknown.insert(trace, error.to_string())),
            Err(error) => drop(written.refused.insert(trace, error.to_string())),
        }
        number += 1;
    }
    written
}

fn fields(user: &UserId, number: u64, trace: &str) -> Fields {
    let text = [
        ("type", "profile".to_owned()),
        ("user", user.to_string()),
        ("profile.beat", (number % 10).to_string()),
        (TRACE, trace.to_owned()),
    ];
    text.into_iter().map(|(name, value)| (Bytes::from_static(name.as_bytes()), Bytes::from(value))).collect()
}

/// A user of that shard whom nobody else writes about.
fn user_of(scene: &Scene, shard: Shard) -> UserId {
    let candidates = (0_u32..).map(|number| format!("beat{number}").parse::<UserId>().expect("a user"));
    candidates.into_iter().find(|user| scene.layout.shard_of(user) == shard).expect("each shard has users")
}
