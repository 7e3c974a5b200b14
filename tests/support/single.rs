//! One Redis server of its own, for tests of a connection; it ends with the test, however that ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heyday::local::Ports;
use heyday::redis::{ConnectOptions, Link, NodeAddress, Pipeline};

use super::eventually;

const START_WAIT: Duration = Duration::from_secs(10);

/// The running server.
pub struct Single {
    address: NodeAddress,
    tether: Child,
    folder: tempfile::TempDir,
    binary: PathBuf,
    arguments: Vec<String>,
    _ports: Ports,
}

impl Single {
    /// Starts a server with these further arguments and waits until `options` reach it. `{dir}` stands for its
    /// folder, where `files` are put first.
    pub async fn start(
        arguments: &[&str],
        files: &[(&str, String)],
        options: impl Fn(&Path) -> ConnectOptions,
    ) -> Single {
        let ports = Ports::reserve().expect("ports").expect("free ports");
        let folder = tempfile::tempdir().expect("a folder for the server");
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).expect("a file for the server");
        }
        let binary = std::env::var_os("REDIS_SERVER").map_or_else(|| PathBuf::from("redis-server"), PathBuf::from);
        let dir = folder.path().display().to_string();
        let mut all: Vec<String> = ["--bind", "127.0.0.1", "--save", "", "--dir", &dir].map(str::to_owned).to_vec();
        all.extend(
            arguments
                .iter()
                .map(|argument| argument.replace("{dir}", &dir).replace("{port}", &ports.first().to_string())),
        );
        let mut server = Single {
            address: NodeAddress::new("127.0.0.1", ports.first()),
            tether: tether(&binary, &all),
            folder,
            binary,
            arguments: all,
            _ports: ports,
        };
        server.ready(&options).await;
        server
    }

    /// A server without password or TLS.
    pub async fn plain() -> Single {
        Single::start(&["--port", "{port}"], &[], |_| ConnectOptions::default()).await
    }

    pub fn address(&self) -> &NodeAddress {
        &self.address
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the server with SIGKILL.
    pub fn kill(&mut self) {
        // Closing its input lets the tether kill the server and end.
        drop(self.tether.stdin.take());
        self.tether.wait().expect("the tether ends");
    }

    /// Starts a killed server again, empty.
    pub async fn restart(&mut self, options: impl Fn(&Path) -> ConnectOptions) {
        self.tether = tether(&self.binary, &self.arguments);
        self.ready(&options).await;
    }

    async fn ready(&mut self, options: &impl Fn(&Path) -> ConnectOptions) {
        let options = options(self.folder.path());
        let mut ping = Pipeline::new();
        ping.push(&["PING"]);
        eventually(START_WAIT, "the server answered", async || {
            let mut link = Link::connect(&self.address, &options).await.ok()?;
            let replies = link.request(&ping, START_WAIT).await.ok()?;
            replies[0].expect_status("PONG").ok()
        })
        .await;
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The shell that runs the server and kills it when this process closes its input, by whatever cause.
fn tether(binary: &Path, arguments: &[String]) -> Child {
    Command::new("sh")
        .arg("-c")
        .arg("\"$@\" >/dev/null 2>&1 </dev/null & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid 2>/dev/null")
        .arg("sh")
        .arg(binary)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
}
