//! Hearing what changed: at once where Pub/Sub works, a little later where it does not, and never less than everything.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::session::{Session, Sink};
use super::{Hub, listen, poll};
use crate::change::UserId;
use crate::error::Disposition;
use crate::position::CommitId;
use crate::redis::NodeAddress;
use crate::shard::{self, Shard};
use crate::signal::Views;
use crate::task;

/// What a subscriber listens to, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The shards to listen to; none for all, or for those of `users`.
    pub shards: Option<BTreeSet<Shard>>,
    /// The users whose changes are wanted; none for all. Resets come for whole shards.
    pub users: Option<BTreeSet<UserId>>,
    /// How often every shard's log is looked at while its signals are heard.
    pub poll_interval: Duration,
    /// How often while they are not.
    pub poll_interval_degraded: Duration,
    /// Events that wait for the caller. Beyond that reading stops until the caller goes on.
    pub events_max: usize,
    /// How long [`Hub::subscribe`] waits for shards whose node does not answer. Such a shard begins with a reset.
    pub start_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            shards: None,
            users: None,
            poll_interval: Duration::from_secs(2),
            poll_interval_degraded: Duration::from_millis(200),
            events_max: 1024,
            start_timeout: Duration::from_secs(5),
        }
    }
}

/// What a subscriber tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A commit changed these views of this user. In commit order within the shard, each once.
    Changed { shard: Shard, commit: CommitId, user: UserId, views: Views },
    /// It cannot be proven that nothing was missed: read again whatever you hold of this shard.
    Reset { shard: Shard },
}

/// Why no subscriber came about.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Shard(#[from] shard::Error),
}

impl Error {
    pub fn disposition(&self) -> Disposition {
        match self {
            Error::Shard(_) => Disposition::Fatal,
        }
    }
}

/// A stream of what changed since [`Hub::subscribe`] returned.
///
/// Subscribe first and read afterwards: then every later change of what was read is told. Within a shard events come in
/// commit order and each once, whatever happens to connections, nodes and slots; where the log no longer reaches back far
/// enough to prove it, one [`Event::Reset`] takes the place of what may have been missed. While a node answers, a change
/// is told within the poll interval even where no signal arrives at all.
///
/// The stream ends only with the runtime. Dropping the subscriber ends its tasks and connections.
///
/// ```no_run
/// # async fn example(hub: heyday::client::Hub) -> Result<(), Box<dyn std::error::Error>> {
/// use heyday::client::subscriber::{Event, Options};
///
/// let mut subscriber = hub.subscribe(Options::default()).await?;
/// while let Some(event) = subscriber.next_event().await {
///     match event {
///         Event::Changed { user, views, .. } => println!("{user}: {:?}", views.names()),
///         Event::Reset { shard } => println!("read again what you hold of shard {shard}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Subscriber {
    events: mpsc::Receiver<Event>,
    listening: Listening,
}

/// The tasks that hear and read, and what they share. They end when it is dropped.
pub(super) struct Listening {
    session: Arc<Session>,
    tasks: Arc<Tasks>,
}

impl Listening {
    pub(super) async fn start(hub: Hub, options: Options, sink: Sink) -> Result<Listening, Error> {
        let shards = selected(&hub, &options)?;
        let start_timeout = options.start_timeout;
        let session = Arc::new(Session::new(hub, options, shards, sink));
        let tasks = Arc::new(Tasks::default());
        let manager = task::spawn("subscriber", manage(session.clone(), tasks.clone()));
        tasks.open().manager = Some(manager);
        // From here on the tasks end where the caller gives up waiting.
        let listening = Listening { session, tasks };
        let session = &listening.session;
        let (mut started, all) = (session.started.subscribe(), session.cells.len());
        let late = tokio::time::timeout(start_timeout, started.wait_for(|started| *started == all)).await.is_err();
        session.handed_over.store(true, Ordering::SeqCst);
        if late {
            tracing::warn!(
                started = *session.started.borrow(),
                of = all,
                "some shards do not answer yet: they begin with a reset"
            );
        }
        Ok(listening)
    }

    /// See [`Subscriber::is_sure`].
    pub(super) fn is_sure(&self, shard: Shard) -> bool {
        self.session.cell_of(shard).is_some_and(|cell| self.session.is_sure(cell))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.close();
    }
}

