//! Appending changes: validated like the worker does, routed to their shard, in order per shard.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lane::{Entry, Lane};
use super::{Failure, Hub};
use crate::change::{Change, Fields, Limits, Rejection};
use crate::error::Disposition;
use crate::position::EntryId;
use crate::redis::append::Append;
use crate::shard::Shard;

/// How a writer works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an append is tried, the wait for room in the queue included. An answer that is on its way at the end of
    /// it is still awaited, for one reply timeout at most.
    pub timeout: Duration,
    /// Changes of one shard that wait or are on their way. Who comes after that waits too: this is the backpressure.
    pub queue_changes_max: usize,
    /// Changes in one transaction.
    pub batch_changes_max: usize,
    /// The bounds of an entry; those of the workers.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(10),
            queue_changes_max: 1024,
            batch_changes_max: 128,
            limits: Limits::default(),
        }
    }
}

/// Where a change is in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub shard: Shard,
    pub id: EntryId,
}

/// Why a change was not appended, or not certainly.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No worker would apply it. Nothing was sent.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Certainly not appended: Redis refused it, or could not be reached, until the time was over.
    #[error("shard {shard}: not appended: {why}")]
    Refused { shard: Shard, why: Failure },
    /// May or may not be appended, now or a little later: it was sent, and no answer came.
    #[error("shard {shard}: may or may not be appended: {why}")]
    Unknown { shard: Shard, why: Failure },
    /// Certainly not appended: the shard's queue did not move until the time was over.
    #[error("shard {shard}: not appended: no room in the queue within {after:?}")]
    Full { shard: Shard, after: Duration },
    /// Certainly not appended: an earlier change of the same producer failed, and this one would make the workers drop
    /// that one as a repetition. Append again from that sequence on, or call [`Writer::release`].
    #[error("shard {shard}: not appended: sequence {sequence} of producer {producer:?} comes first")]
    Behind { shard: Shard, producer: String, sequence: u64 },
    /// May or may not be appended: the task that appends to this shard has ended, with its runtime or by a bug.
    #[error("shard {shard}: may or may not be appended: the writer's task has ended")]
    Abandoned { shard: Shard },
}

impl Error {
    pub fn disposition(&self) -> Disposition {
        match self {
            Error::Rejected(_) => Disposition::Poison,
            Error::Refused { why, .. } => match why.error.disposition() {
                // Certainly not appended, whatever else that error may mean.
                Disposition::Ambiguous => Disposition::Refresh,
                other => other,
            },
            Error::Unknown { .. } | Error::Abandoned { .. } => Disposition::Ambiguous,
            Error::Full { .. } | Error::Behind { .. } => Disposition::Retry,
        }
    }

    /// Whether the change may be in the stream, or get there yet.
    pub fn possibly_appended(&self) -> bool {
        !self.disposition().is_clean()
    }
}

/// Appends changes to the streams. Cheap to clone; clones share queues and order.
///
/// **Order.** Changes of one shard, and so of one user, are appended in the order in which they were accepted, whatever
/// is refused in between: each shard has one queue and at most one batch on its way, and a batch is a transaction.
/// A change that failed for good is passed over; those behind it go on.
///
/// **Lost answers.** When a connection breaks after a batch was sent, nobody can tell whether Redis took it.
/// - A change without a producer is then [`Error::Unknown`] at once, and those behind it go on. It may even get into
///   the stream after them, where a node was frozen and goes on. Appending it again may append it twice.
/// - A change with producer and sequence is sent again, in order, until it is answered or its time is over: workers
///   drop what they have applied of a producer, so that a second copy does no harm. Only then it is `Unknown`. The id
///   told in the end is that of the copy that was answered.
///
/// **Producers.** After a change of a producer failed in any way but [`Error::Rejected`], later sequences of that producer
/// in the same shard are refused as [`Error::Behind`], until the failed one is appended again. Otherwise it would be lost:
/// workers drop a sequence that is not above the last one.
///
/// **Backpressure.** A server that is full, away or slow fills the queue, and [`Writer::enqueue`] waits for room, up to
/// [`Options::timeout`]: then it says [`Error::Full`]. A slot that moves is followed without a word.
///
/// **After an error.** Every error but `Unknown` and [`Error::Abandoned`] is certain: this append put nothing into the stream
/// and never will. It speaks of this append alone; what was unknown of an earlier append of the same change stays so.
/// To get through, append again what failed, in its order, with the same sequences, as often as it takes: workers
/// apply each sequence of a producer once, wherever a copy that was unknown turns up. Without a producer only what
/// failed for certain can be appended again without a second thought; an event id covers the rest within the window in
/// which workers remember it.
///
/// Accepted changes go on being appended when the caller drops what waits for them, and when the writer itself goes.
///
/// ```no_run
/// # async fn example(hub: heyday::client::Hub) -> Result<(), Box<dyn std::error::Error>> {
/// use heyday::birthday::Birthday;
/// use heyday::change::{Action, Change};
/// use heyday::client::writer::Options;
///
/// let writer = hub.writer(Options::default());
/// let birthday = Some(Birthday::parse("1990-05-01")?);
/// let change = Change::new("42".parse()?, Action::Add { friend: "77".parse()?, birthday, mutual: false });
/// match writer.append(&change).await {
///     Ok(appended) => println!("shard {} entry {}", appended.shard, appended.id),
///     Err(error) if error.possibly_appended() => println!("look before you append it again: {error}"),
///     Err(error) => println!("certainly not appended: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    hub: Hub,
    options: Arc<Options>,
    lanes: Arc<[OnceLock<Arc<Lane>>]>,
}

