//! The key registry: the only place that builds the name of a key or channel.
//!
//! [`REGISTRY`] is the table that `heyday keys` prints and from which `docs/keys.md` is generated.

mod name;

use std::fmt;
use std::sync::Arc;

use jiff::civil::Date;

use crate::change::UserId;
use crate::position::CommitId;
use crate::shard::{Layout, Shard, slot_of};

pub use name::{Found, slot_of_name};

/// The consumer group of the workers on every `changes` stream.
pub const GROUP: &str = "heyday";
/// The one consumer of that group, whoever owns the shard: the next owner finds its predecessor's pending entries.
pub const CONSUMER: &str = "owner";
/// The lock that keeps all workers from committing.
pub const MAINTENANCE: &str = "lock:maintenance";

/// One row of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name without prefix; `{t}` is the shard's tag.
    pub pattern: &'static str,
    /// The type as `TYPE` answers it in capitals, or `CHANNEL`.
    pub kind: &'static str,
    pub content: &'static str,
    pub life: &'static str,
    /// Whether its format is public and versioned.
    pub public: bool,
}

/// Every key and channel there is.
pub const REGISTRY: &[Row] = &[
    row(
        "heyday:layout",
        "HASH",
        "`shards`, `format`, `created_at` (Unix ms), `tags` (one msgpack array)",
        "for ever",
        true,
    ),
    row("heyday:workers", "ZSET", "worker id -> heartbeat (server time, Unix ms)", "pruned", false),
    row(
        MAINTENANCE,
        "HASH",
        "`holder`, `reason`, `since` (Unix ms), `ttl` (ms), `paused:WORKER` -> since when; `off_at` once it was given up",
        "as its holder says",
        false,
    ),
    row(
        "changes:{t}",
        "STREAM",
        "input; group `heyday`, one consumer `owner`",
        "trimmed behind the slowest group, plus retention",
        true,
    ),
    row("lease:{t}", "STRING", "worker id of the owner", "the lease TTL", false),
    row(
        "state:{t}",
        "HASH",
        "`generation`, `last` (commit id), `applied` (entry id), `applied_at` (Unix ms), counters; `first`, `open` and `rolled` (days), `roll`, `rolled_at`, `roll_asked`; `rebuild` (the moment of the rebuild that is on, Unix ms); the last `owner`, `owned_at`, `released_at`, `moves`",
        "for ever",
        false,
    ),
    row(
        "user:{t}:ID:profile",
        "HASH",
        "`schema`, `version` (changes applied), `updated_at` (Unix ms), `birthday`, `tz`, `last_activity`, `expires_at` (Unix ms), own fields",
        "with the user",
        true,
    ),
    row(
        "user:{t}:ID:birthdays",
        "HASH",
        "friend id -> date; empty string: friend with unknown date",
        "with the user",
        true,
    ),
    row(
        "user:{t}:ID:versions",
        "HASH",
        "friend id or `:FIELD` -> version, `version:removed_at` for a tombstone; `ID:` and `::` -> order; `ID:@` and `:FIELD:@` -> when it was changed during a rebuild",
        "with the user; tombstones pruned",
        false,
    ),
    row(
        "user:{t}:ID:activity",
        "HASH",
        "`YYYY-MM-DD` -> sum of weights on that day of the user's",
        "31 days after the last",
        true,
    ),
    row("user:{t}:ID:top", "ZSET", "category -> sum of weights, of the heaviest", "with the user", true),
    row("users:{t}", "ZSET", "ids of users with any view, all scores 0", "for ever", true),
    row("birthdays:{t}:YYYY-MM-DD", "ZSET", "`USER:FRIEND` -> when it is due (Unix s)", "day end plus grace", true),
    row("dedup:{t}:EVENTID", "STRING", "a seen event id", "dedup window", false),
    row("producers:{t}", "HASH", "producer -> `seq:last_seen` (Unix ms)", "pruned by age", false),
    row("outbox:{t}", "STREAM", "entries for other shards, under ids that follow the commit's", "until relayed", false),
    row("fanout:{t}", "HASH", "`ID` or `ID:COMMIT` -> how far a job has come", "until done", false),
    row("forgotten:{t}:ID:COMMIT", "HASH", "friend id -> date, of a forgotten user", "until told to all", false),
    row("dlq:{t}", "STREAM", "dead letters: `reason`, `kind`, `entry`, and the fields as `f.NAME`", "bounded", false),
    row("log:{t}", "STREAM", "change log: one entry a commit, field `s`", "bounded", true),
    row("push:{t}", "CHANNEL", "the same payload as the log entry", "not stored", true),
];

const fn row(
    pattern: &'static str,
    kind: &'static str,
    content: &'static str,
    life: &'static str,
    public: bool,
) -> Row {
    Row { pattern, kind, content, life, public }
}

/// A key or channel name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// Names that belong to no shard, and the way to those that do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: Arc<str>,
}

