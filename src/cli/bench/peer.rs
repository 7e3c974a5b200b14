//! Programs that do the worker's work with other libraries, each a process of its own: how they are found, prepared and spoken
//! to. `benches/peers/README.md` says the same to those who write one.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, Lines, Take};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::task::{self, JoinHandle};

/// What a folder holds that is a peer's.
const PROGRAM: &str = "run";
/// All that a peer may say on stdout.
const STDOUT_BYTES_MAX: u64 = 64 * 1024;
/// So much of the end of its stderr is told where it fails.
const STDERR_BYTES_MAX: usize = 1000;

/// How long each step of a peer may take. Peers have bounds of their own, below these.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Installing and building.
    pub prepare: Duration,
    /// Connecting, and making its own of the entries.
    pub ready: Duration,
    pub work: Duration,
    /// From the result to the process's end, and from a kill too.
    pub end: Duration,
}

impl Bounds {
    /// For so many changes: a peer that manages less than 500 a second is not worth the wait.
    pub fn of(changes: usize) -> Bounds {
        let work = Duration::from_secs(150) + Duration::from_millis(2) * changes as u32;
        Bounds { prepare: Duration::from_secs(1800), ready: work, work, end: Duration::from_secs(30) }
    }
}

/// A peer.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    path: PathBuf,
}

/// What a peer says of its work.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Told {
    pub changes: u64,
    /// User and system time of its process.
    pub cpu_seconds: f64,
}

/// Every peer in this folder, by name.
pub fn find(folder: &Path) -> anyhow::Result<Vec<Program>> {
    let entries = folder.read_dir().with_context(|| format!("no folder of peers: {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path().canonicalize()?.join(PROGRAM);
        if path.is_file() {
            found.push(Program { name: entry.file_name().to_string_lossy().into_owned(), path });
        }
    }
    ensure!(!found.is_empty(), "{} has no folder with a program `{PROGRAM}`", folder.display());
    found.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(found)
}

impl Program {
    /// Has it install and build what it lacks.
    pub async fn prepare(&self, bounds: Bounds) -> anyhow::Result<()> {
        let mut command = Command::new(&self.path);
        command.arg("prepare");
        let running = Running::start(command, Bounds { end: bounds.prepare, ..bounds })?;
        running.end().await.context("it cannot be prepared")
    }

    /// Starts it with these settings and waits until it is ready to work.
    pub async fn start(&self, settings: &[(&str, String)], bounds: Bounds) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.path);
        command.envs(settings.iter().map(|(name, value)| (name, value)));
        let mut running = Running::start(command, bounds)?;
        let line = running.line(bounds.ready, "ready").await?;
        match line == "ready" {
            true => Ok(running),
            false => Err(running.failure(&format!("it says {line:?} instead of `ready`")).await),
        }
    }
}

/// A peer at work. Dropped, it is killed with everything it has started.
pub struct Running {
    child: Child,
    /// Closed, it tells the peer that nothing more is wanted.
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<Take<ChildStdout>>>,
    stderr: Option<JoinHandle<String>>,
    bounds: Bounds,
}

impl Running {
    fn start(mut command: Command, bounds: Bounds) -> anyhow::Result<Running> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: what a script has started ends with it.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().context("it cannot be started")?;
        let stdout = child.stdout.take().context("stdout is piped")?.take(STDOUT_BYTES_MAX);
        let stderr = child.stderr.take().context("stderr is piped")?;
        Ok(Running {
            stdin: child.stdin.take(),
            stdout: BufReader::new(stdout).lines(),
            stderr: Some(task::spawn("peer stderr", last_words(stderr))),
            child,
            bounds,
        })
    }

    /// Lets it begin.
    pub async fn go(&mut self) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is open until the end")?;
        match stdin.write_all(b"go\n").await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failure(&format!("it does not hear `go`: {error}")).await),
        }
    }

    /// Waits until it has done its work.
    pub async fn result(&mut self) -> anyhow::Result<Told> {
        let line = self.line(self.bounds.work, "its result").await?;
        match serde_json::from_str(&line) {
            Ok(told) => Ok(told),
            Err(error) => Err(self.failure(&format!("its result {line:?} cannot be read: {error}")).await),
        }
    }

    /// Waits until its process has ended, as it must: with success.
    pub async fn end(mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        match timeout(self.bounds.end, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(self.failure(&format!("it ended with {status}")).await),
            Ok(Err(error)) => Err(error).context("it cannot be waited for"),
            Err(_) => Err(self.failure(&format!("it did not end within {:?}", self.bounds.end)).await),
        }
    }

    async fn line(&mut self, bound: Duration, wanted: &str) -> anyhow::Result<String> {
        let why = match timeout(bound, self.stdout.next_line()).await {
            Ok(Ok(Some(line))) => return Ok(line.trim().to_owned()),
            Ok(Ok(None)) => match timeout(self.bounds.end, self.child.wait()).await {
                Ok(Ok(status)) => format!("it ended with {status} before it said {wanted}"),
                _ => format!("it closed its stdout before it said {wanted}"),
            },
            Ok(Err(error)) => format!("its stdout cannot be read: {error}"),
            Err(_) => format!("it did not say {wanted} within {bound:?}"),
        };
        Err(self.failure(&why).await)
    }

    /// Ends it, and says why with the last that it said itself.
    async fn failure(&mut self, why: &str) -> anyhow::Error {
        self.kill();
        // It has been killed; what is left is to let it go.
        let _ = timeout(self.bounds.end, self.child.wait()).await;
        let words = match self.stderr.take() {
            Some(words) => timeout(self.bounds.end, words).await.ok().and_then(Result::ok),
            None => None,
        };
        match words.as_deref().map(str::trim) {
            None | Some("") => anyhow::anyhow!("{why}"),
            Some(words) => anyhow::anyhow!("{why}; its last words: {words}"),
        }
    }

    fn kill(&self) {
        // Without an id it has been waited for, and its number may be somebody else's by now.
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            // It may just have ended by itself.
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of everything that can be read.
async fn last_words(mut from: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut part) = (Vec::new(), [0; STDERR_BYTES_MAX]);
    while let Ok(read) = from.read(&mut part).await {
        if read == 0 {
            break;
        }
        kept.extend_from_slice(&part[..read]);
        kept.drain(..kept.len().saturating_sub(STDERR_BYTES_MAX));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests;
