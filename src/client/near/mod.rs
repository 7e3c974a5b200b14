//! The near cache: answers kept in the process, held honest by its own ears.

mod core;
mod counters;
mod events;
mod part;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::core::{Bounds, Core, Fill, Filled, Found};
use self::counters::count;
use self::events::Listeners;
use self::part::{Known, Part};
use super::Hub;
use super::answer::Answer;
use super::loader::Loads;
use super::reader::{self, Error, ProfileView, Reader, State, View};
use super::session::{Apply, Sink};
use super::subscriber::{self, Event, Listening};
use crate::change::UserId;
use crate::position::CommitId;
use crate::shard::Shard;
use crate::task;

pub use counters::Counts;
pub use events::Events;

/// How often an answer is read again because a change came in between.
const TRIES_MAX: u32 = 4;
/// Reads that go on after their callers have been given what was known. Beyond that a read ends with its caller's patience.
const READING_MAX: usize = 256;

/// How a near cache works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How what is not kept is read.
    pub reader: reader::Options,
    /// Who loads cold users; none where nobody does.
    pub loads: Option<Loads>,
    /// The most answers that are kept. A user's view and profile are two.
    pub entries_max: usize,
    /// The most memory they take, about.
    pub bytes_max: u64,
    /// How long Redis is waited for where a last known answer can be given instead.
    pub patience: Duration,
    /// After this time an answer is read again, although nothing has changed: so a shard that no worker works on is noticed.
    pub reread_after: Duration,
    /// As with a subscriber: how often every shard's log is looked at while its signals are heard, and while they are not.
    pub poll_interval: Duration,
    pub poll_interval_degraded: Duration,
    /// How long [`Hub::near`] waits for shards whose node does not answer.
    pub start_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        let subscriber = subscriber::Options::default();
        Options {
            reader: reader::Options::default(),
            loads: None,
            entries_max: 100_000,
            bytes_max: 64 * 1024 * 1024,
            patience: Duration::from_millis(250),
            reread_after: Duration::from_secs(60),
            poll_interval: subscriber.poll_interval,
            poll_interval_degraded: subscriber.poll_interval_degraded,
            start_timeout: subscriber.start_timeout,
        }
    }
}

/// Reads views and keeps them, so that most reads need no round trip at all. Cheap to clone, and to use from many tasks.
///
/// **What is promised.** A live answer to a read that begins after an event of [`Near::events`] has what that event speaks of: no
/// live answer is older than the last signal heard of that user. An answer is given from memory as live only while the user's shard
/// is sure: its signals arrive, and its log has proven within the last two poll intervals that none was missed. Otherwise Redis is
/// asked. An answer that Redis gave while changes kept coming is [`State::Stale`].
///
/// **When Redis does not answer** within [`Options::patience`], the last known answer is given, however old, marked [`State::Stale`]
/// with its `age`. Where none is known, the error comes, within the reader's timeout.
///
/// **Of a forgotten user** nothing is left with the first read that Redis answers after the signal. Until then the last known answer
/// may still be given, marked as above. Whoever must not show it takes an answer whose `age` is not zero for none.
///
/// **What is not.** Signals tell what was applied. That a change waits in the stream is known only as of the last read,
/// [`Options::reread_after`] ago at most; `freshness` is as it was then.
///
/// ```no_run
/// # async fn example(hub: heyday::client::Hub) -> Result<(), Box<dyn std::error::Error>> {
/// use heyday::client::near::Options;
///
/// let near = hub.near(Options::default()).await?;
/// let profile = near.profile(&"42".parse()?).await?;
/// println!("{:?} {:?}", profile.state, profile.profile.role());
/// println!("{:?}", near.counts());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Near(Arc<Inner>);

struct Inner {
    hub: Hub,
    reader: Reader,
    options: Options,
    listening: Listening,
    shared: Arc<Shared>,
    reading: Arc<Semaphore>,
}

/// What the listening tasks act on.
struct Shared {
    core: Core<Known>,
    listeners: Listeners,
}

impl Apply for Shared {
    fn apply(&self, event: Event, position: CommitId) {
        match &event {
            Event::Changed { shard, commit, user, views } => self.core.changed(*shard, *commit, user, *views),
            Event::Reset { shard } => self.core.reset(*shard, position),
        }
        self.listeners.tell(&event);
    }

    fn moved(&self, shard: Shard) {
        self.core.forget(shard);
    }
}

impl Near {
    pub(super) async fn start(hub: Hub, reader: Reader, options: Options) -> Result<Near, subscriber::Error> {
        let bounds = Bounds { entries_max: options.entries_max, bytes_max: options.bytes_max };
        let shared =
            Arc::new(Shared { core: Core::new(hub.layout().count(), bounds), listeners: Listeners::default() });
        let subscriber = subscriber::Options {
            poll_interval: options.poll_interval,
            poll_interval_degraded: options.poll_interval_degraded,
            start_timeout: options.start_timeout,
            ..subscriber::Options::default()
        };
        let listening = Listening::start(hub.clone(), subscriber, Sink::Applied(shared.clone())).await?;
        let reading = Arc::new(Semaphore::new(READING_MAX));
        Ok(Near(Arc::new(Inner { hub, reader, options, listening, shared, reading })))
    }

