//! Reading a day of the calendar: who has whom to congratulate, when, over all shards, and from any place on.

mod cursor;
mod walk;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use jiff::civil::Date;

use super::{Failure, Reader};
use crate::birthday::Birthday;
use crate::change::UserId;
use crate::error::Disposition;
use crate::shard::{self, Layout, Shard};

pub use cursor::{Cursor, CursorError};
use walk::{Step, Walk};

/// What is read of a day, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to go on; the beginning of the day where there is none.
    pub cursor: Option<Cursor>,
    /// Only what is due later than this moment, in Unix seconds.
    pub due_after: Option<i64>,
    /// Only what is due by this moment, in Unix seconds.
    pub due_until: Option<i64>,
    /// Celebrations that are read at once. Together with those of one user that is all that is held in memory.
    pub page: usize,
    /// How long a page is tried for, through failovers and moving slots.
    pub timeout: Duration,
    /// Whether a shard is read that has not rolled up to the day yet, or has given it up; [`DayStream::incomplete`] names those.
    pub incomplete: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cursor: None,
            due_after: None,
            due_until: None,
            page: 512,
            timeout: Duration::from_secs(30),
            incomplete: false,
        }
    }
}

/// A user and the friends who celebrate.
#[derive(Clone, Debug, PartialEq)]
pub struct Celebrations {
    pub user: UserId,
    /// When the user is to be told, Unix seconds.
    pub due: i64,
    pub shard: Shard,
    /// In the order of their ids' bytes.
    pub friends: Vec<Celebrant>,
    /// The place behind this user.
    pub cursor: Cursor,
}

/// A friend who celebrates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Celebrant {
    pub friend: UserId,
    pub birthday: Birthday,
    /// The age reached on this day; none where the year is not told.
    pub age: Option<i16>,
}

/// A shard in which somebody may be missing, since it has not rolled up to the day, or has given it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    pub shard: Shard,
    /// The first day that is kept there; a day before it is over in that shard, whatever the server's clock says by now.
    pub first: Option<Date>,
    /// The last day that is complete there; none where there never was a roll.
    pub rolled: Option<Date>,
    /// The last day that changes keep there. Up to it, what changed since the day came within the horizon is there.
    pub open: Option<Date>,
}

/// Why a day is not read to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("{date}: days are kept from {first} to {last}")]
    NotKept { date: Date, first: Date, last: Date },
    #[error("{date}, shard {shard}: not complete{}", reason(*date, *first, *rolled))]
    NotRolled { date: Date, shard: Shard, first: Option<Date>, rolled: Option<Date>, cursor: Cursor },
    #[error("{date}: cursor {cursor} is of another day")]
    OtherDay { date: Date, cursor: Cursor },
    #[error("cursor {cursor}: {why}")]
    OtherLayout { cursor: Cursor, why: shard::Error },
    #[error("{date}, shard {shard}: not read: {why}")]
    Redis { date: Date, shard: Shard, cursor: Cursor, why: Box<Failure> },
}

fn reason(date: Date, first: Option<Date>, rolled: Option<Date>) -> String {
    match (first, rolled) {
        (Some(first), _) if date < first => format!(": days before {first} are over there"),
        (_, Some(rolled)) => format!(" before the next roll (complete up to {rolled})"),
        (_, None) => " before the next roll (no day is complete yet)".to_owned(),
    }
}

impl Error {
    pub fn disposition(&self) -> Disposition {
        match self {
            Error::Redis { why, .. } => match why.error.disposition() {
                // A read has no effect that could be in doubt.
                Disposition::Ambiguous => Disposition::Refresh,
                other => other,
            },
            // The next roll makes it complete; days given up by a clock that was far ahead begin anew with it.
            Error::NotRolled { .. } => Disposition::Retry,
            Error::NotKept { .. } | Error::OtherDay { .. } | Error::OtherLayout { .. } => Disposition::Fatal,
        }
    }

    /// Where to go on once the cause is gone: nothing behind it was given out.
    pub fn cursor(&self) -> Option<&Cursor> {
        match self {
            Error::NotRolled { cursor, .. } | Error::Redis { cursor, .. } => Some(cursor),
            Error::NotKept { .. } | Error::OtherDay { .. } | Error::OtherLayout { .. } => None,
        }
    }
}

