//! The calendar of a shard: a step of the roll between batches, so that no user waits for longer than one step, and no more
//! of the shard's time than its share.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::batch::{check_fence, check_written};
use super::session::Session;
use super::shard::{Interrupt, Owner};
use crate::reduce::{Commit, Loaded, Place, Plan, Roll, RollStep, Turn};
use crate::store::{CalendarNews, Committed, ShardLink, Store, Unfinished};

/// Friends that one step looks at, about, at most and at least.
const STEP_MAX: usize = 2000;
const STEP_MIN: usize = 64;
/// Who waits for a step should not wait for longer: steps that take more become smaller.
const STEP_TIME: Duration = Duration::from_millis(4);
/// One step that stalled is followed by no longer rest than this.
const REST_MAX: Duration = Duration::from_secs(5);

/// What an owner knows of its shard's calendar.
pub(super) struct Rolling {
    /// The roll under way.
    roll: Option<Roll>,
    asked: bool,
    /// The server's time when it was heard last.
    heard: (u64, Instant),
    /// Whether there was something to go on with when it was looked at last.
    busy: bool,
    rests_until: Instant,
    size: usize,
}

impl Rolling {
    /// Goes on with what an earlier owner has left.
    pub fn open(left: &Unfinished) -> Rolling {
        let now = Instant::now();
        Rolling {
            roll: left.roll.clone(),
            asked: left.calendar.roll_asked,
            heard: (left.calendar.milliseconds, now),
            busy: false,
            rests_until: now,
            size: STEP_MIN,
        }
    }

    /// The server's time by now, about.
    pub fn milliseconds(&self) -> u64 {
        let (milliseconds, at) = self.heard;
        milliseconds.saturating_add(at.elapsed().as_millis() as u64)
    }

    pub fn heard(&mut self, milliseconds: u64) {
        self.heard = (milliseconds, Instant::now());
    }

    pub fn hear(&mut self, news: CalendarNews) {
        self.heard(news.milliseconds);
        self.asked |= news.roll_asked;
    }

    /// How long a read may wait, where it may wait for so long at most.
    pub fn block(&self, block: Duration) -> Duration {
        if self.busy { block.min(self.rests_until.saturating_duration_since(Instant::now())) } else { block }
    }

    fn rests(&self) -> bool {
        Instant::now() < self.rests_until
    }

    /// A step took so long: the others have the rest of the time.
    fn rest(&mut self, took: Duration, share: f64) {
        self.size = if took > STEP_TIME { self.size / 2 } else { self.size * 2 }.clamp(STEP_MIN, STEP_MAX);
        self.rests_until = Instant::now() + took.mul_f64((1.0 - share) / share).min(REST_MAX);
    }
}

impl<L: ShardLink> Session<L> {
    /// One step of the roll, where there is something to roll and its turn has come.
    pub(super) async fn roll<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>) -> Result<(), Interrupt> {
        if self.rolling.rests() {
            return Ok(());
        }
        let calendar = &owner.context.rules.calendar;
        let known = (self.rolling.roll.as_ref(), self.rolling.asked);
        let turn = self.state.turn(calendar, self.rolling.milliseconds(), known);
        self.rolling.busy = turn.is_some();
        let Some(turn) = turn else { return Ok(()) };
        let started = Instant::now();
        let tried = self.try_roll(owner, &turn).await;
        self.rolling.rest(started.elapsed(), owner.context.options.roll_share);
        match tried {
            Err(Interrupt::Broken(error)) => self.wait_in_place(owner, error).await,
            tried => tried,
        }
    }

    async fn try_roll<S: Store<Link = L>>(&mut self, owner: &mut Owner<S>, turn: &Turn) -> Result<(), Interrupt> {
        let shard = owner.keys.shard.0;
        match turn {
            Turn::Close { last } => {
                info!(shard, %last, "days beyond the horizon are given up");
                let closing =
                    |place: Place<'_>, session: &Session<L>, loaded: &Loaded| session.state.close(place, *last, loaded);
                if self.commit_calendar(owner, closing).await? {
                    self.rolling.roll = None;
                }
            }
            Turn::Anew { window } => {
                warn!(shard, from = %window.first, to = %window.last, "days begin anew: a server's clock was far ahead");
                let begin = |place: Place<'_>, session: &Session<L>, loaded: &Loaded| {
                    session.state.anew(place, *window, loaded)
                };
                if self.commit_calendar(owner, begin).await? {
                    self.rolling.roll = None;
                }
            }
            Turn::Roll { roll, asked } => {
                if roll.user.is_none() {
                    debug!(shard, from = %roll.from, to = %roll.to, asked, "roll begins");
                }
                let survey = self.link.survey_days(roll, self.rolling.size).await?;
                let step = RollStep { roll, asked: *asked, survey: &survey };
                let rolling = |place: Place<'_>, session: &Session<L>, loaded: &Loaded| {
                    step.reduce(place, &session.state, loaded)
                };
                if self.commit_calendar(owner, rolling).await? {
                    owner.context.metrics.rolled(survey.users.len() as u64, survey.next.is_none());
                    self.rolling.asked &= !asked;
                    self.rolling.roll = survey.next;
                }
            }
        }
        Ok(())
    }

    /// Whether it was done: not where somebody has written the state since. The next step loads again, and finds out who.
    async fn commit_calendar<S: Store<Link = L>>(
        &mut self,
        owner: &mut Owner<S>,
        made: impl FnOnce(Place<'_>, &Session<L>, &Loaded) -> Commit,
    ) -> Result<bool, Interrupt> {
        let loaded = self.link.load(&Plan::default()).await?;
        check_fence(self, owner, &loaded)?;
        self.rolling.heard(loaded.milliseconds);
        let context = &owner.context;
        let place = Place { rules: &context.rules, layout: &context.layout, keys: &owner.keys };
        let commit = made(place, self, &loaded);
        match self.link.commit(&commit).await? {
            Committed::Done { errors } => {
                self.state = commit.state;
                owner.commands_failed(&errors);
                check_written(owner, &errors)?;
                Ok(true)
            }
            Committed::Refused => Ok(false),
        }
    }
}
