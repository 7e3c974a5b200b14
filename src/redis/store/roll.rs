//! What a roll looks at: users in the order of their names, each with the zone and the friends.

use super::link::RedisLink;
use super::survey::{EDGE, text};
use crate::change::{UserId, ZONE_FIELD};
use crate::error::{Disposition, ServerCode};
use crate::profile::{EXPIRES_FIELD, Fields, SCHEMA_FIELD, may_expire};
use crate::redis::reply::milliseconds;
use crate::redis::{Error, Reply};
use crate::reduce::{Roll, RolledUser, Surveyed};
use crate::store;

/// Users of one survey.
const USERS_MAX: usize = 128;

impl RedisLink {
    pub(super) async fn survey_users(&mut self, roll: &Roll, count: usize) -> Result<Surveyed, store::Error> {
        if let (Some(user), Some(cursor)) = (&roll.user, &roll.cursor) {
            return self.friends_from(roll, user, cursor, count).await;
        }
        let (users, more) = self.users_after(roll.user.as_ref(), count.clamp(1, USERS_MAX)).await?;
        let friends = self.count_friends(&users).await?;
        let mut total = 0;
        let within = |friends: &&u64| {
            total += **friends;
            total <= count as u64
        };
        let chosen = friends.iter().take_while(within).count();
        if let (0, Some(user)) = (chosen, users.first()) {
            return self.friends_from(roll, user, EDGE, count).await;
        }
        let last = users[..chosen].last().cloned();
        let next = last.filter(|_| more || chosen < users.len()).map(|last| roll.came(last, None));
        let users = users.into_iter().zip(friends).take(chosen).collect();
        Ok(Surveyed { users: self.read_days(users).await?, next })
    }

    /// The ids that follow, at least one where there is one, and whether there may be more. Names that are no ids are passed
    /// over: nobody has a view under them.
    async fn users_after(&mut self, user: Option<&UserId>, count: usize) -> Result<(Vec<UserId>, bool), store::Error> {
        let mut after = user.map_or_else(|| b"-".to_vec(), |user| [b"(", user.as_str().as_bytes()].concat());
        loop {
            let key = self.keys.users.clone();
            let mut command = self.pipeline.command("ZRANGE");
            command.arg(key.as_bytes()).arg(&after).arg("+").arg("BYLEX").arg("LIMIT").arg("0").arg_u64(count as u64);
            drop(command);
            let page = self.answers("roll").await?.pop().unwrap_or(Reply::Null);
            let names = page.as_array().map_err(|error| self.failed("roll", &error))?;
            let name = |reply: &Reply| reply.to_str().ok().and_then(|name| name.parse().ok());
            let users: Vec<UserId> = names.iter().filter_map(name).collect();
            let more = names.len() >= count;
            match names.last().map(Reply::as_bytes) {
                Some(Ok(last)) if more && users.is_empty() => after = [b"(", &last[..]].concat(),
                _ => return Ok((users, more)),
            }
        }
    }

    async fn count_friends(&mut self, users: &[UserId]) -> Result<Vec<u64>, store::Error> {
        for user in users {
            self.pipeline.command("HLEN").arg_parts(&self.keys.birthdays_parts(user));
        }
        let replies = if users.is_empty() { Vec::new() } else { self.answers("roll").await? };
        let counts: Result<Vec<u64>, Error> = replies.iter().map(count).collect();
        counts.map_err(|error| self.failed("roll", &error))
    }

    /// With all friends; users of whom the days need nothing are left out.
    async fn read_days(&mut self, users: Vec<(UserId, u64)>) -> Result<Vec<RolledUser>, store::Error> {
        let profiles = self.read_heads(users.iter().map(|(user, _)| user)).await?;
        for (user, _) in users.iter().filter(|(_, friends)| *friends > 0) {
            self.pipeline.command("HGETALL").arg_parts(&self.keys.birthdays_parts(user));
        }
        let some = users.iter().any(|(_, friends)| *friends > 0);
        let mut replies = if some { self.answers("roll").await? } else { Vec::new() }.into_iter();
        let rolled = users.into_iter().zip(profiles).map(|((user, friends_count), head)| {
            let friends = match friends_count {
                0 => Vec::new(),
                _ => or_none(&replies.next().unwrap_or(Reply::Null), pairs)?,
            };
            Ok(RolledUser { user, zone: head.zone, friends, expired: head.expired, friends_count })
        });
        let rolled: Result<Vec<_>, Error> = rolled.collect();
        let needed = |user: &RolledUser| !user.friends.is_empty() || user.expired.is_some();
        Ok(rolled.map_err(|error| self.failed("roll", &error))?.into_iter().filter(needed).collect())
    }

