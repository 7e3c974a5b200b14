//! What `heyday rebuild` asks of all shards: the mark that makes workers remember what is changed when, how far each shard has
//! come, and which users it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::query::{ask, command};
use super::reply::milliseconds;
use super::{Error, NodeAddress, Pipeline, Pipes, Reply, Topology};
use crate::change::UserId;
use crate::error::Disposition;
use crate::key::{Keys, ShardKeys};
use crate::position::EntryId;
use crate::reduce::{REBUILD_FIELD, UserLoaded};
use crate::shard::{Layout, Shard};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Questions in one write.
const ASKED_MAX: usize = 128;

/// Takes a mark away where it is this one.
const UNMARK: &str = "#!lua
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
    return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])";

/// All shards of a cluster, as a rebuild sees them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shards {
    topology: Arc<Topology>,
    pipes: Arc<Pipes>,
    keys: Keys,
    layout: Layout,
    /// For how long it is tried.
    timeout: Duration,
}

/// One shard's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The moment of the rebuild that is on.
    pub mark: Option<u64>,
    pub applied: EntryId,
    /// Entries that became dead letters since the shard began.
    pub dead: u64,
}

/// The mark of all shards together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    None,
    /// The same everywhere.
    On(u64),
    /// On some shards, or not the same: these have none, or another one than the first.
    Torn(Vec<Shard>),
}

