//! Why an entry is no change: the field, the value and what was expected, in words a person understands.

use std::fmt;

use super::WEIGHT_MAX;
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
    #[error("expected the IANA name of a time zone, such as Europe/Berlin")]
    NoSuchZone,
    #[error("expected a number from 0 to 18446744073709551615")]
    NotANumber,
    #[error("expected 0 or 1")]
    NotAFlag,
    #[error("expected two or three numbers joined by hyphens")]
    NotAPosition,
    #[error("expected shard: and a number")]
    NotAShard,
    #[error("{users} users, at most {users_max} are allowed")]
    TooManyUsers { users: usize, users_max: usize },
    #[error("expected items such as 77=1990-05-01 or 77=1990-05-01@7, parted by spaces")]
    ListForm,
    #[error("expected in the order of bytes, each once and within from and to")]
    NotAscending,
    #[error("given without {0}")]
    Without(&'static str),
    #[error("expected a whole number from 1 to {WEIGHT_MAX}")]
    Weight,
    #[error("expected add, remove, update, birthday, profile, activity or forget")]
    UnknownType,
    #[error("kept by heyday itself")]
    Reserved,
    #[error("no such field for this type")]
    UnknownField,
    #[error("no such field for this type; profile fields are written profile.NAME")]
    Unprefixed,
    #[error("{fields} fields, at most {fields_max} are allowed")]
    TooMany { fields: usize, fields_max: usize },
    #[error("belongs to shard {belongs}, not to shard {found}, in whose stream it was found")]
    WrongShard { belongs: Shard, found: Shard },
    #[error("the profile would have {fields} own fields, at most {fields_max} are allowed")]
    ProfileFull { fields: u64, fields_max: u64 },
    #[error("trimmed from the stream before it was applied")]
    Trimmed,
    #[error("too large for a worker to read")]
    Unreadable,
    #[error("delivered {0} times without being applied")]
    Undeliverable(u64),
    #[error("refused by the server: {0}")]
    Refused(String),
}

/// Makes the one list of kinds: an enum for the compiler and its names for everybody else.
macro_rules! kinds {
    ($($kind:ident = $name:literal),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Kind { $($kind),+ }

        /// Every kind of problem a dead letter can have.
        pub const KINDS: &[&str] = &[$($name),+];

        impl Kind {
            fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),+ }
            }
        }
    };
}

kinds! {
    Missing = "missing",
    TooLong = "too_long",
    ForbiddenCharacter = "forbidden_character",
    NotUtf8 = "not_utf8",
    Repeated = "repeated",
    SameAsUser = "same_as_user",
    Birthday = "birthday",
    NoSuchZone = "no_such_zone",
    NotANumber = "not_a_number",
    IncompletePair = "incomplete_pair",
    UnknownType = "unknown_type",
    UnknownField = "unknown_field",
    WrongShard = "wrong_shard",
    ProfileFull = "profile_full",
    Trimmed = "trimmed",
    Undeliverable = "undeliverable",
    Refused = "refused",
}

impl Rejection {
    pub fn new(field: impl Into<String>, value: Option<&[u8]>, problem: Problem) -> Rejection {
        Rejection { field: field.into(), value: value.map(shown), problem }
    }

    /// A short, stable name of the problem, for counting; one of [`KINDS`].
    pub fn kind(&self) -> &'static str {
        self.problem.kind().name()
    }
}

impl Problem {
    fn kind(&self) -> Kind {
        match self {
            Problem::Missing | Problem::Empty => Kind::Missing,
            Problem::TooLong { .. } | Problem::TooMany { .. } | Problem::TooManyUsers { .. } | Problem::Unreadable => {
                Kind::TooLong
            }
            Problem::Forbidden(_) | Problem::Control(_) => Kind::ForbiddenCharacter,
            Problem::NotUtf8 => Kind::NotUtf8,
            Problem::Repeated | Problem::NotAscending => Kind::Repeated,
            Problem::SameAsUser => Kind::SameAsUser,
            Problem::NoSuchDay | Problem::Future | Problem::DateForm | Problem::ListForm => Kind::Birthday,
            Problem::NoSuchZone => Kind::NoSuchZone,
            Problem::NotANumber | Problem::NotAFlag | Problem::NotAPosition | Problem::NotAShard | Problem::Weight => {
                Kind::NotANumber
            }
            Problem::Without(_) => Kind::IncompletePair,
            Problem::UnknownType => Kind::UnknownType,
            Problem::Reserved | Problem::UnknownField | Problem::Unprefixed => Kind::UnknownField,
            Problem::WrongShard { .. } => Kind::WrongShard,
            Problem::ProfileFull { .. } => Kind::ProfileFull,
            Problem::Trimmed => Kind::Trimmed,
            Problem::Undeliverable(_) => Kind::Undeliverable,
            Problem::Refused(_) => Kind::Refused,
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
