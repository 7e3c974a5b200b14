//! A TCP proxy in front of one node, told at run time to fail in the ways networks fail.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heyday::local::Ports;
use heyday::redis::NodeAddress;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes held back per direction before the sender is no longer read, as if buffers on the way were full.
const PENDING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Room for one read.
const READ_BYTES: usize = 64 * 1024;
/// How long the proxy waits for what a test says will come.
const WAIT: Duration = Duration::from_secs(10);

/// How a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// In order, as a server that closes does.
    Fin,
    /// Hard, as a killed process or a firewall does.
    Reset,
}

/// Which bytes stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stalled {
    requests: bool,
    answers: bool,
}

/// The running proxy. Dropping it ends it and every connection through it.
#[derive(Debug)]
pub struct Proxy {
    address: NodeAddress,
    control: Arc<Control>,
    listening: JoinHandle<()>,
    _ports: Ports,
}

#[derive(Debug)]
struct Control {
    stalled: watch::Sender<Stalled>,
    cut: watch::Sender<(u64, Cut)>,
    released: watch::Sender<u64>,
    /// How many connections hold bytes back.
    held: watch::Sender<usize>,
    trap: Mutex<Option<Trap>>,
    refuse: watch::Sender<bool>,
    open: watch::Sender<usize>,
    accepted: AtomicUsize,
    /// Bytes of requests that have arrived here and not been passed on.
    waiting: AtomicUsize,
    commands: AtomicUsize,
}

/// Where the next connection that gets there is held.
#[derive(Debug)]
enum Trap {
    Before(Vec<u8>),
    After(usize),
}

impl Proxy {
    /// Listens on a port of its own and passes everything on to `target`.
    pub async fn start(target: &NodeAddress) -> Proxy {
        let ports = Ports::reserve().expect("ports can be reserved").expect("free ports");
        let listener = TcpListener::bind(("127.0.0.1", ports.first())).await.expect("a reserved port is free");
        let control = Arc::new(Control {
            stalled: watch::Sender::new(Stalled::default()),
            cut: watch::Sender::new((0, Cut::Fin)),
            released: watch::Sender::new(0),
            held: watch::Sender::new(0),
            trap: Mutex::new(None),
            refuse: watch::Sender::new(false),
            open: watch::Sender::new(0),
            accepted: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
        });
        Proxy {
            address: NodeAddress::new("127.0.0.1", ports.first()),
            listening: tokio::spawn(listen(listener, target.clone(), control.clone())),
            control,
            _ports: ports,
        }
    }

    /// Where clients connect. With `ConnectOptions::address_map` they do so for the node's own address.
    pub fn address(&self) -> &NodeAddress {
        &self.address
    }

    /// Both directions fall silent. Connections stay open and new ones are accepted, but no byte passes.
    pub fn stall(&self) {
        self.control.stalled.send_replace(Stalled { requests: true, answers: true });
    }

    /// Requests arrive and take effect; their answers do not come back.
    pub fn stall_answers(&self) {
        self.control.stalled.send_replace(Stalled { requests: false, answers: true });
    }

    /// Requests do not arrive; what was asked before is answered.
    pub fn stall_requests(&self) {
        self.control.stalled.send_replace(Stalled { requests: true, answers: false });
    }

    /// Everything flows again, what had waited first.
    pub fn pass(&self) {
        self.control.stalled.send_replace(Stalled::default());
    }

    /// Cuts every open connection. What was held back never arrives. New connections pass.
    pub fn cut(&self, how: Cut) {
        self.control.cut.send_modify(|cut| *cut = (cut.0 + 1, how));
    }

    /// New connections are closed at once, until told otherwise.
    pub fn refuse(&self, refuse: bool) {
        self.control.refuse.send_replace(refuse);
    }

    /// Holds the first connection whose requests contain `pattern`, just before it. What it sends from there on stays
    /// here until [`Proxy::release`], even after the client has gone; other connections pass.
    pub fn hold_before(&self, pattern: impl AsRef<[u8]>) {
        self.set_trap(Trap::Before(pattern.as_ref().to_vec()));
    }

