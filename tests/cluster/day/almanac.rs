//! A day as workers keep it, and what must be read of it.

use std::collections::BTreeMap;

use heyday::birthday::Birthday;
use heyday::calendar::{Calendar, zone_named};
use heyday::change::UserId;
use heyday::client::Reader;
use heyday::client::day::Celebrations;
use heyday::client::reader;
use heyday::key::day_member;
use heyday::local::Nodes;
use heyday::redis::Pipeline;
use heyday::shard::Shard;
use jiff::civil::Date;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::client::Ground;

pub const ZONES: [&str; 7] = [
    "Pacific/Kiritimati",
    "Asia/Kathmandu",
    "Europe/Berlin",
    "UTC",
    "America/St_Johns",
    "America/New_York",
    "Etc/GMT+12",
];
/// Commands that are sent at once.
const COMMANDS_MAX: usize = 500;

/// Users whose friends celebrate today, in zones all around.
pub struct Almanac {
    pub ground: Ground,
    pub date: Date,
    pub calendar: Calendar,
    users: BTreeMap<UserId, Stored>,
    random: SmallRng,
}

/// What is stored of a user.
#[derive(Clone, Debug)]
pub struct Stored {
    pub due: i64,
    pub friends: BTreeMap<UserId, Birthday>,
}

/// One celebration, in the order in which a walk must find it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub shard: Shard,
    pub due: i64,
    /// The member's bytes, by which it is ordered.
    pub member: String,
    pub user: UserId,
    pub friend: UserId,
    pub birthday: Birthday,
}

/// What a walk found, celebration by celebration.
pub fn entries(found: &[Celebrations]) -> Vec<Entry> {
    let entries = found.iter().flat_map(|item| {
        item.friends.iter().map(|celebrant| Entry {
            shard: item.shard,
            due: item.due,
            member: day_member(&item.user, celebrant.friend.as_str()),
            user: item.user.clone(),
            friend: celebrant.friend.clone(),
            birthday: celebrant.birthday,
        })
    });
    entries.collect()
}

impl Almanac {
    pub async fn new(nodes: &Nodes, shards: u32, users: usize, friends_max: usize) -> Almanac {
        let ground = Ground::new(nodes, shards).await;
        let time = ground.ask_one(Shard(0), &["TIME"]).await;
        let now = time.as_array().unwrap()[0].as_u64().unwrap() * 1000;
        let calendar = Calendar::default();
        let date = calendar.today(now);
        let random = SmallRng::seed_from_u64(17);
        let mut almanac = Almanac { ground, date, calendar, users: BTreeMap::new(), random };
        let all: Vec<Shard> = almanac.ground.layout.shards().collect();
        for shard in all {
            almanac.rolled(shard, almanac.date).await;
        }
        for number in 0..users {
            // Ids of many lengths and alphabets: members are ordered by bytes across users.
            let name = match number % 3 {
                0 => format!("u{number}"),
                1 => format!("u{number}!"),
                _ => format!("ю{number}"),
            };
            let count = almanac.random.random_range(1..=friends_max * 2 - 1);
            almanac.invent(&name, count);
        }
        let all: Vec<UserId> = almanac.users.keys().cloned().collect();
        almanac.store(&all).await;
        almanac
    }

    pub fn reader(&self) -> Reader {
        self.ground.hub.reader(reader::Options { calendar: self.calendar.clone(), ..reader::Options::default() })
    }

    pub fn due(&self, zone: &str) -> i64 {
        self.calendar.due(&zone_named(zone).unwrap(), self.date)
    }

    pub fn shard_of(&self, user: &UserId) -> Shard {
        self.ground.layout.shard_of(user)
    }

    pub fn stored(&self, user: &UserId) -> &Stored {
        &self.users[user]
    }

    /// All that a walk must find now.
    pub fn expected(&self) -> Vec<Entry> {
        let entry = |user: &UserId, due: i64, friend: &UserId, birthday: Birthday| {
            let (user, friend) = (user.clone(), friend.clone());
            Entry {
                shard: self.shard_of(&user),
                due,
                member: day_member(&user, friend.as_str()),
                user,
                friend,
                birthday,
            }
        };
        let all = self.users.iter().flat_map(|(user, stored)| {
            stored.friends.iter().map(move |(friend, birthday)| entry(user, stored.due, friend, *birthday))
        });
        let mut all: Vec<Entry> = all.collect();
        all.sort();
        all
    }

