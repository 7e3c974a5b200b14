//! One user's part of a batch: changes applied in order on what was loaded, then written as the difference.

use super::activity::Activity;
use super::friends::Friends;
use super::plan::BIRTHDAY_FIELD;
use super::profile::Profile;
use super::versions::Versions;
use super::{Job, JobChange, Op, Outcome, Progress, Rules, UserLoaded, UserPlan};
use crate::birthday::Birthday;
use crate::calendar::Calendar;
use crate::change::{Action, Change, Mirror, Rejection, UserId, ZONE_FIELD};
use crate::key::{ShardKeys, version_field};
use crate::position::{CommitId, EntryId, Order};
use crate::signal::Views;

/// How far the clocks of servers may be apart; what is further ahead is taken for a clock that was wrong.
const CLOCKS_APART_MAX_MILLISECONDS: u64 = 24 * 3_600_000;

/// Working state of a user while a batch is reduced.
pub(super) struct Working<'a> {
    pub(super) rules: &'a Rules,
    pub(super) plan: &'a UserPlan,
    loaded: &'a UserLoaded,
    pub(super) friends: Friends<'a>,
    pub(super) versions: Versions<'a>,
    pub(super) profile: Profile<'a>,
    activity: Activity<'a>,
    /// Whether all friends are to hear of the user's own date.
    pub(super) announces: bool,
    forgotten: Option<Order>,
}

/// When a change is applied: its version, its own time and the server's, its entry.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub version: Option<u64>,
    pub changed_at: u64,
    pub now: u64,
    pub entry: EntryId,
    pub shard: u16,
    /// Whether it comes from another shard's outbox just now, and not from the dead letters.
    pub relayed: bool,
}

/// The commit that is written, by server time, and the last dead letter where somebody is forgotten.
#[derive(Clone, Copy)]
pub(super) struct Writing {
    pub commit: CommitId,
    pub now: u64,
    pub letters_last: EntryId,
}

/// What a change has beside its own user: the shard's clock of orders, and what goes to other shards.
pub(super) struct Beyond<'r> {
    pub order: &'r mut Order,
    pub relays: &'r mut Vec<Change>,
}

/// What one friend's date became: the day keys follow.
pub(super) struct DateChange<'a> {
    pub friend: &'a str,
    pub before: Option<Birthday>,
    pub after: Option<Birthday>,
}

/// What the user adds to the commit beside its own commands.
#[derive(Default)]
pub(super) struct Written<'a> {
    pub views: Views,
    pub dates: Vec<DateChange<'a>>,
    /// The user's own zone, where the dates need it.
    pub zone: Option<String>,
    /// Whether `users` must list the user, must no longer, or stays as it is.
    pub listed: Option<bool>,
    /// Jobs that begin, or begin anew; none as progress: a job that ends.
    pub jobs: Vec<JobChange>,
}

