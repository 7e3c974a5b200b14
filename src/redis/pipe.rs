//! A connection to one node that many tasks share for their appends: what is queued goes out in one write, and
//! answers come back in order. When it breaks, each caller hears whether its own commands had been sent.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    encode::Pipeline,
    error::Error,
    link::{Link, Reader, Writer},
    options::{ConnectOptions, NodeAddress},
    outgoing::Outgoing,
    reply::Reply,
};
use crate::task;

/// Submissions that wait for the pipe. Whoever comes after that waits too, within its deadline.
const QUEUED_MAX: usize = 1024;
/// Submissions sent and not answered yet.
const IN_FLIGHT_MAX: usize = 4096;
/// Bytes put together for one write.
const WRITE_BYTES_MAX: usize = 256 * 1024;

/// A handle to the connection. Cheap to clone; the connection ends with its last handle.
#[derive(Debug, Clone)]
pub struct Pipe {
    node: NodeAddress,
    reply_timeout: Duration,
    queue: mpsc::Sender<Submission>,
    /// Why it ended, once it has.
    ending: Arc<OnceLock<String>>,
}

/// Commands of one caller.
#[derive(Debug)]
struct Submission {
    pipeline: Pipeline,
    deadline: Instant,
    answer: oneshot::Sender<Result<Vec<Reply>, Error>>,
}

impl Pipe {
    /// Opens a connection of its own.
    pub async fn connect(node: &NodeAddress, options: &ConnectOptions) -> Result<Self, Error> {
        let (reader, writer) = Link::connect(node, options).await?.split()?;
        let (queue, submissions) = mpsc::channel(QUEUED_MAX);
        let ending = Arc::new(OnceLock::new());
        let actor = Actor {
            node: node.clone(),
            reply_timeout: options.reply_timeout,
            reader,
            writer,
            outgoing: Outgoing::default(),
            in_flight: VecDeque::new(),
        };
        let pipe = Self { node: node.clone(), reply_timeout: options.reply_timeout, queue, ending: ending.clone() };
        task::spawn("pipe", actor.run(submissions, ending));
        Ok(pipe)
    }

    pub fn node(&self) -> &NodeAddress {
        &self.node
    }

    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Sends the commands behind what others have queued, and waits for one reply to each. Error replies are
    /// replies. An error says through [`Error::possibly_sent`] whether these very commands may have reached Redis.
    /// Commands whose caller goes away before they are written are not sent.
    pub async fn submit(&self, pipeline: Pipeline) -> Result<Vec<Reply>, Error> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + self.reply_timeout;
        let (answer, answered) = oneshot::channel();
        let submission = Submission { pipeline, deadline, answer };
        match timeout_at(deadline, self.queue.send(submission)).await {
            Err(_) => Err(Error::Timeout { node: self.node.clone(), after: self.reply_timeout, sent: false }),
            Ok(Err(_)) => Err(self.ended(false)),
            // The pipe answers all that it took in, unless its task was cut short with the whole process.
            Ok(Ok(())) => answered.await.unwrap_or_else(|_| Err(self.ended(true))),
        }
    }

    fn ended(&self, sent: bool) -> Error {
        let reason = self.ending.get().map_or("the pipe has ended", String::as_str);
        Error::Closed { node: self.node.clone(), sent, reason: reason.to_owned() }
    }
}

/// The one task that owns the connection.
struct Actor {
    node: NodeAddress,
    reply_timeout: Duration,
    reader: Reader,
    writer: Writer,
    outgoing: Outgoing,
    in_flight: VecDeque<InFlight>,
}

/// A submission that waits for its replies.
struct InFlight {
    answer: oneshot::Sender<Result<Vec<Reply>, Error>>,
    replies: Vec<Reply>,
    expected: usize,
    deadline: Instant,
    /// Where its first byte stands in the stream of bytes.
    start: u64,
}

/// What ends the actor.
enum End {
    /// All handles are gone and everything is answered.
    Idle,
    Failed(String),
    /// The oldest submission was not answered in time.
    Silent,
}

impl End {
    fn reason(&self) -> &str {
        match self {
            Self::Idle => "no longer used",
            Self::Failed(reason) => reason,
            Self::Silent => "the server fell silent",
        }
    }
}

impl Actor {
    async fn run(mut self, mut submissions: mpsc::Receiver<Submission>, ending: Arc<OnceLock<String>>) {
        let end = self.serve(&mut submissions).await;
        tracing::debug!(node = %self.node, reason = end.reason(), "a pipe ended");
        // Said before the queue closes, so that whoever finds it closed finds the reason too.
        let _ = ending.set(end.reason().to_owned());
        submissions.close();
        for waiting in std::mem::take(&mut self.in_flight) {
            let sent = self.outgoing.sent() > waiting.start;
            let _ = waiting.answer.send(Err(self.error(&end, sent)));
        }
        while let Some(waiting) = submissions.recv().await {
            let _ = waiting.answer.send(Err(self.error(&end, false)));
        }
    }