    /// Zones, and the whole of profiles that have expired.
    async fn read_heads(&mut self, users: impl Iterator<Item = &UserId>) -> Result<Vec<Head>, store::Error> {
        let users: Vec<&UserId> = users.collect();
        self.pipeline.command("TIME");
        for user in &users {
            let mut command = self.pipeline.command("HMGET");
            command.arg_parts(&self.keys.profile_parts(user)).args([ZONE_FIELD, EXPIRES_FIELD, SCHEMA_FIELD]);
        }
        let replies = self.answers("roll").await?;
        let heads = heads(&replies);
        let mut heads = heads.map_err(|error| self.failed("roll", &error))?;
        let over: Vec<usize> = (0..heads.len()).filter(|at| heads[*at].expired.is_some()).collect();
        for at in &over {
            self.pipeline.command("HGETALL").arg_parts(&self.keys.profile_parts(users[*at]));
        }
        let whole = if over.is_empty() { Vec::new() } else { self.answers("roll").await? };
        for (at, reply) in over.into_iter().zip(&whole) {
            let fields = or_none(reply, pairs).map_err(|error| self.failed("roll", &error))?;
            heads[at].expired = Some(fields.into_iter().collect());
        }
        Ok(heads)
    }

    /// A part of the friends of somebody who has many.
    async fn friends_from(
        &mut self,
        roll: &Roll,
        user: &UserId,
        cursor: &str,
        count: usize,
    ) -> Result<Surveyed, store::Error> {
        let Head { zone, expired } = self.read_heads([user].into_iter()).await?.pop().unwrap_or_default();
        let friends_count = self.count_friends(std::slice::from_ref(user)).await?.pop().unwrap_or_default();
        match self.scan_from(&self.keys.birthdays(user), cursor, count).await {
            Ok((friends, cursor)) => {
                let friends = friends.into_iter().collect();
                let users = vec![RolledUser { user: user.clone(), zone, friends_count, friends, expired }];
                Ok(Surveyed { users, next: Some(roll.came(user.clone(), cursor)) })
            }
            // Of another type since it was counted.
            Err(error) if error.disposition == Disposition::Poison => {
                Ok(Surveyed { users: Vec::new(), next: Some(roll.came(user.clone(), None)) })
            }
            Err(error) => Err(error),
        }
    }

    async fn answers(&mut self, asked: &str) -> Result<Vec<Reply>, store::Error> {
        self.request(asked, self.reply_timeout()).await
    }
}

/// How many friends there are; a key of a foreign type is not none.
fn count(reply: &Reply) -> Result<u64, Error> {
    match reply.error() {
        Some(error) if error.code == ServerCode::WrongType => Ok(1),
        _ => reply.as_u64(),
    }
}

/// A key of a foreign type holds nothing that could be read.
fn or_none<T: Default>(reply: &Reply, read: impl Fn(&Reply) -> Result<T, Error>) -> Result<T, Error> {
    match reply.error() {
        Some(error) if error.code == ServerCode::WrongType => Ok(T::default()),
        _ => read(reply),
    }
}

/// What a roll needs of a profile.
#[derive(Default)]
struct Head {
    zone: Option<String>,
    expired: Option<Fields>,
}

/// The time, then some fields of each profile. Those that have expired are told by an empty one.
fn heads(replies: &[Reply]) -> Result<Vec<Head>, Error> {
    let (time, profiles) = replies.split_first().ok_or_else(|| Error::protocol("the time", "nothing"))?;
    let now = milliseconds(time)?;
    profiles.iter().map(|fields| or_none(fields, |fields| head(fields, now))).collect()
}

fn head(fields: &Reply, now: u64) -> Result<Head, Error> {
    let [zone, end, schema] = fields.as_array()? else {
        return Err(Error::protocol("three fields", "another number"));
    };
    let text = |reply: &Reply| -> Result<Option<String>, Error> {
        Ok(reply.as_bytes_or_null()?.map(|text| String::from_utf8_lossy(text).into_owned()))
    };
    let known = may_expire(text(schema)?.as_deref());
    let over = text(end)?.filter(|_| known).and_then(|end| end.parse::<u64>().ok()).is_some_and(|end| end <= now);
    Ok(Head { zone: text(zone)?, expired: over.then(Fields::default) })
}

fn pairs(reply: &Reply) -> Result<Vec<(String, String)>, Error> {
    reply.as_pairs()?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
}
