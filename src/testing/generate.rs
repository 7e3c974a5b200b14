//! Random changes of every kind, good and bad, from a seed.

use bytes::Bytes;
use jiff::civil::Date;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::snapshots::{self, Snapshots};
use crate::change::{Fields, UserId};

/// What changes are about.
#[derive(Clone, Debug)]
pub struct Settings {
    pub users: u32,
    /// Distinct friends of a user.
    pub friends: u32,
    pub producers: u32,
    /// Distinct categories of activity.
    pub categories: u32,
    /// The servers' date: dates of birth lie near it, so that day keys are exercised.
    pub today: Date,
    /// How many entries of a hundred are no changes.
    pub malformed_percent: f64,
    /// How many of a hundred add or remove a friend on both sides. Users are friends of each other only in this way, and
    /// nobody tells their dates but themselves.
    pub mutual_percent: u32,
    /// Whether some of these carry a version. Not where several generators write about the same users: a version may only be
    /// given once.
    pub mutual_versions: bool,
    /// How many of a thousand forget a user.
    pub forgets_per_thousand: u32,
    /// Snapshots among the changes, where a rebuild is on.
    pub snapshots: Option<Snapshots>,
}

/// An entry to append.
#[derive(Clone, Debug)]
pub struct Generated {
    /// Decides the shard; for an entry that names no user, any.
    pub route: UserId,
    pub fields: Fields,
    /// What makes it no change, as in [`SPOILERS`].
    spoilt: Option<&'static str>,
}

impl Generated {
    /// Why it is no change, in the words of its dead letter; none for one that is good. Further fields may have been added.
    pub fn reason(&self) -> Option<String> {
        let reason = self.spoilt?;
        Some(reason.replace('~', &"x".repeat(64)).replace('#', &self.fields.len().to_string()))
    }
}

/// The same seed and settings give the same changes.
pub struct Generator {
    settings: Settings,
    random: SmallRng,
    made: u64,
    sequences: Vec<u64>,
    earlier: Vec<Generated>,
    /// When the servers' date began, Unix milliseconds.
    midnight: u64,
}

/// Entries remembered to be written once more.
const EARLIER_MAX: usize = 64;
const DAY_MILLISECONDS: u64 = 24 * 3600 * 1000;

impl Settings {
    pub fn new(users: u32, today: Date) -> Settings {
        Settings {
            users,
            friends: 8,
            producers: 3,
            categories: 12,
            today,
            malformed_percent: 1.0,
            mutual_percent: 0,
            mutual_versions: true,
            forgets_per_thousand: 0,
            snapshots: None,
        }
    }
}

impl Generator {
    pub fn new(seed: u64, settings: Settings) -> Generator {
        let sequences = vec![0; settings.producers as usize];
        let midnight = jiff::tz::TimeZone::UTC.to_timestamp(settings.today.at(0, 0, 0, 0));
        let midnight = midnight.map_or(0, |midnight| midnight.as_millisecond() as u64);
        let random = SmallRng::seed_from_u64(seed);
        Generator { settings, random, made: 0, sequences, earlier: Vec::new(), midnight }
    }