    /// What a roll leaves behind.
    pub async fn rolled(&self, shard: Shard, date: Date) {
        let state = &self.ground.hub.shard_keys(shard).state;
        let date = date.to_string();
        self.ground.ask_one(shard, &["HSET", state.as_str(), "rolled", &date, "open", &date]).await;
    }

    /// A user with so many friends.
    pub async fn add_user_with(&mut self, count: usize) -> UserId {
        let user = self.invent("u-many", count);
        self.store(std::slice::from_ref(&user)).await;
        user
    }

    /// A user with these friends.
    pub async fn put(&mut self, name: &str, zone: &str, friends: &[(&str, &str)]) -> UserId {
        let user: UserId = name.parse().unwrap();
        let friends =
            friends.iter().map(|(friend, date)| (friend.parse().unwrap(), Birthday::parse(date).unwrap())).collect();
        self.users.insert(user.clone(), Stored { due: self.due(zone), friends });
        self.store(std::slice::from_ref(&user)).await;
        user
    }

    /// Takes one friend away, hash and member at once, as a commit does.
    pub async fn remove(&mut self, user: &UserId, friend: &UserId) {
        self.users.get_mut(user).unwrap().friends.remove(friend);
        let (shard, keys) = (self.shard_of(user), self.ground.hub.shard_keys(self.shard_of(user)));
        let mut pipeline = Pipeline::new();
        pipeline.push(&["MULTI"]);
        pipeline.push(&["HDEL", keys.birthdays(user).as_str(), friend.as_str()]);
        pipeline.push(&["ZREM", keys.day(self.date).as_str(), &day_member(user, friend.as_str())]);
        pipeline.push(&["EXEC"]);
        self.ground.ask(shard, &pipeline).await;
    }

    /// Moves a user to another zone.
    pub async fn travel(&mut self, user: &UserId, zone: &str) {
        self.users.get_mut(user).unwrap().due = self.due(zone);
        self.store(std::slice::from_ref(user)).await;
    }

    /// Changes what the user's hash says and leaves the day as it is.
    pub async fn tell_only_the_hash(&mut self, user: &UserId, friend: &str, date: Option<&str>) {
        self.users.get_mut(user).unwrap().friends.remove(friend);
        let key = self.ground.hub.keys_of(user).birthdays(user);
        let words = match date {
            Some(date) => vec!["HSET", key.as_str(), friend, date],
            None => vec!["HDEL", key.as_str(), friend],
        };
        self.ground.ask_one(self.shard_of(user), &words).await;
    }

    fn invent(&mut self, name: &str, count: usize) -> UserId {
        let user: UserId = name.parse().unwrap();
        let (month, day) = (self.date.month(), self.date.day());
        let random = &mut self.random;
        let friends = (0..count).map(|_| {
            let friend = format!("f{}", random.random_range(0..1_000_000)).parse().unwrap();
            let born = Date::new(random.random_range(1950..2020), month, day).ok();
            (friend, born.map_or(Birthday::Day { month, day }, Birthday::Date))
        });
        let friends = friends.collect();
        let zone = ZONES[self.random.random_range(0..ZONES.len())];
        self.users.insert(user.clone(), Stored { due: self.due(zone), friends });
        user
    }

    async fn store(&self, users: &[UserId]) {
        let mut by_shard: BTreeMap<Shard, Vec<&UserId>> = BTreeMap::new();
        for user in users {
            by_shard.entry(self.shard_of(user)).or_default().push(user);
        }
        for (shard, users) in by_shard {
            for users in users.chunks(COMMANDS_MAX / 2) {
                self.store_in(shard, users).await;
            }
        }
    }

    async fn store_in(&self, shard: Shard, users: &[&UserId]) {
        let keys = self.ground.hub.shard_keys(shard);
        let mut pipeline = Pipeline::new();
        pipeline.push(&["MULTI"]);
        for user in users {
            let Stored { due, friends } = &self.users[*user];
            let mut hash = pipeline.command("HSET");
            hash.arg(keys.birthdays(user).as_bytes());
            friends.iter().for_each(|(friend, date)| {
                hash.arg(friend.as_str()).arg(date.to_string());
            });
            drop(hash);
            let mut day = pipeline.command("ZADD");
            day.arg(keys.day(self.date).as_bytes());
            friends.keys().for_each(|friend| {
                day.arg_i64(*due).arg(day_member(user, friend.as_str()));
            });
        }
        pipeline.push(&["EXEC"]);
        self.ground.ask(shard, &pipeline).await;
    }
}
