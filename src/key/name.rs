//! From a name found in a cluster back to what it is.

use super::{Keys, Row};
use crate::shard::slot_of;

/// What a found name says.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub row: &'static Row,
    /// What the name begins with; empty for the names that belong to no shard.
    pub space: &'a str,
    /// The hash tag; none for the names that belong to no shard.
    pub tag: Option<&'a str>,
    /// What stands where the row says `ID`, `EVENTID` or `YYYY-MM-DD`; empty where there is no such part.
    pub part: &'a str,
    /// Which of a user's keys it is; empty for all others.
    pub view: &'a str,
}

impl Keys {
    /// The registry's row for a name with its variable parts; none for a key that heyday does not know.
    pub fn parse<'a>(&self, name: &'a str) -> Option<Found<'a>> {
        let row = self.row_of(name)?;
        let name = name.strip_prefix(self.prefix())?;
        let Some((space, rest)) = name.split_once(":{") else {
            return Some(Found { row, space: "", tag: None, part: "", view: "" });
        };
        let (tag, rest) = rest.split_once('}')?;
        let rest = rest.strip_prefix(':').unwrap_or_default();
        let (part, view) = match space {
            "user" => rest.split_once(':').unwrap_or((rest, "")),
            _ => (rest, ""),
        };
        Some(Found { row, space, tag: Some(tag), part, view })
    }
}

/// The slot of any name, as Redis computes it: an empty tag is none.
pub fn slot_of_name(name: &[u8]) -> u16 {
    let position = |text: &[u8], wanted: u8| text.iter().position(|byte| *byte == wanted);
    let tag = position(name, b'{').and_then(|open| {
        let rest = &name[open + 1..];
        position(rest, b'}').filter(|close| *close > 0).map(|close| &rest[..close])
    });
    slot_of(tag.unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let keys = Keys::new("p:").unwrap();
        let cases = [
            ("p:heyday:layout", "heyday:layout", ["", "", "", ""]),
            ("p:changes:{2.0}", "changes:{t}", ["changes", "2.0", "", ""]),
            ("p:user:{2.0}:42:profile", "user:{t}:ID:profile", ["user", "2.0", "42", "profile"]),
            ("p:birthdays:{2.0}:2026-01-02", "birthdays:{t}:YYYY-MM-DD", ["birthdays", "2.0", "2026-01-02", ""]),
            ("p:dedup:{2.0}:a:b{c}", "dedup:{t}:EVENTID", ["dedup", "2.0", "a:b{c}", ""]),
        ];
        for (name, pattern, parts) in cases {
            let found = keys.parse(name).unwrap();
            let told = [found.space, found.tag.unwrap_or_default(), found.part, found.view];
            assert_eq!((found.row.pattern, told), (pattern, parts), "{name}");
        }
        assert!(keys.parse("q:changes:{2.0}").is_none());
    }

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT of a real server.
        for (name, slot) in [("foo", 12182), ("{foo}", 12182), ("a{foo}b{bar}", 12182), ("{}foo", 9500), ("", 0)] {
            assert_eq!(slot_of_name(name.as_bytes()), slot, "{name}");
        }
    }
}