/// The names of one shard, all in one slot.
#[derive(Clone, Debug)]
pub struct ShardKeys {
    prefix: Arc<str>,
    tag: Arc<str>,
    /// What the names of all users' keys, and of all event ids', begin with.
    user_stem: Arc<str>,
    dedup_stem: Arc<str>,
    pub shard: Shard,
    pub slot: u16,
    pub changes: Key,
    pub lease: Key,
    pub state: Key,
    pub users: Key,
    pub producers: Key,
    pub outbox: Key,
    pub fanout: Key,
    pub dead_letters: Key,
    pub log: Key,
    pub push: Key,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prefix {0:?}: expected no braces, control characters or spaces, and at most 64 bytes")]
pub struct PrefixError(pub String);

impl Keys {
    /// `prefix` goes in front of every name; empty for none.
    pub fn new(prefix: &str) -> Result<Keys, PrefixError> {
        let forbidden = |c: char| c.is_control() || c.is_whitespace() || c == '{' || c == '}';
        if prefix.len() > 64 || prefix.contains(forbidden) {
            return Err(PrefixError(prefix.to_owned()));
        }
        Ok(Keys { prefix: prefix.into() })
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn layout(&self) -> Key {
        key(format!("{}heyday:layout", self.prefix))
    }

    pub fn workers(&self) -> Key {
        key(format!("{}heyday:workers", self.prefix))
    }

    pub fn maintenance(&self) -> Key {
        key(format!("{}{MAINTENANCE}", self.prefix))
    }

    pub fn shard(&self, layout: &Layout, shard: Shard) -> ShardKeys {
        let (prefix, tag) = (&self.prefix, layout.tag(shard));
        let name = |space: &str| key(format!("{prefix}{space}:{{{tag}}}"));
        ShardKeys {
            prefix: prefix.clone(),
            tag: tag.into(),
            user_stem: format!("{prefix}user:{{{tag}}}:").into(),
            dedup_stem: format!("{prefix}dedup:{{{tag}}}:").into(),
            shard,
            slot: layout.slot(shard),
            changes: name("changes"),
            lease: name("lease"),
            state: name("state"),
            users: name("users"),
            producers: name("producers"),
            outbox: name("outbox"),
            fanout: name("fanout"),
            dead_letters: name("dlq"),
            log: name("log"),
            push: name("push"),
        }
    }

    /// The registry's row for a name found in a cluster; none for a key that heyday does not know.
    pub fn row_of(&self, name: &str) -> Option<&'static Row> {
        let name = name.strip_prefix(&*self.prefix)?;
        let shape = shape(name)?;
        REGISTRY.iter().find(|row| row.pattern == shape)
    }
}

impl ShardKeys {
    pub fn tag(&self) -> &str {
        &self.tag
    }

    pub fn profile(&self, user: &UserId) -> Key {
        join(&self.profile_parts(user))
    }

    pub fn birthdays(&self, user: &UserId) -> Key {
        join(&self.birthdays_parts(user))
    }

    pub fn versions(&self, user: &UserId) -> Key {
        join(&self.versions_parts(user))
    }

    pub fn activity(&self, user: &UserId) -> Key {
        join(&self.activity_parts(user))
    }

    pub fn top(&self, user: &UserId) -> Key {
        join(&self.top_parts(user))
    }

    pub fn day(&self, date: Date) -> Key {
        key(format!(
            "{}birthdays:{{{}}}:{:04}-{:02}-{:02}",
            self.prefix,
            self.tag,
            date.year(),
            date.month(),
            date.day()
        ))
    }

    /// The friends of a user who was forgotten in `commit`.
    pub fn forgotten(&self, user: &UserId, commit: CommitId) -> Key {
        key(format!("{}forgotten:{{{}}}:{user}:{commit}", self.prefix, self.tag))
    }

    pub fn dedup(&self, event: &str) -> Key {
        join(&self.dedup_parts(event))
    }

    /// The same names in parts, to be sent without being put together first.
    pub fn profile_parts<'a>(&'a self, user: &'a UserId) -> [&'a str; 3] {
        [&self.user_stem, user.as_str(), ":profile"]
    }

    pub fn birthdays_parts<'a>(&'a self, user: &'a UserId) -> [&'a str; 3] {
        [&self.user_stem, user.as_str(), ":birthdays"]
    }

    pub fn versions_parts<'a>(&'a self, user: &'a UserId) -> [&'a str; 3] {
        [&self.user_stem, user.as_str(), ":versions"]
    }

    pub fn activity_parts<'a>(&'a self, user: &'a UserId) -> [&'a str; 3] {
        [&self.user_stem, user.as_str(), ":activity"]
    }

    pub fn top_parts<'a>(&'a self, user: &'a UserId) -> [&'a str; 3] {
        [&self.user_stem, user.as_str(), ":top"]
    }

    pub fn dedup_parts<'a>(&'a self, event: &'a str) -> [&'a str; 2] {
        [&self.dedup_stem, event]
    }
}

