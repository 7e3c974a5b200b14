//! Walks through everything that is stored, in bounded steps, and proves what must hold of it: see [`crate::invariant`].
//!
//! The walk itself reads here and there while everybody goes on, so what looks wrong is only suspected. It counts once one
//! transaction has read all that its rule speaks of: every commit is a transaction in the same slot, so no rule is broken
//! in between two of them.

mod confirm;
mod days;
mod findings;
mod names;
mod repair;
mod scan;
mod shard;
mod source;
mod users;
mod walks;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{error::Error, pipes::Pipes, query::command, topology::Topology};
use crate::invariant::{Day, Progress};
use crate::key::{Keys, ShardKeys};
use crate::reduce::Rules;
use crate::shard::{Layout, Shard};
pub use findings::{Counts, Findings, NAMED_MAX, Undecided};
pub(in crate::redis) use source::Source;

/// How much of a node's time a check takes at most, where nobody says otherwise.
pub const SHARE: f64 = 0.25;
/// How long a question is asked again while a slot's owner changes or nobody answers.
const PATIENCE: Duration = Duration::from_secs(15);

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much of a node's time the check takes at most, above 0 and up to 1: it pauses for the rest.
    pub share: f64,
    pub patience: Duration,
    /// Whether what is derived is made anew where it is wrong.
    pub repair: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { share: SHARE, patience: PATIENCE, repair: false }
    }
}

/// A check of one layout, or of some of its shards.
pub struct Check<'a> {
    source: Source,
    keys: Keys,
    layout: Layout,
    rules: Rules,
    options: Options,
    tags: HashMap<String, Shard>,
    /// All that was found so far, also where the check breaks off.
    pub findings: Findings,
    /// Told of so many more things done.
    progress: Box<dyn Fn(u64) + Send + 'a>,
}

/// What is known of a shard while its keys are walked through.
struct Ground {
    keys: ShardKeys,
    days: Vec<Day>,
    progress: Progress,
}

impl<'a> Check<'a> {
    pub fn new(
        (topology, pipes): (Arc<Topology>, Arc<Pipes>),
        (keys, layout): (Keys, Layout),
        rules: Rules,
        options: Options,
    ) -> Check<'a> {
        let tags = layout.shards().map(|shard| (layout.tag(shard).to_owned(), shard)).collect();
        Check {
            source: Source::new(topology, pipes, options.share, options.patience),
            keys,
            layout,
            rules,
            options,
            tags,
            findings: Findings::default(),
            progress: Box::new(|_| {}),
        }
    }

    /// Has `progress` told of every step; [`Check::extent`] says of about how many in all.
    pub fn telling(mut self, progress: impl Fn(u64) + Send + 'a) -> Check<'a> {
        self.progress = Box::new(progress);
        self
    }

    /// About how many keys and users there are to look at.
    pub async fn extent(&mut self, shards: &[Shard]) -> Result<u64, Error> {
        let mut sum = 0;
        for node in self.source.primaries() {
            // A node that does not answer is met again by the check itself.
            if let Ok(replies) = self.source.ask_node(&node, &[command(&["DBSIZE"])]).await {
                sum += replies[0].as_u64().unwrap_or(0);
            }
        }
        let question = |shard: &Shard| {
            let keys = self.shard_keys(*shard);
            (keys.slot, command(&["ZCARD", keys.users.as_str()]))
        };
        let questions: Vec<_> = shards.iter().map(question).collect();
        // What is no sorted set has no users to be looked at.
        Ok(sum + self.source.ask(&questions).await?.iter().filter_map(|reply| reply.as_u64().ok()).sum::<u64>())
    }

    /// Checks these shards, and with all of them whatever else is under the prefix. On an error, what was found before it
    /// holds all the same.
    pub async fn run(&mut self, shards: &[Shard]) -> Result<(), Error> {
        self.names(shards).await?;
        for shard in shards {
            self.source.begin();
            self.shard(*shard).await?;
            self.findings.counts.shards += 1;
        }
        Ok(())
    }

    fn shard_keys(&self, shard: Shard) -> ShardKeys {
        self.keys.shard(&self.layout, shard)
    }
}

/// The reply, unless the key is not of the type that was asked for: that is told where keys are looked at by their names.
fn readable(reply: &super::Reply) -> Option<&super::Reply> {
    reply.error().is_none().then_some(reply)
}
