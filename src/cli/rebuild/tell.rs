//! What a rebuild shows while it goes on, and says at its end.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use super::load::Stopped;
use super::mark::shown;
use super::position::Position;
use crate::cli::{output, progress};
use crate::shard::Shard;

const SHOW_INTERVAL: Duration = Duration::from_millis(100);

/// What became of the lines.
#[derive(Debug, Serialize)]
pub(super) struct Tally {
    /// Unix milliseconds.
    moment: u64,
    /// Lines read, those of earlier runs included.
    pub lines: u64,
    /// Users and friends of the lines that this run has read.
    pub users: u64,
    pub friends: u64,
    /// Lines that are no users.
    pub bad: u64,
    /// Lines of users who are in an earlier line too.
    pub repeated: u64,
    /// Users whom the file does not have, in an authoritative rebuild.
    pub unnamed: u64,
    /// Entries that became dead letters meanwhile, of whomever.
    pub dead_letters: u64,
    /// Whether the rebuild is over.
    finished: bool,
    seconds: f64,
    #[serde(skip)]
    dead_before: u64,
    #[serde(skip)]
    begun: Instant,
}

impl Tally {
    pub fn new(position: &Position, dead_before: u64) -> Tally {
        Tally {
            moment: position.moment,
            lines: position.line,
            users: 0,
            friends: 0,
            bad: 0,
            repeated: 0,
            unnamed: 0,
            dead_letters: 0,
            finished: false,
            seconds: 0.0,
            dead_before,
            begun: Instant::now(),
        }
    }

    pub fn dead(&mut self, dead: u64) {
        self.dead_letters = dead.saturating_sub(self.dead_before);
    }

    pub fn is_clean(&self) -> bool {
        self.bad == 0 && self.repeated == 0 && self.dead_letters == 0
    }

    pub fn tell(&mut self, stopped: &Stopped, json: bool) -> std::io::Result<()> {
        self.seconds = (self.begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        self.finished = matches!(stopped, Stopped::End);
        if json {
            output::print_json(self)?;
        }
        let rate = (self.users as f64 / self.seconds.max(0.1)).round();
        let mut told = format!(
            "{} users with {} friends in {:.1} s, {rate} users a second",
            self.users, self.friends, self.seconds
        );
        if self.unnamed > 0 {
            told += &format!(", {} not in the file", output::counted(self.unnamed, "user"));
        }
        if self.bad > 0 {
            told += &format!(", {}", output::counted(self.bad, "bad line"));
        }
        if self.repeated > 0 {
            told += &format!(", {} of users who are in an earlier one", output::counted(self.repeated, "line"));
        }
        if self.dead_letters > 0 {
            told += &format!(", {} meanwhile (heyday dlq)", output::counted(self.dead_letters, "dead letter"));
        }
        let moment = shown(self.moment);
        told += &match stopped {
            Stopped::End => format!("; the rebuild of {moment} is done"),
            Stopped::BadLine => format!("; stopped at line {}, run again to go on", self.lines + 1),
            Stopped::Doubt(why) => format!(
                "; no users are removed: {why}; the rebuild of {moment} stays on: mend the file and run again, or without \
                 --authoritative"
            ),
            Stopped::Told | Stopped::Failure(_) => {
                format!("; stopped behind line {}, the rebuild of {moment} stays on: run again to go on", self.lines)
            }
        };
        eprintln!("heyday: {told}");
        Ok(())
    }
}

/// The progress bar, refreshed now and then.
pub(super) struct Show {
    bar: ProgressBar,
    begun: Instant,
    next: Instant,
}

impl Show {
    pub fn new(length: u64, offset: u64) -> Show {
        let bar = progress::of_bytes(length);
        bar.set_position(offset);
        bar.reset_eta();
        Show { bar, begun: Instant::now(), next: Instant::now() }
    }

    pub fn update(&mut self, bytes: u64, tally: &Tally) {
        let now = Instant::now();
        if now < self.next || self.bar.is_hidden() {
            return;
        }
        self.next = now + SHOW_INTERVAL;
        let seconds = (now - self.begun).as_secs_f64().max(0.001);
        let (users, friends) = (tally.users as f64 / seconds, tally.friends as f64 / seconds);
        self.bar.set_position(bytes);
        let line = tally.lines;
        self.bar.set_message(format!(
            "line {line}, {users:.0} users and {friends:.0} friends a second, {}",
            speed(&self.bar)
        ));
    }

    pub fn users_left(&self, shard: Shard, unnamed: u64) {
        self.bar.set_message(format!("shard {shard}: {unnamed} users are not in the file"));
    }

    pub fn suspend(&self, tell: impl FnOnce()) {
        self.bar.suspend(tell);
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn speed(bar: &ProgressBar) -> String {
    format!("{:.1} MB/s", bar.per_sec() / 1e6)
}