    /// The next entry.
    pub fn entry(&mut self) -> Generated {
        self.made += 1;
        let malformed = self.random.random_bool(self.settings.malformed_percent / 100.0);
        // A writer that got no answer writes the same once more.
        if !malformed && !self.earlier.is_empty() && self.percent(3) {
            let at = self.random.random_range(0..self.earlier.len());
            return self.earlier[at].clone();
        }
        let mut text = if let Some(settings) = self.settings.snapshots.filter(|_| !malformed)
            && self.percent(15)
        {
            self.snapshot(settings)
        } else if self.settings.mutual_percent > 0 && self.percent(self.settings.mutual_percent) {
            self.mutual()
        } else {
            let mut text = self.change();
            self.identify(&mut text, true);
            text
        };
        if self.settings.forgets_per_thousand > 0
            && self.random.random_range(0..1000) < self.settings.forgets_per_thousand
        {
            text = vec![pair("type", "forget"), text.swap_remove(1)];
        }
        let route: UserId = text[1].1.parse().expect("generated ids are good");
        let mut fields: Fields = text.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let spoilt = malformed.then(|| self.spoil(&mut fields));
        let generated = Generated { route, fields, spoilt };
        if self.earlier.len() < EARLIER_MAX {
            self.earlier.push(generated.clone());
        } else {
            let at = self.random.random_range(0..EARLIER_MAX);
            self.earlier[at] = generated.clone();
        }
        generated
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    /// Type, user and what belongs to the type.
    fn change(&mut self) -> Vec<(String, String)> {
        // Skewed: a few users get most of the changes, so that batches repeat them.
        let fraction: f64 = self.random.random::<f64>();
        let user = (fraction * fraction * f64::from(self.settings.users)) as u32;
        let kind = ["add", "add", "add", "remove", "remove", "update", "update", "birthday", "profile", "activity"]
            [self.random.random_range(0..10)];
        let mut fields = vec![pair("type", kind), pair("user", format!("u{user}"))];
        if matches!(kind, "add" | "remove" | "update") {
            let friend = self.random.random_range(0..self.settings.friends);
            fields.push(pair("friend", format!("f{friend}")));
        }
        if matches!(kind, "update" | "birthday") || (kind == "add" && self.percent(70)) {
            let birthday = self.birthday();
            fields.push(pair("birthday", birthday));
        }
        if kind == "activity" {
            self.activity(&mut fields);
        }
        if kind == "profile" && self.percent(20) {
            // The ends of the world, one between the hours, and none.
            let zones = ["Pacific/Kiritimati", "Etc/GMT+12", "Asia/Kathmandu", ""];
            fields.push(pair("profile.tz", zones[self.random.random_range(0..zones.len())]));
        }
        if kind == "profile" {
            let first = self.random.random_range(0..4);
            for field in first..first + self.random.random_range(1..3) {
                let value =
                    if self.percent(25) { String::new() } else { format!("v{}", self.random.random_range(0..3)) };
                fields.push(pair(&format!("profile.p{field}"), value));
            }
        }
        if matches!(kind, "add" | "remove") && self.percent(3) {
            fields.push(pair("mutual", "0"));
        }
        if self.percent(3) {
            fields.push(pair("colour", "blue"));
        }
        fields
    }

    /// Categories more or less often, some with the weight they have if none is told.
    fn activity(&mut self, fields: &mut Vec<(String, String)>) {
        if self.percent(80) {
            let fraction: f64 = self.random.random::<f64>();
            let category = (fraction * fraction * f64::from(self.settings.categories)) as u32;
            fields.push(pair("category", format!("c{category}")));
        }
        if self.percent(60) {
            fields.push(pair("weight", self.random.random_range(1..10u32).to_string()));
        }
        if self.percent(40) {
            // Never one on whose age in days opinions may differ while it is applied, nor one in the future.
            let days =
                if self.percent(80) { self.random.random_range(0..25) } else { self.random.random_range(35..90) };
            let at = self.midnight - days * DAY_MILLISECONDS - self.random.random_range(1..DAY_MILLISECONDS);
            fields.push(pair("at", at.to_string()));
        }
    }

    fn snapshot(&mut self, settings: Snapshots) -> Vec<(String, String)> {
        let user = self.random.random_range(0..self.settings.users);
        let (size, today) = ((self.settings.friends, self.made), self.settings.today);
        let mut fields = vec![pair("type", "snapshot"), pair("user", format!("u{user}"))];
        fields.extend(snapshots::fields(settings, size, &mut self.random, |random| birthday(today, random)));
        fields
    }

    /// A change to both sides. Writers of a friendship send versions always or never.
    fn mutual(&mut self) -> Vec<(String, String)> {
        let user = self.random.random_range(0..self.settings.users);
        let friend = (user + self.random.random_range(1..self.settings.users)) % self.settings.users;
        let kind = if self.percent(70) { "add" } else { "remove" };
        let mut fields = vec![
            pair("type", kind),
            pair("user", format!("u{user}")),
            pair("friend", format!("u{friend}")),
            pair("mutual", "1"),
        ];
        if self.settings.mutual_versions && (user + friend).is_multiple_of(2) {
            fields.push(pair("version", self.made.to_string()));
        }
        self.identify(&mut fields, false);
        fields
    }

    /// Version, event id, producer and time, each on some.
    fn identify(&mut self, fields: &mut Vec<(String, String)>, versions: bool) {
        if versions && self.percent(30) {
            // Mostly newer than before, sometimes older.
            let behind = if self.percent(30) { self.random.random_range(0..60) } else { 0 };
            fields.push(pair("version", self.made.saturating_sub(behind).to_string()));
        }
        if self.percent(20) {
            let repeats = if self.percent(20) { self.random.random_range(0..20) } else { 0 };
            fields.push(pair("id", format!("e:{}", self.made.saturating_sub(repeats))));
        }
        if self.settings.producers > 0 && self.percent(20) {
            let producer = self.random.random_range(0..self.sequences.len());
            if !self.percent(15) {
                self.sequences[producer] += 1;
            }
            fields.push(pair("producer", format!("p{producer}")));
            fields.push(pair("seq", self.sequences[producer].to_string()));
        }
        if fields[0].1 != "activity" && self.percent(10) {
            fields.push(pair("at", self.random.random_range(0..2_000_000_000_000u64).to_string()));
        }
    }

    fn birthday(&mut self) -> String {
        birthday(self.settings.today, &mut self.random)
    }

    /// Makes an entry one that no reader may take for a change, and answers why.
    fn spoil(&mut self, fields: &mut Fields) -> &'static str {
        let (spoil, reason) = SPOILERS[self.random.random_range(0..SPOILERS.len())];
        spoil(fields);
        reason
    }
}

