//! What Redis answers when it refuses, and what each refusal asks of us: one table, on one screen.

use std::fmt;

/// What the caller of a failed operation does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Nothing was done. Wait a little and do the same again.
    Retry,
    /// Nothing was done, and what we knew of the cluster no longer holds. Resolve the node and take up again.
    Refresh,
    /// It may or may not have happened. Read the state again before doing anything.
    Ambiguous,
    /// Somebody else owns the shard now. Drop it.
    Fenced,
    /// Redis has no room. Keep what is held, take in nothing new until there is room.
    Full,
    /// This very input can never succeed. Set it aside.
    Poison,
    /// Settings or credentials are wrong. Stop and say so.
    Fatal,
}

impl Disposition {
    /// Whether the operation certainly had no effect.
    pub fn is_clean(self) -> bool {
        match self {
            Self::Ambiguous => false,
            Self::Retry | Self::Refresh | Self::Fenced | Self::Full | Self::Poison | Self::Fatal => true,
        }
    }
}

/// The kind of a Redis error reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerCode {
    Moved { slot: u16, endpoint: String },
    Ask { slot: u16, endpoint: String },
    TryAgain,
    ClusterDown,
    CrossSlot,
    Loading,
    MasterDown,
    ReadOnly,
    OutOfMemory,
    NoReplicas,
    NoGroup,
    BusyGroup,
    NoScript,
    ExecAbort,
    Unblocked,
    NoAuth,
    WrongPass,
    NoPassword,
    NoPerm,
    Denied,
    WrongType,
    Busy,
    MisConf,
    BusyKey,
    ClusterDisabled,
    UnknownCommand,
    ClientsMax,
    Other,
}

impl ServerCode {
    /// The failure policy. A new code does not compile until it is given its row.
    pub fn disposition(&self) -> Disposition {
        match self {
            // The node is not ready, or a key is on its way between nodes. It passes.
            Self::TryAgain | Self::Loading | Self::Busy | Self::NoReplicas | Self::MisConf | Self::ClientsMax => {
                Disposition::Retry
            }
            // The slot is on its way, and here until it flips. Who appends follows the redirect instead.
            Self::Ask { .. } => Disposition::Retry,
            // Nothing ran; the reply that explains why came earlier, when the command was queued.
            Self::ExecAbort => Disposition::Retry,
            // The script cache was lost; the caller sends the script itself.
            Self::NoScript => Disposition::Retry,
            // The slot has another owner.
            Self::Moved { .. } | Self::ReadOnly | Self::MasterDown => Disposition::Refresh,
            Self::ClusterDown | Self::Unblocked => Disposition::Refresh,
            // The stream or its group is gone: taking up again creates it where it was.
            Self::NoGroup => Disposition::Refresh,
            Self::OutOfMemory => Disposition::Full,
            // The command itself is wrong for this key. Who creates a group or restores a key expects the busy ones.
            Self::CrossSlot | Self::WrongType | Self::BusyGroup | Self::BusyKey | Self::Other => Disposition::Poison,
            Self::NoAuth | Self::WrongPass | Self::NoPassword | Self::NoPerm | Self::Denied => Disposition::Fatal,
            Self::ClusterDisabled | Self::UnknownCommand => Disposition::Fatal,
        }
    }
}

impl ServerCode {
    /// A short, stable name for counting.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Moved { .. } => "moved",
            Self::Ask { .. } => "ask",
            Self::TryAgain => "try_again",
            Self::ClusterDown => "cluster_down",
            Self::CrossSlot => "cross_slot",
            Self::Loading => "loading",
            Self::MasterDown => "master_down",
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::NoReplicas => "no_replicas",
            Self::NoGroup => "no_group",
            Self::BusyGroup => "busy_group",
            Self::NoScript => "no_script",
            Self::ExecAbort => "exec_abort",
            Self::Unblocked => "unblocked",
            Self::NoAuth => "no_auth",
            Self::WrongPass => "wrong_pass",
            Self::NoPassword => "no_password",
            Self::NoPerm => "no_perm",
            Self::Denied => "denied",
            Self::WrongType => "wrong_type",
            Self::Busy => "busy",
            Self::MisConf => "misconf",
            Self::BusyKey => "busy_key",
            Self::ClusterDisabled => "cluster_disabled",
            Self::UnknownCommand => "unknown_command",
            Self::ClientsMax => "clients_max",
            Self::Other => "other",
        }
    }
}

/// An error reply: its kind, and the whole line as Redis wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerError {
    pub code: ServerCode,
    pub message: String,
}

impl ServerError {
    /// Reads an error line without its leading `-` and trailing line end.
    pub fn parse(line: &str) -> Self {
        Self { code: code(line), message: line.to_owned() }
    }

