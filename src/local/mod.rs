//! A temporary 3+3 cluster of real servers on loopback, for the demo and the tests: gone when its owner is gone.
//!
//! It is formed by the same `cluster/node.conf` and `cluster/create.sh` as every other cluster of the project. Both are part
//! of the binary, so that the demo needs no checkout.

mod moves;
mod nodes;
mod ports;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

pub use nodes::Nodes;
pub use ports::Ports;
use server::{Place, Server, Tether};

/// Three primaries and three replicas; node n + 3 replicates node n until a failover.
pub const NODES: usize = 6;

/// How long a server may take to answer, and then the six to agree, before a start counts as failed.
const START_WAIT: Duration = Duration::from_secs(15);

const NODE_CONF: &str = include_str!("../../cluster/node.conf");
const CREATE_SH: &str = include_str!("../../cluster/create.sh");

/// What a cluster shall be like. The default: no password, no memory bound, the server found on PATH.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What clients and nodes must present.
    pub password: Option<String>,
    /// `maxmemory` of each node.
    pub memory_bytes_max: Option<u64>,
    /// Further lines of configuration for every node; they win over `node.conf`.
    pub config_lines: Vec<String>,
    /// The server to run. Without it: `REDIS_SERVER`, else `redis-server`, else `valkey-server`, as `cluster/up` does.
    pub server: Option<PathBuf>,
    /// Whose end ends the cluster.
    pub lifetime: Lifetime,
    /// Variables for the environment of single nodes, by index.
    pub environment: BTreeMap<usize, BTreeMap<String, String>>,
}

/// The process whose end, by whatever cause, ends the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// The one that starts it.
    #[default]
    ThisProcess,
    /// Another one, by process id; each server then goes on when this process ends.
    Process(u32),
}

