//! One connection to one node, used in strict sequence. It never reconnects, never repeats, never redirects, and
//! never outlives an error: what was watched or half sent on it dies with it.

use std::{io, task::Poll, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf},
    time::timeout,
};

use super::{
    decode::Decoder,
    encode::Pipeline,
    error::Error,
    options::{ConnectOptions, NodeAddress},
    outgoing::Outgoing,
    reply::Reply,
    stream::{Stream, connect_error},
};
use crate::error::ServerCode;

/// What a blocking command may take longer than its own BLOCK: a deadline below it would strand a late entry.
const BLOCK_MARGIN: Duration = Duration::from_secs(2);

/// A connection in strict sequence: one request at a time, as many replies as it has commands.
#[derive(Debug)]
pub struct Link {
    node: NodeAddress,
    /// Taken out while a request is under way, put back after its last reply. A request that fails, or whose future
    /// is dropped, never puts it back; so the socket closes, and Redis forgets what this link watched.
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    decoder: Decoder,
}

impl Link {
    /// Dials, secures and authenticates, all within the connect timeout.
    pub async fn connect(node: &NodeAddress, options: &ConnectOptions) -> Result<Self, Error> {
        let opening = async {
            let stream = Stream::connect(node, options).await?;
            let mut connection = Connection { stream, decoder: Decoder::new(options.reply_bytes_max) };
            connection.introduce(node, options).await?;
            Ok(connection)
        };
        match timeout(options.connect_timeout, opening).await {
            Ok(opened) => opened.map(|connection| Self { node: node.clone(), connection: Some(connection) }),
            Err(_) => Err(Error::Timeout { node: node.clone(), after: options.connect_timeout, sent: false }),
        }
    }

    pub fn node(&self) -> &NodeAddress {
        &self.node
    }

    /// Whether a request failed or was given up. Nothing brings this link back.
    pub fn is_closed(&self) -> bool {
        self.connection.is_none()
    }

    /// Ends this link, for who got an answer that makes no sense.
    pub fn close(&mut self) {
        self.connection = None;
    }

    /// Sends the whole pipeline in one write and waits for one reply to each of its commands. An error reply is a
    /// reply; `Err` means that the link is gone.
    pub async fn request(&mut self, pipeline: &Pipeline, deadline: Duration) -> Result<Vec<Reply>, Error> {
        let mut sent = false;
        let Some(mut connection) = self.connection.take() else {
            return Err(spent(self.node.clone()));
        };
        let exchange = connection.exchange(pipeline, &mut sent);
        match timeout(deadline, exchange).await {
            Err(_) => Err(Error::Timeout { node: self.node.clone(), after: deadline, sent }),
            Ok(Err(failure)) => Err(failure.on(&self.node, sent)),
            Ok(Ok(replies)) => {
                self.connection = Some(connection);
                Ok(replies)
            }
        }
    }

    /// The same for commands that block up to `block` in Redis.
    pub async fn request_blocking(&mut self, pipeline: &Pipeline, block: Duration) -> Result<Vec<Reply>, Error> {
        self.request(pipeline, block + BLOCK_MARGIN).await
    }

    /// Gives up strict sequence: both directions on their own, for pipes and subscriptions.
    pub(super) fn split(self) -> Result<(Reader, Writer), Error> {
        let Some(connection) = self.connection else {
            return Err(spent(self.node));
        };
        let (read, write) = tokio::io::split(connection.stream);
        let reader = Reader { node: self.node.clone(), half: read, decoder: connection.decoder };
        Ok((reader, Writer { node: self.node, half: write }))
    }
}

/// Why an exchange broke off.
enum Failure {
    Io(io::Error),
    Protocol(Error),
}

