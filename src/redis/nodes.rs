//! Shared clients for what may safely be sent twice: reads, status and queries. One client a node; routing is ours.

use std::{future::Future, sync::Arc, time::Duration};

use fred::{
    clients::Client,
    interfaces::ClientLike,
    types::{
        Builder, ConnectHandle,
        config::{
            Config, ReconnectPolicy, Server, ServerConfig, TcpConfig, TlsConfig, TlsConnector, TlsHostMapping,
            UnresponsiveConfig,
        },
    },
};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    error::Error,
    options::{ConnectOptions, NodeAddress},
    shared::Shared,
    topology::Topology,
};
use crate::error::{Disposition, ServerCode, ServerError};

/// Commands that wait in one client. Beyond that a command is refused at once.
const QUEUED_MAX: usize = 16 * 1024;
/// A broken connection is dialled this often before its client is given up and made anew by the next caller.
const RECONNECTS_MAX: u32 = 3;
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(20);
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(200);
/// How often a client looks for connections that owe an answer.
const UNRESPONSIVE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Between two attempts of one read.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// Clients by node.
#[derive(Debug)]
pub struct Nodes {
    topology: Arc<Topology>,
    open: Shared<Arc<Held>>,
}

/// A client together with its task: dropping the client alone would leave task and socket behind.
#[derive(Debug)]
struct Held {
    client: Client,
    task: ConnectHandle,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Nodes {
    pub fn new(topology: Arc<Topology>) -> Self {
        Self { topology, open: Shared::new() }
    }

    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The client of one node, connected. Its commands are bounded by the reply timeout.
    pub async fn client(&self, node: &NodeAddress) -> Result<Client, Error> {
        self.held(node).await.map(|held| held.client.clone())
    }

    /// Reads from whoever owns `slot`, however often that changes before `deadline` is over. `query` may run several
    /// times, so it must be a read.
    pub async fn read<T, F>(&self, slot: u16, deadline: Duration, query: impl Fn(Client) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, fred::error::Error>>,
    {
        let end = Instant::now() + deadline;
        loop {
            let error = match timeout_at(end, self.attempt(slot, &query)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => return Err(self.late(slot, deadline)),
            };
            if !may_pass(&error) || Instant::now() + READ_PAUSE >= end {
                return Err(error);
            }
            sleep_until(Instant::now() + READ_PAUSE).await;
            if error.disposition() != Disposition::Retry && !is_redirect(&error) {
                // What this attempt finds out, the next one says.
                let _ = timeout_at(end, self.topology.refresh()).await;
            }
        }
    }

    /// Closes clients of nodes that are no longer in the cluster.
    pub fn prune(&self) {
        let members = self.topology.all();
        self.open.retain(|node| members.iter().any(|member| member.address == *node));
    }

    async fn attempt<T, F>(&self, slot: u16, query: &impl Fn(Client) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, fred::error::Error>>,
    {
        let node = self.topology.node_of(slot)?;
        let held = self.held(&node.address).await?;
        let answer = query(held.client.clone()).await;
        answer.map_err(|error| {
            let error = self.translate(&node.address, error);
            if let Error::Server(ServerError { code: ServerCode::Moved { slot, endpoint }, .. }) = &error {
                self.topology.learn_moved(*slot, endpoint, &node.address);
            }
            error
        })
    }

    async fn held(&self, node: &NodeAddress) -> Result<Arc<Held>, Error> {
        let open = async || open(node, self.topology.options()).await.map(Arc::new);
        self.open.get(node, |held| !held.task.is_finished(), open).await
    }

    /// What an error of the client library means to us.
    pub fn translate(&self, node: &NodeAddress, error: fred::error::Error) -> Error {
        translate(node, self.topology.options(), error)
    }

    fn late(&self, slot: u16, after: Duration) -> Error {
        match self.topology.node_of(slot) {
            Ok(node) => Error::Timeout { node: node.address.clone(), after, sent: true },
            Err(error) => error,
        }
    }
}

/// Whether the same read may well succeed a moment later. That it may have happened already does not matter to a read.
fn may_pass(error: &Error) -> bool {
    match error.disposition() {
        Disposition::Retry | Disposition::Refresh => true,
        Disposition::Ambiguous => !matches!(error, Error::Protocol { .. }),
        Disposition::Fenced | Disposition::Full | Disposition::Poison | Disposition::Fatal => false,
    }
}

fn is_redirect(error: &Error) -> bool {
    matches!(error, Error::Server(ServerError { code: ServerCode::Moved { .. }, .. }))
}

async fn open(node: &NodeAddress, options: &ConnectOptions) -> Result<Held, Error> {
    let refused = |error| match translate(node, options, error) {
        Error::Server(error) => Error::Refused { node: node.clone(), error },
        error => unsent(error),
    };
    let client = build(node, options)?;
    let task = client.init().await.map_err(refused)?;
    Ok(Held { client, task })
}

/// A failure to connect has had no effect.
fn unsent(error: Error) -> Error {
    match error {
        Error::Timeout { node, after, .. } => Error::Timeout { node, after, sent: false },
        Error::Closed { node, reason, .. } => Error::Connect { node, source: Arc::new(std::io::Error::other(reason)) },
        other => other,
    }
}

fn build(node: &NodeAddress, options: &ConnectOptions) -> Result<Client, Error> {
    let dialled = options.dialled(node);
    let (tls, name) = match &options.tls {
        None => (None, None),
        Some(tls) => {
            let connector = TlsConnector::Rustls(tls.connector());
            let name = tls.server_name(node)?.to_str().into_owned();
            (Some(TlsConfig { connector, hostnames: TlsHostMapping::None }), Some(name))
        }
    };
    let config = Config {
        server: ServerConfig::Centralized { server: Server::new_with_tls(dialled.host.as_str(), dialled.port, name) },
        username: options.password.as_ref().and(options.username.clone()),
        password: options.password.clone(),
        tls,
        fail_fast: true,
        ..Config::default()
    };
    let mut builder = Builder::from_config(config);
    builder
        .set_policy(ReconnectPolicy::new_exponential(
            RECONNECTS_MAX,
            RECONNECT_DELAY_MIN.as_millis() as u32,
            RECONNECT_DELAY_MAX.as_millis() as u32,
            2,
        ))
        .with_performance_config(|performance| performance.default_command_timeout = options.reply_timeout)
        .with_connection_config(|connection| {
            connection.connection_timeout = options.connect_timeout;
            connection.internal_command_timeout = options.connect_timeout;
            connection.max_command_buffer_len = QUEUED_MAX;
            connection.max_command_attempts = 1;
            connection.tcp = TcpConfig { nodelay: Some(true), ..TcpConfig::default() };
            connection.unresponsive =
                UnresponsiveConfig { max_timeout: Some(options.reply_timeout), interval: UNRESPONSIVE_CHECK_INTERVAL };
        });
    builder.build().map_err(|error| translate(node, options, error))
}

fn translate(node: &NodeAddress, options: &ConnectOptions, error: fred::error::Error) -> Error {
    use fred::error::ErrorKind;
    let server = ServerError::parse(error.details());
    if server.code != ServerCode::Other {
        return Error::Server(server);
    }
    match error.kind() {
        ErrorKind::Timeout => Error::Timeout { node: node.clone(), after: options.reply_timeout, sent: true },
        ErrorKind::Parse | ErrorKind::Protocol | ErrorKind::NotFound => {
            Error::protocol("another answer", error.details())
        }
        ErrorKind::Unknown | ErrorKind::InvalidArgument | ErrorKind::InvalidCommand => Error::Server(server),
        ErrorKind::Tls => {
            Error::Tls { node: node.clone(), source: Arc::new(std::io::Error::other(error.details().to_owned())) }
        }
        _ => Error::Closed { node: node.clone(), sent: true, reason: error.details().to_owned() },
    }
}
