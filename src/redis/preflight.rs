//! What a worker checks before it starts: the cluster that holds the streams must never lose data silently.

use std::collections::BTreeMap;

use super::shards::info_field;
use super::{ConnectOptions, Error, Link, NodeAddress, Pipeline, Topology};
use crate::task;

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

/// A node that was looked at.
struct Looked {
    node: NodeAddress,
    /// Whether it owns slots.
    primary: bool,
    /// What it said, or why it said nothing.
    answers: Result<String, String>,
}

/// Looks at every node, also at replicas: each may be a primary tomorrow. Empty where all is well; a node that does not
/// answer is a finding too.
pub async fn preflight(topology: &Topology) -> Vec<Finding> {
    let mut nodes: BTreeMap<NodeAddress, bool> =
        topology.all().iter().map(|node| (node.address.clone(), false)).collect();
    nodes.extend(topology.primaries().iter().map(|node| (node.address.clone(), true)));
    // All at once: each of those that are gone costs its whole timeout.
    let looking: Vec<_> = nodes
        .into_iter()
        .map(|(node, primary)| {
            let (options, asked) = (topology.options().clone(), node.clone());
            (node, primary, task::spawn("preflight", async move { look(&options, &asked).await }))
        })
        .collect();
    let mut looked = Vec::new();
    for (node, primary, answers) in looking {
        let answers = match answers.await {
            Ok(answers) => answers.map_err(|error| error.to_string()),
            Err(ended) => Err(ended.to_string()),
        };
        looked.push(Looked { node, primary, answers });
    }
    judge_all(&looked)
}

/// Where the primaries that answer call the cluster whole, it goes on without those that do not: their shards wait, the
/// others need workers. The same holds for a replica in any case.
fn judge_all(looked: &[Looked]) -> Vec<Finding> {
    let state =
        |looked: &Looked| looked.answers.as_ref().ok().map(|text| info_field(text, CLUSTER_STATE) == Some("ok"));
    let mut states = looked.iter().filter(|looked| looked.primary).filter_map(state).peekable();
    let whole = states.peek().is_some() && states.all(|ok| ok);
    let mut findings = Vec::new();
    for Looked { node, primary, answers } in looked {
        match answers {
            Ok(answers) => findings.extend(judge(node, answers).into_iter().map(|mut finding| {
                finding.advice |= finding.what == CLUSTER_STATE && !primary;
                finding
            })),
            Err(error) => findings.push(Finding {
                node: node.clone(),
                what: ANSWER,
                value: format!("missing ({error})"),
                expected: "one in time",
                advice: whole || !primary,
            }),
        }
    }
    findings
}

/// CLUSTER INFO and the sections of INFO that are looked at, one text: no field stands in two of them.
async fn look(options: &ConnectOptions, node: &NodeAddress) -> Result<String, Error> {
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

    /// Nodes by name: whether each is a primary, and its state; none where it is silent.
    fn check_all(nodes: &[(&str, bool, Option<&str>)], expected: &[(&str, &str, bool)]) {
        let looked = |(host, primary, state): &(&str, bool, Option<&str>)| Looked {
            node: NodeAddress::new(*host, 1),
            primary: *primary,
            answers: state.map(|state| GOOD.replace("state:ok", state)).ok_or_else(|| "silent".to_owned()),
        };
        let findings = judge_all(&nodes.iter().map(looked).collect::<Vec<_>>());
        let found: Vec<_> = findings.iter().map(|found| (&*found.node.host, found.what, found.advice)).collect();
        assert_eq!(found, expected, "{nodes:?}");
    }

    #[test]
    fn a_silent_node_is_a_fault_only_where_the_cluster_is_not_whole_without_it() {
        let (ok, fail) = (Some("state:ok"), Some("state:fail"));
        check_all(&[("a", true, ok), ("b", true, ok), ("c", false, ok)], &[]);
        check_all(&[("a", true, ok), ("b", true, None)], &[("b", ANSWER, true)]);
        check_all(&[("a", true, ok), ("c", false, None)], &[("c", ANSWER, true)]);
        check_all(&[("a", true, fail), ("b", true, None)], &[("a", CLUSTER_STATE, false), ("b", ANSWER, false)]);
        check_all(&[("a", true, fail), ("c", false, None)], &[("a", CLUSTER_STATE, false), ("c", ANSWER, true)]);
        check_all(&[("a", true, ok), ("c", false, fail)], &[("c", CLUSTER_STATE, true)]);
        check_all(&[("a", true, None), ("c", false, ok)], &[("a", ANSWER, false)]);
    }

    #[test]
    fn a_replica_is_judged_like_a_primary() {
        let answers = Ok(GOOD.replace("aof_enabled:1", "aof_enabled:0"));
        let findings = judge_all(&[Looked { node: NodeAddress::new("c", 1), primary: false, answers }]);
        assert_eq!(findings[0].to_string(), "c:1: aof_enabled is 0, expected 1");
        assert!(!findings[0].advice, "it may be a primary tomorrow");
    }

    #[test]
    fn a_finding_is_one_sentence() {
        let findings = judge(&NodeAddress::new("a", 1), &GOOD.replace("noeviction", "volatile-lru"));
        assert_eq!(findings[0].to_string(), "a:1: maxmemory_policy is volatile-lru, expected noeviction");
    }
}
