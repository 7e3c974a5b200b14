//! Reads over pipes: many commands to one node in one write, each with an answer of its own, also while a slot is on its way
//! to another node.

use std::collections::BTreeMap;

use super::{encode::Pipeline, error::Error, options::NodeAddress, pipes::Pipes, reply::Reply, topology::Topology};
use crate::error::ServerCode;

/// One command.
pub(super) fn command<W: AsRef<[u8]>>(words: &[W]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    pipeline.push(words);
    pipeline
}

/// Sends all of them to `node` and gives one reply to each. What this node has handed to another one already, that one is
/// asked for. A command that was refused has its refusal for a reply; what it says about a slot is learnt.
pub(super) async fn ask(
    topology: &Topology,
    pipes: &Pipes,
    node: &NodeAddress,
    commands: &[Pipeline],
) -> Result<Vec<Reply>, Error> {
    let mut all = Pipeline::new();
    commands.iter().for_each(|command| all.append(command));
    let mut replies = pipes.get(node).await?.submit(all).await?;
    let mut handed: BTreeMap<NodeAddress, Vec<usize>> = BTreeMap::new();
    for (at, reply) in replies.iter().enumerate() {
        match reply.error().map(|error| &error.code) {
            Some(ServerCode::Moved { slot, endpoint }) => topology.learn_moved(*slot, endpoint, node),
            Some(ServerCode::Ask { endpoint, .. }) => {
                if let Some(target) = super::topology::endpoint_address(endpoint, node) {
                    handed.entry(target).or_default().push(at);
                }
            }
            _ => {}
        }
    }
    for (target, places) in handed {
        let mut asking = Pipeline::new();
        for at in &places {
            asking.command("ASKING");
            asking.append(&commands[*at]);
        }
        let answers = pipes.get(&target).await?.submit(asking).await?;
        for (at, answer) in places.into_iter().zip(answers.into_iter().skip(1).step_by(2)) {
            replies[at] = answer;
        }
    }
    Ok(replies)
}

/// A prefix as a pattern that matches only itself.
#[cfg(feature = "server")]
pub fn escaped(prefix: &str) -> String {
    prefix
        .chars()
        .flat_map(|c| matches!(c, '*' | '?' | '[' | ']' | '\\').then_some('\\').into_iter().chain([c]))
        .collect()
}

#[cfg(all(test, feature = "server"))]
mod tests {
    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(super::escaped("a*[b]?\\"), "a\\*\\[b\\]\\?\\\\");
    }
}
