//! A user's activity as the oracle sees it: one entry at a time, with nothing left out until it must be.

use std::collections::BTreeMap;

use jiff::civil::Date;
use jiff::{Span, Timestamp};

use super::Content;
use super::user::UserView;
use crate::calendar::zone_named;
use crate::reduce::Rules;

/// Sums of weights.
#[derive(Default)]
pub(super) struct Activity {
    pub days: BTreeMap<Date, u64>,
    pub top: BTreeMap<String, u64>,
}

impl UserView {
    /// Whether it did anything. `now` is the moment of the entry.
    pub fn active(&mut self, category: Option<&str>, weight: u64, (at, now): (u64, u64), rules: &Rules) -> bool {
        let at = at.min(now);
        let mut changed = false;
        if !self.profile.contains_key("version") {
            for (name, value) in [("schema", 2), ("version", 0), ("updated_at", at)] {
                self.profile.insert(name.to_owned(), value.to_string());
            }
        }
        let last = self.profile.get("last_activity").map(|last| last.parse::<u64>().expect("written here"));
        if last.is_none_or(|last| last < at) {
            self.profile.insert("last_activity".to_owned(), at.to_string());
            changed = true;
        }
        let zone = self.profile.get("tz").and_then(|name| zone_named(name));
        let zone = zone.unwrap_or_else(|| rules.calendar.time_zone.clone());
        let date = |moment: u64| {
            let moment = Timestamp::from_millisecond(moment.min(i64::MAX as u64) as i64).unwrap_or(Timestamp::MAX);
            zone.to_datetime(moment).date()
        };
        let too_old = |day: Date| day + Span::new().days(31) <= date(now);
        if !too_old(date(at)) {
            let sum = self.activity.days.entry(date(at)).or_default();
            changed |= *sum < u64::MAX;
            *sum = sum.saturating_add(weight);
            self.activity.days.retain(|day, _| !too_old(*day));
        }
        if let Some(category) = category {
            let before = self.activity.top.clone();
            let sum = self.activity.top.entry(category.to_owned()).or_default();
            *sum = (*sum + weight).min(9_007_199_254_740_992);
            while self.activity.top.len() as u64 > rules.top_max {
                let mut order: Vec<_> = self.activity.top.iter().map(|(name, sum)| (*sum, name.clone())).collect();
                order.sort();
                self.activity.top.remove(&order[0].1);
            }
            changed |= self.activity.top != before;
        }
        changed
    }
}

impl Activity {
    pub fn days(&self) -> Content {
        Content::Hash(self.days.iter().map(|(day, sum)| (day.to_string(), sum.to_string())).collect())
    }

    pub fn top(&self) -> Content {
        Content::Sorted(self.top.iter().map(|(name, sum)| (name.clone(), *sum as i64)).collect())
    }
}
