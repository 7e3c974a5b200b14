//! What the demo and the bench play on: a cluster and worker processes, all gone with this process however it ends.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::config::Settings;
use crate::local::{LocalCluster, Options};
use crate::redis::ConnectOptions;

/// Short, so that a killed worker's shards are taken over while somebody watches.
const LEASE_TTL: &str = "2s";

/// Runs a worker, says its process id, and ends it when the pipe to this process closes, however that happens. A terminal's
/// Ctrl-C is for this process alone.
const TETHER: &str = r#"
trap '' INT TERM HUP PIPE
log=$1
shift
"$@" </dev/null >/dev/null 2>>"$log" &
worker=$!
echo "$worker"
read -r _
kill -9 "$worker" 2>/dev/null
wait "$worker"
"#;

pub struct Stage {
    /// Of the workers, before their numbers.
    name: &'static str,
    cluster: Option<LocalCluster>,
    workers: Vec<WorkerProcess>,
    environment: Vec<(String, String)>,
}

struct WorkerProcess {
    shell: Child,
    pid: Pid,
    log: PathBuf,
    killed: bool,
}

impl Stage {
    /// Workers get what this process was given, so that both mean the same calendar and the same bounds.
    pub async fn open(settings: &Settings, name: &'static str) -> anyhow::Result<Stage> {
        let cluster = LocalCluster::start(Options::default()).await?;
        let shared = ["calendar.", "change.", "log.", "worker."];
        let given = settings.effective().into_iter().filter(|row| row.source != "default");
        let mut environment: Vec<(String, String)> = given
            .filter(|row| shared.iter().any(|section| row.key.starts_with(section)))
            .map(|row| (variable(&row.key), row.value.as_str().map_or_else(|| row.value.to_string(), str::to_owned)))
            .collect();
        for (key, value) in [
            ("redis.nodes", cluster.seeds().as_str()),
            ("admin.listen", ""),
            ("worker.lease_ttl", LEASE_TTL),
            ("worker.block", "500ms"),
            ("worker.backoff_max", "500ms"),
            ("redis.connect_timeout", "500ms"),
            ("redis.reply_timeout", "1s"),
        ] {
            environment.push((variable(key), value.to_owned()));
        }
        Ok(Stage { name, cluster: Some(cluster), workers: Vec::new(), environment })
    }

    pub fn connect_options(&self) -> anyhow::Result<ConnectOptions> {
        let seeds = self.cluster().nodes().into_iter().map(|(host, port)| format!("{host}:{port}").parse());
        Ok(ConnectOptions::new(seeds.collect::<Result<_, _>>()?))
    }

    /// Starts one more worker; answers its number from 1.
    pub async fn start_worker(&mut self) -> anyhow::Result<usize> {
        let number = self.workers.len() + 1;
        let log = self.cluster().folder().join(format!("worker-{number}.log"));
        let program = std::env::current_exe().context("the program of this process cannot be found")?;
        let mut shell = Command::new("sh")
            .args(["-c", TETHER, "heyday-worker"])
            .arg(&log)
            .arg(program)
            .arg("worker")
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(variable("worker.name"), self.name_of(number))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("a worker cannot be started")?;
        let mut line = String::new();
        let output = shell.stdout.take().context("the worker's shell has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let pid = line.trim().parse().with_context(|| format!("no process id but {line:?}"))?;
        self.workers.push(WorkerProcess { shell, pid: Pid::from_raw(pid), log, killed: false });
        Ok(number)
    }

    /// Whether the owner that a lease names is the worker with this number, from 1.
    pub fn is_named(&self, number: usize, owner: &str) -> bool {
        owner.strip_prefix(&self.name_of(number)).is_some_and(|rest| rest.starts_with('-'))
    }

    fn name_of(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// Workers that were not killed.
    pub fn workers(&self) -> u64 {
        self.workers.iter().filter(|worker| !worker.killed).count() as u64
    }

    /// Ends the first worker as a crash would.
    pub fn kill_worker(&mut self) -> anyhow::Result<usize> {
        let at = self.workers.iter().position(|worker| !worker.killed).context("no worker is left to kill")?;
        kill(self.workers[at].pid, Signal::SIGKILL)?;
        self.workers[at].killed = true;
        Ok(at + 1)
    }

    pub fn cluster(&self) -> &LocalCluster {
        self.cluster.as_ref().expect("there until it is kept, at the very end")
    }

    /// To kill and restart nodes.
    pub fn cluster_mut(&mut self) -> &mut LocalCluster {
        self.cluster.as_mut().expect("there until it is kept, at the very end")
    }

    /// Lets the workers finish, as long as that may take.
    pub async fn stop_workers(&mut self) {
        const GRACE: Duration = Duration::from_secs(5);
        for worker in self.workers.iter().filter(|worker| !worker.killed) {
            // One that is gone already needs no word.
            let _ = kill(worker.pid, Signal::SIGTERM);
        }
        let ended = async {
            while self.workers.iter().any(WorkerProcess::runs) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(GRACE, ended).await;
        self.workers.iter_mut().for_each(WorkerProcess::end);
    }

    /// What the workers told last, for when something went wrong.
    pub fn tell_worker_logs(&self) {
        const LINES_MAX: usize = 5;
        for (number, worker) in self.workers.iter().enumerate() {
            let log = std::fs::read_to_string(&worker.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.iter().skip(lines.len().saturating_sub(LINES_MAX));
            tail.for_each(|line| eprintln!("  worker {}: {line}", number + 1));
        }
    }

    /// Leaves the cluster running and says how to use and end it.
    pub fn keep(mut self) -> anyhow::Result<()> {
        let Some(cluster) = self.cluster.take() else { return Ok(()) };
        let (seeds, folder) = (cluster.seeds(), cluster.folder().display().to_string());
        let ports: Vec<u16> = cluster.nodes().into_iter().map(|(_, port)| port).collect();
        let cli = cluster.cli_path().display().to_string();
        cluster.leave_running()?;
        let first = seeds.split(',').next().unwrap_or_default();
        eprintln!("The cluster goes on; its data and logs are in {folder}. Look at it with");
        eprintln!("  heyday --redis {first} status");
        eprintln!("and end it with");
        eprintln!("  for port in {}; do {cli} -p $port shutdown nosave; done; rm -r {folder}", spaced(&ports));
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(WorkerProcess::end);
    }
}

impl WorkerProcess {
    /// An ended process is a zombie until its shell collects it, so its id is nobody else's.
    fn runs(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        status.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
    }

    fn end(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The environment variable of a setting.
fn variable(key: &str) -> String {
    format!("HEYDAY_{}", key.to_uppercase().replace('.', "__"))
}

fn spaced(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
}
