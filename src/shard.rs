//! Routing: which shard a user belongs to, and which hash tag puts a shard's keys into one cluster slot.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::change::UserId;

/// Slots of a Redis Cluster.
pub const SLOTS: u32 = 16384;
/// Shards of a layout where nobody says otherwise.
pub const SHARDS_DEFAULT: u32 = 256;
/// The format of keys and payloads this build reads and writes; stored in `heyday:layout`.
pub const FORMAT: u32 = 1;

/// The number of a shard within its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

/// How many shards there are, and each one's tag and slot. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    shards: u32,
    places: Arc<[Place]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    tag: Box<str>,
    slot: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("shards {0}: expected a power of two from 1 to 16384")]
    Count(u32),
    #[error("shard {shard}: this layout has shards 0 to {last}")]
    NoSuchShard { shard: u32, last: u32 },
    #[error("shard {0:?}: expected a number")]
    NotANumber(String),
    #[error("layout format {stored}: this build reads format {FORMAT}")]
    Format { stored: String },
    #[error("layout: the stored tag of shard {shard} is {stored:?}, this build computes {computed:?}")]
    Tag { shard: u32, stored: String, computed: String },
}

impl Layout {
    /// The layout of `shards` equal, contiguous slices of the slot space.
    pub fn new(shards: u32) -> Result<Layout, Error> {
        if !shards.is_power_of_two() || shards > SLOTS {
            return Err(Error::Count(shards));
        }
        let mut tags = Tags::default();
        let places = (0..shards).map(|shard| tags.place(shard, shards)).collect();
        Ok(Layout { shards, places })
    }

    /// The number of shards, a power of two from 1 to 16384.
    pub fn count(&self) -> u32 {
        self.shards
    }

    pub fn shards(&self) -> impl Iterator<Item = Shard> + Clone + use<> {
        (0..self.shards).map(|shard| Shard(shard as u16))
    }

    pub fn shard_of(&self, user: &UserId) -> Shard {
        let slot = u32::from(slot_of(user.as_str().as_bytes()));
        Shard((slot * self.shards / SLOTS) as u16)
    }

    /// The shard with this number, or an error that names the range.
    pub fn shard(&self, number: u32) -> Result<Shard, Error> {
        if number < self.shards {
            Ok(Shard(number as u16))
        } else {
            Err(Error::NoSuchShard { shard: number, last: self.shards - 1 })
        }
    }

    /// The hash tag of a shard, without braces: `i.k`.
    pub fn tag(&self, shard: Shard) -> &str {
        &self.places[usize::from(shard.0)].tag
    }

    /// The slot of all of a shard's keys.
    pub fn slot(&self, shard: Shard) -> u16 {
        self.places[usize::from(shard.0)].slot
    }

    /// Every tag in shard order, as `heyday:layout` stores them.
    pub fn tags(&self) -> Vec<&str> {
        self.places.iter().map(|place| &*place.tag).collect()
    }

    /// Proves that a stored table of tags is the one this build computes.
    pub fn verify_tags(&self, stored: &[String]) -> Result<(), Error> {
        for (shard, place) in self.places.iter().enumerate() {
            let tag = stored.get(shard).map_or("", String::as_str);
            if tag != &*place.tag {
                return Err(Error::Tag {
                    shard: shard as u32,
                    stored: tag.to_owned(),
                    computed: place.tag.to_string(),
                });
            }
        }
        Ok(())
    }
}

/// Redis's own hash slot of a key without braces.
pub fn slot_of(key: &[u8]) -> u16 {
    checksum(key) % SLOTS as u16
}

/// Finds tags. The checksum is linear: that of `i.k` is that of `i.` with as many zero bytes behind it as `k` has digits,
/// combined by XOR with that of `k` alone. So each `k` is hashed once for all shards; with 16384 of them, which need a hundred
/// thousand tries and more, that is the difference between an instant and minutes.
#[derive(Default)]
struct Tags {
    /// By `k`: its digits and its checksum.
    suffixes: Vec<(usize, u16)>,
}

impl Tags {
    const DIGITS_MAX: usize = 10;

    /// The least `k` for which the tag's slot lies in the middle half of the shard's slice: far from the slice's edges, so
    /// that slices which follow slot ranges keep a shard on the node of its users' own slots. The rule may never change.
    fn place(&mut self, shard: u32, shards: u32) -> Place {
        let width = SLOTS / shards;
        let start = shard * width;
        let middle = start + width / 4..start + width - width / 4;
        let prefix = format!("{shard}.");
        let heads: Vec<u16> = (0..=Self::DIGITS_MAX)
            .map(|digits| checksum(format!("{prefix}{}", "\0".repeat(digits)).as_bytes()))
            .collect();
        let (k, slot) = (0..)
            .map(|k| {
                let (digits, tail) = self.suffix(k);
                (k, (heads[digits] ^ tail) % SLOTS as u16)
            })
            .find(|(_, slot)| middle.contains(&u32::from(*slot)))
            .expect("every slot is the hash of some k");
        Place { tag: format!("{prefix}{k}").into_boxed_str(), slot }
    }

    fn suffix(&mut self, k: usize) -> (usize, u16) {
        while self.suffixes.len() <= k {
            let text = self.suffixes.len().to_string();
            self.suffixes.push((text.len(), checksum(text.as_bytes())));
        }
        self.suffixes[k]
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(bytes)
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Shard, Error> {
        text.parse().map(Shard).map_err(|_| Error::NotANumber(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT of a real server.
        for (key, slot) in [("foo", 12182), ("bar", 5061), ("hello", 866), ("", 0), ("123456789", 12739)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn tags_of_256_shards_never_change() {
        let layout = Layout::new(256).unwrap();
        let golden: Vec<&str> = include_str!("../tests/golden/tags_256.txt").split_whitespace().collect();
        assert_eq!(layout.tags(), golden);
    }

    #[test]
    fn each_tag_lies_in_the_middle_half_of_its_slice() {
        for shards in [1, 2, 64, 256, 1024, 16384] {
            let layout = Layout::new(shards).unwrap();
            let width = SLOTS / shards;
            for shard in layout.shards() {
                assert_eq!(layout.slot(shard), slot_of(layout.tag(shard).as_bytes()), "{shards} shards, shard {shard}");
                let offset = u32::from(layout.slot(shard)) - u32::from(shard.0) * width;
                assert!(offset >= width / 4 && offset < width - width / 4, "{shards} shards, shard {shard}");
            }
        }
    }

    #[test]
    fn users_spread_over_contiguous_slices() {
        let layout = Layout::new(4).unwrap();
        for (user, shard) in [("foo", 2), ("bar", 1), ("hello", 0), ("123456789", 3)] {
            assert_eq!(layout.shard_of(&user.parse().unwrap()), Shard(shard), "{user}");
        }
    }

    #[test]
    fn other_counts_are_refused() {
        for shards in [0, 3, 100, 32768] {
            assert_eq!(Layout::new(shards), Err(Error::Count(shards)));
        }
    }

    #[test]
    fn a_foreign_table_is_named() {
        let layout = Layout::new(2).unwrap();
        let mut stored: Vec<String> = layout.tags().iter().map(|tag| tag.to_string()).collect();
        assert_eq!(layout.verify_tags(&stored), Ok(()));
        stored[1] = "x".into();
        let message = layout.verify_tags(&stored).unwrap_err().to_string();
        assert!(message.contains("shard 1") && message.contains("\"x\""), "{message}");
    }
}
