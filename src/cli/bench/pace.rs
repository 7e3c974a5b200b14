//! An open loop: when each change is due is decided beforehand by the rate alone, and who is late makes no change later.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Between the decision when to begin and the first change.
const LEAD: Duration = Duration::from_millis(20);

/// When which change is due.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub begin: Instant,
    /// Changes a second.
    pub rate: f64,
}

impl Pace {
    /// Begins in a moment.
    pub fn soon(rate: f64) -> Pace {
        Pace { begin: Instant::now() + LEAD, rate }
    }

    /// When the change with this number is due; the first has number 0.
    pub fn planned(&self, number: u64) -> Instant {
        self.begin + Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// How many are due by then.
    pub fn due(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.begin) {
            Some(since) => (since.as_secs_f64() * self.rate) as u64 + 1,
            None => 0,
        }
    }
}

/// A timer that is exact to some microseconds. That of the runtime counts milliseconds, more than what is measured takes.
#[derive(Debug)]
pub struct Ticker(AsyncFd<Timer>);

#[derive(Debug)]
struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Ticker {
    /// For the runtime that this is called in.
    #[expect(deprecated, reason = "its successor is unsafe; the descriptor is the timer's own, and lives as long")]
    pub fn new() -> io::Result<Ticker> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Ticker(AsyncFd::new(Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))?))
    }

    /// Waits until the next change is due, where `sent` are sent already; answers how many are due by then.
    pub async fn next(&mut self, pace: &Pace, sent: u64) -> io::Result<u64> {
        self.until(pace.planned(sent)).await?;
        Ok(pace.due(Instant::now()).max(sent + 1))
    }

    async fn until(&mut self, at: Instant) -> io::Result<()> {
        let wait = at.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            // Who is late must not starve what else runs on this thread.
            tokio::task::yield_now().await;
            return Ok(());
        }
        let once = Expiration::OneShot(TimeSpec::from_duration(wait));
        self.0.get_ref().0.set(once, TimerSetTimeFlags::empty())?;
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(waited) = ready.try_io(|timer| timer.get_ref().0.wait().map_err(io::Error::from)) {
                return waited;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_are_due_by_the_rate_and_never_before() {
        let pace = Pace { begin: Instant::now(), rate: 2_000.0 };
        let mut ticker = Ticker::new().unwrap();
        let mut sent = 0;
        while sent < 20 {
            let due = ticker.next(&pace, sent).await.unwrap();
            assert!(due > sent);
            assert!(Instant::now() >= pace.planned(due - 1), "change {due} was sent before its time");
            sent = due;
        }
    }

    #[test]
    fn what_is_due_follows_from_the_time_alone() {
        let pace = Pace { begin: Instant::now() + Duration::from_secs(1), rate: 100.0 };
        let after = |milliseconds: u64| pace.due(pace.begin + Duration::from_millis(milliseconds));
        assert_eq!(pace.due(pace.begin - Duration::from_millis(1)), 0);
        assert_eq!([after(0), after(9), after(11), after(1001)], [1, 1, 2, 101]);
    }
}