/// A change that was accepted. Await it to know what became of it.
#[derive(Debug)]
pub struct Receipt {
    shard: Shard,
    answer: oneshot::Receiver<Result<Appended, Error>>,
}

impl Writer {
    pub(super) fn new(hub: Hub, options: Options) -> Writer {
        let lanes = hub.layout().shards().map(|_| OnceLock::new()).collect();
        Writer { hub, options: Arc::new(options), lanes }
    }

    /// Appends a change and waits until it is in the stream.
    ///
    /// # Errors
    ///
    /// See [`Error`]; only [`Error::Unknown`] and [`Error::Abandoned`] leave open whether it was appended.
    pub async fn append(&self, change: &Change) -> Result<Appended, Error> {
        self.enqueue(change).await?.await
    }

    /// The same for fields as they stand in a stream entry (`docs/wire-format.md`). They are appended as they are.
    ///
    /// # Errors
    ///
    /// As [`Writer::append`].
    pub async fn append_fields<N, V>(&self, fields: &[(N, V)]) -> Result<Appended, Error>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.enqueue_fields(fields).await?.await
    }

    /// Accepts a change for its place in the shard's order, waiting while the shard's queue is full. Many can be on
    /// their way at once: keep the receipts and await them later.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`], [`Error::Full`] and [`Error::Behind`]; everything else is told by the receipt.
    pub async fn enqueue(&self, change: &Change) -> Result<Receipt, Error> {
        self.enqueue_fields(&change.encode().iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>()).await
    }

    /// The same for fields as they stand in a stream entry.
    ///
    /// # Errors
    ///
    /// As [`Writer::enqueue`].
    pub async fn enqueue_fields<N, V>(&self, fields: &[(N, V)]) -> Result<Receipt, Error>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let deadline = Instant::now() + self.options.timeout;
        let change = self.validate(fields)?;
        let keys = self.hub.keys_of(&change.user);
        let (sender, answer) = oneshot::channel();
        let entry = Entry::new(Append::new(&keys.changes, fields), change.producer, deadline, sender);
        self.lane(keys.shard).push(entry).await?;
        Ok(Receipt { shard: keys.shard, answer })
    }

    /// Gives up what failed of this producer: its later sequences are accepted again.
    pub fn release(&self, producer: &str) {
        self.lanes.iter().filter_map(OnceLock::get).for_each(|lane| lane.release(producer));
    }

    /// By the same rules as the worker, which judges by the entry's time: that is about now.
    fn validate<N: AsRef<[u8]>, V: AsRef<[u8]>>(&self, fields: &[(N, V)]) -> Result<Change, Rejection> {
        let copied: Fields = fields
            .iter()
            .map(|(name, value)| (Bytes::copy_from_slice(name.as_ref()), Bytes::copy_from_slice(value.as_ref())))
            .collect();
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
        Change::decode(&copied, &self.options.limits, now)
    }

    fn lane(&self, shard: Shard) -> &Arc<Lane> {
        let make = || Arc::new(Lane::new(self.hub.clone(), shard, self.options.clone()));
        self.lanes[usize::from(shard.0)].get_or_init(make)
    }
}

impl Receipt {
    pub fn shard(&self) -> Shard {
        self.shard
    }
}

impl Future for Receipt {
    type Output = Result<Appended, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shard = self.shard;
        Pin::new(&mut self.answer).poll(context).map(|answer| answer.unwrap_or(Err(Error::Abandoned { shard })))
    }
}
