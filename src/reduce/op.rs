//! The plain commands of which a commit consists.

use std::time::Duration;

use bytes::Bytes;

use crate::key::Key;
use crate::position::EntryId;

/// One command. Lists are never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// HSET
    HashSet { key: Key, fields: Vec<(String, String)> },
    /// HDEL
    HashDelete { key: Key, fields: Vec<String> },
    /// ZADD, scores first as Redis wants them.
    SortedAdd { key: Key, members: Vec<(i64, String)> },
    /// ZREM
    SortedRemove { key: Key, members: Vec<String> },
    /// EXPIREAT, Unix seconds.
    ExpireAt { key: Key, at_seconds: i64 },
    /// PEXPIRE
    ExpireAfter { key: Key, after: Duration },
    /// PERSIST
    Persist { key: Key },
    /// SET … PX
    Remember { key: Key, ttl: Duration },
    /// RENAME of a key that is there.
    Rename { key: Key, to: Key },
    /// UNLINK
    Delete { keys: Vec<Key> },
    /// XADD with an id above all earlier ones
    Enqueue { key: Key, id: EntryId, fields: Vec<(Bytes, Bytes)> },
    /// XDEL
    StreamDelete { key: Key, ids: Vec<EntryId> },
    /// XADD … MAXLEN ~ … *
    Append { key: Key, length_max: u64, fields: Vec<(Bytes, Bytes)> },
}
