//! One server process, tethered: it ends when the process it is tethered to ends, even by SIGKILL.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::{Lifetime, Options};

/// Starts server $1 in folder $2, says its process id, and then obeys: `kill` and `start` for the server, `release` to go and
/// leave it running. The end of the orders, which comes with the end of whoever holds the other side of the pipe, ends the server
/// and its folder. `read` is part of the shell: no child but the server, whose id therefore cannot pass to another process before
/// the shell has ended it. Signals from a terminal are for the parent to obey.
const TETHER: &str = r#"
trap '' INT TERM HUP PIPE
start() {
    "$1" "$2/redis.conf" </dev/null >>"$2/redis.log" 2>&1 &
    server=$!
    echo "$server"
}
end() {
    kill -9 "$server"
    wait "$server"
    server=
}
start "$@"
while read -r order; do
    case $order in
        start) start "$@" ;;
        kill) end; echo ended ;;
        release) exit 0 ;;
    esac
done
[ -z "$server" ] || end
rm -rf "$2"
cd "$2/.." && rm -f node.conf create.sh port-base && rmdir "$PWD"
"#;

/// Runs as long as process $1 does. Its output is the pipe that the tethers read: it never writes, only ends.
const KEEPER: &str = r#"
trap '' INT TERM HUP
while kill -0 "$1"; do sleep 0.2; done
"#;

/// What holds the other side of a server's pipe.
#[derive(Debug)]
pub(super) enum Tether {
    /// This process, by a pipe of its own for each server, so that each can be given orders.
    Own,
    /// A keeper that watches another process, by one pipe for all.
    Keeper(OwnedFd),
}

impl Tether {
    pub(super) fn new(lifetime: Lifetime) -> io::Result<Tether> {
        let Lifetime::Process(id) = lifetime else {
            return Ok(Tether::Own);
        };
        let mut keeper = shell(KEEPER, Stdio::null(), Stdio::piped()).arg(id.to_string()).spawn()?;
        let output = keeper.stdout.take().ok_or_else(|| io::Error::other("the keeper has no output"))?;
        Ok(Tether::Keeper(output.into()))
    }
}

/// Where a server keeps its data, where it listens, and what its environment has beside this process's.
#[derive(Debug)]
pub(super) struct Place {
    pub folder: PathBuf,
    pub port: u16,
    pub environment: BTreeMap<String, String>,
}

/// A server with its folder; it may be running or killed.
#[derive(Debug)]
pub(super) struct Server {
    place: Place,
    shell: Child,
    answers: BufReader<ChildStdout>,
    /// While it runs.
    server: Option<u32>,
}

impl Server {
    pub(super) fn start(binary: &Path, place: Place, tether: &Tether) -> io::Result<Server> {
        let input = match tether {
            Tether::Own => Stdio::piped(),
            Tether::Keeper(pipe) => Stdio::from(pipe.try_clone()?),
        };
        let mut shell = shell(TETHER, input, Stdio::piped());
        let mut shell = shell.arg(binary).arg(&place.folder).envs(&place.environment).spawn()?;
        let output = shell.stdout.take().ok_or_else(|| io::Error::other("the tether has no output"))?;
        let mut server = Server { place, shell, answers: BufReader::new(output), server: None };
        server.server = Some(server.process_id()?);
        Ok(server)
    }

    /// Process id; 0 while it is killed.
    pub(super) fn pid(&self) -> u32 {
        self.server.unwrap_or(0)
    }

    pub(super) fn port(&self) -> u16 {
        self.place.port
    }

    pub(super) fn kill(&mut self) -> io::Result<()> {
        if self.server.take().is_some() {
            self.order("kill")?;
            self.answer()?;
        }
        Ok(())
    }

    pub(super) fn restart(&mut self) -> io::Result<()> {
        if self.server.is_some() {
            return Err(io::Error::other("it is running already"));
        }
        self.order("start")?;
        self.server = Some(self.process_id()?);
        Ok(())
    }

    /// Leaves the server running, with no tether.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.order("release")?;
        self.shell.wait().map(drop)
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let server = self.server.ok_or_else(|| io::Error::other("it is not running"))?;
        let id = i32::try_from(server).map_err(io::Error::other)?;
        nix::sys::signal::kill(Pid::from_raw(id), signal).map_err(io::Error::from)
    }

    /// Whether the server has ended by itself: a zombie until its shell collects it. Where there is no `/proc` nobody can
    /// tell, and the caller's deadline decides.
    pub(super) fn has_ended(&self) -> bool {
        match fs::read_to_string(format!("/proc/{}/stat", self.pid())) {
            Ok(status) => status.rsplit(") ").next().is_some_and(|state| state.starts_with('Z')),
            Err(_) => Path::new("/proc/self/stat").exists(),
        }
    }

    /// The last lines of the log, for an error message.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.place.folder.join("redis.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(3)..].join(" | ")
    }

    fn order(&mut self, order: &str) -> io::Result<()> {
        match &mut self.shell.stdin {
            Some(input) => writeln!(input, "{order}"),
            None => Err(io::Error::other("it obeys another process")),
        }
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn process_id(&mut self) -> io::Result<u32> {
        let answer = self.answer()?;
        answer.parse().map_err(|_| io::Error::other(format!("no process id but {answer:?}")))
    }

    /// Ends the orders, and with them the server and its folder, and waits for that.
    pub(super) fn end(&mut self) {
        if self.shell.stdin.is_some() {
            // `wait` closes the pipe first.
            let _ = self.shell.wait();
        } else {
            // The pipe is the keeper's and stays open.
            let _ = self.signal(Signal::SIGKILL);
        }
    }
}

/// Evaluates an expression in the shell and finds the program of that name: the shell knows the environment and PATH.
pub(super) fn find(expression: &str) -> Option<PathBuf> {
    let script = format!("command -v \"{expression}\"");
    let output = Command::new("sh").arg("-c").arg(script).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    let path = path.trim_end_matches('\n');
    (output.status.success() && !path.is_empty()).then(|| PathBuf::from(path))
}

/// What differs from node to node, and what the caller asked for; the rest stands in `node.conf`.
pub(super) fn write_conf(folder: &Path, port: u16, options: &Options) -> io::Result<()> {
    fs::create_dir(folder)?;
    let shared = folder.with_file_name("node.conf");
    let mut lines = vec![
        format!("include {}", quoted(&shared.to_string_lossy())),
        "bind 127.0.0.1".to_owned(),
        format!("port {port}"),
        format!("dir {}", quoted(&folder.to_string_lossy())),
        format!("pidfile {}", quoted(&folder.join("redis.pid").to_string_lossy())),
    ];
    if let Some(password) = &options.password {
        lines.push(format!("requirepass {}", quoted(password)));
        lines.push(format!("masterauth {}", quoted(password)));
    }
    if let Some(bytes) = options.memory_bytes_max {
        lines.push(format!("maxmemory {bytes}"));
    }
    lines.extend(options.config_lines.iter().cloned());
    lines.push(String::new());
    let path = folder.join("redis.conf");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(lines.join("\n").as_bytes())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A shell in a process group of its own, so that neither Ctrl-C nor a test runner's signal reaches it or its server.
fn shell(script: &str, input: Stdio, output: Stdio) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "heyday-tether"]).stdin(input).stdout(output).stderr(Stdio::null()).process_group(0);
    command
}