/// The member of a day key: ids contain no colon, so the first one parts them.
pub fn day_member(user: &UserId, friend: &str) -> String {
    [user.as_str(), ":", friend].concat()
}

/// The field of `versions` that tells when a user was forgotten.
pub const FORGOTTEN_FIELD: &str = "::";

/// The field of `versions` that tells when both sides of a friendship were changed last.
pub fn order_field(friend: &UserId) -> String {
    [friend.as_str(), ":"].concat()
}

/// The field of `versions` that tells when a friendship, or a profile field by its version field, was changed last; kept
/// while a rebuild is on.
pub fn changed_field(field: &str) -> String {
    [field, ":@"].concat()
}

/// The field of `versions` for a profile field: friend ids contain no colon.
pub fn version_field(profile_field: &str) -> String {
    [":", profile_field].concat()
}

impl Key {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The cluster slot: that of the hash tag where there is one.
    pub fn slot(&self) -> u16 {
        let tag = self.0.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        slot_of(tag.unwrap_or(&self.0).as_bytes())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

fn join(parts: &[&str]) -> Key {
    key(parts.concat())
}

fn key(name: String) -> Key {
    Key(name.into())
}

/// A name with its variable parts replaced as the registry writes them.
fn shape(name: &str) -> Option<String> {
    let Some((space, rest)) = name.split_once(":{") else {
        return Some(name.to_owned());
    };
    let (tag, rest) = rest.split_once('}')?;
    if tag.is_empty() || !tag.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let rest = match (space, rest.strip_prefix(':')) {
        ("user", Some(rest)) => format!(":ID:{}", rest.split_once(':').filter(|(id, _)| !id.is_empty())?.1),
        ("birthdays", Some(date)) => date.parse::<Date>().ok().map(|_| ":YYYY-MM-DD".to_owned())?,
        ("forgotten", Some(rest)) => {
            let (id, commit) = rest.split_once(':')?;
            let known = !id.is_empty() && commit.parse::<CommitId>().is_ok();
            known.then(|| ":ID:COMMIT".to_owned())?
        }
        ("dedup", Some(event)) if !event.is_empty() => ":EVENTID".to_owned(),
        (_, None) if rest.is_empty() => String::new(),
        _ => return None,
    };
    Some(format!("{space}:{{t}}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str) -> (Keys, ShardKeys) {
        let keys = Keys::new(prefix).unwrap();
        let layout = Layout::new(4).unwrap();
        let shard = keys.shard(&layout, Shard(2));
        (keys, shard)
    }

    #[test]
    fn every_name_has_its_row_and_every_row_a_name() {
        for prefix in ["", "test:7:"] {
            let (keys, shard) = keys(prefix);
            let user: UserId = "42".parse().unwrap();
            let names = [
                keys.layout(),
                keys.workers(),
                keys.maintenance(),
                shard.changes.clone(),
                shard.lease.clone(),
                shard.state.clone(),
                shard.profile(&user),
                shard.birthdays(&user),
                shard.versions(&user),
                shard.activity(&user),
                shard.top(&user),
                shard.users.clone(),
                shard.day(jiff::civil::date(2026, 1, 2)),
                shard.dedup("a:b{c}"),
                shard.producers.clone(),
                shard.outbox.clone(),
                shard.fanout.clone(),
                shard.forgotten(&user, CommitId::new(7, 1)),
                shard.dead_letters.clone(),
                shard.log.clone(),
                shard.push.clone(),
            ];
            let found: Vec<_> =
                names.iter().filter_map(|name| keys.row_of(name.as_str())).map(|row| row.pattern).collect();
            let rows: Vec<_> = REGISTRY.iter().map(|row| row.pattern).collect();
            assert_eq!(found, rows);
        }
    }

    #[test]
    fn all_names_of_a_shard_share_its_slot() {
        let (_, shard) = keys("");
        let user: UserId = "42".parse().unwrap();
        for name in [&shard.changes, &shard.push, &shard.profile(&user), &shard.dedup("}{"), &shard.day(Date::MIN)] {
            assert_eq!(name.slot(), shard.slot, "{name}");
        }
    }

    #[test]
    fn names_without_a_tag_hash_whole() {
        // CLUSTER KEYSLOT of a real server.
        assert_eq!(Keys::new("").unwrap().layout().slot(), 7813);
    }

    #[test]
    fn foreign_names_have_no_row() {
        let (plain, _) = keys("");
        let (prefixed, shard) = keys("p:");
        for name in
            ["", "session:1", "user:{2.0}:42:friends", "user:{2.0}::profile", "changes:{}", "changes:{2.0}:x", "log"]
        {
            assert!(plain.row_of(name).is_none(), "{name}");
        }
        assert!(plain.row_of(shard.changes.as_str()).is_none());
        assert!(prefixed.row_of("changes:{2.0}").is_none());
    }

    #[test]
    fn a_prefix_may_not_move_the_hash_tag() {
        assert!(Keys::new("{x}:").is_err());
        assert!(Keys::new("two words").is_err());
    }
}