    pub fn disposition(&self) -> Disposition {
        self.code.disposition()
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ServerError {}

fn code(line: &str) -> ServerCode {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "MOVED" => redirect(rest).map_or(ServerCode::Other, |(slot, endpoint)| ServerCode::Moved { slot, endpoint }),
        "ASK" => redirect(rest).map_or(ServerCode::Other, |(slot, endpoint)| ServerCode::Ask { slot, endpoint }),
        "TRYAGAIN" => ServerCode::TryAgain,
        "CLUSTERDOWN" => ServerCode::ClusterDown,
        "CROSSSLOT" => ServerCode::CrossSlot,
        "LOADING" => ServerCode::Loading,
        "MASTERDOWN" => ServerCode::MasterDown,
        "READONLY" => ServerCode::ReadOnly,
        "OOM" => ServerCode::OutOfMemory,
        "NOREPLICAS" => ServerCode::NoReplicas,
        "NOGROUP" => ServerCode::NoGroup,
        "BUSYGROUP" => ServerCode::BusyGroup,
        "NOSCRIPT" => ServerCode::NoScript,
        "EXECABORT" => ServerCode::ExecAbort,
        "UNBLOCKED" => ServerCode::Unblocked,
        "NOAUTH" => ServerCode::NoAuth,
        "WRONGPASS" => ServerCode::WrongPass,
        "NOPERM" => ServerCode::NoPerm,
        "DENIED" => ServerCode::Denied,
        "WRONGTYPE" => ServerCode::WrongType,
        "BUSY" => ServerCode::Busy,
        "MISCONF" => ServerCode::MisConf,
        "BUSYKEY" => ServerCode::BusyKey,
        "ERR" => plain(rest),
        _ => ServerCode::Other,
    }
}

/// Errors that Redis never gave a word of their own are told apart by their text.
fn plain(text: &str) -> ServerCode {
    let text = text.to_ascii_lowercase();
    if text.contains("cluster support disabled") {
        ServerCode::ClusterDisabled
    } else if text.starts_with("unknown command") || text.starts_with("unknown subcommand") {
        ServerCode::UnknownCommand
    } else if text.starts_with("max number of clients") {
        ServerCode::ClientsMax
    } else if text.contains("without any password configured") {
        ServerCode::NoPassword
    } else {
        ServerCode::Other
    }
}

fn redirect(rest: &str) -> Option<(u16, String)> {
    let mut words = rest.split(' ');
    let slot = words.next()?.parse().ok()?;
    let endpoint = words.next()?;
    endpoint.contains(':').then(|| (slot, endpoint.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, code: ServerCode, disposition: Disposition) {
        let error = ServerError::parse(line);
        assert_eq!(error.code, code, "{line}");
        assert_eq!(error.disposition(), disposition, "{line}");
        assert_eq!(error.to_string(), line);
    }

    #[test]
    fn every_refusal_has_its_kind_and_its_consequence() {
        use Disposition::*;
        use ServerCode as Code;
        let endpoint = || "10.0.0.1:7001".to_owned();
        check("MOVED 3999 10.0.0.1:7001", Code::Moved { slot: 3999, endpoint: endpoint() }, Refresh);
        check("MOVED 3999 :7001", Code::Moved { slot: 3999, endpoint: ":7001".into() }, Refresh);
        check("MOVED 3999 ::1:7001", Code::Moved { slot: 3999, endpoint: "::1:7001".into() }, Refresh);
        check("ASK 1 10.0.0.1:7001", Code::Ask { slot: 1, endpoint: endpoint() }, Retry);
        check("MOVED 99999 10.0.0.1:7001", Code::Other, Poison);
        check("MOVED", Code::Other, Poison);
        check("TRYAGAIN Multiple keys request during rehashing of slot", Code::TryAgain, Retry);
        check("CLUSTERDOWN The cluster is down", Code::ClusterDown, Refresh);
        check("CROSSSLOT Keys in request don't hash to the same slot", Code::CrossSlot, Poison);
        check("LOADING Redis is loading the dataset in memory", Code::Loading, Retry);
        check("MASTERDOWN Link with MASTER is down", Code::MasterDown, Refresh);
        check("READONLY You can't write against a read only replica.", Code::ReadOnly, Refresh);
        check("OOM command not allowed when used memory > 'maxmemory'.", Code::OutOfMemory, Full);
        check("NOREPLICAS Not enough good replicas to write.", Code::NoReplicas, Retry);
        check("NOGROUP No such key 'changes:{1.0}' or consumer group", Code::NoGroup, Refresh);
        check("BUSYGROUP Consumer Group name already exists", Code::BusyGroup, Poison);
        check("NOSCRIPT No matching script. Please use EVAL.", Code::NoScript, Retry);
        check("EXECABORT Transaction discarded because of previous errors.", Code::ExecAbort, Retry);
        check("UNBLOCKED the stream key no longer exists", Code::Unblocked, Refresh);
        check("NOAUTH Authentication required.", Code::NoAuth, Fatal);
        check("WRONGPASS invalid username-password pair or user is disabled.", Code::WrongPass, Fatal);
        check("NOPERM this user has no permissions to run the 'xadd' command", Code::NoPerm, Fatal);
        check("DENIED Redis is running in protected mode", Code::Denied, Fatal);
        check("WRONGTYPE Operation against a key holding the wrong kind of value", Code::WrongType, Poison);
        check("BUSY Redis is busy running a script.", Code::Busy, Retry);
        check("MISCONF Redis is configured to save RDB snapshots", Code::MisConf, Retry);
        check("BUSYKEY Target key name already exists.", Code::BusyKey, Poison);
        check("ERR This instance has cluster support disabled", Code::ClusterDisabled, Fatal);
        check("ERR unknown command 'SPUBLISH', with args beginning with: ", Code::UnknownCommand, Fatal);
        check("ERR unknown subcommand 'SHARDS'. Try CLUSTER HELP.", Code::UnknownCommand, Fatal);
        check("ERR max number of clients reached", Code::ClientsMax, Retry);
        check(
            "ERR AUTH <password> called without any password configured for the default user.",
            Code::NoPassword,
            Fatal,
        );
        check("ERR value is not an integer or out of range", Code::Other, Poison);
        check("", Code::Other, Poison);
    }

    #[test]
    fn only_an_ambiguous_failure_may_have_had_an_effect() {
        use Disposition::*;
        for clean in [Retry, Refresh, Fenced, Full, Poison, Fatal] {
            assert!(clean.is_clean(), "{clean:?}");
        }
        assert!(!Ambiguous.is_clean());
    }
}