    async fn serve(&mut self, submissions: &mut mpsc::Receiver<Submission>) -> End {
        let mut open = true;
        loop {
            if !open && self.in_flight.is_empty() {
                return End::Idle;
            }
            let oldest = self.in_flight.front().map(|waiting| waiting.deadline);
            let writing = !self.outgoing.is_done();
            let room = open && !writing && self.in_flight.len() < IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                reply = self.reader.next() => match reply.and_then(|reply| self.hand_out(reply)) {
                    Ok(()) => {}
                    Err(error) => return End::Failed(reason(error)),
                },
                pushed = self.writer.push(&mut self.outgoing), if writing => match pushed {
                    Ok(()) => {}
                    Err(error) => return End::Failed(reason(error)),
                },
                taken = submissions.recv(), if room => match taken {
                    Some(first) => self.gather(first, submissions),
                    None => open = false,
                },
                () = until(oldest), if oldest.is_some() => return End::Silent,
            }
        }
    }

    /// Puts everything that is queued into one buffer, within bounds.
    fn gather(&mut self, first: Submission, submissions: &mut mpsc::Receiver<Submission>) {
        let mut next = Some(first);
        while let Some(submission) = next {
            self.take_in(submission);
            let room = self.in_flight.len() < IN_FLIGHT_MAX && self.outgoing.waiting() < WRITE_BYTES_MAX;
            next = if room { submissions.try_recv().ok() } else { None };
        }
    }

    fn take_in(&mut self, submission: Submission) {
        if submission.answer.is_closed() {
            return;
        }
        self.in_flight.push_back(InFlight {
            answer: submission.answer,
            replies: Vec::with_capacity(submission.pipeline.len()),
            expected: submission.pipeline.len(),
            deadline: submission.deadline,
            start: self.outgoing.add(submission.pipeline.bytes()),
        });
    }

    fn hand_out(&mut self, reply: Reply) -> Result<(), Error> {
        let Some(oldest) = self.in_flight.front_mut() else {
            return Err(Error::protocol("no answer without a command", format!("{reply:?}")));
        };
        oldest.replies.push(reply);
        if oldest.replies.len() == oldest.expected
            && let Some(done) = self.in_flight.pop_front()
        {
            // The caller may have gone away in the meantime.
            let _ = done.answer.send(Ok(done.replies));
        }
        Ok(())
    }

    fn error(&self, end: &End, sent: bool) -> Error {
        let node = self.node.clone();
        match end {
            End::Silent => Error::Timeout { node, after: self.reply_timeout, sent },
            End::Idle | End::Failed(_) => Error::Closed { node, sent, reason: end.reason().to_owned() },
        }
    }
}

/// The bare reason: the error that callers get names the node itself.
fn reason(error: Error) -> String {
    match error {
        Error::Closed { reason, .. } => reason,
        other => other.to_string(),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[cfg(feature = "server")]
mod tests {
    use super::*;
    use crate::local::Ports;

    fn submission(deadline: Instant) -> (Submission, oneshot::Receiver<Result<Vec<Reply>, Error>>) {
        let mut pipeline = Pipeline::new();
        pipeline.command("XADD").arg("k").arg("*").arg("f").arg([b'x'; 1000]);
        let (answer, answered) = oneshot::channel();
        (Submission { pipeline, deadline, answer }, answered)
    }

    #[tokio::test]
    async fn what_is_queued_goes_into_one_write_within_a_bound() {
        let ports = Ports::reserve().unwrap().unwrap();
        let node = NodeAddress::new("127.0.0.1", ports.first());
        let _listener = tokio::net::TcpListener::bind(("127.0.0.1", node.port)).await.unwrap();
        let silent = ConnectOptions { client_name: None, ..ConnectOptions::default() };
        let (reader, writer) = Link::connect(&node, &silent).await.unwrap().split().unwrap();
        let outgoing = Outgoing::default();
        let reply_timeout = silent.reply_timeout;
        let mut actor = Actor { node, reply_timeout, reader, writer, outgoing, in_flight: VecDeque::new() };

        let (sender, mut receiver) = mpsc::channel(QUEUED_MAX);
        let mut callers = Vec::new();
        for _ in 0..QUEUED_MAX {
            let (submission, caller) = submission(Instant::now());
            sender.try_send(submission).unwrap();
            callers.push(caller);
        }
        // Whoever has gone before the write is left out.
        drop(callers.drain(..10));
        let first = receiver.recv().await.unwrap();
        let each = first.pipeline.bytes().len();
        actor.gather(first, &mut receiver);
        let expected = WRITE_BYTES_MAX.div_ceil(each);
        assert_eq!(actor.in_flight.len(), expected);
        assert_eq!(actor.outgoing.waiting(), expected * each);
        assert_eq!(receiver.len(), QUEUED_MAX - 10 - expected);
    }
}
