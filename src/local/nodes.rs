//! How to reach a local cluster: its addresses, its password, and one command to one node.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::{Error, NODES, doing};

/// The six addresses of a local cluster.
#[derive(Debug, Clone)]
pub struct Nodes {
    port_first: u16,
    password: Option<String>,
    cli: PathBuf,
}

impl Nodes {
    pub(super) fn new(port_first: u16, password: Option<String>, cli: PathBuf) -> Nodes {
        Nodes { port_first, password, cli }
    }

    /// The nodes of a cluster that somebody else started, from the first of its six ports.
    pub fn attach(port_first: u16, password: Option<String>) -> Result<Nodes, Error> {
        Ok(Nodes::new(port_first, password, super::find_cli()?))
    }

    /// Host and port of each node; the first three started as primaries.
    pub fn nodes(&self) -> Vec<(String, u16)> {
        (0..NODES as u16).map(|index| ("127.0.0.1".to_owned(), self.port_first + index)).collect()
    }

    /// The addresses as the setting `redis.nodes` takes them: `host:port,host:port,…`.
    pub fn seeds(&self) -> String {
        self.nodes().iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(",")
    }

    /// The first of the six consecutive ports.
    pub fn port_first(&self) -> u16 {
        self.port_first
    }

    /// The password of all nodes, where they have one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// One command to one node through `redis-cli -e`: the raw reply, or an error for an error reply.
    pub async fn cli(&self, index: usize, arguments: &[&str]) -> Result<String, Error> {
        let port = self.port_first + u16::try_from(index).expect("a cluster has six nodes");
        let mut command = Command::new(&self.cli);
        command.args(["-e", "-h", "127.0.0.1", "-p", &port.to_string()]).args(arguments);
        self.authenticate(&mut command);
        let output = command
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(doing(format!("{} cannot be run", self.cli.display())))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let reply = [text(&output.stdout), text(&output.stderr)].concat();
        Err(Error::Refused { port, command: arguments.join(" "), reply: reply.trim().to_owned() })
    }

    /// The client that [`Nodes::cli`] runs.
    pub fn cli_path(&self) -> &Path {
        &self.cli
    }

    /// Passes the password in the environment, where `ps` does not show it, or makes sure that none is passed.
    pub(super) fn authenticate(&self, command: &mut Command) {
        for name in ["REDISCLI_AUTH", "VALKEYCLI_AUTH"] {
            match &self.password {
                Some(password) => command.env(name, password),
                None => command.env_remove(name),
            };
        }
    }
}
