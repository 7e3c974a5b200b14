//! The changes of a file, many on their way at once, in the order of their lines for each shard.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::io::{AsyncBufRead, AsyncRead, BufReader};

use super::ignored::Ignored;
use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::tally::Tally;
use super::{OnError, record};
use crate::change::{Change, Fields, Limits};
use crate::cli::exit::Usage;
use crate::cli::signals::Signals;
use crate::cli::{Context, Exit, cluster, output, progress};
use crate::client::Writer;
use crate::client::writer::{self, Receipt};

const READ_BYTES: usize = 256 * 1024;
/// Changes whose answer is awaited. More are not read before the oldest of them is answered.
const IN_FLIGHT_MAX: usize = 16 * 1024;
const SHOW_INTERVAL: Duration = Duration::from_millis(100);
/// Bad lines that are named; of the others only their number is told.
const BAD_NAMED_MAX: u64 = 100;

pub(super) struct Options {
    pub on_error: OnError,
    pub producer: Option<String>,
}

pub(super) async fn write(path: &Path, options: Options, context: &Context) -> anyhow::Result<(Tally, Exit)> {
    let mut signals = Signals::new()?;
    let (reader, bar) = open(path).await?;
    let settings = context.settings.config.writer();
    let limits = settings.limits;
    let writer = cluster::hub(context).await?.writer(settings);
    let started = Instant::now();
    let mut writing = Writing {
        lines: Lines::new(BufReader::with_capacity(READ_BYTES, reader)),
        writer,
        options,
        limits,
        in_flight: VecDeque::new(),
        tally: Tally::default(),
        ignored: Ignored::default(),
        show: Show { bar, started, next: started },
    };
    let stopped = writing.run(&mut signals).await;
    writing.show.bar.finish_and_clear();
    if let Some(sentence) = writing.ignored.sentence() {
        eprintln!("heyday: {sentence}");
    }
    let tally = writing.tally;
    tell(&tally, started.elapsed(), &stopped);
    let exit = match &tally.failure {
        Some(failure) => Exit::of(&failure.clone().into()),
        None if tally.bad > 0 || matches!(stopped, Stopped::Told | Stopped::Unreadable(_)) => Exit::Found,
        None => Exit::Done,
    };
    Ok((tally, exit))
}

type Reader = Box<dyn AsyncRead + Unpin>;

async fn open(path: &Path) -> anyhow::Result<(Reader, ProgressBar)> {
    if path == Path::new("-") {
        return Ok((Box::new(tokio::io::stdin()), progress::of_unknown()));
    }
    let unreadable = |error: std::io::Error| Usage(format!("{}: {error}", path.display()));
    let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let data = file.metadata().await.map_err(unreadable)?;
    if data.is_dir() {
        return Err(unreadable(std::io::ErrorKind::IsADirectory.into()).into());
    }
    let bar = if data.is_file() { progress::of_bytes(data.len()) } else { progress::of_unknown() };
    Ok((Box::new(file), bar))
}

/// Why no more lines are read.
enum Stopped {
    End,
    BadLine,
    Failure,
    Unreadable(std::io::Error),
    /// By a signal.
    Told,
}

struct Writing<R> {
    lines: Lines<R>,
    writer: Writer,
    options: Options,
    limits: Limits,
    in_flight: VecDeque<(u64, Receipt)>,
    tally: Tally,
    ignored: Ignored,
    show: Show,
}

/// What became of a line.
enum Turn {
    Taken,
    /// It is no change.
    Bad,
    /// A signal came while it waited for its turn. Nothing of it was sent.
    Told,
}

