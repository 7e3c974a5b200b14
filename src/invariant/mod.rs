//! What must hold of everything stored, whatever happened to the cluster: pure rules from what was read to what is wrong.
//!
//! Each rule is about what one transaction may touch, so it holds in every atomic look at a shard, also under load.

mod activity;
mod day;
mod log;
mod name;
mod state;
mod view;

use std::fmt;

use jiff::civil::Date;

pub use activity::{judge_category, judge_day_count, judge_day_sum};
pub use day::{Day, PROGRESS_FIELDS, Progress, Sight, Standing};
pub use log::{follows, read_entry};
pub use name::{Life, judge_kind, life};
pub use state::{Group, ShardFacts, Unreadable};
pub use view::{Listing, PROFILE_FIELDS, judge_friend, judge_producer, judge_profile, judge_version};

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub kind: Kind,
    pub key: String,
    pub expected: String,
    pub found: String,
    /// What to look at and put right; none where no rule says what would be right.
    pub repair: Option<Repair>,
}

/// Something derived that can be made anew from what it is derived from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// A member of a day key.
    Member { date: Date, member: String },
    /// When a day key expires.
    Expiry { date: Date },
    /// Whether `users` lists a user.
    Listing { user: String },
}

/// Which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    UnknownKey,
    WrongType,
    ForeignSlot,
    Expiry,
    WrongShard,
    Index,
    View,
    Day,
    Log,
    State,
    Group,
    Producer,
}

/// What a kind says, and what to do about it.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    pub kind: Kind,
    pub name: &'static str,
    pub meaning: &'static str,
    pub hint: &'static str,
}

/// Every kind, in their order.
pub const KINDS: [KindRow; 12] = [
    row(Kind::UnknownKey, "unknown_key", "no row of the registry names the key", "delete it if nobody needs it"),
    row(
        Kind::WrongType,
        "wrong_type",
        "the key's type is not its row's",
        "workers cannot go on there: rename it, and bring back what stood there",
    ),
    row(
        Kind::ForeignSlot,
        "foreign_slot",
        "the key's tag is no shard's, or a node holds a copy that is not its to hold",
        "delete the key, or the copy, after a look at it",
    ),
    row(
        Kind::Expiry,
        "expiry",
        "the key lives for ever and should not, or the other way round, or a day key to the wrong moment",
        "--repair mends day keys; else PERSIST or EXPIRE the key, or delete a lease",
    ),
    row(
        Kind::WrongShard,
        "wrong_shard",
        "the user belongs to another shard",
        "nobody reads it there: append its content as changes, then delete it",
    ),
    row(
        Kind::Index,
        "index",
        "`users` lists somebody without a view, or does not list somebody with one",
        "--repair mends it",
    ),
    row(
        Kind::View,
        "view",
        "a view or version is not well formed",
        "the next change of the same friend or field overwrites it",
    ),
    row(Kind::Day, "day", "a day key is not what the views make of it", "--repair mends it"),
    row(
        Kind::Log,
        "log",
        "the chain of commits is broken",
        "subscribers get a reset there; find out who wrote or deleted in the log",
    ),
    row(
        Kind::State,
        "state",
        "a shard's state is not well formed, or does not fit its log",
        "find out who wrote there",
    ),
    row(
        Kind::Group,
        "group",
        "the workers' group is lost, holds what is applied, or has a consumer too many",
        "a worker creates a lost group again; XGROUP DELCONSUMER removes a foreign consumer",
    ),
    row(
        Kind::Producer,
        "producer",
        "a producer's position is not well formed",
        "delete the field once the producer has stopped",
    ),
];

const fn row(kind: Kind, name: &'static str, meaning: &'static str, hint: &'static str) -> KindRow {
    KindRow { kind, name, meaning, hint }
}

/// The kinds as a table of the documentation.
pub fn markdown() -> String {
    let rows = KINDS.iter().map(|row| format!("| `{}` | {} | {} |\n", row.name, row.meaning, row.hint));
    format!("| kind | what is wrong | what to do |\n|---|---|---|\n{}", rows.collect::<String>())
}

impl Kind {
    pub fn row(self) -> &'static KindRow {
        &KINDS[self as usize]
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

impl Violation {
    pub fn new(kind: Kind, key: impl fmt::Display, expected: impl Into<String>, found: impl Into<String>) -> Violation {
        Violation { kind, key: key.to_string(), expected: expected.into(), found: found.into(), repair: None }
    }

    pub fn with(self, repair: Repair) -> Violation {
        Violation { repair: Some(repair), ..self }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: expected {}, found {}", self.kind, self.key, self.expected, self.found)
    }
}

/// Text of anybody's making, in one line and not too long.
pub fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 80;
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_in_its_place() {
        for (at, row) in KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, at, "{}", row.name);
            assert_eq!(row.kind.to_string(), row.name);
        }
    }

    #[test]
    fn a_violation_is_one_line() {
        let violation = Violation::new(Kind::View, "user:{0}:a:birthdays", "a date", shown(b"x\n\xff"));
        assert_eq!(violation.to_string(), "view user:{0}:a:birthdays: expected a date, found \"x\\n\u{fffd}\"");
        assert!(shown(&[b'x'; 1000]).len() < 100);
    }
}
