//! One user's friends while a batch is reduced.

use super::named::Named;
use super::user::DateChange;
use super::{Op, Outcome, UserLoaded, UserPlan};
use crate::birthday::{Birthday, Text};
use crate::change::{Snapshot, UserId};
use crate::key::Key;

/// Those that the batch names, or all there are.
pub(super) struct Friends<'a>(Named<'a, Friend<'a>>);

#[derive(Default)]
pub(super) struct Friend<'a> {
    before: Option<&'a str>,
    pub now: Option<Birthday>,
    touched: bool,
    /// Whether the snapshot that is being applied names it.
    listed: bool,
}

impl<'a> Friends<'a> {
    pub fn new(plan: &'a UserPlan, loaded: &'a UserLoaded) -> Friends<'a> {
        let friend =
            |before: Option<&'a str>| Friend { before, now: before.map(Birthday::lenient), ..Friend::default() };
        Friends(if plan.all {
            Named::all(loaded.everyone.iter().map(|(name, date)| (name.as_str(), friend(Some(date)))))
        } else {
            let friends = plan.friends.iter().zip(&loaded.friends);
            Named::some(friends.map(|(name, date)| (name.as_str(), friend(date.as_deref()))))
        })
    }

    pub fn slot(&mut self, friend: &UserId) -> &mut Friend<'a> {
        self.0.slot(friend.as_str())
    }

    /// Whether any of them was there before the batch.
    pub fn any_before(&self) -> bool {
        self.0.iter().any(|(_, friend)| friend.before.is_some())
    }

    /// How many there are, where there were `before`.
    pub fn count_after(&self, before: u64) -> u64 {
        let count = |is: fn(&Friend<'_>) -> bool| self.0.iter().filter(|(_, friend)| is(friend)).count() as u64;
        before.saturating_sub(count(|friend| friend.before.is_some())) + count(|friend| friend.now.is_some())
    }

    /// What becomes of a friend's date in this batch; none where it stays.
    pub fn changes(&self, friend: &str) -> bool {
        self.0.get(friend).is_some_and(Friend::changes)
    }

    /// Those that a whole snapshot speaks of, that are there, and that it does not name. Forgets which were named.
    pub fn unlisted(&mut self, snapshot: &Snapshot) -> Vec<UserId> {
        let named = |friend: &mut Friend<'_>| std::mem::take(&mut friend.listed);
        let gone = self.0.iter_mut().filter_map(|(name, friend)| {
            let gone = !named(friend) && friend.now.is_some() && snapshot.covers(name);
            // What is no id was written by somebody else.
            gone.then(|| name.parse().ok()).flatten()
        });
        gone.collect()
    }

    /// Appends the commands, and what became of dates; whether there is any.
    pub fn write<'s>(&'s self, key: impl FnOnce() -> Key, ops: &mut Vec<Op>, dates: &mut Vec<DateChange<'s>>) -> bool {
        let (mut set, mut deleted) = (Vec::new(), Vec::new());
        for (name, friend) in self.0.iter().filter(|(_, friend)| friend.changes()) {
            match friend.now {
                Some(birthday) => set.push((name.to_owned(), birthday.text().as_str().to_owned())),
                None => deleted.push(name.to_owned()),
            }
            dates.push(DateChange { friend: name, before: friend.before.map(Birthday::lenient), after: friend.now });
        }
        if set.is_empty() && deleted.is_empty() {
            return false;
        }
        let key = key();
        if !deleted.is_empty() {
            ops.push(Op::HashDelete { key: key.clone(), fields: deleted });
        }
        if !set.is_empty() {
            ops.push(Op::HashSet { key, fields: set });
        }
        true
    }
}

impl Friend<'_> {
    pub fn set(&mut self, date: Option<Birthday>) -> Outcome {
        let changed = self.now != date;
        self.now = date;
        self.touched = true;
        if changed { Outcome::Applied } else { Outcome::Unchanged }
    }

    /// Named by a snapshot, and so not unlisted where that is a whole one.
    pub fn listed(&mut self, whole: bool) -> &mut Self {
        self.listed = whole;
        self
    }

    fn changes(&self) -> bool {
        // A spoilt date that is set anew is written, whatever it is read as.
        self.touched && self.now.map(Birthday::text).as_ref().map(Text::as_str) != self.before
    }
}
