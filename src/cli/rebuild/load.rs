//! `heyday rebuild --file`: the users of the file as entries, never more of them on their way than a bound says.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncBufRead, AsyncSeekExt, BufReader};
use tokio::sync::watch;

use super::gone;
use super::mark;
use super::parts::{Form, User};
use super::position::{self, Position};
use super::source::Source;
use super::tell::{Show, Tally};
use super::way::Way;
use crate::change::Change;
use crate::cli::exit::Usage;
use crate::cli::signals::Signals;
use crate::cli::write::Lines;
use crate::cli::{Context, Exit};
use crate::client::Writer;
use crate::client::writer::{self, Appended, Receipt};
use crate::redis::rebuild::{Seen, Shards};
use crate::task;

pub(super) const READ_BYTES: usize = 256 * 1024;
/// Bytes of lines that are on their way and not applied yet. More are not read before that.
const AHEAD_BYTES_MAX: usize = 32 * 1024 * 1024;
const AHEAD_LINES_MAX: usize = 64 * 1024;
/// How often is it asked how far the shards have come, and the position written.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// After so long without anything applied, it is told what is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bad lines that are named, and lines of users named before; of the others only their number is told.
pub(super) const NAMED_MAX: u64 = 100;

pub(super) struct Options {
    pub file: PathBuf,
    /// Whether to take this very moment where no rebuild is on.
    pub begin: bool,
    pub authoritative: bool,
    pub keep_going: bool,
    pub json: bool,
}

pub(super) async fn run(options: Options, context: &Context) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let source = Source::of(&options.file)?;
    let way = Way::open(context).await?;
    let position = resumed(&options, &source, &way).await?;
    let mut load = tokio::select! {
        biased;
        () = signals.next() => {
            eprintln!("heyday: stopped before anything was sent, the rebuild stays on: run again to go on");
            return Ok(Exit::Found);
        }
        load = Load::open(&way, options, source, position, context) => load?,
    };
    let stopped = load.run(&mut signals).await;
    load.finish(&way, stopped, &mut signals).await
}

/// Where an earlier run of the rebuild that is on came to.
async fn resumed(options: &Options, source: &Source, way: &Way) -> anyhow::Result<Position> {
    let path = position::path(&source.path);
    let found = position::read(&source.path)
        .map_err(|error| Usage(format!("{}: {error}; remove it to begin at the beginning", path.display())))?;
    let on = mark::on(way).await?;
    if on.is_none() && !options.begin {
        return Err(mark::none().into());
    }
    if let Some(found) = found.as_ref().filter(|found| on != Some(found.moment)) {
        let on = on.map_or_else(|| "none is on".to_owned(), |on| format!("that of {} is on", mark::shown(on)));
        let (path, moment) = (path.display(), mark::shown(found.moment));
        return Err(Usage(format!(
            "{path} is of the rebuild of {moment}, and {on}: remove it to begin at the beginning, or finish or abort the \
             other one first"
        ))
        .into());
    }
    let moment = match on {
        Some(at) => at,
        None => mark::set(way).await?,
    };
    let file = source.identity.clone();
    let begin = Position { file, moment, authoritative: options.authoritative, offset: 0, line: 0 };
    match found {
        Some(found) if found.is_of(&begin) => {
            eprintln!("heyday: goes on behind line {}", found.line);
            Ok(found)
        }
        Some(_) => {
            eprintln!(
                "heyday: {} is of another file or without the same flags: begins at the beginning",
                path.display()
            );
            Ok(begin)
        }
        None => Ok(begin),
    }
}

/// Why no more lines are read.
pub(super) enum Stopped {
    End,
    BadLine,
    /// Why nobody is removed whom the file does not name.
    Doubt(&'static str),
    Failure(anyhow::Error),
    /// By a signal.
    Told,
}

/// A line whose entries are on their way.
struct Flight {
    line: u64,
    /// Where the next line begins.
    end: u64,
    bytes: usize,
    sent: VecDeque<Receipt>,
    appended: Vec<Appended>,
}

pub(super) struct Load {
    lines: Lines<Box<dyn AsyncBufRead + Unpin>>,
    writer: Writer,
    options: Options,
    pub source: Source,
    pub form: Form,
    position: Position,
    written: Option<Instant>,
    /// Answers are awaited to these, in the order of their lines.
    sent: VecDeque<Flight>,
    /// In the streams, and not applied yet.
    appended: VecDeque<Flight>,
    bytes: usize,
    looks: watch::Receiver<Look>,
    moved: Instant,
    waits_told: bool,
    pub tally: Tally,
    pub show: Show,
    pub seen: gone::Ids,
}

/// How far all shards have come, or why nobody knows.
type Look = Result<Vec<Seen>, crate::redis::Error>;

impl Load {
    async fn open(
        way: &Way,
        options: Options,
        source: Source,
        position: Position,
        context: &Context,
    ) -> anyhow::Result<Load> {
        // What an earlier run has sent may be lost with a node, or of an older file: nothing of it stops what is sent now.
        let producer = format!("rebuild:{}:{}:{:016x}", position.file, position.moment, rand::random::<u64>());
        let form = Form::new(position.moment, options.authoritative, context.settings.config.limits());
        let form = Form { producer, ..form };
        let earlier = gone::read_again(&source.path, position.offset, &form).await?;
        let mut file = tokio::fs::File::open(&source.path).await?;
        file.seek(std::io::SeekFrom::Start(position.offset)).await?;
        let reader: Box<dyn AsyncBufRead + Unpin> = Box::new(BufReader::with_capacity(READ_BYTES, file));
        let begun = way.shards.look().await?;
        let mut tally = Tally::new(&position, begun.iter().map(|seen| seen.dead).sum());
        (tally.bad, tally.repeated) = (earlier.bad, earlier.repeated);
        let (sender, looks) = watch::channel(Ok(begun));
        task::spawn("rebuild looks", look(way.shards.clone(), sender));
        Ok(Load {
            lines: Lines::at(reader, position.line, position.offset),
            writer: way.hub.writer(context.settings.config.writer()),
            form,
            show: Show::new(source.length, position.offset),
            options,
            source,
            position,
            written: None,
            sent: VecDeque::new(),
            appended: VecDeque::new(),
            bytes: 0,
            looks,
            moved: Instant::now(),
            waits_told: false,
            tally,
            seen: earlier.ids,
        })
    }

