//! Reading views: a ready answer in one round trip, fresh or honestly marked stale.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::civil::Date;
use tokio::time::{Instant, sleep};

use super::answer::{Answer, Asked};
use super::loader::Loads;
use super::{Failure, Hub};
use crate::birthday::{Birthday, Next};
use crate::calendar::Calendar;
use crate::change::UserId;
use crate::error::Disposition;
use crate::redis;
use crate::redis::views::Way;
use crate::shard::Shard;

pub use super::profile::{FieldError, Profile, ProfileView};

/// Between two looks whether what was loaded is applied.
const APPLIED_PAUSE: Duration = Duration::from_millis(10);

/// How a reader works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a read may take, all tries together.
    pub timeout: Duration,
    /// How far a shard may be behind before its views count as stale.
    pub fresh_within: Duration,
    /// The zone of users who have told none, and when 29 February is celebrated in other years.
    pub calendar: Calendar,
    /// The users' own fields that stay when a profile has expired; those of the workers.
    pub profile_keep: BTreeSet<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(2),
            fresh_within: Duration::from_secs(5),
            calendar: Calendar::default(),
            profile_keep: BTreeSet::new(),
        }
    }
}

/// How far an answer can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Everything appended up to `freshness` ago is in it.
    Live,
    /// The shard is further behind than the options allow, or the answer is the last known one, from `age` ago.
    Stale,
    /// Nothing is known of this user.
    Cold,
}

/// A user's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub user: UserId,
    pub shard: Shard,
    pub state: State,
    /// How long the oldest change that the view may lack had been waiting when it was read; zero where there was none.
    pub freshness: Duration,
    /// The day that it is for the user: in the zone of the profile, or the calendar's where it tells none.
    pub today: Date,
    /// Zero for an answer of Redis, or one that is known to be no other now; else how long ago Redis gave it.
    pub age: Duration,
    pub profile: Profile,
    /// Soonest celebration first, unknown dates last, each by id. Days are counted in the user's own zone.
    pub friends: Vec<Friend>,
}

/// A friend in a user's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Friend {
    pub friend: UserId,
    pub birthday: Birthday,
    /// The next celebration; none where the date is unknown.
    pub next: Option<Next>,
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("user {user}, shard {shard}: not read: {why}")]
    Redis { user: UserId, shard: Shard, why: Failure },
}

impl Error {
    pub fn disposition(&self) -> Disposition {
        match self {
            Error::Redis { why, .. } => match why.error.disposition() {
                // A read has no effect that could be in doubt.
                Disposition::Ambiguous => Disposition::Refresh,
                other => other,
            },
        }
    }
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Live => "live",
            State::Stale => "stale",
            State::Cold => "cold",
        }
    }
}

/// Reads views. Cheap to clone, and to use from many tasks at once.
///
/// ```no_run
/// # async fn example(hub: heyday::client::Hub) -> Result<(), Box<dyn std::error::Error>> {
/// use heyday::client::reader::Options;
///
/// let reader = hub.reader(Options::default());
/// let view = reader.read(&"42".parse()?).await?;
/// println!("{:?}, {:?} behind", view.state, view.freshness);
/// for friend in &view.friends {
///     println!("{} {:?}", friend.friend, friend.next);
/// }
/// let profile = reader.profile(&"42".parse()?).await?;
/// println!("{:?}, level {:?}", profile.profile.role(), profile.profile.number::<u32>("level")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    hub: Hub,
    options: Arc<Options>,
    round_trips: Arc<AtomicU64>,
    loads: Option<Loads>,
}

impl Reader {
    pub(super) fn new(hub: Hub, options: Options) -> Reader {
        Reader { hub, options: Arc::new(options), round_trips: Arc::default(), loads: None }
    }

    /// Has cold users loaded: such a read answers as ever, and what the loader knows of the user is appended meanwhile.
    #[must_use]
    pub fn loading(self, loads: Loads) -> Reader {
        Reader { loads: Some(loads), ..self }
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// A user's view: profile and friends; an empty one for a user nobody has told of.
    ///
    /// One round trip. A second one only where the shard is behind and no worker has read the change that waits, or where the
    /// slot is on its way to another node.
    ///
    /// # Errors
    ///
    /// Where the owner of the user's shard does not answer within the timeout, or refuses.
    pub async fn read(&self, user: &UserId) -> Result<View, Error> {
        self.answer(user, self.options.timeout).await.map(|answer| answer.value)
    }

    /// A user's profile, activity and top categories; an empty one for a user nobody has told of. It is cold only where the
    /// user has no friends either.
    ///
    /// Round trips and errors as with [`Reader::read`].
    ///
    /// # Errors
    ///
    /// Where the owner of the user's shard does not answer within the timeout, or refuses.
    pub async fn profile(&self, user: &UserId) -> Result<ProfileView, Error> {
        self.answer(user, self.options.timeout).await.map(|answer| answer.value)
    }

    /// How often this reader and its clones have waited for an answer of Redis.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Reads until the answer is not cold, where it is waited for what is loaded.
    pub(super) async fn answer<A: Asked>(&self, user: &UserId, deadline: Duration) -> Result<Answer<A>, Error> {
        let end = Instant::now() + deadline;
        let mut answer = self.stored::<A>(user, deadline).await?;
        if answer.value.state() != State::Cold || !self.loaded(user, end).await {
            return Ok(answer);
        }
        while pause(end).await {
            match self.stored(user, end.saturating_duration_since(Instant::now())).await {
                Ok(newer) => answer = newer,
                // The cold answer is one too.
                Err(_) => break,
            }
            // Where nothing waits any more, what was loaded is applied and left nothing to see.
            if answer.value.state() != State::Cold || !answer.behind {
                break;
            }
        }
        Ok(answer)
    }

    async fn stored<A: Asked>(&self, user: &UserId, deadline: Duration) -> Result<Answer<A>, Error> {
        let hub = &self.hub;
        let way = Way { nodes: hub.nodes(), pipes: hub.pipes(), keys: hub.keys_of(user), deadline };
        let (answer, round_trips) = A::ask(way, user, &self.options).await.map_err(|error| self.failed(user, error))?;
        self.round_trips.fetch_add(round_trips.into(), Ordering::Relaxed);
        Ok(answer)
    }

    /// Has a cold user loaded. True where that was waited for and there is something to read.
    async fn loaded(&self, user: &UserId, end: Instant) -> bool {
        let Some((mut flight, true)) = self.loads.as_ref().and_then(|loads| Some((loads.begin(user)?, loads.waits())))
        else {
            return false;
        };
        let appended = tokio::time::timeout_at(end, flight.wait_for(|appended| *appended)).await;
        appended.is_ok_and(|appended| appended.is_ok())
    }

    fn failed(&self, user: &UserId, error: redis::Error) -> Error {
        let keys = self.hub.keys_of(user);
        let owner = self.hub.topology().node_of(keys.slot).ok();
        let why = Failure::new(owner.as_ref().map(|node| &node.address), error);
        Error::Redis { user: user.clone(), shard: keys.shard, why }
    }
}

/// Lets a worker apply what was appended; false where there is no time left for that.
async fn pause(end: Instant) -> bool {
    let in_time = Instant::now() + APPLIED_PAUSE < end;
    if in_time {
        sleep(APPLIED_PAUSE).await;
    }
    in_time
}