type Spoiler = (fn(&mut Fields), &'static str);

/// One way each to be no change, and what the dead letter says of it, letter for letter: nothing here asks the decoder.
/// `~` stands for 64 times x, `#` for the number of fields.
const SPOILERS: [Spoiler; 27] = [
    (
        |fields| set(fields, "type", "addd"),
        r#"type "addd": expected add, remove, update, birthday, profile, activity or forget"#,
    ),
    (
        |fields| set(fields, "type", ""),
        r#"type "": expected add, remove, update, birthday, profile, activity or forget"#,
    ),
    (
        |fields| {
            friendship(fields, "f1", "1990-05-01");
            set(fields, "type", "mirror.add");
        },
        "order: missing",
    ),
    (
        |fields| {
            set(fields, "producer", "shard:3");
            set(fields, "seq", "7");
        },
        r#"producer "shard:3": kept by heyday itself"#,
    ),
    (
        |fields| {
            set(fields, "type", "activity");
            set(fields, "user", "u1");
            set(fields, "weight", "1000001");
        },
        r#"weight "1000001": expected a whole number from 1 to 1000000"#,
    ),
    (
        |fields| {
            set(fields, "type", "profile");
            set(fields, "user", "u1");
            fields.retain(|(name, _)| !name.starts_with(b"profile."));
            set(fields, "profile.tz", "Mars/Olympus");
        },
        r#"profile.tz "Mars/Olympus": expected the IANA name of a time zone, such as Europe/Berlin"#,
    ),
    (|fields| fields.retain(|(name, _)| name != "type"), "type: missing"),
    (|fields| fields.retain(|(name, _)| name != "user"), "user: missing"),
    (|fields| set(fields, "user", ""), r#"user "": empty"#),
    (|fields| set(fields, "user", "x".repeat(65)), r#"user "~…": 65 bytes long, at most 64 are allowed"#),
    (
        |fields| set(fields, "user", "4:2"),
        r#"user "4:2": contains ':'; control characters, spaces, braces and colons are not allowed"#,
    ),
    (
        |fields| set(fields, "user", "two words"),
        r#"user "two words": contains ' '; control characters, spaces, braces and colons are not allowed"#,
    ),
    (
        |fields| set(fields, "user", "{42}"),
        r#"user "{42}": contains '{'; control characters, spaces, braces and colons are not allowed"#,
    ),
    (
        |fields| set(fields, "user", "bell\u{7}"),
        r#"user "bell\u{7}": contains '\u{7}'; control characters, spaces, braces and colons are not allowed"#,
    ),
    (|fields| set(fields, "user", Bytes::from_static(b"\xff\xfe")), "user \"\u{fffd}\u{fffd}\": not valid UTF-8"),
    (|fields| friendship(fields, "", "1990-05-01"), r#"friend "": empty"#),
    (|fields| friendship(fields, "u1", "1990-05-01"), r#"friend "u1": the same as user"#),
    (|fields| friendship(fields, "f1", "1990-02-30"), r#"birthday "1990-02-30": no such day"#),
    (|fields| friendship(fields, "f1", "2999-01-01"), r#"birthday "2999-01-01": in the future"#),
    (|fields| friendship(fields, "f1", "1.5.1990"), r#"birthday "1.5.1990": expected YYYY-MM-DD, --MM-DD or nothing"#),
    (
        |fields| {
            friendship(fields, "f1", "1990-05-01");
            set(fields, "version", "-1");
        },
        r#"version "-1": expected a number from 0 to 18446744073709551615"#,
    ),
    (
        |fields| {
            friendship(fields, "f1", "1990-05-01");
            set(fields, "version", "18446744073709551616");
        },
        r#"version "18446744073709551616": expected a number from 0 to 18446744073709551615"#,
    ),
    (
        |fields| {
            fields.retain(|(name, _)| name != "producer");
            set(fields, "seq", "7");
        },
        r#"seq "7": given without producer"#,
    ),
    (|fields| set(fields, "id", "x".repeat(129)), r#"id "~…": 129 bytes long, at most 128 are allowed"#),
    (|fields| fields.push(("user".into(), "u2".into())), r#"user "u2": given more than once"#),
    (
        |fields| fields.push(("profile.bio".into(), "x".repeat(5000).into())),
        r#"profile.bio "~…": 5000 bytes long, at most 4096 are allowed"#,
    ),
    (
        |fields| fields.extend((0..65).map(|field| (format!("more{field}").into(), "".into()))),
        "entry: # fields, at most 64 are allowed",
    ),
];

fn birthday(today: Date, random: &mut SmallRng) -> String {
    let near = today.saturating_add(jiff::Span::new().days(random.random_range(-4..=12)));
    let year = random.random_range(1940..=near.year());
    // No day of a year that is over lies in the future.
    let past = year.min(today.year() - 1);
    match random.random_range(0..10) {
        0 => String::new(),
        1 => ["--02-29", "2000-02-29", "1996-02-29"][random.random_range(0..3)].to_owned(),
        2 => format!("{past:04}-{:02}-{:02}", random.random_range(1..13), random.random_range(1..29)),
        3 | 4 => format!("--{:02}-{:02}", near.month(), near.day()),
        // Somebody born today or yesterday celebrates next year; nobody is born tomorrow.
        5 => today.saturating_sub(jiff::Span::new().days(random.random_range(0..3))).to_string(),
        _ => match Date::new(year, near.month(), near.day()) {
            Ok(date) if date <= today => date.to_string(),
            _ => format!("1990-{:02}-01", near.month()),
        },
    }
}

fn pair(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

fn set(fields: &mut Fields, name: &'static str, value: impl Into<Bytes>) {
    fields.retain(|(known, _)| known != name);
    fields.push((name.into(), value.into()));
}

fn friendship(fields: &mut Fields, friend: &'static str, birthday: &'static str) {
    set(fields, "type", "add");
    set(fields, "user", "u1");
    set(fields, "friend", friend);
    set(fields, "birthday", birthday);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Change, Limits};

    const NOW: u64 = 1_795_978_800_000;

    fn generator(seed: u64, malformed_percent: f64) -> Generator {
        let settings = Settings::new(20, jiff::civil::date(2026, 11, 29));
        Generator::new(seed, Settings { malformed_percent, ..settings })
    }

    fn refusal(generated: &Generated) -> Option<String> {
        Change::decode(&generated.fields, &Limits::default(), NOW).err().map(|rejection| rejection.to_string())
    }

    #[test]
    fn a_seed_gives_the_same_entries() {
        let entries = |seed| {
            let mut generator = generator(seed, 1.0);
            (0..200).map(|_| generator.entry().fields).collect::<Vec<_>>()
        };
        assert_eq!(entries(7), entries(7));
        assert_ne!(entries(7), entries(8));
    }

    #[test]
    fn entries_are_good_unless_spoilt() {
        let mut sound = generator(1, 0.0);
        for _ in 0..20_000 {
            let entry = sound.entry();
            assert_eq!((refusal(&entry), entry.reason()), (None, None), "{entry:?}");
        }
        let mut spoilt = generator(1, 100.0);
        for _ in 0..2000 {
            let entry = spoilt.entry();
            assert!(entry.reason().is_some(), "{entry:?} was meant to be no change");
            assert_eq!(refusal(&entry), entry.reason(), "{entry:?}");
        }
    }
}