/// Why there is no cluster, or no answer from it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("neither {0} is on PATH: install Redis 7.0 or later, or Valkey")]
    NotInstalled(&'static str),
    #[error("no six consecutive free ports between {} and {}", ports::FIRST, ports::END)]
    NoPorts,
    #[error("the server on port {port} did not start: {log}")]
    NotStarted { port: u16, log: String },
    #[error("the cluster was not formed: {0}")]
    NotFormed(String),
    #[error("port {port} refused {command}: {reply}")]
    Refused { port: u16, command: String, reply: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

fn find_cli() -> Result<PathBuf, Error> {
    server::find("${REDIS_CLI:-$(command -v redis-cli || command -v valkey-cli)}")
        .ok_or(Error::NotInstalled("redis-cli nor valkey-cli"))
}

/// Gives an I/O error the words that say what was being done.
fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Six running servers that form one cluster. Dropping it stops them and removes their folder; so does the end of the process.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Nodes,
    servers: Vec<Server>,
    folder: PathBuf,
    /// Whether dropping this value ends the servers.
    ends_with_this: bool,
    _ports: Ports,
}

impl LocalCluster {
    /// Starts the servers and returns once every node agrees on the whole cluster: about 2.3 s, most of which Redis waits.
    pub async fn start(options: Options) -> Result<LocalCluster, Error> {
        let binary = match &options.server {
            Some(server) => server.clone(),
            None => server::find("${REDIS_SERVER:-$(command -v redis-server || command -v valkey-server)}")
                .ok_or(Error::NotInstalled("redis-server nor valkey-server"))?,
        };
        let cli = find_cli()?;
        let ports = Ports::reserve().map_err(doing("ports cannot be reserved"))?.ok_or(Error::NoPorts)?;
        let folder = tempfile::Builder::new()
            .prefix("heyday-cluster-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(doing("the cluster's folder cannot be made"))?
            .keep();
        let nodes = Nodes::new(ports.first(), options.password.clone(), cli);
        // From here on `Drop` cleans up, whatever fails below.
        let mut cluster = LocalCluster { nodes, servers: Vec::new(), folder, ends_with_this: true, _ports: ports };
        cluster.write_files()?;
        let tether = Tether::new(options.lifetime).map_err(doing("the cluster's keeper cannot be started"))?;
        for (index, (_, port)) in cluster.nodes.nodes().into_iter().enumerate() {
            let folder = cluster.folder.join((index + 1).to_string());
            server::write_conf(&folder, port, &options).map_err(doing("a node's configuration cannot be written"))?;
            let environment = options.environment.get(&index).cloned().unwrap_or_default();
            let place = Place { folder, port, environment };
            let server = Server::start(&binary, place, &tether)
                .map_err(doing(format!("the server on port {port} cannot be started")))?;
            cluster.servers.push(server);
        }
        for index in 0..NODES {
            cluster.answers(index).await?;
        }
        cluster.form().await?;
        Ok(cluster)
    }

    /// Process id of a node's server.
    pub fn pid(&self, index: usize) -> u32 {
        self.servers[index].pid()
    }

    /// Ends a node with SIGKILL; its data stays.
    pub fn kill(&mut self, index: usize) -> Result<(), Error> {
        self.servers[index].kill().map_err(doing(format!("node {index} cannot be killed")))
    }

    /// Starts a killed node again on its old data; returns when it answers, which may be before it has joined the others.
    pub async fn restart(&mut self, index: usize) -> Result<(), Error> {
        self.servers[index].restart().map_err(doing(format!("node {index} cannot be started")))?;
        self.answers(index).await
    }

    /// Freezes a node (SIGSTOP): its connections stay open and nothing answers.
    pub fn stop_process(&self, index: usize) -> Result<(), Error> {
        self.servers[index]
            .signal(nix::sys::signal::Signal::SIGSTOP)
            .map_err(doing(format!("node {index} cannot be stopped")))
    }

    /// Lets a frozen node go on (SIGCONT).
    pub fn cont(&self, index: usize) -> Result<(), Error> {
        self.servers[index]
            .signal(nix::sys::signal::Signal::SIGCONT)
            .map_err(doing(format!("node {index} cannot go on")))
    }

    /// Runs `create.sh`: returns once all six nodes agree, every replica in step. Also heals what tests took apart.
    pub async fn form(&self) -> Result<(), Error> {
        let mut command = Command::new("sh");
        command.arg(self.folder.join("create.sh"));
        for (host, port) in self.nodes.nodes() {
            command.arg(format!("{host}:{port}"));
        }
        command.env("CLUSTER_WAIT_SECONDS", START_WAIT.as_secs().to_string()).env("REDIS_CLI", self.nodes.cli_path());
        self.nodes.authenticate(&mut command);
        let output =
            command.stdin(Stdio::null()).kill_on_drop(true).output().await.map_err(doing("create.sh cannot be run"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::NotFormed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// Where data and logs are; laid out as by `cluster/up`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves the servers to run on their own. `cluster/down --dir FOLDER --wipe` stops them, or SHUTDOWN on each.
    pub fn leave_running(mut self) -> Result<Nodes, Error> {
        for server in &mut self.servers {
            server.release().map_err(doing("a server cannot be released"))?;
        }
        self.ends_with_this = false;
        Ok(self.nodes.clone())
    }

    /// Hands the servers over to the process named in [`Lifetime::Process`]: this one's end no longer matters to them.
    pub fn hand_over(mut self) -> Nodes {
        self.ends_with_this = false;
        self.nodes.clone()
    }

    fn write_files(&self) -> Result<(), Error> {
        let write = |name: &str, text: &str| {
            fs::write(self.folder.join(name), text).map_err(doing(format!("{name} cannot be written")))
        };
        write("node.conf", NODE_CONF)?;
        write("create.sh", CREATE_SH)?;
        write("port-base", &format!("{}\n", self.nodes.port_first()))?;
        fs::set_permissions(self.folder.join("create.sh"), fs::Permissions::from_mode(0o755))
            .map_err(doing("create.sh cannot be made executable"))
    }

    /// Waits until a node answers PING: it listens and has read its data.
    async fn answers(&self, index: usize) -> Result<(), Error> {
        let answered = async {
            while self.nodes.cli(index, &["PING"]).await.is_err() && !self.servers[index].has_ended() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(START_WAIT, answered).await {
            Ok(()) if !self.servers[index].has_ended() => Ok(()),
            _ => Err(Error::NotStarted { port: self.servers[index].port(), log: self.servers[index].log_tail() }),
        }
    }
}

impl std::ops::Deref for LocalCluster {
    type Target = Nodes;

    fn deref(&self) -> &Nodes {
        &self.nodes
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        if self.ends_with_this {
            self.servers.iter_mut().for_each(Server::end);
            // The tethers remove it as well; here it goes where there is none yet.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
