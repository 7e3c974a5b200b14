//! The day keys that a commit touches.

use std::collections::BTreeMap;

use jiff::civil::Date;

use super::user::DateChange;
use super::{Op, Rules};
use crate::birthday::Birthday;
use crate::calendar::{Calendar, Window};
use crate::change::UserId;
use crate::key::{ShardKeys, day_member};

pub(super) struct Days<'a> {
    calendar: &'a Calendar,
    /// Only days within it are kept.
    window: Window,
    days: BTreeMap<Date, Day>,
}

#[derive(Default)]
struct Day {
    added: Vec<(i64, String)>,
    removed: Vec<String>,
}

impl<'a> Days<'a> {
    pub fn new(rules: &'a Rules, window: Window) -> Days<'a> {
        Days { calendar: &rules.calendar, window, days: BTreeMap::new() }
    }

    /// What became of the dates of a user's friends. `tz` is what the user's profile says now.
    pub fn note(&mut self, user: &UserId, tz: Option<&str>, changes: &[DateChange<'_>]) {
        let (calendar, window, mut zone) = (self.calendar, self.window, None);
        let days =
            |birthday: Option<Birthday>| birthday.map(|birthday| calendar.days(birthday, window)).into_iter().flatten();
        for change in changes {
            // Somebody born on 29 February may stand where another setting of `leap_day` put them.
            let before = change.before.map(|birthday| calendar.all_days(birthday, window)).into_iter().flatten();
            for date in before.filter(|date| days(change.after).all(|after| after != *date)) {
                self.days.entry(date).or_default().removed.push(day_member(user, change.friend));
            }
            for date in days(change.after) {
                let zone = zone.get_or_insert_with(|| calendar.zone(tz));
                let member = (calendar.due(zone, date), day_member(user, change.friend));
                self.days.entry(date).or_default().added.push(member);
            }
        }
    }

    pub fn write(self, keys: &ShardKeys, ops: &mut Vec<Op>) {
        for (date, day) in self.days {
            let key = keys.day(date);
            if !day.removed.is_empty() {
                ops.push(Op::SortedRemove { key: key.clone(), members: day.removed });
            }
            if !day.added.is_empty() {
                ops.push(Op::SortedAdd { key: key.clone(), members: day.added });
                ops.push(Op::ExpireAt { key, at_seconds: self.calendar.expires_at(date) });
            }
        }
    }
}
