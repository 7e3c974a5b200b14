//! The demo's live screen on stderr: a few lines that move in a terminal, a line a second elsewhere.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::progress::{Figures, Progress};

/// Points of a curve, one for each drawing.
const CURVE_POINTS: usize = 60;

pub struct Screen {
    progress: Arc<Progress>,
    shards: u64,
    time: Option<Duration>,
    lines: Option<Lines>,
    state: Mutex<State>,
}

/// What moves in a terminal.
struct Lines {
    all: MultiProgress,
    counts: ProgressBar,
    flow: ProgressBar,
    latency: ProgressBar,
    time: ProgressBar,
}

#[derive(Default)]
struct State {
    elapsed: Duration,
    written_before: u64,
    drawn_at: Duration,
    told_at: Option<u64>,
    rates: VecDeque<f64>,
    latencies: VecDeque<f64>,
}

impl Screen {
    /// `time`: how long the run is to be; none where it has no end.
    pub fn new(progress: Arc<Progress>, shards: u32, time: Option<Duration>) -> Screen {
        let lines = std::io::stderr().is_terminal().then(|| Lines::new(time));
        Screen { progress, shards: shards.into(), time, lines, state: Mutex::default() }
    }

    pub fn figures(&self) -> Figures {
        self.progress.figures()
    }

    pub fn shards(&self) -> u64 {
        self.shards
    }

    /// Something happened: a line that stays.
    pub fn tell(&self, what: &str) {
        let at = self.state().elapsed.as_secs_f64();
        let line = format!("{at:5.1} s  * {what}");
        match &self.lines {
            // Where the terminal cannot be written to there is nobody to tell.
            Some(lines) => drop(lines.all.println(line)),
            None => eprintln!("{line}"),
        }
    }

    pub fn draw(&self, elapsed: Duration) {
        let figures = self.progress.figures();
        let mut state = self.state();
        let rate = state.advance(elapsed, &figures, self.progress.worst_lately());
        match &self.lines {
            Some(lines) => lines.draw(&figures, &state, self.time.is_some(), self.shards),
            None => {
                let second = elapsed.as_secs();
                if state.told_at.replace(second) != Some(second) {
                    eprintln!("{}", line(elapsed, &figures, rate));
                }
            }
        }
    }

    /// Takes the moving lines away.
    pub fn close(&self) {
        if let Some(lines) = &self.lines {
            [&lines.counts, &lines.flow, &lines.latency, &lines.time]
                .into_iter()
                .for_each(ProgressBar::finish_and_clear);
        }
        let figures = self.progress.figures();
        let elapsed = self.state().elapsed;
        eprintln!("{}", line(elapsed, &figures, figures.written as f64 / elapsed.as_secs_f64().max(1e-3)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Answers the changes written in a second since the last drawing.
    fn advance(&mut self, elapsed: Duration, figures: &Figures, worst: Duration) -> f64 {
        let seconds = elapsed.saturating_sub(self.drawn_at).as_secs_f64().max(1e-3);
        let rate = (figures.written - self.written_before) as f64 / seconds;
        (self.elapsed, self.drawn_at, self.written_before) = (elapsed, elapsed, figures.written);
        for (curve, value) in [(&mut self.rates, rate), (&mut self.latencies, worst.as_secs_f64() * 1e3)] {
            if curve.len() == CURVE_POINTS {
                curve.pop_front();
            }
            curve.push_back(value);
        }
        rate
    }
}

impl Lines {
    fn new(time: Option<Duration>) -> Lines {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let plain = ProgressStyle::with_template("{wide_msg}").expect("a template that is right");
        let line = || all.add(ProgressBar::new_spinner().with_style(plain.clone()));
        let (counts, flow, latency) = (line(), line(), line());
        let bar = match time {
            Some(time) => {
                let style =
                    ProgressStyle::with_template("  {wide_bar:.cyan/dim}  {msg}").expect("a template that is right");
                ProgressBar::new(time.as_millis() as u64).with_style(style.progress_chars("━╸─"))
            }
            None => ProgressBar::new_spinner().with_style(plain.clone()),
        };
        let time = all.add(bar);
        Lines { all, counts, flow, latency, time }
    }

    fn draw(&self, figures: &Figures, state: &State, bounded: bool, shards: u64) {
        self.counts.set_message(format!(
            "  written {:>9}   applied {:>9}   signals {:>9}   lag {:>6}   workers {}   shards owned {}/{shards}",
            grouped(figures.written),
            grouped(figures.applied),
            grouped(figures.signals),
            grouped(figures.lag),
            figures.workers,
            figures.owned,
        ));
        let rate = state.rates.back().copied().unwrap_or(0.0);
        // The curves come last: a narrow terminal cuts them short.
        self.flow.set_message(format!("  changes/s {rate:>7.0}                     {}", curve(&state.rates)));
        let (p50, p99) = (shown(figures.p50), shown(figures.p99));
        self.latency.set_message(format!("  to signal p50 {p50:>8} p99 {p99:>8}  {}", curve(&state.latencies)));
        if bounded {
            self.time.set_position(state.elapsed.as_millis() as u64);
            self.time.set_message(format!("{:.0} s", state.elapsed.as_secs_f64()));
        } else {
            self.time.set_message(format!("  {:.0} s, Ctrl-C ends the run", state.elapsed.as_secs_f64()));
        }
    }
}

fn line(elapsed: Duration, figures: &Figures, rate: f64) -> String {
    format!(
        "{:5.1} s  written {} ({rate:.0}/s)  applied {}  signals {}  lag {}  p50 {}  p99 {}",
        elapsed.as_secs_f64(),
        grouped(figures.written),
        grouped(figures.applied),
        grouped(figures.signals),
        grouped(figures.lag),
        shown(figures.p50),
        shown(figures.p99)
    )
}

/// Values as bars, the highest full.
fn curve(values: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    values.iter().map(|value| BARS[((value / highest * 7.0).round() as usize).min(7)]).collect()
}

fn shown(latency: Duration) -> String {
    let milliseconds = latency.as_secs_f64() * 1e3;
    if milliseconds < 100.0 { format!("{milliseconds:.1} ms") } else { format!("{milliseconds:.0} ms") }
}

/// 1234567 as 1,234,567.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_curve_reaches_from_lowest_to_highest_bar() {
        assert_eq!(curve(&[0.0, 1.0, 2.0].into()), "▁▅█");
        assert_eq!(curve(&[0.0, 0.0].into()), "▁▁");
    }
}