    /// However it ends, what was sent before is in the streams then.
    async fn run(&mut self, signals: &mut Signals) -> Stopped {
        let mut reads = true;
        loop {
            if !reads && self.sent.is_empty() && self.appended.is_empty() {
                return Stopped::End;
            }
            let room = self.has_room();
            tokio::select! {
                biased;
                () = signals.next() => return self.settled(Stopped::Told).await,
                answer = oldest(&mut self.sent) => {
                    if let Err(error) = self.answered(answer) {
                        return self.settled(Stopped::Failure(error.into())).await;
                    }
                }
                // Without lines in between nothing shows otherwise.
                changed = self.looks.changed() => {
                    if let Err(error) = self.looked(changed) {
                        return self.settled(Stopped::Failure(error)).await;
                    }
                }
                line = self.lines.next(), if reads && room => {
                    let line = match line {
                        Ok(Some(line)) => line,
                        Ok(None) => { reads = false; continue }
                        Err(error) => return self.settled(Stopped::Failure(error.into())).await,
                    };
                    let (number, user) = (line.number, self.form.read(&line));
                    let went = tokio::select! {
                        biased;
                        () = signals.next() => return self.settled(Stopped::Told).await,
                        went = self.line(number, user) => went,
                    };
                    match went {
                        Ok(true) => {}
                        Ok(false) => return self.settled(Stopped::BadLine).await,
                        Err(error) => return self.settled(Stopped::Failure(error.into())).await,
                    }
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.bytes < AHEAD_BYTES_MAX && self.sent.len() + self.appended.len() < AHEAD_LINES_MAX
    }

    /// Whether to go on behind the line. Where this future is dropped, the next run sends the line again.
    async fn line(&mut self, number: u64, user: Result<Option<User>, String>) -> Result<bool, writer::Error> {
        let end = self.lines.bytes();
        let user = match user {
            Ok(user) => user,
            Err(reason) => {
                self.tally.bad += 1;
                if self.tally.bad <= NAMED_MAX {
                    self.show.suspend(|| eprintln!("heyday: line {number}: {reason}"));
                }
                if !self.options.keep_going {
                    return Ok(false);
                }
                None
            }
        };
        let mut flight = Flight { line: number, end, bytes: 0, sent: VecDeque::new(), appended: Vec::new() };
        if let Some(user) = user {
            self.tally.users += 1;
            self.tally.friends += user.friends;
            if !self.seen.add(user.id()) {
                self.tally.repeated += 1;
                if self.tally.repeated <= NAMED_MAX {
                    self.show.suspend(|| eprintln!("heyday: {}", repeated(number, user.id())));
                }
            }
            flight.bytes = user.bytes;
            flight.sent = self.send(&user.entries).await?;
        }
        self.bytes += flight.bytes;
        self.sent.push_back(flight);
        self.tally.lines = number;
        self.show.update(end, &self.tally);
        Ok(true)
    }

    async fn send(&self, entries: &[Change]) -> Result<VecDeque<Receipt>, writer::Error> {
        let mut sent = VecDeque::with_capacity(entries.len());
        for entry in entries {
            sent.push_back(self.writer.enqueue(entry).await?);
        }
        Ok(sent)
    }

    /// Users whom the file does not have, a few at a time, in the streams and applied.
    pub async fn send_all(&mut self, entries: &[Change], signals: &mut Signals) -> Stopped {
        let sent = tokio::select! {
            biased;
            () = signals.next() => return self.settled(Stopped::Told).await,
            sent = self.send(entries) => sent,
        };
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => return Stopped::Failure(error.into()),
        };
        let Position { offset, line, .. } = self.position;
        self.sent.push_back(Flight { line, end: offset, bytes: 0, sent, appended: Vec::new() });
        self.run_out(signals).await
    }

    /// Until all that was sent is applied.
    async fn run_out(&mut self, signals: &mut Signals) -> Stopped {
        while !(self.sent.is_empty() && self.appended.is_empty()) {
            tokio::select! {
                biased;
                () = signals.next() => return self.settled(Stopped::Told).await,
                answer = oldest(&mut self.sent) => {
                    if let Err(error) = self.answered(answer) {
                        return self.settled(Stopped::Failure(error.into())).await;
                    }
                }
                changed = self.looks.changed() => {
                    if let Err(error) = self.looked(changed) {
                        return self.settled(Stopped::Failure(error)).await;
                    }
                }
            }
        }
        Stopped::End
    }

    /// The oldest line got an answer to its oldest entry, or has none to wait for.
    fn answered(&mut self, answer: Option<Result<Appended, writer::Error>>) -> Result<(), writer::Error> {
        let Some(flight) = self.sent.front_mut() else { return Ok(()) };
        if let Some(answer) = answer {
            flight.sent.pop_front();
            flight.appended.push(answer?);
        }
        if flight.sent.is_empty() {
            self.appended.extend(self.sent.pop_front());
        }
        Ok(())
    }

    /// What of the streams is applied now.
    fn looked(&mut self, changed: Result<(), watch::error::RecvError>) -> anyhow::Result<()> {
        changed.context("the task that looks at the shards has ended: this is a bug")?;
        let look = self.looks.borrow_and_update().clone()?;
        let moment = self.position.moment;
        let lost = (0..).zip(&look).filter(|(_, seen)| seen.mark != Some(moment));
        let lost: Vec<String> = lost.map(|(shard, _): (u16, _)| shard.to_string()).collect();
        if !lost.is_empty() {
            return Err(mark::lost(&lost).into());
        }
        self.tally.dead(look.iter().map(|seen| seen.dead).sum());
        let is_applied =
            |flight: &Flight| flight.appended.iter().all(|entry| entry.id <= look[usize::from(entry.shard.0)].applied);
        let before = self.appended.len();
        while self.appended.front().is_some_and(is_applied) {
            if let Some(flight) = self.appended.pop_front() {
                self.bytes -= flight.bytes;
                (self.position.line, self.position.offset) = (flight.line, flight.end);
            }
        }
        if self.appended.len() < before || before == 0 {
            (self.moved, self.waits_told) = (Instant::now(), false);
            self.write(false)?;
        } else if self.moved.elapsed() >= PATIENCE && !self.waits_told {
            self.waits_told = true;
            self.show.suspend(|| {
                eprintln!("heyday: waits: nothing was applied for {PATIENCE:?}; are there workers? (heyday status)");
            });
        }
        self.show.update(self.lines.bytes(), &self.tally);
        Ok(())
    }

    fn write(&mut self, at_once: bool) -> std::io::Result<()> {
        if !at_once && self.written.is_some_and(|at| at.elapsed() < WRITE_INTERVAL) {
            return Ok(());
        }
        self.written = Some(Instant::now());
        position::write(&self.options.file, &self.position)
    }

    /// What was sent is in the stream, or known not to be.
    async fn settled(&mut self, stopped: Stopped) -> Stopped {
        while let Some(flight) = self.sent.front_mut() {
            match flight.sent.pop_front() {
                Some(receipt) => drop(receipt.await),
                None => drop(self.sent.pop_front()),
            }
        }
        stopped
    }

    async fn finish(mut self, way: &Way, mut stopped: Stopped, signals: &mut Signals) -> anyhow::Result<Exit> {
        if let (Stopped::End, true) = (&stopped, self.options.authoritative) {
            stopped = gone::remove(&mut self, way, signals).await;
        }
        self.show.clear();
        if let Stopped::End = stopped {
            // The mark is the last to go: as long as it is there, the command may be run again.
            position::remove(&self.options.file)?;
            way.shards.unmark(Some(self.position.moment)).await?;
        } else {
            self.write(true)?;
        }
        self.tally.tell(&stopped, self.options.json)?;
        match stopped {
            Stopped::Failure(error) => Err(error),
            Stopped::End if self.tally.is_clean() => Ok(Exit::Done),
            Stopped::End | Stopped::BadLine | Stopped::Doubt(_) | Stopped::Told => Ok(Exit::Found),
        }
    }
}

/// The answer to the oldest entry of the oldest line; none where that line has no entry left.
async fn oldest(sent: &mut VecDeque<Flight>) -> Option<Result<Appended, writer::Error>> {
    match sent.front_mut() {
        Some(flight) => match flight.sent.front_mut() {
            Some(receipt) => Some(receipt.await),
            None => None,
        },
        None => std::future::pending().await,
    }
}

/// What is said of a line whose user an earlier line has named.
pub(super) fn repeated(line: u64, user: &str) -> String {
    format!("line {line}: user {user} is in an earlier line too: the later one counts")
}

async fn look(shards: Shards, sender: watch::Sender<Look>) {
    while !sender.is_closed() {
        tokio::time::sleep(LOOK_INTERVAL).await;
        drop(sender.send_replace(shards.look().await));
    }
}