impl<'a> Working<'a> {
    pub fn new(rules: &'a Rules, (plan, loaded): (&'a UserPlan, &'a UserLoaded), now: u64) -> Working<'a> {
        Working {
            rules,
            plan,
            loaded,
            friends: Friends::new(plan, loaded),
            versions: Versions::new(plan, loaded),
            profile: Profile::new(rules, (plan, loaded), now),
            activity: Activity::new(plan, loaded),
            announces: false,
            forgotten: None,
        }
    }

    /// How the change was settled; an error where what is stored has no room for it.
    pub fn apply(&mut self, action: &Action, moment: Moment, beyond: &mut Beyond<'_>) -> Result<Outcome, Rejection> {
        Ok(match action {
            Action::Add { friend, birthday, mutual } => {
                if !self.versions.newer(friend.as_str(), moment, false) {
                    return Ok(Outcome::Outdated);
                }
                if *mutual {
                    let (birthday, ask) = (self.own_birthday(), birthday.is_none());
                    let mirror = |friend, order| Mirror::Add { friend, birthday, ask, order };
                    self.tell(friend, moment, beyond, mirror);
                }
                self.add(friend, *birthday, moment)
            }
            Action::Remove { friend, mutual } => {
                if !self.versions.newer(friend.as_str(), moment, true) {
                    return Ok(Outcome::Outdated);
                }
                if *mutual {
                    self.tell(friend, moment, beyond, |friend, order| Mirror::Remove { friend, order });
                }
                self.end(friend, moment)
            }
            Action::Update { friend, birthday } => self.update(friend, *birthday, moment),
            Action::Birthday { birthday } => {
                if !self.versions.newer(&version_field(BIRTHDAY_FIELD), moment, false) {
                    return Ok(Outcome::Outdated);
                }
                self.announces = true;
                self.versions.changed(&version_field(BIRTHDAY_FIELD), moment);
                // A date that is unknown is told like any other, and is not the same as one that was never told.
                self.profile.set_one(BIRTHDAY_FIELD, birthday.to_string(), moment)
            }
            Action::Profile { fields } => self.profile(fields, moment)?,
            Action::Activity { category, weight } => self.activity(category.as_deref(), *weight, moment),
            Action::Forget => {
                *beyond.order = Order::after(moment.entry, moment.shard, *beyond.order);
                self.forgotten = Some(*beyond.order);
                self.versions.forget_all(*beyond.order);
                Outcome::Applied
            }
            Action::Mirror(mirror) => self.mirror(mirror, moment, beyond),
            Action::Snapshot(snapshot) => self.snapshot(snapshot, moment)?,
        })
    }

    fn add(&mut self, friend: &UserId, birthday: Option<Birthday>, moment: Moment) -> Outcome {
        let slot = self.friends.slot(friend);
        let date = birthday.or(slot.now).unwrap_or_default();
        match birthday {
            Some(_) => self.versions.changed(friend.as_str(), moment),
            None => self.versions.changed_without_date(friend, moment),
        }
        slot.set(Some(date))
    }

    fn end(&mut self, friend: &UserId, moment: Moment) -> Outcome {
        self.versions.changed(friend.as_str(), moment);
        self.friends.slot(friend).set(None)
    }

    /// Tells the friend's shard of a change to both sides. Where the user was forgotten and this friend may not have heard of
    /// it, be it that the job has not come so far or that they were no friends then, it hears of that first.
    fn tell(
        &mut self,
        friend: &UserId,
        moment: Moment,
        beyond: &mut Beyond<'_>,
        mirror: impl FnOnce(UserId, Order) -> Mirror,
    ) {
        *beyond.order = Order::after(moment.entry, moment.shard, *beyond.order);
        let first = self.versions.forgotten().filter(|_| !self.versions.has_order(friend));
        self.versions.set_order(friend, *beyond.order);
        let me = &self.plan.user;
        if let Some(order) = self.plan.forgotten.or(first) {
            let forget = Mirror::Forget { friend: me.clone(), order };
            beyond.relays.push(Change::new(friend.clone(), Action::Mirror(forget)));
        }
        let mirror = Action::Mirror(mirror(me.clone(), *beyond.order));
        beyond.relays.push(Change { version: moment.version, ..Change::new(friend.clone(), mirror) });
    }

    /// The other side of what happened in the friend's shard.
    fn mirror(&mut self, mirror: &Mirror, moment: Moment, beyond: &mut Beyond<'_>) -> Outcome {
        match mirror {
            Mirror::Add { friend, birthday, ask, order } => {
                *beyond.order = (*beyond.order).max(*order);
                if let Some(order) = self.versions.forgotten_since(*order) {
                    // It was on its way when the user was forgotten, and so is not among the friends who are told.
                    let forget = Mirror::Forget { friend: self.plan.user.clone(), order };
                    beyond.relays.push(Change::new(friend.clone(), Action::Mirror(forget)));
                    return Outcome::Outdated;
                }
                if !self.versions.admits(friend, *order, moment, false) {
                    return Outcome::Outdated;
                }
                if let Some(birthday) = self.own_birthday().filter(|_| *ask) {
                    let answer = Mirror::Birthday { friend: self.plan.user.clone(), birthday };
                    beyond.relays.push(Change::new(friend.clone(), Action::Mirror(answer)));
                }
                // A replayed one may know an old date.
                self.add(friend, birthday.filter(|_| moment.relayed), moment)
            }
            Mirror::Remove { friend, order } => {
                *beyond.order = (*beyond.order).max(*order);
                if !self.versions.admits(friend, *order, moment, true) {
                    return Outcome::Outdated;
                }
                self.end(friend, moment)
            }
            // Nobody can tell whether the person has told another date since it became a dead letter.
            Mirror::Birthday { .. } if !moment.relayed => Outcome::Outdated,
            Mirror::Birthday { friend, birthday } => {
                let slot = self.friends.slot(friend);
                if slot.now.is_none() {
                    self.versions.date_told(friend, *birthday, moment, false);
                    return Outcome::NoSuchFriend;
                }
                self.versions.date_told(friend, *birthday, moment, true);
                slot.set(Some(*birthday))
            }
            Mirror::Forget { friend, order } => {
                *beyond.order = (*beyond.order).max(*order);
                if !self.versions.forget(friend, *order) {
                    return Outcome::Outdated;
                }
                self.end(friend, moment)
            }
        }
    }

    /// The user's own date, where one was told; that of a forgotten user is told to be unknown.
    fn own_birthday(&self) -> Option<Birthday> {
        let text = self.profile.change(BIRTHDAY_FIELD).unwrap_or(self.loaded.birthday.as_deref());
        text.map(Birthday::lenient).or_else(|| self.versions.forgotten().map(|_| Birthday::default()))
    }

    /// The position of a friendship that does not exist is not moved: an earlier `add` may still be on its way.
    fn update(&mut self, friend: &UserId, birthday: Birthday, moment: Moment) -> Outcome {
        let slot = self.friends.slot(friend);
        if slot.now.is_none() {
            self.versions.date_told(friend, birthday, moment, false);
            return Outcome::NoSuchFriend;
        }
        if !self.versions.newer(friend.as_str(), moment, false) {
            return Outcome::Outdated;
        }
        self.versions.date_told(friend, birthday, moment, true);
        slot.set(Some(birthday))
    }

    /// Sets and deletes the fields of which no newer version is known. Nothing of a change that has no room is applied, and
    /// no version of it remembered, so that it can be replayed.
    fn profile(&mut self, fields: &[(String, Option<String>)], moment: Moment) -> Result<Outcome, Rejection> {
        let is_newer = |(name, _): &&(String, Option<String>)| self.versions.is_newer(&version_field(name), moment);
        let newer: Vec<_> = fields.iter().filter(is_newer).collect();
        if newer.is_empty() {
            return Ok(Outcome::Outdated);
        }
        let outcome = self.profile.set(&newer, self.rules.profile_fields_max, moment)?;
        for (name, value) in newer {
            self.versions.newer(&version_field(name), moment, value.is_none());
            self.versions.changed(&version_field(name), moment);
        }
        Ok(outcome)
    }

    fn activity(&mut self, category: Option<&str>, weight: u32, moment: Moment) -> Outcome {
        // By the entry's own time, and not by the clock: settled again after a failover, it comes to the same.
        // Only a stream whose clock was far ahead, and which counts on from there, is not believed.
        let ahead = moment.now.saturating_add(CLOCKS_APART_MAX_MILLISECONDS);
        let appended_at = if moment.entry.milliseconds > ahead { moment.now } else { moment.entry.milliseconds };
        let at = moment.changed_at.min(appended_at);
        let zone = self.rules.calendar.zone(self.profile.get(ZONE_FIELD));
        let (day, today) = (Calendar::today_in(&zone, at), Calendar::today_in(&zone, appended_at));
        let newest = self.profile.active(at, appended_at.saturating_add(CLOCKS_APART_MAX_MILLISECONDS));
        let counted = self.activity.count(weight, day, today);
        let weighed = category.is_some_and(|category| self.activity.add(category, weight, self.rules.top_max));
        if newest || counted || weighed { Outcome::Applied } else { Outcome::Unchanged }
    }

    /// Appends the user's commands.
    pub fn write(&self, keys: &ShardKeys, rules: &Rules, at: Writing, ops: &mut Vec<Op>) -> Written<'_> {
        if let Some(order) = self.forgotten {
            return self.write_forgotten(keys, rules, (at, order), ops);
        }
        let mut written = Written::default();
        if self.friends.write(|| keys.birthdays(&self.plan.user), ops, &mut written.dates) {
            written.views = written.views.with(Views::BIRTHDAYS);
        }
        self.move_days(&mut written);
        self.write_profile(keys, at.now, ops, &mut written);
        let emptied = self.extent_after() == Some(0);
        if !written.views.is_empty() {
            let known = self.profile.was_known() || self.friends.any_before();
            written.listed = if emptied { Some(false) } else { (!known).then_some(true) };
        }
        let versions_touched = self.versions.write(keys, rules, at.now, ops);
        if emptied && (versions_touched || !written.views.is_empty()) {
            // Nothing to expire is no error, and saves asking whether there is.
            let after = self.versions.retention(rules);
            ops.push(Op::ExpireAfter { key: keys.versions(&self.plan.user), after });
        } else if versions_touched {
            // They may be on their way out since the view was empty, whoever has filled it since.
            ops.push(Op::Persist { key: keys.versions(&self.plan.user) });
        }
        if self.announces && self.friends_after().is_some_and(|friends| friends > 0) {
            written.jobs.push((Job::Birthday { user: self.plan.user.clone() }, Some(Progress::begin())));
        }
        written
    }

