//! The maintenance lock: one holder keeps all workers from committing, for as long as it says and no longer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::query::ask;
use super::reply::{Reply, milliseconds};
use super::{encode::Pipeline, error::Error, pipes::Pipes, topology::Topology};
use crate::error::Disposition;
use crate::key::{Key, Keys};
use crate::store::{Maintenance, MaintenanceLock};

/// How long it is known at the least that a lock was given up and has not run out.
const GIVEN_UP_KNOWN_MIN: Duration = Duration::from_secs(60);
/// The longest wait for one question, looking for the owner of the lock's slot included.
const DEADLINE: Duration = Duration::from_secs(5);
/// What the fields begin with that name the workers that have paused.
const PAUSED: &str = "paused:";

/// The lock on one cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MaintenanceLocks {
    topology: Arc<Topology>,
    pipes: Arc<Pipes>,
    key: Key,
}

/// The answer to taking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    Mine(MaintenanceLock),
    Held(MaintenanceLock),
}

/// The answer to giving it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenUp {
    None,
    Done(MaintenanceLock),
    /// It is another's, and stays.
    Held(MaintenanceLock),
}

/// The lock, and which workers have paused for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub lock: Option<MaintenanceLock>,
    pub paused: BTreeSet<String>,
}

impl MaintenanceLocks {
    #[must_use]
    pub fn new(topology: Arc<Topology>, pipes: Arc<Pipes>, keys: &Keys) -> Self {
        Self { topology, pipes, key: keys.maintenance() }
    }

    /// Takes the lock, or changes reason and time where `holder` has it already.
    ///
    /// # Errors
    ///
    /// Where its node does not answer in time, or something else lies at its key.
    pub async fn take(&self, holder: &str, reason: &str, ttl: Duration) -> Result<Taken, Error> {
        let ttl = ttl.as_millis().to_string();
        let reply = self.script(include_str!("lua/maintenance_on.lua"), &[holder, reason, &ttl]).await?;
        let (mine, lock) = answer(reply.as_array()?)?;
        Ok(if mine { Taken::Mine(lock) } else { Taken::Held(lock) })
    }

    /// Ends it; one that another has only where that is wanted too.
    ///
    /// # Errors
    ///
    /// As for [`Self::take`].
    pub async fn give_up(&self, holder: &str, anybodys: bool) -> Result<GivenUp, Error> {
        let known = GIVEN_UP_KNOWN_MIN.as_millis().to_string();
        let arguments = [holder, if anybodys { "1" } else { "0" }, &known];
        let reply = self.script(include_str!("lua/maintenance_off.lua"), &arguments).await?;
        match reply.as_array()? {
            [] => Ok(GivenUp::None),
            values => {
                let (done, lock) = answer(values)?;
                Ok(if done { GivenUp::Done(lock) } else { GivenUp::Held(lock) })
            }
        }
    }

    /// How it stands.
    ///
    /// # Errors
    ///
    /// As for [`Self::take`].
    pub async fn look(&self) -> Result<Found, Error> {
        let mut commands = [Pipeline::new(), Pipeline::new(), Pipeline::new()];
        commands[0].push(&["TIME"]);
        commands[1].push(&["PTTL", self.key.as_str()]);
        commands[2].push(&["HGETALL", self.key.as_str()]);
        let replies = self.ask(&commands).await?;
        let [time, left, fields] = &replies[..] else {
            return Err(Error::protocol("an answer to each command", "fewer"));
        };
        found(milliseconds(time)?, left.as_i64()?, fields)
    }

    async fn script(&self, body: &str, arguments: &[&str]) -> Result<Reply, Error> {
        let mut pipeline = Pipeline::new();
        pipeline.command("EVAL").arg(body).arg_u64(1).arg(self.key.as_bytes()).args(arguments);
        let reply = self.ask(&[pipeline]).await?.pop();
        reply.ok_or_else(|| Error::protocol("an answer", "none"))
    }

    /// Asks whoever owns the lock's slot by now. Taking and giving up twice is the same as once.
    async fn ask(&self, commands: &[Pipeline]) -> Result<Vec<Reply>, Error> {
        let end = Instant::now() + DEADLINE;
        loop {
            let node = self.topology.node_of(self.key.slot())?;
            let late = || Error::Timeout { node: node.address.clone(), after: DEADLINE, sent: true };
            let asked = timeout_at(end, ask(&self.topology, &self.pipes, &node.address, commands)).await;
            let replies = asked
                .map_err(|_| late())?
                .and_then(|replies| replies.into_iter().map(Reply::checked).collect::<Result<Vec<_>, _>>());
            match replies {
                Err(error) if error.disposition() == Disposition::Refresh => {
                    let known = timeout_at(end, self.topology.refresh()).await.map_err(|_| late())?;
                    let owner = self.topology.node_of(self.key.slot())?;
                    if known.is_err() || owner.address == node.address {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }
}

/// What `maintenance_look.lua` answers.
pub(super) fn seen(reply: &Reply) -> Result<Maintenance, Error> {
    let values = reply.as_array()?;
    let (kind, values) = values.split_first().ok_or_else(|| Error::protocol("an answer", "none"))?;
    match kind.to_str()? {
        "none" => Ok(Maintenance::None),
        "given up" => Ok(Maintenance::GivenUp),
        "on" => lock(values).map(Maintenance::On),
        other => Err(Error::protocol("none, given up or on", other)),
    }
}

fn answer(values: &[Reply]) -> Result<(bool, MaintenanceLock), Error> {
    let (mine, values) = values.split_first().ok_or_else(|| Error::protocol("an answer", "none"))?;
    Ok((mine.as_i64()? == 1, lock(values)?))
}

fn lock(values: &[Reply]) -> Result<MaintenanceLock, Error> {
    let [holder, reason, held, left] = values else {
        return Err(Error::protocol("holder, reason and two times", format!("{} values", values.len())));
    };
    Ok(MaintenanceLock {
        holder: lossy(holder)?,
        reason: lossy(reason)?,
        held_for: Duration::from_millis(held.as_u64()?),
        left: Duration::from_millis(left.as_u64()?),
    })
}

fn found(now: u64, left: i64, fields: &Reply) -> Result<Found, Error> {
    let (mut holder, mut reason, mut since, mut given_up) = (None, String::new(), now, false);
    let mut paused = BTreeSet::new();
    for (name, value) in fields.as_pairs()? {
        match lossy(name)?.as_str() {
            "holder" => holder = Some(lossy(value)?),
            "reason" => reason = lossy(value)?,
            "since" => since = value.as_u64()?,
            "off_at" => given_up = true,
            name => paused.extend(name.strip_prefix(PAUSED).map(str::to_owned)),
        }
    }
    let lock = holder.filter(|_| !given_up).map(|holder| MaintenanceLock {
        holder,
        reason,
        held_for: Duration::from_millis(now.saturating_sub(since)),
        left: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
    });
    Ok(Found { lock, paused })
}

/// Whatever bytes somebody planted there: they are shown and nothing else.
fn lossy(reply: &Reply) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(reply.as_bytes()?).into_owned())
}
