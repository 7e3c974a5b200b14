//! Worker processes: the built binary, killed, frozen and told to stop. None outlives its test, however that ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::super::eventually;

/// How long a worker that is told to stop may take, its own grace period included.
const STOP_WAIT: Duration = Duration::from_secs(15);
/// Lines of a worker's log that a failed test shows.
const LOG_SHOWN_MAX: usize = 60;

/// Ends process $1 when its input ends, and that comes with the end of the test process, by whatever cause.
const TETHER: &str = "read -r never; kill -9 \"$1\"";

/// The worker processes of one scene; index by the number that [`Workers::start`] answered.
pub struct Workers {
    settings: Vec<(String, String)>,
    logs: TempDir,
    workers: Vec<Worker>,
}

struct Worker {
    log: PathBuf,
    /// What its environment has beside the settings.
    environment: BTreeMap<String, String>,
    running: Option<Running>,
}

/// A process that nobody has waited for: its id is its own until then.
struct Running {
    process: Child,
    tether: Child,
}

impl Workers {
    /// None yet; each will run with these settings in its environment and no others.
    pub fn new(settings: Vec<(String, String)>) -> Workers {
        Workers { settings, logs: tempfile::tempdir().expect("a folder for logs"), workers: Vec::new() }
    }

    /// How many there have been.
    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// Where they write what they log.
    pub fn folder(&self) -> &Path {
        self.logs.path()
    }

    /// Starts one more and answers its number.
    pub fn start(&mut self) -> usize {
        self.start_with(BTreeMap::new())
    }

    /// The same with further variables in its environment, also when it is started again.
    pub fn start_with(&mut self, environment: BTreeMap<String, String>) -> usize {
        let log = self.logs.path().join(format!("worker-{}.log", self.workers.len()));
        self.workers.push(Worker { log, environment, running: None });
        self.restart(self.workers.len() - 1);
        self.workers.len() - 1
    }

    /// Starts one again that has ended, as a new process that goes on in the same log.
    pub fn restart(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        assert!(worker.running.is_none(), "worker {number} is still running");
        let log = File::options().create(true).append(true).open(&worker.log).expect("a log file");
        let mut command = super::heyday(&self.settings, &["worker"]);
        command.env("HEYDAY_WORKER__NAME", format!("w{number}")).envs(&worker.environment);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let process = command.spawn().expect("the binary was built for this test");
        let mut tether = Command::new("sh");
        tether.args(["-c", TETHER, "heyday-tether", &process.id().to_string()]).process_group(0);
        tether.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        worker.running = Some(Running { process, tether: tether.spawn().expect("a shell") });
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self, number: usize) {
        self.workers[number].end();
    }

    /// SIGTERM; returns its exit status when it has gone by itself.
    pub async fn stop(&mut self, number: usize) -> ExitStatus {
        self.signal(number, Signal::SIGTERM);
        let running = self.workers[number].running.as_mut().expect("a running worker");
        let never = format!("worker {number} ended after SIGTERM");
        let status = eventually(STOP_WAIT, &never, async || running.process.try_wait().expect("its status")).await;
        self.workers[number].end();
        status
    }

    /// SIGSTOP: nothing moves in it, its connections stay open.
    pub fn freeze(&self, number: usize) {
        self.signal(number, Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self, number: usize) {
        self.signal(number, Signal::SIGCONT);
    }

    /// The beginning of the ids of this worker's incarnations; the host's name is not in it.
    pub fn name(&self, number: usize) -> String {
        format!("w{number}-")
    }

    /// Everything this worker has logged.
    pub fn log(&self, number: usize) -> String {
        fs::read_to_string(&self.workers[number].log).unwrap_or_default()
    }

    /// Each must be running still: a worker that ended by itself has failed.
    pub fn assert_running(&mut self) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let Some(running) = &mut worker.running else { continue };
            let ended = running.process.try_wait().expect("its status");
            assert!(ended.is_none(), "worker {number} ended by itself: {ended:?}");
        }
    }

    /// Those that have ended by themselves, with their status. Each can be started again.
    pub fn ended(&mut self) -> Vec<(usize, ExitStatus)> {
        let mut ended = Vec::new();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let status = worker.running.as_mut().and_then(|running| running.process.try_wait().expect("its status"));
            if let Some(status) = status {
                worker.end();
                ended.push((number, status));
            }
        }
        ended
    }

    pub fn is_running(&self, number: usize) -> bool {
        self.workers[number].running.is_some()
    }

    fn signal(&self, number: usize, signal: Signal) {
        let running = self.workers[number].running.as_ref().expect("a running worker");
        let id = Pid::from_raw(i32::try_from(running.process.id()).expect("a process id"));
        kill(id, signal).expect("its process exists until somebody waits for it");
    }
}

impl Worker {
    /// The tether first: after the process is waited for, its id may be another's.
    fn end(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let _ = running.tether.kill();
        let _ = running.tether.wait();
        let _ = running.process.kill();
        let _ = running.process.wait();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.end();
            if std::thread::panicking() {
                let log = fs::read_to_string(&worker.log).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let shown = &lines[lines.len().saturating_sub(LOG_SHOWN_MAX)..];
                eprintln!("--- worker {number}, its last {} lines\n{}", shown.len(), shown.join("\n"));
            }
        }
    }
}
