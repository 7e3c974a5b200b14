//! Takes the answers to [`super::encode::load`] in the same order.

use super::encode::written;
use super::read::position;
use crate::activity::weight_of;
use crate::change::UserId;
use crate::error::{Disposition, ServerCode};
use crate::key::{Key, ShardKeys};
use crate::position::{CommitId, EntryId};
use crate::redis::reply::milliseconds;
use crate::redis::{Error, Reply};
use crate::reduce::{Loaded, Plan, UserLoaded, UserPlan};

/// Which read failed, and why.
pub(super) struct Failure {
    pub asked: String,
    pub error: Error,
    /// Where it differs from the error's own.
    pub disposition: Option<Disposition>,
}

type Answer<T> = Result<T, Failure>;

pub(super) fn loaded(keys: &ShardKeys, plan: &Plan, replies: Vec<Reply>) -> Answer<Loaded> {
    let mut answers = Answers { replies: replies.into_iter() };
    answers.shard("WATCH", &keys.state, |reply| reply.expect_status("OK"))?;
    let (generation, last, rebuild) = answers.shard("HMGET", &keys.state, state)?;
    let (pending, pending_first) = answers.shard("XPENDING", &keys.changes, pending)?;
    let milliseconds = answers.take(|| "TIME".to_owned(), |reply| milliseconds(&reply))?;
    for (command, key) in written(keys, plan) {
        answers.shard(command, key, unspoilt)?;
    }
    let letters_last = match plan.letters {
        true => answers.shard("XREVRANGE", &keys.dead_letters, newest)?,
        false => EntryId::ZERO,
    };
    let users = plan.users.iter().map(|user| answers.user(keys, user)).collect::<Answer<_>>()?;
    let mut events = Vec::new();
    if !plan.events.is_empty() {
        let seen = |reply: Reply| Ok(reply.as_array()?.iter().map(|reply| !reply.is_null()).collect());
        events = answers.take(|| format!("MGET {} …", keys.dedup(&plan.events[0])), seen)?;
    }
    let (mut producers, mut producers_sample) = (Vec::new(), Vec::new());
    if !plan.producers.is_empty() {
        producers = answers.shard("HMGET", &keys.producers, texts)?;
        producers_sample = answers.shard("HRANDFIELD", &keys.producers, |reply| pairs(&reply))?;
    }
    Ok(Loaded {
        milliseconds,
        generation,
        last,
        pending,
        pending_first,
        users,
        events,
        producers,
        producers_sample,
        letters_last,
        rebuild,
    })
}

struct Answers {
    replies: std::vec::IntoIter<Reply>,
}

impl Answers {
    fn take<T>(&mut self, asked: impl Fn() -> String, read: impl FnOnce(Reply) -> Result<T, Error>) -> Answer<T> {
        let reply = self.replies.next().ok_or_else(|| Error::protocol("an answer to each command", "fewer"));
        reply.and_then(read).map_err(|error| Failure { asked: asked(), error, disposition: None })
    }

    /// A shard's own key. No entry is to blame where it is not what it should be; taking up again says what it is.
    fn shard<T>(&mut self, command: &str, key: &Key, read: impl FnOnce(Reply) -> Result<T, Error>) -> Answer<T> {
        self.take(|| format!("{command} {key}"), read).map_err(|mut failure| {
            if failure.error.disposition() == Disposition::Poison {
                failure.disposition = Some(Disposition::Refresh);
            }
            failure
        })
    }

    fn user(&mut self, keys: &ShardKeys, plan: &UserPlan) -> Answer<UserLoaded> {
        let user = &plan.user;
        let mut loaded = if plan.all { self.all(keys, user)? } else { self.named(keys, plan)? };
        if plan.sample {
            loaded.sample = self.take(|| format!("HRANDFIELD {}", keys.versions(user)), |reply| pairs(&reply))?;
        }
        self.activity(keys, plan, &mut loaded)?;
        Ok(loaded)
    }

    /// All there is of a user, and what follows from it.
    fn all(&mut self, keys: &ShardKeys, user: &UserId) -> Answer<UserLoaded> {
        let mut all = |key: Key| self.take(|| format!("HGETALL {key}"), |reply| pairs(&reply));
        let (everyone, all_versions) = (all(keys.birthdays(user))?, all(keys.versions(user))?);
        Ok(UserLoaded { everyone, all_versions, ..UserLoaded::default() }.with_profile(all(keys.profile(user))?))
    }

