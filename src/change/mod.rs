//! A change as writers append it: flat fields of a stream entry, in both directions.
//!
//! [`Change::decode`] and [`Change::encode`] hold the one definition of the wire format (`docs/wire-format.md`).

mod decode;
mod encode;
mod id;
mod rejection;

use bytes::Bytes;

use crate::birthday::Birthday;

pub use id::UserId;
pub use rejection::{KINDS, Problem, Rejection};

/// Longest user or friend id, in bytes.
pub const USER_BYTES_MAX: usize = 64;
/// Longest event id and producer name, in bytes.
pub const TOKEN_BYTES_MAX: usize = 128;
/// Longest name of a profile field, in bytes.
pub const PROFILE_NAME_BYTES_MAX: usize = 64;

/// The names of a profile's fields that heyday keeps itself.
pub const PROFILE_RESERVED: [&str; 5] = ["schema", "version", "updated_at", "birthday", "last_activity"];

/// The fields of a stream entry, in the order in which they were written.
pub type Fields = Vec<(Bytes, Bytes)>;

/// One change to one user's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub user: UserId,
    pub action: Action,
    /// Newest wins: an older one than the stored version of the same friendship or profile field is not applied.
    pub version: Option<u64>,
    /// A second entry with the same event id within the dedup window is dropped.
    pub event: Option<String>,
    /// An entry whose sequence is not above the producer's last applied one is dropped.
    pub producer: Option<Producer>,
    /// When it happened, Unix milliseconds; the entry id's time where absent.
    pub at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A friendship begins, or its date is set; no birthday keeps a known date.
    Add {
        friend: UserId,
        birthday: Option<Birthday>,
    },
    Remove {
        friend: UserId,
    },
    /// The date of an existing friendship; nothing happens where there is none.
    Update {
        friend: UserId,
        birthday: Birthday,
    },
    /// The user's own date.
    Birthday {
        birthday: Birthday,
    },
    /// Profile fields by name; none deletes the field.
    Profile {
        fields: Vec<(String, Option<String>)>,
    },
}

/// An idempotent producer's name and the position of this change among its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    pub name: String,
    pub sequence: u64,
}

/// The bounds of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest value of a field, in bytes.
    pub field_bytes_max: usize,
    /// Most fields of an entry.
    pub fields_max: usize,
    /// Whether a field nobody knows makes the entry a dead letter.
    pub strict: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { field_bytes_max: 4096, fields_max: 64, strict: false }
    }
}

impl Change {
    /// A change with no version, event id, producer or time of its own.
    pub fn new(user: UserId, action: Action) -> Change {
        Change { user, action, version: None, event: None, producer: None, at: None }
    }
}

impl Action {
    /// The value of the field `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Add { .. } => "add",
            Action::Remove { .. } => "remove",
            Action::Update { .. } => "update",
            Action::Birthday { .. } => "birthday",
            Action::Profile { .. } => "profile",
        }
    }
}