impl Reader {
    /// The celebrations of one day: shard by shard, within a shard by the moment they are due, and users of one moment in
    /// the order of their keys (`USER:` by its bytes).
    ///
    /// A user comes once, with all friends who celebrate, also where they go over several pages. Everybody who stands there
    /// from the beginning of the walk to its end, at the same moment, comes exactly once, however often the walk is broken off
    /// and taken up again from the last item's [`Celebrations::cursor`]; whoever is no longer a friend by then does not come.
    /// Nothing is read twice where a node fails or a slot moves: the place is known by what stands there, not by a count.
    ///
    /// **What changes during a walk.** A friend who is added behind the cursor comes; in front of it, not in this walk. A friend added
    /// to a user who was given out already comes as a further item of that user if the friend's id sorts behind the last one. A user whose time
    /// zone changes moves to another moment with all friends: to an earlier one behind which the walk has passed, and is missed in
    /// this walk; or to a later one, and may come twice.
    ///
    /// **A mailer** that runs again and again with `due_until` set to the present moment should begin each run at the
    /// beginning of the day, without `due_after`, and keep what it has sent, by user, friend and date. Then nobody is missed: whoever moved
    /// to an earlier moment, or was added late, is found in the next run of that day. And nobody is told twice, since what was sent is
    /// known. With `due_after` set to the last run's `due_until` it reads less, and misses who moved across that moment backwards or was added
    /// after it was due. Days that have ended are kept until yesterday is over everywhere, so the last run of a day may come late.
    ///
    /// A shard is complete once it has rolled up to the day, and until it has given the day up; another one is an error, or named by
    /// [`DayStream::incomplete`] where the options allow it. Whether that is so, and whether the day is still kept, is asked with
    /// every page. A user whose friends lie in a key of a foreign type is left out, as one without friends is, and the log says so.
    ///
    /// ```no_run
    /// # async fn example(reader: heyday::client::Reader) -> Result<(), Box<dyn std::error::Error>> {
    /// use heyday::client::day::Options;
    ///
    /// let mut day = reader.day("2026-11-30".parse()?, Options::default());
    /// while let Some(found) = day.next_user().await {
    ///     let found = found?;
    ///     println!("{}: {} friends; then go on from {}", found.user, found.friends.len(), found.cursor);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn day(&self, date: Date, options: Options) -> DayStream {
        let cursor = options.cursor.clone().unwrap_or_else(|| Cursor::of_shard(date, Shard(0)));
        let layout = self.hub().layout();
        let state = match unfit(&cursor, date, layout) {
            Some(error) => State::Refused(error),
            None => State::Idle(Walk::new(self.hub().clone(), self.options().calendar.clone(), date, options)),
        };
        DayStream { ready: VecDeque::new(), cursor, incomplete: Vec::new(), state }
    }
}

/// A cursor belongs to one day and one layout. One behind the last shard is the end of the day.
fn unfit(cursor: &Cursor, date: Date, layout: &Layout) -> Option<Error> {
    if cursor.date() != date {
        return Some(Error::OtherDay { date, cursor: cursor.clone() });
    }
    let shard = u32::from(cursor.shard().0);
    let why = if shard == layout.count() { None } else { layout.shard(shard).err() }?;
    Some(Error::OtherLayout { cursor: cursor.clone(), why })
}

/// The celebrations of a day, as [`Reader::day`] says. It ends behind the last one or with an error; it is taken up again with a new
/// stream from [`DayStream::cursor`].
pub struct DayStream {
    ready: VecDeque<Celebrations>,
    cursor: Cursor,
    incomplete: Vec<Incomplete>,
    state: State,
}

enum State {
    Idle(Walk),
    Reading(Reading),
    Refused(Error),
    Over,
}

type Reading = Pin<Box<dyn Future<Output = (Walk, Result<Step, Error>)> + Send>>;

impl DayStream {
    /// The next user, as [`Stream`] gives it. Nothing is lost where this future is dropped.
    pub async fn next_user(&mut self) -> Option<Result<Celebrations, Error>> {
        poll_fn(|context| self.poll_user(context)).await
    }

    /// The place behind all that was given out so far.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The shards read so far in which somebody may be missing.
    pub fn incomplete(&self) -> &[Incomplete] {
        &self.incomplete
    }

    fn poll_user(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Celebrations, Error>>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.cursor = item.cursor.clone();
                return Poll::Ready(Some(Ok(item)));
            }
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return Poll::Ready(None),
                State::Refused(error) => return Poll::Ready(Some(Err(error))),
                State::Idle(walk) => self.begin(walk),
                State::Reading(mut reading) => {
                    let Poll::Ready((walk, step)) = reading.as_mut().poll(context) else {
                        self.state = State::Reading(reading);
                        return Poll::Pending;
                    };
                    match step {
                        Ok(step) => self.take(step, walk),
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
            }
        }
    }

    fn begin(&mut self, mut walk: Walk) {
        if walk.is_over() {
            self.cursor = walk.shard_begin();
            return;
        }
        let cursor = self.cursor.clone();
        self.state = State::Reading(Box::pin(async move {
            let step = walk.step(&cursor).await;
            (walk, step)
        }));
    }

    fn take(&mut self, step: Step, walk: Walk) {
        self.incomplete.extend(step.incomplete);
        if step.shard_done && step.items.is_empty() {
            self.cursor = walk.shard_begin();
        }
        self.ready.extend(step.items);
        self.state = State::Idle(walk);
    }
}

impl Stream for DayStream {
    type Item = Result<Celebrations, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_user(context)
    }
}

impl std::fmt::Debug for DayStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DayStream").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