    /// The same after so many further bytes of requests.
    pub fn hold_after(&self, bytes: usize) {
        self.set_trap(Trap::After(bytes));
    }

    /// Waits until a connection is held.
    pub async fn held(&self) {
        let mut held = self.control.held.subscribe();
        tokio::time::timeout(WAIT, held.wait_for(|held| *held > 0))
            .await
            .expect("within 10 s no connection came to where it is held")
            .expect("the proxy runs");
    }

    /// Lets held bytes go on to the server, and forgets a trap that was not reached.
    pub fn release(&self) {
        *self.control.trap.lock().expect("the trap") = None;
        self.control.released.send_modify(|count| *count += 1);
    }

    /// Waits until so many connections are open.
    pub async fn open(&self, connections: usize) {
        let mut open = self.control.open.subscribe();
        let waited = tokio::time::timeout(WAIT, open.wait_for(|open| *open == connections)).await;
        assert!(
            waited.is_ok(),
            "within 10 s there never were {connections} connections, but {}",
            *self.control.open.borrow()
        );
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> usize {
        self.control.accepted.load(Ordering::Relaxed)
    }

    /// How many commands have arrived here, whether or not they were passed on.
    pub fn commands(&self) -> usize {
        self.control.commands.load(Ordering::Relaxed)
    }

    /// Bytes of requests that wait here.
    pub fn waiting(&self) -> usize {
        self.control.waiting.load(Ordering::Relaxed)
    }

    fn set_trap(&self, trap: Trap) {
        *self.control.trap.lock().expect("the trap") = Some(trap);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut(Cut::Reset);
    }
}

async fn listen(listener: TcpListener, target: NodeAddress, control: Arc<Control>) {
    while let Ok((client, _)) = listener.accept().await {
        control.accepted.fetch_add(1, Ordering::Relaxed);
        if *control.refuse.borrow() {
            continue;
        }
        let (target, control) = (target.clone(), control.clone());
        let cut = control.cut.subscribe();
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect((target.host.as_str(), target.port)).await {
                control.open.send_modify(|open| *open += 1);
                connection(client, server, cut, &control).await;
                control.open.send_modify(|open| *open -= 1);
            }
        });
    }
}