impl Connection {
    /// Says who we are. None of this has an effect on data, so a failure here is a failure to connect.
    async fn introduce(&mut self, node: &NodeAddress, options: &ConnectOptions) -> Result<(), Error> {
        let mut pipeline = Pipeline::new();
        if let Some(password) = &options.password {
            let mut command = pipeline.command("AUTH");
            if let Some(username) = &options.username {
                command.arg(username);
            }
            command.arg(password);
        }
        if let Some(name) = &options.client_name {
            pipeline.command("CLIENT").arg("SETNAME").arg(name);
        }
        let replies = match self.exchange(&pipeline, &mut false).await {
            Ok(replies) => replies,
            Err(Failure::Io(source)) => return Err(connect_error(node, source)),
            Err(Failure::Protocol(error)) => return Err(error),
        };
        for (index, reply) in replies.iter().enumerate() {
            let authenticates = index == 0 && options.password.is_some();
            match reply.error() {
                // The name is a convenience: a user without the right to set one may still connect.
                Some(error) if authenticates || error.code != ServerCode::NoPerm => {
                    return Err(Error::Refused { node: node.clone(), error: error.clone() });
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn exchange(&mut self, pipeline: &Pipeline, sent: &mut bool) -> Result<Vec<Reply>, Failure> {
        self.check_quiet().await?;
        let mut rest = pipeline.bytes();
        while !rest.is_empty() {
            let written = self.stream.write(rest).await.map_err(Failure::Io)?;
            if written == 0 {
                return Err(Failure::Io(io::ErrorKind::WriteZero.into()));
            }
            *sent = true;
            rest = &rest[written..];
        }
        self.stream.flush().await.map_err(Failure::Io)?;
        let mut replies = Vec::with_capacity(pipeline.len());
        while replies.len() < pipeline.len() {
            replies.push(read_reply(&mut self.stream, &mut self.decoder).await?);
        }
        Ok(replies)
    }

    /// Notices, without waiting, that Redis closed this connection while it was idle: then nothing of the request
    /// is sent, and its failure is not ambiguous. Bytes that nobody asked for would belong to no request.
    async fn check_quiet(&mut self) -> Result<(), Failure> {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        let stream = &mut self.stream;
        let polled = std::future::poll_fn(|context| {
            let polled = std::pin::Pin::new(&mut *stream).poll_read(context, &mut buffer);
            Poll::Ready(match polled {
                Poll::Ready(read) => Some(read),
                Poll::Pending => None,
            })
        });
        match polled.await {
            None if self.decoder.is_empty() => Ok(()),
            Some(Err(error)) => Err(Failure::Io(error)),
            Some(Ok(())) if buffer.filled().is_empty() => Err(Failure::Io(io::ErrorKind::UnexpectedEof.into())),
            None | Some(Ok(())) => Err(Failure::Protocol(Error::protocol("no bytes between requests", "some"))),
        }
    }
}

async fn read_reply<S: AsyncRead + Unpin>(stream: &mut S, decoder: &mut Decoder) -> Result<Reply, Failure> {
    loop {
        if let Some(reply) = decoder.next().map_err(Failure::Protocol)? {
            return Ok(reply);
        }
        let space: &mut BytesMut = decoder.space();
        match stream.read_buf(space).await.map_err(Failure::Io)? {
            0 => return Err(Failure::Io(io::ErrorKind::UnexpectedEof.into())),
            read => decoder.filled(read),
        }
    }
}

/// The receiving half of a link.
#[derive(Debug)]
pub struct Reader {
    node: NodeAddress,
    half: ReadHalf<Stream>,
    decoder: Decoder,
}

impl Reader {
    /// The next answer. Nothing is lost where this future is dropped before it is ready.
    pub async fn next(&mut self) -> Result<Reply, Error> {
        read_reply(&mut self.half, &mut self.decoder).await.map_err(|failure| failure.on(&self.node, true))
    }
}

/// The sending half of a link.
#[derive(Debug)]
pub struct Writer {
    node: NodeAddress,
    half: WriteHalf<Stream>,
}

impl Writer {
    /// Writes on what is going out. Nothing is lost or repeated where this future is dropped before it is ready.
    pub(super) async fn push(&mut self, outgoing: &mut Outgoing) -> Result<(), Error> {
        outgoing.push(&mut self.half).await.map_err(|source| Failure::Io(source).on(&self.node, true))
    }
}

impl Failure {
    fn on(self, node: &NodeAddress, sent: bool) -> Error {
        match self {
            Self::Protocol(error) => error,
            Self::Io(source) => Error::Closed { node: node.clone(), sent, reason: reason(&source) },
        }
    }
}

fn spent(node: NodeAddress) -> Error {
    Error::Closed { node, sent: false, reason: "this link failed before".to_owned() }
}

fn reason(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => "by the server".to_owned(),
        _ => source.to_string(),
    }
}
