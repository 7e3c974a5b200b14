//! Why an entry is no change: the field, the value and what was expected, in words a person understands.

use std::fmt;

use crate::shard::Shard;

/// Longest part of a value that a reason repeats, in characters.
const VALUE_SHOWN_MAX: usize = 64;

/// An entry that cannot be applied. Prints as `birthday "1990-02-30": no such day`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub field: String,
    /// The value, shortened; none where the field is missing.
    pub value: Option<String>,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("missing")]
    Missing,
    #[error("empty")]
    Empty,
    #[error("{bytes} bytes long, at most {bytes_max} are allowed")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("contains {0:?}; control characters, spaces, braces and colons are not allowed")]
    Forbidden(char),
    #[error("contains {0:?}; control characters are not allowed")]
    Control(char),
    #[error("not valid UTF-8")]
    NotUtf8,
    #[error("given more than once")]
    Repeated,
    #[error("the same as user")]
    SameAsUser,
    #[error("no such day")]
    NoSuchDay,
    #[error("in the future")]
    Future,
    #[error("expected YYYY-MM-DD, --MM-DD or nothing")]
    DateForm,
    #[error("expected a number from 0 to 18446744073709551615")]
    NotANumber,
    #[error("expected 0 or 1")]
    NotAFlag,
    #[error("given without {0}")]
    Without(&'static str),
    #[error("expected add, remove, update, birthday or profile")]
    UnknownType,
    #[error("not applied by this version of heyday; replay it after the upgrade")]
    NotYet,
    #[error("kept by heyday itself")]
    Reserved,
    #[error("no such field for this type")]
    UnknownField,
    #[error("{fields} fields, at most {fields_max} are allowed")]
    TooMany { fields: usize, fields_max: usize },
    #[error("belongs to shard {belongs}, not to shard {found}, in whose stream it was found")]
    WrongShard { belongs: Shard, found: Shard },
    #[error("trimmed from the stream before it was applied")]
    Trimmed,
    #[error("delivered {0} times without being applied")]
    Undeliverable(u64),
    #[error("refused by the server: {0}")]
    Refused(String),
}

impl Rejection {
    pub fn new(field: impl Into<String>, value: Option<&[u8]>, problem: Problem) -> Rejection {
        Rejection { field: field.into(), value: value.map(shown), problem }
    }

    /// A short, stable name of the problem, for counting.
    pub fn kind(&self) -> &'static str {
        match self.problem {
            Problem::Missing | Problem::Empty => "missing",
            Problem::TooLong { .. } | Problem::TooMany { .. } => "too_long",
            Problem::Forbidden(_) | Problem::Control(_) => "forbidden_character",
            Problem::NotUtf8 => "not_utf8",
            Problem::Repeated => "repeated",
            Problem::SameAsUser => "same_as_user",
            Problem::NoSuchDay | Problem::Future | Problem::DateForm => "birthday",
            Problem::NotANumber | Problem::NotAFlag => "not_a_number",
            Problem::Without(_) => "incomplete_pair",
            Problem::UnknownType | Problem::NotYet => "unknown_type",
            Problem::Reserved | Problem::UnknownField => "unknown_field",
            Problem::WrongShard { .. } => "wrong_shard",
            Problem::Trimmed => "trimmed",
            Problem::Undeliverable(_) => "undeliverable",
            Problem::Refused(_) => "refused",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} {value:?}: {}", self.field, self.problem),
            None => write!(f, "{}: {}", self.field, self.problem),
        }
    }
}

impl std::error::Error for Rejection {}

fn shown(value: &[u8]) -> String {
    // A character has at most four bytes, so this much decides what is shown of a value of any size.
    let head = &value[..value.len().min(4 * VALUE_SHOWN_MAX + 4)];
    let text = String::from_utf8_lossy(head);
    if text.chars().count() <= VALUE_SHOWN_MAX {
        return text.into_owned();
    }
    text.chars().take(VALUE_SHOWN_MAX).chain(['…']).collect()
}
