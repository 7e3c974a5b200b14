//! The changes of a run, from a seed.

use std::collections::{BTreeMap, HashMap};

use jiff::civil::Date;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use crate::birthday::Birthday;
use crate::change::{Action, Change, UserId};

/// How often users come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// All of them, before anyone comes again.
    Distinct,
    /// The same, each five times in a row.
    Five,
    /// Some very often, by Zipf's law with exponent 1.
    Zipf,
}

impl Users {
    /// For titles.
    pub fn name(self) -> &'static str {
        match self {
            Users::Distinct => "distinct",
            Users::Five => "five times in a row",
            Users::Zipf => "by Zipf",
        }
    }
}

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// Friends with their dates.
    Add,
    /// 60 of 100 add, 15 update, 10 remove, 8 a profile field, 4 activity, 3 the user's own date.
    Mixed,
}

/// Everything that decides which changes there are.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub seed: u64,
    pub users: u32,
    pub order: Users,
    pub kinds: Kinds,
}

/// Ids have as many digits as those of a large service.
const ID_FIRST: u64 = 10_000_000;
/// Friends that a user may have in a mixed load, so that updates and removals find some.
const FRIENDS_MIXED: u64 = 40;
const BORN: std::ops::RangeInclusive<i16> = 1940..=2015;

impl Workload {
    /// So many changes; the same workload always gives the same.
    pub fn changes(&self, count: usize) -> Vec<Change> {
        let mut random = SmallRng::seed_from_u64(self.seed);
        let mut order: Vec<u64> = (0..u64::from(self.users)).collect();
        order.shuffle(&mut random);
        let zipf = Zipf::new(f64::from(self.users), 1.0).expect("at least one user, and an exponent above zero");
        let repeats = if self.order == Users::Five { 5 } else { 1 };
        let changes = (0..count).map(|at| {
            let place = match self.order {
                Users::Zipf => zipf.sample(&mut random) as usize - 1,
                Users::Distinct | Users::Five => at / repeats % order.len(),
            };
            let action = self.action(at as u64, &mut random);
            Change::new(id(order[place]), action)
        });
        changes.collect()
    }

    fn action(&self, at: u64, random: &mut SmallRng) -> Action {
        let dice = if self.kinds == Kinds::Add { 0 } else { random.random_range(0..100) };
        let few = |random: &mut SmallRng| id(u64::from(u32::MAX) + random.random_range(0..FRIENDS_MIXED));
        match dice {
            0..60 => {
                // Each a new friendship where nothing else is asked for.
                let friend = if self.kinds == Kinds::Add { id(u64::from(u32::MAX) + at) } else { few(random) };
                Action::Add { friend, birthday: Some(birthday(random)), mutual: false }
            }
            60..75 => Action::Update { friend: few(random), birthday: birthday(random) },
            75..85 => Action::Remove { friend: few(random), mutual: false },
            85..93 => Action::Profile { fields: vec![("role".to_owned(), Some(format!("role-{}", at % 7)))] },
            93..97 => Action::Activity { category: Some(format!("category-{}", at % 11)), weight: 1 },
            _ => Action::Birthday { birthday: birthday(random) },
        }
    }
}

/// The views that changes which only add must lead to.
pub fn expected(changes: &[Change]) -> HashMap<UserId, BTreeMap<String, String>> {
    let mut views: HashMap<UserId, BTreeMap<String, String>> = HashMap::new();
    for change in changes {
        if let Action::Add { friend, birthday: Some(birthday), .. } = &change.action {
            let view = views.entry(change.user.clone()).or_default();
            view.insert(friend.to_string(), birthday.to_string());
        }
    }
    views
}

pub fn id(number: u64) -> UserId {
    (ID_FIRST + number).to_string().parse().expect("digits make an id")
}

/// A change by its number, each of a user of its own: the user tells which change it was.
pub fn numbered(seed: u64, number: u64) -> Change {
    let mut random = SmallRng::seed_from_u64(seed.wrapping_add(number));
    let friend = id(u64::from(u32::MAX) + number);
    Change::new(id(number), Action::Add { friend, birthday: Some(birthday(&mut random)), mutual: false })
}

/// The number of the change of this user; none where the user has none.
pub fn number_of(user: &str) -> Option<u64> {
    user.parse::<u64>().ok()?.checked_sub(ID_FIRST)
}

/// Any day of any year but 29 February.
pub fn birthday(random: &mut SmallRng) -> Birthday {
    let year = random.random_range(BORN);
    let first = Date::new(year, 1, 1).expect("every year has a first day");
    let day = first.saturating_add(jiff::Span::new().days(random.random_range(0..365)));
    let day = if (day.month(), day.day()) == (2, 29) { first } else { day };
    Birthday::Date(day)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn workload(order: Users, kinds: Kinds) -> Workload {
        Workload { seed: 7, users: 100, order, kinds }
    }

    #[test]
    fn the_same_seed_gives_the_same_changes() {
        for order in [Users::Distinct, Users::Five, Users::Zipf] {
            let changes = || workload(order, Kinds::Mixed).changes(500);
            assert_eq!(format!("{:?}", changes()), format!("{:?}", changes()));
        }
    }

    #[test]
    fn distinct_users_come_again_only_after_all_others() {
        let users = |order| -> Vec<UserId> {
            workload(order, Kinds::Add).changes(500).into_iter().map(|change| change.user).collect()
        };
        let distinct = users(Users::Distinct);
        assert!(distinct.chunks(100).all(|chunk| chunk.iter().collect::<HashSet<_>>().len() == 100));
        let five = users(Users::Five);
        assert!(five.chunks(5).all(|chunk| chunk.iter().collect::<HashSet<_>>().len() == 1));
        let zipf = users(Users::Zipf);
        assert!(zipf.iter().filter(|user| **user == zipf[0]).count() < 500);
    }

    #[test]
    fn a_user_tells_the_number_of_its_change() {
        for number in [0, 7, 4_000_000] {
            let change = numbered(3, number);
            assert_eq!(number_of(change.user.as_str()), Some(number));
            assert_eq!(format!("{change:?}"), format!("{:?}", numbered(3, number)));
        }
        assert_eq!([number_of("9999999"), number_of("somebody")], [None, None]);
    }

    #[test]
    fn what_is_added_last_is_expected() {
        let changes = workload(Users::Distinct, Kinds::Add).changes(200);
        let expected = expected(&changes);
        assert_eq!(expected.len(), 100);
        assert!(expected.values().all(|view| view.len() == 2));
    }
}
