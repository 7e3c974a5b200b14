//! One server process, tethered: it ends when the process it is tethered to ends, even by SIGKILL.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::{Lifetime, Options};

/// Starts server $1 in folder $2, says its process id, and waits for an order or for the end of its input, which comes with the
/// end of whoever holds the other side of the pipe. `read` is part of the shell: no child but the server, whose id therefore
/// cannot pass to another process before the shell has ended it. Signals from a terminal are for the parent to obey.
const TETHER: &str = r#"
trap '' INT TERM HUP
"$1" "$2/redis.conf" </dev/null >"$2/redis.log" 2>&1 &
server=$!
echo "$server"
exec >/dev/null
read -r order
[ "$order" = release ] && exit 0
kill -9 "$server"
wait "$server"
[ "$order" = keep-data ] && exit 0
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

    pub(super) fn try_clone(&self) -> io::Result<Tether> {
        match self {
            Tether::Own => Ok(Tether::Own),
            Tether::Keeper(pipe) => Ok(Tether::Keeper(pipe.try_clone()?)),
        }
    }
}

/// A server with its folder; it may be running or killed.
#[derive(Debug)]
pub(super) struct Server {
    binary: PathBuf,
    folder: PathBuf,
    port: u16,
    tether: Tether,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    shell: Child,
    server: u32,
}

impl Server {
    pub(super) fn new(binary: PathBuf, folder: PathBuf, port: u16, tether: Tether) -> Server {
        Server { binary, folder, port, tether, running: None }
    }

    pub(super) fn start(&mut self) -> io::Result<()> {
        if self.running.is_some() {
            return Err(io::Error::other("it is running already"));
        }
        let input = match &self.tether {
            Tether::Own => Stdio::piped(),
            Tether::Keeper(pipe) => Stdio::from(pipe.try_clone()?),
        };
        let mut shell = shell(TETHER, input, Stdio::piped()).arg(&self.binary).arg(&self.folder).spawn()?;
        let output = shell.stdout.take().ok_or_else(|| io::Error::other("the tether has no output"))?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let server = line.trim().parse().map_err(|_| io::Error::other(format!("no process id but {line:?}")))?;
        self.running = Some(Running { shell, server });
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.as_ref().map_or(0, |running| running.server)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.order("keep-data")
    }

    pub(super) fn release(&mut self) -> io::Result<()> {
        self.order("release")
    }

    /// Lets go without an order: the keeper decides when it ends.
    pub(super) fn forget(&mut self) {
        self.running = None;
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let running = self.running.as_ref().ok_or_else(|| io::Error::other("it is not running"))?;
        let id = i32::try_from(running.server).map_err(io::Error::other)?;
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
        let log = fs::read_to_string(self.folder.join("redis.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(3)..].join(" | ")
    }

    /// Gives the tether an order and waits until it has carried it out.
    fn order(&mut self, order: &str) -> io::Result<()> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        match running.shell.stdin.take() {
            Some(mut input) => writeln!(input, "{order}")?,
            None => return Err(io::Error::other("it belongs to another process")),
        }
        running.shell.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `wait` closes the pipe first, and that ends the server. A server of a keeper is ended by hand: its pipe stays open.
        if matches!(self.tether, Tether::Keeper(_)) {
            let _ = self.signal(Signal::SIGKILL);
        } else if let Some(mut running) = self.running.take() {
            let _ = running.shell.wait();
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
