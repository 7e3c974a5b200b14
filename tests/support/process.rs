//! A heyday process that runs beside the test, and ends with it, however the test ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::eventually;

/// Becomes heyday, after it has started a watch that kills it once process $1 is gone.
const TETHER: &str = r#"
parent=$1; me=$$; shift
( while kill -0 "$parent" && kill -0 "$me"; do sleep 0.2; done; kill -9 "$me" ) </dev/null >/dev/null 2>&1 &
exec "$@"
"#;

/// How long a process may take to say or do what a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Dropping it kills it.
pub struct Process {
    child: Child,
    stdout: Arc<Mutex<Vec<String>>>,
    stderr: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Runs `heyday` with these arguments; `HEYDAY_*` variables of the test itself are not passed on.
    pub fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Process {
        let mut command = Command::new("sh");
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("HEYDAY_")) {
            command.env_remove(name);
        }
        command.args(["-c", TETHER, "heyday-tether", &std::process::id().to_string(), env!("CARGO_BIN_EXE_heyday")]);
        command.args(arguments).envs(variables.iter().copied());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh starts heyday");
        let stdout = collect(child.stdout.take().expect("a pipe"));
        let stderr = collect(child.stderr.take().expect("a pipe"));
        Process { child, stdout, stderr }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        nix::sys::signal::kill(pid, signal).expect("the process is there");
    }

    /// Lines of stdout so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.lock().expect("lines").clone()
    }

    /// Lines of stderr so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().expect("lines").clone()
    }

    /// Waits for a line of stderr that holds `part`.
    pub async fn says(&self, part: &str) -> String {
        let said = async || self.stderr().into_iter().find(|line| line.contains(part));
        eventually(PATIENCE, &format!("stderr held {part:?}"), said).await
    }

    /// Waits until at least `count` lines are on stdout.
    pub async fn prints(&self, count: usize) -> Vec<String> {
        let printed = async || Some(self.stdout()).filter(|lines| lines.len() >= count);
        eventually(PATIENCE, &format!("stdout had {count} lines (stderr: {:?})", self.stderr()), printed).await
    }

    /// Waits until it has ended by itself.
    pub async fn ends(&mut self) -> ExitStatus {
        let child = &mut self.child;
        eventually(PATIENCE, "the process ended", async || child.try_wait().expect("a child")).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes lines as they come, so that a full pipe never holds the process up.
fn collect(pipe: impl Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let reader = move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            kept.lock().expect("lines").push(line);
        }
    };
    heyday::task::thread("reader", reader).expect("a thread");
    lines
}
