//! Positions in a stream: the id of a change's entry and the id of a commit, both `major-minor` as Redis writes them.

use std::fmt;
use std::str::FromStr;

/// The id Redis gave to an entry of `changes:{tag}`: Unix milliseconds and a sequence within the millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    pub milliseconds: u64,
    pub sequence: u64,
}

/// The id of a commit, which is also its log entry's stream id: the owner's generation and a sequence within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId {
    pub generation: u64,
    pub sequence: u64,
}

/// When a change to both sides of a friendship happened, for both sides alike: the entry it came with and that entry's shard.
/// Each shard counts on from the highest it has seen, so that what a change can have known of is below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    pub entry: EntryId,
    pub shard: u16,
}

/// A commit writes fewer entries for other shards than can be told by so many bits.
const OUTBOX_BITS: u32 = 20;

/// Text that is not `<number>-<number>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("position {text:?}: expected two numbers joined by a hyphen, such as 1700000000000-0")]
pub struct ParseError {
    pub text: String,
}

impl EntryId {
    /// Below every entry: where a group starts that has no stored position.
    pub const ZERO: EntryId = EntryId::new(0, 0);

    pub const fn new(milliseconds: u64, sequence: u64) -> EntryId {
        EntryId { milliseconds, sequence }
    }
}

impl CommitId {
    /// The predecessor of a shard's first commit.
    pub const ZERO: CommitId = CommitId::new(0, 0);

    pub const fn new(generation: u64, sequence: u64) -> CommitId {
        CommitId { generation, sequence }
    }

    /// The id of what this commit writes for other shards, in order.
    pub const fn outbox(self, index: u64) -> EntryId {
        EntryId::new(self.generation, (self.sequence << OUTBOX_BITS) | index)
    }

    /// The highest such id.
    pub const fn outbox_last(self) -> EntryId {
        self.outbox((1 << OUTBOX_BITS) - 1)
    }
}

impl Order {
    /// That of `entry` in `shard`, or one just above `seen`.
    pub fn after(entry: EntryId, shard: u16, seen: Order) -> Order {
        let own = Order { entry, shard };
        if own > seen {
            return own;
        }
        let entry = match seen.entry.sequence.checked_add(1) {
            Some(sequence) => EntryId::new(seen.entry.milliseconds, sequence),
            None => EntryId::new(seen.entry.milliseconds.saturating_add(1), 0),
        };
        Order { entry, shard }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.entry, self.shard)
    }
}

impl FromStr for Order {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Order, ParseError> {
        let parts = text.rsplit_once('-').and_then(|(entry, shard)| {
            let shard = number(shard).and_then(|shard| u16::try_from(shard).ok())?;
            Some(Order { entry: entry.parse().ok()?, shard })
        });
        parts.ok_or_else(|| ParseError { text: text.to_owned() })
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.milliseconds, self.sequence)
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.sequence)
    }
}

impl FromStr for EntryId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<EntryId, ParseError> {
        pair(text).map(|(major, minor)| EntryId::new(major, minor))
    }
}

impl FromStr for CommitId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<CommitId, ParseError> {
        pair(text).map(|(major, minor)| CommitId::new(major, minor))
    }
}

fn pair(text: &str) -> Result<(u64, u64), ParseError> {
    let error = || ParseError { text: text.to_owned() };
    let (major, minor) = text.split_once('-').ok_or_else(error)?;
    Ok((number(major).ok_or_else(error)?, number(minor).ok_or_else(error)?))
}

/// `u64::from_str` takes a leading plus sign, which Redis never writes.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_print_and_parse_alike() {
        for text in ["0-0", "1700000000000-0", "18446744073709551615-18446744073709551615"] {
            assert_eq!(text.parse::<EntryId>().unwrap().to_string(), text);
            assert_eq!(text.parse::<CommitId>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "1", "-", "1-", "-1", "+1-0", "1-0-0", "a-b", "18446744073709551616-0", " 1-0"] {
            assert!(text.parse::<EntryId>().is_err(), "{text:?} was taken for a position");
        }
    }

    #[test]
    fn an_order_is_its_entry_or_just_above_what_was_seen() {
        let own = Order::after(EntryId::new(5, 0), 7, Order::default());
        assert_eq!(own.to_string(), "5-0-7");
        assert_eq!("5-0-7".parse(), Ok(own));
        assert_eq!(Order::after(EntryId::new(6, 1), 2, own).to_string(), "6-1-2");
        let ahead: Order = "900-3-1".parse().unwrap();
        assert_eq!(Order::after(EntryId::new(6, 1), 2, ahead).to_string(), "900-4-2");
        let last: Order = "900-18446744073709551615-1".parse().unwrap();
        assert_eq!(Order::after(EntryId::new(6, 1), 2, last).to_string(), "901-0-2");
        for text in ["", "1-2", "1-2-3-4", "1-2-65536", "1--2"] {
            assert!(text.parse::<Order>().is_err(), "{text:?} was taken for an order");
        }
    }

    #[test]
    fn positions_order_as_redis_orders_them() {
        assert!(EntryId::new(9, 99) < EntryId::new(10, 0));
        assert!(CommitId::new(10, 1) < CommitId::new(10, 2));
    }
}
