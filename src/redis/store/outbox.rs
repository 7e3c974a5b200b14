//! From one shard's outbox into another shard's stream.

use std::fmt::Display;
use std::time::Duration;

use super::nodes::NodeLinks;
use super::read::entry;
use super::scripts::{By, RELAY, is_lost};
use super::{RedisStore, failure};
use crate::change::shard_producer;
use crate::error::Disposition;
use crate::position::EntryId;
use crate::redis::{Error, Pipeline, Reply};
use crate::reduce::Entry;
use crate::shard::Shard;
use crate::store::{self, Relay, TOO_FEW_REPLICAS};

/// How long one answer waits for the target's replicas.
const REPLICAS_WAIT: Duration = Duration::from_millis(500);

impl RedisStore {
    pub(super) async fn read_outbox(
        &self,
        shard: Shard,
        after: EntryId,
        count: usize,
    ) -> Result<Vec<Relay>, store::Error> {
        let keys = self.shard_keys(shard);
        let mut pipeline = Pipeline::new();
        let from = format!("({after}");
        pipeline.command("XRANGE").arg(keys.outbox.as_bytes()).arg(from).arg("+").arg("COUNT").arg_u64(count as u64);
        let answer =
            self.ask_over(&self.shared.links, (shard, "outbox"), &pipeline).await?.pop().unwrap_or(Reply::Null);
        let entries = answer.checked().and_then(Reply::into_array);
        let entries = entries.and_then(|entries| entries.into_iter().map(entry).collect::<Result<Vec<_>, _>>());
        Ok(entries.map_err(|error| self.told(shard, "outbox", &error))?.into_iter().map(relay).collect())
    }

    pub(super) async fn append_relays(
        &self,
        source: Shard,
        target: Shard,
        relays: &[Relay],
        replicas: u32,
    ) -> Result<(), store::Error> {
        let (changes, producer) = (self.shard_keys(target).changes, shard_producer(source));
        let mut words: Vec<Vec<u8>> = Vec::new();
        for relay in relays {
            words.push((2 * relay.fields.len() + 4).to_string().into());
            let fields = relay.fields.iter().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]);
            words.extend(fields);
            words.extend(["producer", &producer, "seq", &relay.id.to_string()].map(Vec::from));
        }
        if replicas > 0 {
            self.look_for_replicas(target, replicas).await?;
        }
        for by in [By::Name, By::Body] {
            let mut pipeline = Pipeline::new();
            RELAY.write(&mut pipeline, by, &[&changes], &words);
            if replicas > 0 {
                let wait = REPLICAS_WAIT.as_millis() as u64;
                pipeline.command("WAIT").arg_u64(replicas.into()).arg_u64(wait);
            }
            let mut replies = self.ask_beside(target, "relay", &pipeline).await?.into_iter();
            let appended = replies.next().unwrap_or(Reply::Null);
            if by == By::Name && is_lost(&appended) {
                continue;
            }
            appended.as_u64().map_err(|error| self.told(target, "relay", &error))?;
            if let Some(reached) = replies.next() {
                let reached = reached.as_u64().map_err(|error| self.told(target, "relay", &error))?;
                if reached < u64::from(replicas) {
                    return Err(too_few(target, reached, replicas));
                }
            }
            break;
        }
        Ok(())
    }

    /// Nothing is appended where it could not be passed on: it would be appended again with each try.
    async fn look_for_replicas(&self, target: Shard, replicas: u32) -> Result<(), store::Error> {
        let mut pipeline = Pipeline::new();
        pipeline.command("WAIT").arg_u64(replicas.into()).arg("1");
        let reached = self.ask_beside(target, "relay", &pipeline).await?.pop().unwrap_or(Reply::Null);
        let reached = reached.as_u64().map_err(|error| self.told(target, "relay", &error))?;
        if reached < u64::from(replicas) { Err(too_few(target, reached, replicas)) } else { Ok(()) }
    }

    pub(super) async fn delete_relayed(&self, shard: Shard, ids: &[EntryId]) -> Result<(), store::Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let keys = self.shard_keys(shard);
        let mut pipeline = Pipeline::new();
        let mut command = pipeline.command("XDEL");
        command.arg(keys.outbox.as_bytes());
        for id in ids {
            command.arg_position(id.milliseconds, id.sequence);
        }
        drop(command);
        let answer =
            self.ask_over(&self.shared.links, (shard, "relayed"), &pipeline).await?.pop().unwrap_or(Reply::Null);
        answer.as_u64().map(drop).map_err(|error| self.told(shard, "relayed", &error))
    }

    /// Over links of their own: what waits for replicas must not hold up heartbeats.
    async fn ask_beside(
        &self,
        shard: Shard,
        asked: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Reply>, store::Error> {
        self.ask_over(&self.shared.relays, (shard, asked), pipeline).await
    }

    async fn ask_over(
        &self,
        links: &NodeLinks,
        (shard, asked): (Shard, &'static str),
        pipeline: &Pipeline,
    ) -> Result<Vec<Reply>, store::Error> {
        let node = self.owner(asked, self.shard_keys(shard).slot)?;
        let sent = links.request(&node.address, self.options(), pipeline).await;
        sent.map_err(|error| failure::tell(self.topology(), &node.address, asked_of(asked, shard), &error))
    }

    fn told(&self, shard: Shard, asked: &'static str, error: &Error) -> store::Error {
        match self.owner(asked, self.shard_keys(shard).slot) {
            Ok(node) => failure::tell(self.topology(), &node.address, asked_of(asked, shard), error),
            Err(unowned) => unowned,
        }
    }
}

fn asked_of(asked: &'static str, shard: Shard) -> impl Display {
    format!("shard {shard}: {asked}")
}

fn relay(entry: Entry) -> Relay {
    let fields = entry.fields.unwrap_or_default();
    let user = fields.iter().find(|(name, _)| &name[..] == b"user").map(|(_, user)| user);
    let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok());
    Relay { id: entry.id, user, fields }
}

fn too_few(target: Shard, reached: u64, replicas: u32) -> store::Error {
    store::Error {
        disposition: Disposition::Retry,
        reason: TOO_FEW_REPLICAS,
        message: format!("shard {target}: relay: {reached} replicas have it, expected {replicas}"),
    }
}
