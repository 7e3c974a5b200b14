//! Subscriptions to sharded channels of one node, over a connection that sends nothing else. Every push of the
//! server is an event: that a slot moved away is said once, and silence afterwards would look like health.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::{
    encode::Pipeline,
    error::Error,
    link::{Link, Reader, Writer},
    options::{ConnectOptions, NodeAddress},
    outgoing::Outgoing,
    reply::Reply,
};
use crate::error::ServerError;

/// How often a connection without traffic is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// What happened on a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Message {
        channel: Bytes,
        payload: Bytes,
    },
    /// From here on every message arrives.
    Subscribed {
        channel: Bytes,
    },
    /// No further message arrives, be it that we asked or, far more often, that the slot moved.
    Unsubscribed {
        channel: Bytes,
    },
    /// This channel cannot be had here; a MOVED names the node to ask.
    Refused {
        channel: Bytes,
        error: ServerError,
    },
}

/// A connection for subscriptions.
#[derive(Debug)]
pub struct Subscription {
    node: NodeAddress,
    reply_timeout: Duration,
    reader: Reader,
    writer: Writer,
    outgoing: Outgoing,
    /// What was asked and not answered yet, in the order of the commands.
    unanswered: VecDeque<Request>,
    ping: Ping,
    failed: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    Subscribe(Bytes),
    Unsubscribe(Bytes),
    Ping,
}

/// When to ask for a sign of life, or by when it must have come.
#[derive(Debug, Clone, Copy)]
enum Ping {
    Due(Instant),
    Sent(Instant),
}

impl Subscription {
    pub async fn connect(node: &NodeAddress, options: &ConnectOptions) -> Result<Self, Error> {
        let (reader, writer) = Link::connect(node, options).await?.split()?;
        Ok(Self {
            node: node.clone(),
            reply_timeout: options.reply_timeout,
            reader,
            writer,
            outgoing: Outgoing::default(),
            unanswered: VecDeque::new(),
            ping: Ping::Due(Instant::now() + PING_INTERVAL),
            failed: false,
        })
    }

    pub fn node(&self) -> &NodeAddress {
        &self.node
    }

    /// Asks for `channel`, in a command of its own: channels of two slots in one command are refused. Sent while
    /// [`Subscription::next`] waits, which also brings the confirmation.
    pub fn subscribe(&mut self, channel: impl Into<Bytes>) {
        let channel = channel.into();
        self.send(&[b"SSUBSCRIBE", &channel]);
        self.unanswered.push_back(Request::Subscribe(channel));
    }

    /// Gives `channel` up, in the same way.
    pub fn unsubscribe(&mut self, channel: impl Into<Bytes>) {
        let channel = channel.into();
        self.send(&[b"SUNSUBSCRIBE", &channel]);
        self.unanswered.push_back(Request::Unsubscribe(channel));
    }

    /// The next event. An error means that the connection is gone, and messages may have been missed. Nothing is
    /// lost where this future is dropped before it is ready.
    pub async fn next(&mut self) -> Result<Event, Error> {
        if self.failed {
            let reason = "this subscription failed before".to_owned();
            return Err(Error::Closed { node: self.node.clone(), sent: false, reason });
        }
        let result = self.advance().await;
        self.failed = result.is_err();
        result
    }

    async fn advance(&mut self) -> Result<Event, Error> {
        loop {
            let (Ping::Due(wake) | Ping::Sent(wake)) = self.ping;
            tokio::select! {
                biased;
                reply = self.reader.next() => {
                    self.ping = Ping::Due(Instant::now() + PING_INTERVAL);
                    if let Some(event) = self.read(reply?)? {
                        return Ok(event);
                    }
                }
                pushed = self.writer.push(&mut self.outgoing), if !self.outgoing.is_done() => pushed?,
                () = sleep_until(wake) => self.probe()?,
            }
        }
    }

    fn send(&mut self, words: &[&[u8]]) {
        let mut pipeline = Pipeline::new();
        pipeline.push(words);
        self.outgoing.add(pipeline.bytes());
    }

    fn probe(&mut self) -> Result<(), Error> {
        match self.ping {
            Ping::Due(_) => {
                self.send(&[b"PING"]);
                self.unanswered.push_back(Request::Ping);
                self.ping = Ping::Sent(Instant::now() + self.reply_timeout);
                Ok(())
            }
            Ping::Sent(_) => Err(Error::Timeout { node: self.node.clone(), after: self.reply_timeout, sent: true }),
        }
    }

    fn read(&mut self, reply: Reply) -> Result<Option<Event>, Error> {
        match reply {
            Reply::Error(error) => self.refused(*error).map(Some),
            // Without any subscription PONG comes as an ordinary status.
            Reply::Status(line) if line == "PONG" => self.answered(&Request::Ping).map(|()| None),
            reply => self.pushed(reply),
        }
    }

    fn pushed(&mut self, reply: Reply) -> Result<Option<Event>, Error> {
        let words = reply.into_array()?;
        let kind = words.first().ok_or_else(|| Error::protocol("a push", "an empty array"))?.as_bytes()?;
        let word = |index: usize| -> Result<Bytes, Error> {
            let word = words.get(index).ok_or_else(|| Error::protocol("a longer push", format!("{words:?}")))?;
            word.as_bytes().cloned()
        };
        match kind.as_ref() {
            b"smessage" => Ok(Some(Event::Message { channel: word(1)?, payload: word(2)? })),
            b"ssubscribe" => {
                let channel = word(1)?;
                self.answered(&Request::Subscribe(channel.clone()))?;
                Ok(Some(Event::Subscribed { channel }))
            }
            b"sunsubscribe" => {
                let channel = word(1)?;
                // Where we did not ask, the server did it by itself: the slot is no longer there.
                if self.unanswered.front() == Some(&Request::Unsubscribe(channel.clone())) {
                    self.unanswered.pop_front();
                }
                Ok(Some(Event::Unsubscribed { channel }))
            }
            b"pong" => self.answered(&Request::Ping).map(|()| None),
            _ => Err(Error::protocol("a push of a subscription", format!("{words:?}"))),
        }
    }

    fn refused(&mut self, error: ServerError) -> Result<Event, Error> {
        match self.unanswered.pop_front() {
            Some(Request::Subscribe(channel)) => Ok(Event::Refused { channel, error }),
            Some(Request::Unsubscribe(channel)) => Ok(Event::Unsubscribed { channel }),
            Some(Request::Ping) | None => Err(Error::Server(error)),
        }
    }

    fn answered(&mut self, request: &Request) -> Result<(), Error> {
        match self.unanswered.pop_front() {
            Some(expected) if expected == *request => Ok(()),
            other => Err(Error::protocol(format!("the answer to {other:?}"), format!("that to {request:?}"))),
        }
    }
}