    fn named(&mut self, keys: &ShardKeys, plan: &UserPlan) -> Answer<UserLoaded> {
        let user = &plan.user;
        let mut loaded = UserLoaded::default();
        if !plan.friends.is_empty() {
            loaded.friends = self.take(|| format!("HMGET {}", keys.birthdays(user)), texts)?;
        }
        if !plan.versions.is_empty() {
            loaded.versions = self.take(|| format!("HMGET {}", keys.versions(user)), texts)?;
        }
        if plan.whole {
            loaded.profile =
                self.take(|| format!("HGETALL {}", keys.profile(user)), |reply| pairs(&reply))?.into_iter().collect();
            loaded.profile_length = loaded.profile.len() as u64;
        } else if plan.profile {
            let values = self.take(|| format!("HMGET {}", keys.profile(user)), texts)?;
            let fields = plan.profile_fields().zip(values);
            loaded.profile = fields.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        }
        if !plan.fields.is_empty() && !plan.whole {
            loaded.profile_length = self.take(|| format!("HLEN {}", keys.profile(user)), |reply| reply.as_u64())?;
        }
        if plan.birthday {
            loaded.birthday = self.take(|| format!("HGET {}", keys.profile(user)), |reply| text(&reply))?;
        }
        if plan.zone {
            loaded.zone = self.take(|| format!("HGET {}", keys.profile(user)), |reply| text(&reply))?;
        }
        if plan.everyone {
            loaded.everyone = self.take(|| format!("HGETALL {}", keys.birthdays(user)), |reply| pairs(&reply))?;
        }
        if plan.extent {
            let friends = self.take(|| format!("HLEN {}", keys.birthdays(user)), |reply| reply.as_u64())?;
            let profiles = self.take(|| format!("EXISTS {}", keys.profile(user)), |reply| reply.as_u64())?;
            loaded.extent = Some((friends, profiles > 0));
        }
        Ok(loaded)
    }

    fn activity(&mut self, keys: &ShardKeys, plan: &UserPlan, loaded: &mut UserLoaded) -> Answer<()> {
        let user = &plan.user;
        if plan.activity {
            loaded.days = self.take(|| format!("HGETALL {}", keys.activity(user)), |reply| pairs(&reply))?;
            loaded.days.sort_unstable();
        }
        if !plan.categories.is_empty() {
            let scores = self.take(|| format!("ZMSCORE {}", keys.top(user)), texts)?;
            loaded.weights = scores.iter().map(|score| score.as_deref().map(weight_of)).collect();
            loaded.top_length = self.take(|| format!("ZCARD {}", keys.top(user)), |reply| reply.as_u64())?;
            let lightest = self.take(|| format!("ZRANGE {}", keys.top(user)), |reply| pairs(&reply))?;
            loaded.lightest = lightest.into_iter().map(|(name, score)| (name, weight_of(&score))).collect();
        }
        Ok(())
    }
}

/// A key that is on its way to another node, or not there at all while its slot is, is not of a wrong type.
fn unspoilt(reply: Reply) -> Result<(), Error> {
    match reply.error().map(|error| &error.code) {
        Some(ServerCode::Ask { .. } | ServerCode::TryAgain) => Ok(()),
        _ => reply.as_u64().map(drop),
    }
}

/// Absent fields are zero: a state that was lost is no owner's.
fn state(reply: Reply) -> Result<(u64, CommitId, Option<u64>), Error> {
    let [generation, last, rebuild] = reply.as_array()? else {
        return Err(Error::protocol("generation, last and rebuild", "another number of values"));
    };
    let generation = if generation.is_null() { 0 } else { generation.as_u64()? };
    let last = match text(last)? {
        Some(text) => text.parse().map_err(|_| Error::protocol("a commit id", format!("{text:?}")))?,
        None => CommitId::ZERO,
    };
    // What is no number was not written by heyday.
    Ok((generation, last, text(rebuild)?.and_then(|text| text.parse().ok())))
}

/// How many are pending and the least id, in the summary that XPENDING gives.
fn pending(reply: Reply) -> Result<(u64, Option<EntryId>), Error> {
    match reply.as_array()? {
        [_, first, ..] if first.is_null() => Ok((0, None)),
        [count, first, ..] => Ok((count.as_u64()?, Some(position(first)?))),
        _ => Err(Error::protocol("a summary of pending entries", "less")),
    }
}

/// The id of the one entry, where there is one.
fn newest(reply: Reply) -> Result<EntryId, Error> {
    match reply.as_array()?.first() {
        Some(entry) => entry.as_array()?.first().map_or_else(|| Err(Error::protocol("an entry", "less")), position),
        None => Ok(EntryId::ZERO),
    }
}

fn texts(reply: Reply) -> Result<Vec<Option<String>>, Error> {
    reply.as_array()?.iter().map(text).collect()
}

fn pairs(reply: &Reply) -> Result<Vec<(String, String)>, Error> {
    reply.as_pairs()?.map(|(name, value)| Ok((lossy(name.as_bytes()?), lossy(value.as_bytes()?)))).collect()
}

fn text(reply: &Reply) -> Result<Option<String>, Error> {
    Ok(reply.as_bytes_or_null()?.map(|bytes| lossy(bytes)))
}

/// heyday writes UTF-8 only. What somebody else spoilt is read as it is, and counts as spoilt.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