/// One connection until both sides have ended it, or it is cut.
async fn connection(
    mut client: TcpStream,
    mut server: TcpStream,
    mut cut: watch::Receiver<(u64, Cut)>,
    control: &Control,
) {
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let was_cut = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let mut gate = Gate::new(control);
        tokio::select! {
            biased;
            _ = cut.changed() => true,
            _ = async {
                tokio::join!(
                    requests(client_read, server_write, &mut gate),
                    answers(server_read, client_write, control),
                )
            } => false,
        }
    };
    if was_cut && cut.borrow().1 == Cut::Reset {
        for socket in [&client, &server] {
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

async fn requests(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, gate: &mut Gate<'_>) {
    let mut pending = Vec::new();
    let mut commands = Commands::default();
    let mut ended = false;
    loop {
        let admitted = gate.admit(&pending);
        gate.control.waiting.store(pending.len() - admitted, Ordering::Relaxed);
        if admitted > 0 {
            let _ = to.write_all(&pending[..admitted]).await;
            pending.drain(..admitted);
            continue;
        }
        if ended && pending.is_empty() && !gate.is_closed() {
            let _ = to.shutdown().await;
            return;
        }
        tokio::select! {
            () = gate.changed() => {}
            end = async {
                let known = pending.len();
                let end = read(&mut from, &mut pending).await;
                (end, known)
            }, if !ended && pending.len() < PENDING_BYTES_MAX => {
                ended = end.0;
                gate.control.commands.fetch_add(commands.count(&pending[end.1..]), Ordering::Relaxed);
            }
        }
    }
}

async fn answers(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, control: &Control) {
    let mut stalled = control.stalled.subscribe();
    let mut pending = Vec::new();
    let mut ended = false;
    loop {
        if !stalled.borrow_and_update().answers {
            // A client that has gone is no reason to stop: the server has not heard of it yet.
            let _ = to.write_all(&pending).await;
            pending.clear();
            if ended {
                let _ = to.shutdown().await;
                return;
            }
        }
        tokio::select! {
            _ = stalled.changed() => {}
            end = read(&mut from, &mut pending), if !ended && pending.len() < PENDING_BYTES_MAX => ended = end,
        }
    }
}

/// True: nothing more comes from there.
async fn read(from: &mut ReadHalf<'_>, pending: &mut Vec<u8>) -> bool {
    pending.reserve(READ_BYTES);
    let read: io::Result<usize> = from.read_buf(pending).await;
    matches!(read, Ok(0) | Err(_))
}

/// Counts the commands of one connection: arrays of strings, whose lengths tell where each ends.
#[derive(Default)]
struct Commands {
    line: Vec<u8>,
    /// Bytes of a string that are still to come, with the line end after it.
    body: usize,
}

impl Commands {
    fn count(&mut self, bytes: &[u8]) -> usize {
        let mut begun = 0;
        for byte in bytes {
            if self.body > 0 {
                self.body -= 1;
                continue;
            }
            self.line.push(*byte);
            if let Some(line) = self.line.strip_suffix(b"\r\n") {
                let number = || std::str::from_utf8(&line[1..]).ok()?.parse::<usize>().ok();
                match line.first() {
                    Some(b'*') => begun += 1,
                    Some(b'$') => self.body = number().map_or(0, |length| length + 2),
                    _ => {}
                }
                self.line.clear();
            }
        }
        begun
    }
}

/// What of one connection's requests may pass.
struct Gate<'a> {
    control: &'a Control,
    stalled: watch::Receiver<Stalled>,
    released: watch::Receiver<u64>,
    /// Set while this connection is held: the count of releases at that time.
    holding: Option<u64>,
}

impl<'a> Gate<'a> {
    fn new(control: &'a Control) -> Gate<'a> {
        Gate { control, stalled: control.stalled.subscribe(), released: control.released.subscribe(), holding: None }
    }

    async fn changed(&mut self) {
        tokio::select! {
            _ = self.stalled.changed() => {}
            _ = self.released.changed() => {}
        }
    }

    fn is_closed(&self) -> bool {
        self.holding.is_some() || self.stalled.borrow().requests
    }

    fn admit(&mut self, pending: &[u8]) -> usize {
        let released = *self.released.borrow_and_update();
        let stalled = self.stalled.borrow_and_update().requests;
        if self.holding.is_some_and(|since| since < released) {
            self.set_holding(None);
        }
        if stalled || self.holding.is_some() || pending.is_empty() {
            return 0;
        }
        let mut trap = self.control.trap.lock().expect("the trap");
        let (admitted, caught) = match trap.as_mut() {
            None => (pending.len(), false),
            Some(Trap::Before(pattern)) => before(pending, pattern),
            Some(Trap::After(bytes)) => {
                let admitted = pending.len().min(*bytes);
                *bytes -= admitted;
                (admitted, admitted < pending.len())
            }
        };
        if caught {
            *trap = None;
            drop(trap);
            self.set_holding(Some(released));
        }
        admitted
    }

    fn set_holding(&mut self, holding: Option<u64>) {
        let count = |held: &mut usize| match (self.holding, holding) {
            (None, Some(_)) => *held += 1,
            (Some(_), None) => *held -= 1,
            _ => {}
        };
        self.control.held.send_modify(count);
        self.holding = holding;
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.set_holding(None);
    }
}

/// How much of `bytes` comes before `pattern`, and whether the pattern is there. A beginning of it at the end waits too.
fn before(bytes: &[u8], pattern: &[u8]) -> (usize, bool) {
    let whole = bytes.windows(pattern.len()).position(|window| window == pattern);
    if let Some(position) = whole {
        return (position, true);
    }
    let begun = (1..pattern.len().min(bytes.len() + 1)).rev().find(|length| bytes.ends_with(&pattern[..*length]));
    (bytes.len() - begun.unwrap_or(0), false)
}
