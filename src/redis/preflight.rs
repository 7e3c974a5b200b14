//! What a worker checks before it starts: the cluster that holds the streams must never lose data silently.

use super::shards::info_field;
use super::{Error, Link, NodeAddress, Pipeline, Topology};

/// The oldest Redis with everything heyday uses: sharded Pub/Sub, script flags, CLUSTER SHARDS.
const VERSION_MIN: Version = Version(7, 0, 0);
/// Redis from the first to below the second may crash when a slot moves away under a blocked reader (redis#13224).
const VERSIONS_CRASHING: (Version, Version) = (Version(7, 2, 0), Version(7, 2, 7));

/// Something about a node that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub node: NodeAddress,
    pub what: &'static str,
    pub value: String,
    pub expected: &'static str,
    /// Worth knowing, and no reason not to start.
    pub advice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

/// What is told of a node that does not answer.
const ANSWER: &str = "its answer";
const CLUSTER_STATE: &str = "cluster_state";

impl Finding {
    /// Whether it may be over without anybody changing a setting.
    pub fn is_passing(&self) -> bool {
        matches!(self.what, ANSWER | CLUSTER_STATE)
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} is {}, expected {}", self.node, self.what, self.value, self.expected)
    }
}

/// Looks at every primary. Empty where all is well; a node that does not answer is a finding too.
pub async fn preflight(topology: &Topology) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in topology.primaries() {
        match look(topology, &node.address).await {
            Ok(answers) => findings.extend(judge(&node.address, &answers)),
            Err(error) => findings.push(Finding {
                node: node.address.clone(),
                what: ANSWER,
                value: format!("missing ({error})"),
                expected: "one in time",
                advice: false,
            }),
        }
    }
    findings
}

/// CLUSTER INFO and the sections of INFO that are looked at, one text: no field stands in two of them.
async fn look(topology: &Topology, node: &NodeAddress) -> Result<String, Error> {
    let options = topology.options();
    let mut link = Link::connect(node, options).await?;
    let mut pipeline = Pipeline::new();
    pipeline.push(&["CLUSTER", "INFO"]);
    for section in ["server", "memory", "persistence"] {
        pipeline.push(&["INFO", section]);
    }
    let mut text = String::new();
    for reply in link.request(&pipeline, options.reply_timeout).await? {
        text.push_str(reply.to_str()?);
        text.push('\n');
    }
    Ok(text)
}

fn judge(node: &NodeAddress, answers: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |what, value: &str, expected, advice| {
        findings.push(Finding { node: node.clone(), what, value: value.to_owned(), expected, advice });
    };
    for (what, expected) in [(CLUSTER_STATE, "ok"), ("maxmemory_policy", "noeviction"), ("aof_enabled", "1")] {
        let value = info_field(answers, what).unwrap_or("not told");
        if value != expected {
            note(what, value, expected, false);
        }
    }
    let version = info_field(answers, "redis_version").unwrap_or("not told");
    let number = Version::parse(version);
    if number.is_none_or(|number| number < VERSION_MIN) {
        note("redis_version", version, "7.0 or newer", false);
    }
    // Valkey calls itself Redis 7.2.4 here, and has the correction.
    let is_valkey = info_field(answers, "valkey_version").is_some();
    let crashing = |number| (VERSIONS_CRASHING.0..VERSIONS_CRASHING.1).contains(&number);
    if !is_valkey && number.is_some_and(crashing) {
        note("redis_version", version, "not 7.2.0 to 7.2.6, which may crash while a slot moves", true);
    }
    findings
}

impl Version {
    fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.split(['.', '-']).map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Version(next()?, next()?, next().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "cluster_state:ok\r\nredis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";

    fn check(from: &str, to: &str, expected: &[(&str, &str, bool)]) {
        let findings = judge(&NodeAddress::new("a", 1), &GOOD.replace(from, to));
        let found: Vec<_> = findings.iter().map(|found| (found.what, &*found.value, found.advice)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_could_lose_data_is_found() {
        check("", "", &[]);
        check("state:ok", "state:fail", &[("cluster_state", "fail", false)]);
        check("noeviction", "allkeys-lru", &[("maxmemory_policy", "allkeys-lru", false)]);
        check("aof_enabled:1", "aof_enabled:0", &[("aof_enabled", "0", false)]);
        check("aof_enabled:1", "", &[("aof_enabled", "not told", false)]);
        check("7.0.15", "6.2.14", &[("redis_version", "6.2.14", false)]);
        check("7.0.15", "unstable", &[("redis_version", "unstable", false)]);
        check("7.0.15", "7.2.6", &[("redis_version", "7.2.6", true)]);
        check("7.0.15", "7.2.7", &[]);
        check("7.0.15", "7.2.4\r\nvalkey_version:9.1.2", &[]);
        check("7.0.15", "8.2.3", &[]);
    }

    #[test]
    fn a_finding_is_one_sentence() {
        let findings = judge(&NodeAddress::new("a", 1), &GOOD.replace("noeviction", "volatile-lru"));
        assert_eq!(findings[0].to_string(), "a:1: maxmemory_policy is volatile-lru, expected noeviction");
    }
}
