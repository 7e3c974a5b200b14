//! A change as writers append it: flat fields of a stream entry, in both directions.
//!
//! [`Change::decode`] and [`Change::encode`] hold the one definition of the wire format (`docs/wire-format.md`).

mod decode;
mod encode;
mod id;
mod rejection;
mod snapshot;

use bytes::Bytes;

use crate::birthday::Birthday;
use crate::position::{EntryId, Order};
use crate::shard::Shard;

pub use encode::Field;
pub use id::UserId;
pub use rejection::{KINDS, Problem, Rejection};
pub use snapshot::{Listed, SNAPSHOT_FIELDS_MAX, SNAPSHOT_ITEM_BYTES_MAX, SNAPSHOT_LIST_BYTES_MAX, Snapshot};

/// Longest user or friend id, in bytes.
pub const USER_BYTES_MAX: usize = 64;
/// Longest event id and producer name, in bytes.
pub const TOKEN_BYTES_MAX: usize = 128;
/// Longest name of a profile field, in bytes.
pub const PROFILE_NAME_BYTES_MAX: usize = 64;
/// Longest category of an activity, in bytes.
pub const CATEGORY_BYTES_MAX: usize = 64;
/// The most that one activity counts.
pub const WEIGHT_MAX: u32 = 1_000_000;
/// Most users of one entry from another shard, the first one included.
pub const MIRROR_USERS_MAX: usize = 256;
/// What the producer name of a shard begins with; no writer may use such a name.
pub const SHARD_PRODUCER: &str = "shard:";

/// The names of a profile's fields that heyday keeps itself.
pub const PROFILE_RESERVED: [&str; 6] = ["schema", "version", "updated_at", "birthday", "last_activity", "expires_at"];

/// The profile field that names the user's own time zone.
pub const ZONE_FIELD: &str = "tz";

/// The fields of a stream entry, in the order in which they were written.
pub type Fields = Vec<(Bytes, Bytes)>;

/// One change to one user's view; from another shard, the same change to the views of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub user: UserId,
    /// Further users of the same shard; only where another shard tells it.
    pub others: Vec<UserId>,
    pub action: Action,
    /// Newest wins: an older one than the stored version of the same friendship or profile field is not applied.
    pub version: Option<u64>,
    /// A second entry with the same event id within the dedup window is dropped.
    pub event: Option<String>,
    /// An entry whose sequence is not above the producer's last applied one is dropped.
    pub producer: Option<Producer>,
    /// When it happened, Unix milliseconds; the entry id's time where absent.
    pub at: Option<u64>,
    /// Where it comes from, if not from a writer.
    pub relayed: Option<Relayed>,
}

/// Which shard's outbox an entry comes from, and its place there. One that is not above the last applied one from that
/// shard is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    pub source: Shard,
    pub id: EntryId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A friendship begins, or its date is set; no birthday keeps a known date.
    Add {
        friend: UserId,
        birthday: Option<Birthday>,
        /// Whether the friend gets the user as a friend too.
        mutual: bool,
    },
    Remove {
        friend: UserId,
        /// Whether the friend loses the user too.
        mutual: bool,
    },
    /// The date of an existing friendship; nothing happens where there is none.
    Update { friend: UserId, birthday: Birthday },
    /// The user's own date.
    Birthday { birthday: Birthday },
    /// Profile fields by name; none deletes the field.
    Profile { fields: Vec<(String, Option<String>)> },
    /// The user did something. A version has no meaning for it.
    Activity {
        /// What it was about; none counts for the day alone.
        category: Option<String>,
        /// How much it counts, from 1 to [`WEIGHT_MAX`].
        weight: u32,
    },
    /// Everything of the user goes, the other side of friendships included.
    Forget,
    /// What another shard tells.
    Mirror(Mirror),
    /// What the user's view was at a moment, or a part of it.
    Snapshot(Box<Snapshot>),
}

/// What one shard tells another: the other side of what happened to `friend`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// `friend` added the user, on both sides. The birthday is `friend`'s own.
    Add {
        friend: UserId,
        birthday: Option<Birthday>,
        /// Whether `friend` would like to know the user's own birthday.
        ask: bool,
        order: Order,
    },
    /// `friend` removed the user, on both sides.
    Remove { friend: UserId, order: Order },
    /// `friend`'s own birthday.
    Birthday { friend: UserId, birthday: Birthday },
    /// `friend` is forgotten.
    Forget { friend: UserId, order: Order },
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
        Change { user, others: Vec::new(), action, version: None, event: None, producer: None, at: None, relayed: None }
    }

    /// Everybody whose view it changes.
    pub fn users(&self) -> impl Iterator<Item = &UserId> {
        std::iter::once(&self.user).chain(&self.others)
    }
}

/// Whether activity may be about something of this name.
pub fn is_category(text: &str) -> bool {
    id::name(text, CATEGORY_BYTES_MAX).is_ok()
}

/// The name under which a shard produces entries for others.
pub fn shard_producer(shard: Shard) -> String {
    format!("{SHARD_PRODUCER}{shard}")
}

impl Action {
    /// The friend's date that it tells.
    pub fn date(&self) -> Option<Birthday> {
        match self {
            Action::Add { birthday, .. } | Action::Mirror(Mirror::Add { birthday, .. }) => *birthday,
            Action::Update { birthday, .. } | Action::Mirror(Mirror::Birthday { birthday, .. }) => Some(*birthday),
            Action::Remove { .. }
            | Action::Birthday { .. }
            | Action::Profile { .. }
            | Action::Activity { .. }
            | Action::Forget
            | Action::Snapshot(_)
            | Action::Mirror(Mirror::Remove { .. } | Mirror::Forget { .. }) => None,
        }
    }

    /// Whether a version decides if it is applied.
    pub(crate) fn has_version(&self) -> bool {
        !matches!(self, Action::Activity { .. })
    }

    /// Whether it may bring the user to another time zone.
    pub fn moves(&self) -> bool {
        matches!(self, Action::Profile { fields } if fields.iter().any(|(name, _)| name == ZONE_FIELD))
    }

    /// The value of the field `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Add { .. } => "add",
            Action::Remove { .. } => "remove",
            Action::Update { .. } => "update",
            Action::Birthday { .. } => "birthday",
            Action::Profile { .. } => "profile",
            Action::Activity { .. } => "activity",
            Action::Forget => "forget",
            Action::Mirror(Mirror::Add { .. }) => "mirror.add",
            Action::Mirror(Mirror::Remove { .. }) => "mirror.remove",
            Action::Mirror(Mirror::Birthday { .. }) => "mirror.birthday",
            Action::Mirror(Mirror::Forget { .. }) => "mirror.forget",
            Action::Snapshot(_) => "snapshot",
        }
    }
}