impl Subscriber {
    pub(super) async fn start(hub: Hub, options: Options) -> Result<Subscriber, Error> {
        let (sender, events) = mpsc::channel(options.events_max.max(1));
        let listening = Listening::start(hub, options, Sink::Queue(sender)).await?;
        Ok(Subscriber { events, listening })
    }

    /// Whether signals of this shard arrive, and its log was seen lately to hold nothing that was not told: then what was
    /// read of the shard after its last event is still so. False for a shard that is not listened to.
    pub fn is_sure(&self, shard: Shard) -> bool {
        self.listening.is_sure(shard)
    }

    /// The next event, as [`Stream`] gives it. Nothing is lost where this future is dropped.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Stream for Subscriber {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(context)
    }
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber").field("waiting", &self.events.len()).finish_non_exhaustive()
    }
}

fn selected(hub: &Hub, options: &Options) -> Result<Vec<Shard>, Error> {
    let layout = hub.layout();
    match (&options.shards, &options.users) {
        (Some(shards), _) => {
            let known = shards.iter().map(|shard| layout.shard(u32::from(shard.0)));
            Ok(known.collect::<Result<_, _>>()?)
        }
        (None, Some(users)) => {
            let theirs: BTreeSet<Shard> = users.iter().map(|user| layout.shard_of(user)).collect();
            Ok(theirs.into_iter().collect())
        }
        (None, None) => Ok(layout.shards().collect()),
    }
}

/// The tasks of a subscriber.
#[derive(Default)]
struct Tasks(Mutex<Open>);

#[derive(Default)]
struct Open {
    closed: bool,
    manager: Option<JoinHandle<()>>,
    nodes: HashMap<(NodeAddress, Kind), JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Listen,
    Poll,
}

impl Tasks {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut open = self.open();
        open.closed = true;
        open.manager.iter().for_each(JoinHandle::abort);
        open.nodes.drain().for_each(|(_, task)| task.abort());
    }

    /// Lets a node's task end where no shard lives there. Decided under the lock under which tasks are started, so that a
    /// shard that comes back finds a task.
    fn retire(&self, session: &Session, node: &NodeAddress, kind: Kind) -> bool {
        let mut open = self.open();
        let over = session.cells_on(node).is_empty();
        if over {
            open.nodes.remove(&(node.clone(), kind));
        }
        over
    }

    /// Makes sure that each node that owns shards has its tasks; one that died of a bug is started again.
    fn ensure(self: &Arc<Tasks>, session: &Arc<Session>, node: &NodeAddress) {
        let mut open = self.open();
        for kind in [Kind::Listen, Kind::Poll] {
            let key = (node.clone(), kind);
            if open.closed || open.nodes.get(&key).is_some_and(|task| !task.is_finished()) {
                continue;
            }
            let is_over = {
                let (tasks, session, node) = (self.clone(), session.clone(), node.clone());
                move || tasks.retire(&session, &node, kind)
            };
            let task = match kind {
                Kind::Listen => task::spawn("listener", listen::run(session.clone(), node.clone(), is_over)),
                Kind::Poll => task::spawn("log reader", poll::run(session.clone(), node.clone(), is_over)),
            };
            open.nodes.insert(key, task);
        }
    }
}

/// Keeps a listener and a log reader with each node that owns shards, and the slot map right.
async fn manage(session: Arc<Session>, tasks: Arc<Tasks>) {
    let topology = session.hub.topology();
    let mut changes = topology.changes();
    loop {
        changes.borrow_and_update();
        let owners = session.cells.iter().map(|cell| topology.node_of(cell.keys.slot));
        let (known, unknown): (Vec<_>, Vec<_>) = owners.partition(Result::is_ok);
        let nodes: BTreeSet<NodeAddress> = known.into_iter().flatten().map(|node| node.address.clone()).collect();
        nodes.iter().for_each(|node| tasks.ensure(&session, node));
        let options = &session.options;
        let pause = if unknown.is_empty() { options.poll_interval } else { options.poll_interval_degraded };
        let stale = tokio::select! {
            biased;
            _ = changes.changed() => false,
            () = session.stale.notified() => true,
            () = tokio::time::sleep(pause) => !unknown.is_empty(),
        };
        if stale {
            session.hub.refresh(options.poll_interval).await;
        }
    }
}
