//! Batches of several shapes, always the same.

use heyday::change::{Fields, UserId};
use heyday::shard::{Layout, Shard};
use jiff::civil::{Date, date};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Changes of a batch.
pub const CHANGES: usize = 512;
/// The servers' date.
pub const TODAY: Date = date(2026, 11, 29);
pub const SHARD: Shard = Shard(7);

/// Makes the fields of a change, number so and so of its batch.
pub type Change = fn(&mut Random, usize) -> Vec<(&'static str, String)>;

pub const SHAPES: [(&str, Change); 4] = [
    // Nobody repeats.
    ("distinct", |random, at| add(random, at, Random::any_day)),
    // Five changes a user, who come round in turn.
    ("repeated", |random, at| add(random, at % (CHANGES / 5), Random::any_day)),
    ("mixed", mixed),
    // Nobody repeats, and every date is so near that a day's key holds it.
    ("window", |random, at| add(random, at, Random::near_day)),
];

pub struct Random {
    random: SmallRng,
    /// Of one shard.
    users: Vec<UserId>,
}

impl Random {
    pub fn new(layout: &Layout) -> Random {
        let mut random = SmallRng::seed_from_u64(20_261_129);
        let users = std::iter::repeat_with(|| id(&mut random)).filter(|user| layout.shard_of(user) == SHARD);
        let users = users.take(CHANGES).collect();
        Random { random, users }
    }

    pub fn fields(&mut self, change: Change, at: usize) -> Fields {
        change(self, at).into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn any_day(&mut self) -> String {
        let (year, month) = (self.random.random_range(1940..2010), self.random.random_range(1..=12));
        format!("{year}-{month:02}-{:02}", self.random.random_range(1..=28))
    }

    fn near_day(&mut self) -> String {
        let day = TODAY.saturating_add(jiff::Span::new().days(self.random.random_range(-1..=8)));
        format!("{}-{:02}-{:02}", self.random.random_range(1940..2010), day.month(), day.day())
    }
}

fn id(random: &mut SmallRng) -> UserId {
    format!("u{}", random.random_range(1_000_000..9_000_000)).parse().expect("a good id")
}

fn add(random: &mut Random, user: usize, day: fn(&mut Random) -> String) -> Vec<(&'static str, String)> {
    let (user, friend) = (random.users[user].to_string(), id(&mut random.random).to_string());
    vec![("type", "add".to_owned()), ("user", user), ("friend", friend), ("birthday", day(random))]
}

/// Of all common kinds, some with an event id and some with a version, for users of whom some repeat.
fn mixed(random: &mut Random, at: usize) -> Vec<(&'static str, String)> {
    const KINDS: [&str; 10] =
        ["add", "add", "add", "add", "remove", "update", "birthday", "profile", "activity", "activity"];
    let kind = *KINDS.choose(&mut random.random).expect("a kind");
    let user = random.users[random.random.random_range(0..CHANGES)].to_string();
    let mut fields = vec![("type", kind.to_owned()), ("user", user)];
    if matches!(kind, "add" | "remove" | "update") {
        fields.push(("friend", id(&mut random.random).to_string()));
    }
    match kind {
        "add" | "update" | "birthday" => fields.push(("birthday", random.any_day())),
        "profile" => fields.extend([("profile.name", format!("Name {at}")), ("profile.city", "Berlin".to_owned())]),
        "activity" => fields.push(("category", format!("category{}", random.random.random_range(0..20)))),
        _ => {}
    }
    if random.random.random_bool(0.2) {
        fields.push(("id", format!("event:{at}")));
    }
    if kind != "activity" && random.random.random_bool(0.2) {
        fields.push(("version", (1000 + at).to_string()));
    }
    fields
}