    /// A user's view, as [`Reader::read`] gives it.
    ///
    /// # Errors
    ///
    /// Where Redis does not answer within the reader's timeout, or refuses, and no answer is known.
    pub async fn read(&self, user: &UserId) -> Result<Arc<View>, Error> {
        self.0.get(user).await
    }

    /// A user's profile, activity and top categories, as [`Reader::profile`] gives them.
    ///
    /// # Errors
    ///
    /// As with [`Near::read`].
    pub async fn profile(&self, user: &UserId) -> Result<Arc<ProfileView>, Error> {
        self.0.get(user).await
    }

    /// What changes from now on. At most `events_max` events wait, and a reset of each shard.
    pub fn events(&self, events_max: usize) -> Events {
        self.0.shared.listeners.listen(events_max)
    }

    /// Whether answers of this shard may be given from memory as live.
    pub fn is_sure(&self, shard: Shard) -> bool {
        self.0.listening.is_sure(shard)
    }

    pub fn counts(&self) -> Counts {
        let core = &self.0.shared.core;
        core.counters.counts(core.entries())
    }

    /// How often Redis was waited for.
    pub fn round_trips(&self) -> u64 {
        self.0.reader.round_trips()
    }
}

impl Inner {
    async fn get<P: Part>(self: &Arc<Inner>, user: &UserId) -> Result<Arc<P>, Error> {
        let core = &self.shared.core;
        let shard = self.hub.layout().shard_of(user);
        let known = match core.look(shard, user, P::KIND) {
            Found::Current(known) if self.is_live(shard, &known) => {
                if let Some(value) = P::unwrap(&known.value) {
                    count(&core.counters.hits);
                    return Ok(self.turned(value, &known));
                }
                None
            }
            Found::Current(known) | Found::Outdated(known) => Some(known),
            Found::Nothing => None,
        };
        count(&core.counters.misses);
        let Some((value, known)) = known.as_ref().and_then(|known| Some((P::unwrap(&known.value)?, known))) else {
            return self.read(shard, user, self.options.reader.timeout).await;
        };
        match self.read_patiently(shard, user).await {
            Some(newer) => Ok(newer),
            None => Ok(self.marked(self.turned(value, known), known.read_at.elapsed())),
        }
    }

    /// None where no answer comes soon enough. The read goes on all the same: slow as Redis may be, the next caller has the
    /// newer answer.
    async fn read_patiently<P: Part>(self: &Arc<Inner>, shard: Shard, user: &UserId) -> Option<Arc<P>> {
        let timeout = self.options.reader.timeout;
        let patience = timeout.min(self.options.patience);
        let Ok(slot) = self.reading.clone().try_acquire_owned() else {
            return self.read(shard, user, patience).await.ok();
        };
        let (inner, user) = (self.clone(), user.clone());
        let reading = task::spawn("near read", async move {
            let _slot = slot;
            inner.read(shard, &user, timeout).await
        });
        tokio::time::timeout(patience, reading).await.ok()?.ok()?.ok()
    }

    /// Reads until nothing comes in between, a few times at most.
    async fn read<P: Part>(&self, shard: Shard, user: &UserId, patience: Duration) -> Result<Arc<P>, Error> {
        let core = &self.shared.core;
        let end = Instant::now() + patience;
        let (mut last, mut tries) = (None::<Arc<P>>, 1);
        loop {
            let (ticket, read_at) = (core.begin(shard, user), Instant::now());
            let answer = match self.reader.answer::<P>(user, end.saturating_duration_since(read_at)).await {
                Ok(answer) => answer,
                Err(error) => return last.map(|value| self.marked(value, Duration::ZERO)).ok_or(error),
            };
            let (value, fill) = filling(answer, read_at);
            match core.finish(ticket, shard, (user, P::KIND), fill) {
                Filled::Current => return Ok(value),
                Filled::Overtaken if tries == TRIES_MAX => return Ok(self.marked(value, Duration::ZERO)),
                Filled::Overtaken => count(&core.counters.overtaken),
            }
            (last, tries) = (Some(value), tries + 1);
        }
    }

    fn is_live(&self, shard: Shard, known: &Known) -> bool {
        self.listening.is_sure(shard) && known.read_at.elapsed() < self.options.reread_after
    }

    /// What is known, as it is to be seen now.
    fn turned<P: Part>(&self, value: &Arc<P>, known: &Known) -> Arc<P> {
        let now = known.server_now();
        if now < known.until {
            return value.clone();
        }
        let mut turned = P::clone(value);
        turned.turn(now, &self.options.reader);
        Arc::new(turned)
    }

    fn marked<P: Part>(&self, value: Arc<P>, age: Duration) -> Arc<P> {
        count(&self.shared.core.counters.stale);
        let mut value = Arc::unwrap_or_clone(value);
        value.mark(age);
        Arc::new(value)
    }
}

/// What was read, as it is given and as it is kept.
fn filling<P: Part>(answer: Answer<P>, read_at: Instant) -> (Arc<P>, Fill<Known>) {
    let Answer { value, commit, now, until, .. } = answer;
    let value = Arc::new(value);
    let bytes = value.bytes() as u64;
    // When a shard that is behind has caught up, nobody says.
    let lasting = value.state() != State::Stale;
    let bare = value.is_bare();
    let known = Known { value: P::wrap(&value), read_at, now, until };
    (value, Fill { value: known, bytes, commit, lasting, bare })
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.listeners.close();
    }
}

impl std::fmt::Debug for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Near").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