    /// The friends are put aside under another name, to be worked through by a job; all else of the user goes at once.
    fn write_forgotten(
        &self,
        keys: &ShardKeys,
        rules: &Rules,
        (at, order): (Writing, Order),
        ops: &mut Vec<Op>,
    ) -> Written<'_> {
        let user = &self.plan.user;
        let (friends, has_profile) = self.loaded.extent.unwrap_or_default();
        if friends > 0 {
            ops.push(Op::Rename { key: keys.birthdays(user), to: keys.forgotten(user, at.commit) });
        }
        ops.push(Op::Delete {
            keys: vec![keys.profile(user), keys.versions(user), keys.activity(user), keys.top(user)],
        });
        self.versions.write(keys, rules, at.now, ops);
        ops.push(Op::ExpireAfter { key: keys.versions(user), after: self.versions.retention(rules) });
        let announcement = (Job::Birthday { user: user.clone() }, None);
        let begun = Progress::forgetting(order, at.letters_last);
        let forgetting = (Job::Forget { user: user.clone(), commit: at.commit }, Some(begun));
        let mut views = if friends > 0 { Views::BIRTHDAYS } else { Views::default() };
        if has_profile {
            views = views.with(Views::PROFILE);
        }
        if self.profile.has_activity() {
            views = views.with(Views::ACTIVITY);
        }
        Written { views, listed: Some(false), jobs: vec![announcement, forgetting], ..Written::default() }
    }

    /// Everybody else is due at another moment where the user has moved to another zone.
    fn move_days<'s>(&'s self, written: &mut Written<'s>) {
        if self.plan.everyone && self.zone() != self.loaded.zone.as_deref() {
            let others = self.loaded.everyone.iter().filter(|(friend, _)| !self.friends.changes(friend));
            for (friend, text) in others.filter(|(friend, _)| friend.parse::<UserId>().is_ok()) {
                let date = Some(Birthday::lenient(text));
                written.dates.push(DateChange { friend, before: date, after: date });
            }
        }
        if !written.dates.is_empty() {
            written.zone = self.zone().map(str::to_owned);
        }
    }

    /// What the profile says of the user's zone after what was applied so far.
    fn zone(&self) -> Option<&str> {
        self.profile.change(ZONE_FIELD).unwrap_or(self.loaded.zone.as_deref())
    }

    fn write_profile(&self, keys: &ShardKeys, now: u64, ops: &mut Vec<Op>, written: &mut Written<'_>) {
        if self.profile.is_ended() {
            let user = &self.plan.user;
            ops.push(Op::Delete { keys: vec![keys.profile(user), keys.activity(user), keys.top(user)] });
            written.views = written.views.with(Views::PROFILE).with(Views::ACTIVITY);
            return;
        }
        if self.profile.write(|| keys.profile(&self.plan.user), now, ops) {
            written.views = written.views.with(Views::PROFILE);
        }
        if self.activity.write(keys, ops) || self.profile.is_newly_active() {
            written.views = written.views.with(Views::ACTIVITY);
        }
    }

    /// Friends and profile after the batch, where the number before it is known.
    fn extent_after(&self) -> Option<u64> {
        let (_, has_profile) = self.loaded.extent?;
        let has_profile = (has_profile && !self.profile.is_ended()) || self.profile.is_written();
        Some(self.friends_after()? + u64::from(has_profile))
    }

    fn friends_after(&self) -> Option<u64> {
        let (before, _) = self.loaded.extent?;
        Some(self.friends.count_after(before))
    }
}
