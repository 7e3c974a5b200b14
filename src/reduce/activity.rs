//! One user's activity while a batch is reduced: sums by day, and the categories of the greatest weight.

use std::collections::BTreeMap;

use jiff::ToSpan;
use jiff::civil::Date;

use super::{Op, UserLoaded, UserPlan};
use crate::activity::{KEPT_FOR, WEIGHT_SUM_MAX, day_of, first_day, read};
use crate::birthday::Birthday;
use crate::key::{Key, ShardKeys};

/// Days after today that stay where they are.
const AHEAD_DAYS_MAX: i64 = 2;

pub(super) struct Activity<'a> {
    plan: &'a UserPlan,
    loaded: &'a UserLoaded,
    stored: BTreeMap<Date, u64>,
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
        let stored = read(&loaded.days);
        Activity { plan, loaded, days: stored.clone(), stored, counted: false, top: Top::new(plan, loaded) }
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
        // A user who has moved to the west may have some of tomorrow; what is later was told by a clock that was wrong.
        let later = today.saturating_add(AHEAD_DAYS_MAX.days());
        self.days.retain(|day, _| *day <= later);
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
        let stays = |name: &str| day_of(name).is_some_and(|day| self.days.contains_key(&day));
        let names = self.loaded.days.iter().map(|(name, _)| name);
        let deleted: Vec<String> = names.filter(|name| !stays(name)).cloned().collect();
        let changed = self.days.iter().filter(|(day, sum)| self.stored.get(day) != Some(sum));
        let set: Vec<_> =
            changed.map(|(day, sum)| (Birthday::Date(*day).text().as_str().to_owned(), sum.to_string())).collect();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::Keys;
    use crate::shard::{Layout, Shard};

    type Weights = BTreeMap<String, u64>;

    fn weights(pairs: &[(&str, u64)]) -> Weights {
        pairs.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
    }

    /// One batch on what is stored, as the store loads and writes it.
    fn batch(stored: &mut Weights, entries: &[(String, u32)], top_max: u64) {
        let mut plan = UserPlan::new("42".parse().unwrap(), None);
        for (category, _) in entries {
            if !plan.categories.contains(category) {
                plan.categories.push(category.clone());
            }
        }
        let mut order: Vec<_> = stored.iter().map(|(name, weight)| (*weight, name.clone())).collect();
        order.sort();
        let loaded = UserLoaded {
            weights: plan.categories.iter().map(|name| stored.get(name).copied()).collect(),
            top_length: stored.len() as u64,
            lightest: order.into_iter().take(plan.lightest()).map(|(weight, name)| (name, weight)).collect(),
            ..UserLoaded::default()
        };
        let mut top = Top::new(&plan, &loaded);
        for (category, weight) in entries {
            top.add(category, *weight, top_max);
        }
        let mut ops = Vec::new();
        let keys = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0));
        top.write(|| keys.top(&plan.user), &mut ops);
        for op in ops {
            match op {
                Op::SortedRemove { members, .. } => stored.retain(|name, _| !members.contains(name)),
                Op::SortedAdd { members, .. } => {
                    stored.extend(members.into_iter().map(|(weight, name)| (name, weight as u64)));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn one_by_one(stored: &mut Weights, entries: &[(&str, u32)], top_max: u64) {
        for (category, weight) in entries {
            batch(stored, &[((*category).to_owned(), *weight)], top_max);
        }
    }

    #[test]
    fn what_was_never_pushed_out_is_exact_and_the_rest_begins_anew() {
        let mut top = weights(&[]);
        one_by_one(&mut top, &[("a", 5), ("b", 4), ("a", 5), ("c", 3), ("b", 1)], 3);
        assert_eq!(top, weights(&[("a", 10), ("b", 5), ("c", 3)]));
        // The heaviest of what was kept and the new one.
        one_by_one(&mut top, &[("d", 4)], 3);
        assert_eq!(top, weights(&[("a", 10), ("b", 5), ("d", 4)]));
        // It had 3 before, and nobody remembers.
        one_by_one(&mut top, &[("c", 6)], 3);
        assert_eq!(top, weights(&[("a", 10), ("b", 5), ("c", 6)]));
    }

    #[test]
    fn small_steps_below_the_lightest_never_get_in_however_many() {
        let mut top = weights(&[("a", 10), ("b", 5)]);
        for _ in 0..1000 {
            one_by_one(&mut top, &[("busy", 4)], 2);
        }
        assert_eq!(top, weights(&[("a", 10), ("b", 5)]));
        one_by_one(&mut top, &[("busy", 6)], 2);
        assert_eq!(top, weights(&[("a", 10), ("busy", 6)]));
    }

    proptest! {
        /// However the entries fall into batches, and whatever little of the ranking was loaded for them: it is the same as
        /// with all of it in sight, one entry at a time.
        #[test]
        fn batches_make_no_difference(
            entries in prop::collection::vec((0..9u8, 1..6u32), 1..80),
            cuts in prop::collection::vec(1..9usize, 80),
            top_max in 1..6u64,
        ) {
            let entries: Vec<(String, u32)> =
                entries.into_iter().map(|(category, weight)| (format!("c{category}"), weight)).collect();
            let (mut found, mut rest) = (Weights::new(), &entries[..]);
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                batch(&mut found, head, top_max);
                rest = tail;
            }
            let (mut expected, mut sums, mut pushed) = (Weights::new(), Weights::new(), Vec::new());
            for (category, weight) in &entries {
                *expected.entry(category.clone()).or_default() += u64::from(*weight);
                *sums.entry(category.clone()).or_default() += u64::from(*weight);
                if expected.len() as u64 > top_max {
                    let lightest = expected.iter().map(|(name, weight)| (*weight, name.clone())).min().unwrap().1;
                    expected.remove(&lightest);
                    pushed.push(lightest);
                }
            }
            prop_assert_eq!(&found, &expected);
            for (category, weight) in found.iter().filter(|(category, _)| !pushed.contains(category)) {
                prop_assert_eq!(sums[category], *weight, "{} was never pushed out", category);
            }
        }
    }
}
