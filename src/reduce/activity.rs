//! One user's activity while a batch is reduced: sums by day, and the categories of the greatest weight.

use std::collections::BTreeMap;

use jiff::civil::Date;

use super::{Op, UserLoaded, UserPlan};
use crate::activity::{KEPT_FOR, WEIGHT_SUM_MAX, day_of, first_day, read};
use crate::key::{Key, ShardKeys};

pub(super) struct Activity<'a> {
    plan: &'a UserPlan,
    loaded: &'a UserLoaded,
    days: BTreeMap<Date, u64>,
    /// Whether a day was counted, so that the key is to live on.
    counted: bool,
    top: Top,
}

/// The categories that the batch names and the lightest others: what may be pushed out in it.
struct Top {
    stored: BTreeMap<String, u64>,
    now: BTreeMap<String, u64>,
    /// How many more are stored, each heavier than the lightest that were loaded.
    others: u64,
    /// The heaviest of those: what is heavier than it need not be lighter than one of the others.
    sure: Option<(u64, String)>,
}

impl<'a> Activity<'a> {
    pub fn new(plan: &'a UserPlan, loaded: &'a UserLoaded) -> Activity<'a> {
        Activity { plan, loaded, days: read(&loaded.days), counted: false, top: Top::new(plan, loaded) }
    }

    /// Counts a weight on a day of the user's; one that is too long ago counts for the category alone.
    pub fn count(&mut self, weight: u32, day: Date, today: Date) -> bool {
        let first = first_day(today);
        if day < first {
            return false;
        }
        let sum = self.days.entry(day).or_default();
        let before = *sum;
        *sum = sum.saturating_add(weight.into());
        let changed = *sum != before;
        self.days = self.days.split_off(&first);
        self.counted = true;
        changed
    }

    /// Adds a weight to a category's, and pushes out the lightest where there are too many.
    pub fn add(&mut self, category: &str, weight: u32, top_max: u64) -> bool {
        self.top.add(category, weight, top_max)
    }

    /// Appends the commands; whether there are any.
    pub fn write(&self, keys: &ShardKeys, ops: &mut Vec<Op>) -> bool {
        let before = ops.len();
        if self.counted {
            self.write_days(keys.activity(&self.plan.user), ops);
        }
        self.top.write(|| keys.top(&self.plan.user), ops);
        ops.len() > before
    }

    fn write_days(&self, key: Key, ops: &mut Vec<Op>) {
        let stored = read(&self.loaded.days);
        let stays = |name: &str| day_of(name).is_some_and(|day| self.days.contains_key(&day));
        let names = self.loaded.days.iter().map(|(name, _)| name);
        let deleted: Vec<String> = names.filter(|name| !stays(name)).cloned().collect();
        let changed = self.days.iter().filter(|(day, sum)| stored.get(day) != Some(sum));
        let set: Vec<_> = changed.map(|(day, sum)| (day.to_string(), sum.to_string())).collect();
        if !deleted.is_empty() {
            ops.push(Op::HashDelete { key: key.clone(), fields: deleted });
        }
        if !set.is_empty() {
            ops.push(Op::HashSet { key: key.clone(), fields: set });
        }
        ops.push(Op::ExpireAfter { key, after: KEPT_FOR });
    }
}

impl Top {
    fn new(plan: &UserPlan, loaded: &UserLoaded) -> Top {
        let named = plan.categories.iter().zip(&loaded.weights);
        let named = named.filter_map(|(category, weight)| Some((category.clone(), (*weight)?)));
        let stored: BTreeMap<String, u64> = named.chain(loaded.lightest.iter().cloned()).collect();
        let others = loaded.top_length.saturating_sub(stored.len() as u64);
        let sure = loaded.lightest.last().filter(|_| others > 0).map(|(name, weight)| (*weight, name.clone()));
        Top { now: stored.clone(), stored, others, sure }
    }

    fn add(&mut self, category: &str, weight: u32, top_max: u64) -> bool {
        let before = self.now.get(category).copied();
        let sum = before.unwrap_or(0).saturating_add(weight.into()).min(WEIGHT_SUM_MAX);
        self.now.insert(category.to_owned(), sum);
        let mut changed = false;
        while self.now.len() as u64 + self.others > top_max {
            let Some(lightest) = self.lightest() else { break };
            self.now.remove(&lightest);
            changed |= lightest != category;
        }
        changed || self.now.get(category).copied() != before
    }

    /// The lightest of all, as Redis orders them; none where an unknown one may be lighter.
    fn lightest(&self) -> Option<String> {
        let (name, weight) = self.now.iter().min_by_key(|(name, weight)| (**weight, name.as_str()))?;
        let sure = |(most, last): &(u64, String)| (*weight, name.as_str()) <= (*most, last.as_str());
        (self.others == 0 || self.sure.as_ref().is_some_and(sure)).then(|| name.clone())
    }

    fn write(&self, key: impl Fn() -> Key, ops: &mut Vec<Op>) {
        let gone = self.stored.keys().filter(|name| !self.now.contains_key(*name));
        let gone: Vec<String> = gone.cloned().collect();
        let changed = self.now.iter().filter(|(name, sum)| self.stored.get(*name) != Some(sum));
        let added: Vec<_> = changed.map(|(name, sum)| (*sum as i64, name.clone())).collect();
        if !gone.is_empty() {
            ops.push(Op::SortedRemove { key: key(), members: gone });
        }
        if !added.is_empty() {
            ops.push(Op::SortedAdd { key: key(), members: added });
        }
    }
}