impl<R: AsyncBufRead + Unpin> Writing<R> {
    /// However it ends, whatever was sent before is settled then.
    async fn run(&mut self, signals: &mut Signals) -> Stopped {
        let stopped = loop {
            if self.tally.failure.is_some() {
                break Stopped::Failure;
            }
            let room = self.in_flight.len() < IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                () = signals.next() => break Stopped::Told,
                (line, answer) = oldest(&mut self.in_flight), if !self.in_flight.is_empty() => {
                    self.in_flight.pop_front();
                    settle(&mut self.tally, line, answer);
                }
                line = self.lines.next(), if room => {
                    let line = match line {
                        Ok(Some(line)) => line,
                        Ok(None) => break Stopped::End,
                        Err(error) => break Stopped::Unreadable(error),
                    };
                    let (number, fields) = (line.number, fields(&line, self.options.producer.as_deref()));
                    match self.append(number, fields, signals).await {
                        Turn::Told => break Stopped::Told,
                        taken => {
                            self.tally.lines = number;
                            if matches!(taken, Turn::Bad) && self.options.on_error == OnError::Stop {
                                break Stopped::BadLine;
                            }
                        }
                    }
                    self.show.update(self.lines.bytes(), self.tally.appended);
                }
            }
        };
        while !self.in_flight.is_empty() {
            let (line, answer) = oldest(&mut self.in_flight).await;
            self.in_flight.pop_front();
            settle(&mut self.tally, line, answer);
        }
        stopped
    }

    async fn append(&mut self, number: u64, fields: FieldsOfLine, signals: &mut Signals) -> Turn {
        let reason = match fields {
            Ok(None) => return Turn::Taken,
            Ok(Some(fields)) => {
                // A full queue may keep it waiting for long.
                let enqueued = tokio::select! {
                    biased;
                    enqueued = self.writer.enqueue_fields(&fields) => enqueued,
                    () = signals.next() => return Turn::Told,
                };
                match enqueued {
                    Ok(receipt) => {
                        self.in_flight.push_back((number, receipt));
                        let fields: Fields =
                            fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
                        self.ignored.count(Change::ignored(&fields, &self.limits));
                        return Turn::Taken;
                    }
                    Err(writer::Error::Rejected(rejection)) => rejection.to_string(),
                    Err(error) => {
                        self.tally.failed(number, error);
                        return Turn::Taken;
                    }
                }
            }
            Err(reason) => reason,
        };
        self.tally.bad += 1;
        if self.tally.bad <= BAD_NAMED_MAX {
            self.show.bar.suspend(|| eprintln!("heyday: line {number}: {reason}"));
        }
        Turn::Bad
    }
}

async fn oldest(in_flight: &mut VecDeque<(u64, Receipt)>) -> (u64, Result<writer::Appended, writer::Error>) {
    match in_flight.front_mut() {
        Some((line, receipt)) => (*line, receipt.await),
        None => std::future::pending().await,
    }
}

fn settle(tally: &mut Tally, line: u64, answer: Result<writer::Appended, writer::Error>) {
    match answer {
        Ok(_) => tally.appended += 1,
        Err(error) => tally.failed(line, error),
    }
}

/// The fields of a line, none for an empty one.
type FieldsOfLine = Result<Option<Vec<(String, String)>>, String>;

fn fields(line: &Line<'_>, producer: Option<&str>) -> FieldsOfLine {
    let text = line.text.ok_or_else(|| format!("longer than {LINE_BYTES_MAX} bytes"))?;
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    let mut fields = record::fields(text)?;
    if let Some(producer) = producer {
        fields.push(("producer".to_owned(), producer.to_owned()));
        fields.push(("seq".to_owned(), line.number.to_string()));
    }
    Ok(Some(fields))
}

fn tell(tally: &Tally, took: Duration, stopped: &Stopped) {
    let Tally { lines, appended, bad, .. } = tally;
    if *bad > BAD_NAMED_MAX {
        eprintln!("heyday: and {} more bad lines", bad - BAD_NAMED_MAX);
    }
    if let Some(failure) = &tally.failure {
        eprintln!("heyday: {failure}");
    }
    if let Stopped::Unreadable(error) = stopped {
        eprintln!("heyday: line {}: cannot be read: {error}", lines + 1);
    }
    tally.troubles().iter().for_each(|trouble| eprintln!("heyday: {trouble}"));
    let bad = if *bad > 0 { format!(", {}", output::counted(*bad, "bad line")) } else { String::new() };
    let after = match stopped {
        Stopped::End => String::new(),
        Stopped::BadLine | Stopped::Failure => format!(", stopped at line {lines}"),
        Stopped::Unreadable(_) => format!(", stopped after line {lines}"),
        Stopped::Told => format!(", told to stop after line {lines}"),
    };
    let seconds = took.as_secs_f64();
    let rate = (*appended as f64 / seconds.max(0.001)).round();
    eprintln!("heyday: {appended} appended in {seconds:.1} s, {rate} a second{bad}{after}");
}

/// The progress bar, refreshed now and then.
struct Show {
    bar: ProgressBar,
    started: Instant,
    next: Instant,
}

impl Show {
    fn update(&mut self, bytes: u64, appended: u64) {
        let now = Instant::now();
        if now < self.next || self.bar.is_hidden() {
            return;
        }
        self.next = now + SHOW_INTERVAL;
        let rate = appended as f64 / (now - self.started).as_secs_f64().max(0.001);
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{appended} changes, {rate:.0} a second"));
    }
}