impl Shards {
    pub fn new(
        (topology, pipes): (Arc<Topology>, Arc<Pipes>),
        keys: Keys,
        layout: Layout,
        timeout: Duration,
    ) -> Shards {
        Shards { topology, pipes, keys, layout, timeout }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All shards in order.
    ///
    /// # Errors
    ///
    /// Where a node does not answer in time. So for all of these.
    pub async fn look(&self) -> Result<Vec<Seen>, Error> {
        let question = |keys: &ShardKeys| command(&["HMGET", keys.state.as_str(), REBUILD_FIELD, "applied", "dead"]);
        self.each(question).await?.iter().map(seen).collect()
    }

    /// The earliest time by the clock of any node that has a shard.
    pub async fn now(&self) -> Result<u64, Error> {
        let times = self.each(|_| command(&["TIME"])).await?;
        let times: Vec<u64> = times.iter().map(milliseconds).collect::<Result<_, _>>()?;
        times.into_iter().min().ok_or_else(|| Error::protocol("a shard", "none"))
    }

    /// From now on workers remember when what they change was changed.
    pub async fn mark(&self, at: u64) -> Result<(), Error> {
        let at = at.to_string();
        let question = |keys: &ShardKeys| command(&["HSET", keys.state.as_str(), REBUILD_FIELD, &at]);
        self.each(question).await?.iter().try_for_each(|reply| reply.as_u64().map(drop))
    }

    /// Ends the rebuild of this moment, or whichever is on. One that has begun since stays.
    pub async fn unmark(&self, at: Option<u64>) -> Result<(), Error> {
        let at = at.map(|at| at.to_string());
        let question = |keys: &ShardKeys| match &at {
            Some(at) => command(&["EVAL", UNMARK, "1", keys.state.as_str(), REBUILD_FIELD, at.as_str()]),
            None => command(&["HDEL", keys.state.as_str(), REBUILD_FIELD]),
        };
        self.each(question).await?.iter().try_for_each(|reply| reply.as_u64().map(drop))
    }

    /// The next users of a shard behind `after`, in order; none at the end.
    pub async fn users(&self, shard: Shard, after: Option<&str>, count: usize) -> Result<Vec<String>, Error> {
        let (from, count) = (after.map_or("-".to_owned(), |after| format!("({after}")), count.to_string());
        let keys = self.keys.shard(&self.layout, shard);
        let question = command(&["ZRANGEBYLEX", keys.users.as_str(), &from, "+", "LIMIT", "0", count.as_str()]);
        let replies = self.all(&[(shard, question)]).await?;
        let users = replies.first().ok_or_else(|| Error::protocol("a page of users", "none"))?.as_array()?;
        users.iter().map(|user| Ok(String::from_utf8_lossy(user.as_bytes()?).into_owned())).collect()
    }

    /// All that is stored of these users, as a snapshot of them is compared with.
    pub async fn views(&self, users: &[UserId]) -> Result<Vec<UserLoaded>, Error> {
        let questions = users.iter().flat_map(|user| {
            let shard = self.layout.shard_of(user);
            let keys = self.keys.shard(&self.layout, shard);
            let names = [keys.birthdays(user), keys.versions(user), keys.profile(user)];
            names.map(|name| (shard, command(&["HGETALL", name.as_str()])))
        });
        let replies = self.all(&questions.collect::<Vec<_>>()).await?;
        replies.chunks(3).map(view).collect()
    }

    async fn each(&self, question: impl Fn(&ShardKeys) -> Pipeline) -> Result<Vec<Reply>, Error> {
        let shards = self.layout.shards();
        let questions = shards.map(|shard| (shard, question(&self.keys.shard(&self.layout, shard))));
        self.all(&questions.collect::<Vec<_>>()).await
    }

    /// Asks until all is answered. Safe to be asked twice.
    async fn all(&self, questions: &[(Shard, Pipeline)]) -> Result<Vec<Reply>, Error> {
        let (begun, end) = (Instant::now(), Instant::now() + self.timeout);
        let mut found: Vec<Option<Reply>> = questions.iter().map(|_| None).collect();
        while let Some(left) = found.iter().position(Option::is_none) {
            let pass = timeout_at(end, self.pass(questions, &mut found)).await;
            let node = self.topology.node_of(self.layout.slot(questions[left].0)).map(|node| node.address.clone());
            let error = match pass {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error,
                Err(_) => Error::Timeout { node: node?, after: end - begun, sent: true },
            };
            match error.disposition() {
                Disposition::Fenced | Disposition::Poison | Disposition::Fatal => return Err(error),
                Disposition::Retry | Disposition::Refresh | Disposition::Ambiguous | Disposition::Full => {}
            }
            if Instant::now() + PAUSE >= end {
                return Err(error);
            }
            sleep(PAUSE).await;
            // Where this fails the next pass says why.
            let _ = timeout_at(end, self.topology.refresh()).await;
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Each node is asked what of its own is not answered yet.
    async fn pass(&self, questions: &[(Shard, Pipeline)], found: &mut [Option<Reply>]) -> Result<(), Error> {
        let mut by_node: BTreeMap<NodeAddress, Vec<usize>> = BTreeMap::new();
        for (at, (shard, _)) in questions.iter().enumerate().filter(|(at, _)| found[*at].is_none()) {
            let node = self.topology.node_of(self.layout.slot(*shard))?;
            by_node.entry(node.address.clone()).or_default().push(at);
        }
        for (node, places) in by_node {
            for places in places.chunks(ASKED_MAX) {
                let asked: Vec<Pipeline> = places.iter().map(|at| questions[*at].1.clone()).collect();
                let replies = ask(&self.topology, &self.pipes, &node, &asked).await?;
                for (at, reply) in places.iter().zip(replies) {
                    found[*at] = Some(reply.checked()?);
                }
            }
        }
        Ok(())
    }
}

impl Mark {
    pub fn of(seen: &[Seen]) -> Mark {
        let first = seen.iter().find_map(|seen| seen.mark);
        let other = seen.iter().zip(0..).filter(|(seen, _)| seen.mark != first).map(|(_, number)| Shard(number));
        match (first, other.collect::<Vec<_>>()) {
            (Some(at), torn) if torn.is_empty() => Mark::On(at),
            (Some(_), torn) => Mark::Torn(torn),
            (None, _) => Mark::None,
        }
    }
}

fn view(replies: &[Reply]) -> Result<UserLoaded, Error> {
    let [birthdays, versions, profile] = replies else {
        return Err(Error::protocol("three answers", "another number"));
    };
    let (everyone, all_versions) = (pairs(birthdays)?, pairs(versions)?);
    Ok(UserLoaded { everyone, all_versions, ..UserLoaded::default() }.with_profile(pairs(profile)?))
}

fn pairs(reply: &Reply) -> Result<Vec<(String, String)>, Error> {
    let text = |reply: &Reply| reply.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    reply.as_pairs()?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
}

fn seen(reply: &Reply) -> Result<Seen, Error> {
    let [mark, applied, dead] = reply.as_array()? else {
        return Err(Error::protocol("three fields", "another number"));
    };
    let number = |reply: &Reply| if reply.is_null() { Ok(None) } else { reply.as_u64().map(Some) };
    let applied = match applied.as_bytes_or_null()? {
        None => EntryId::ZERO,
        Some(text) => {
            let text = String::from_utf8_lossy(text);
            text.parse().map_err(|_| Error::protocol("a position", text.into_owned()))?
        }
    };
    Ok(Seen { mark: number(mark)?, applied, dead: number(dead)?.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_on_where_all_shards_have_the_same() {
        let seen = |mark: Option<u64>| Seen { mark, ..Seen::default() };
        assert_eq!(Mark::of(&[seen(None), seen(None)]), Mark::None);
        assert_eq!(Mark::of(&[seen(Some(7)), seen(Some(7))]), Mark::On(7));
        assert_eq!(Mark::of(&[seen(None), seen(Some(7)), seen(Some(8))]), Mark::Torn(vec![Shard(0), Shard(2)]));
    }
}
