//! What a roll looks at: users in the order of their names, each with the zone and the friends.

use super::link::RedisLink;
use super::survey::{EDGE, text};
use crate::change::{UserId, ZONE_FIELD};
use crate::error::{Disposition, ServerCode};
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
        // Whoever has no friends stands on no day.
        let some = users.into_iter().zip(friends).take(chosen).filter(|(_, friends)| *friends > 0);
        let users: Vec<UserId> = some.map(|(user, _)| user).collect();
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
        let counts: Result<Vec<u64>, Error> = replies.iter().map(|reply| or_none(reply, Reply::as_u64)).collect();
        counts.map_err(|error| self.failed("roll", &error))
    }

    async fn read_days(&mut self, users: Vec<UserId>) -> Result<Vec<RolledUser>, store::Error> {
        for user in &users {
            self.pipeline.command("HGET").arg_parts(&self.keys.profile_parts(user)).arg(ZONE_FIELD);
            self.pipeline.command("HGETALL").arg_parts(&self.keys.birthdays_parts(user));
        }
        let replies = if users.is_empty() { Vec::new() } else { self.answers("roll").await? };
        let rolled = users.into_iter().zip(replies.chunks_exact(2)).map(|(user, replies)| {
            let friends = or_none(&replies[1], pairs)?;
            Ok(RolledUser { user, zone: or_none(&replies[0], zone)?, friends })
        });
        rolled.collect::<Result<_, Error>>().map_err(|error| self.failed("roll", &error))
    }

    /// A part of the friends of somebody who has many.
    async fn friends_from(
        &mut self,
        roll: &Roll,
        user: &UserId,
        cursor: &str,
        count: usize,
    ) -> Result<Surveyed, store::Error> {
        self.pipeline.command("HGET").arg_parts(&self.keys.profile_parts(user)).arg(ZONE_FIELD);
        let reply = self.answers("roll").await?.pop().unwrap_or(Reply::Null);
        let zone = or_none(&reply, zone).map_err(|error| self.failed("roll", &error))?;
        match self.scan_from(&self.keys.birthdays(user), cursor, count).await {
            Ok((friends, cursor)) => {
                let friends = friends.into_iter().collect();
                let users = vec![RolledUser { user: user.clone(), zone, friends }];
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

/// A key of a foreign type holds nothing that could be read.
fn or_none<T: Default>(reply: &Reply, read: impl Fn(&Reply) -> Result<T, Error>) -> Result<T, Error> {
    match reply.error() {
        Some(error) if error.code == ServerCode::WrongType => Ok(T::default()),
        _ => read(reply),
    }
}

fn zone(reply: &Reply) -> Result<Option<String>, Error> {
    Ok(reply.as_bytes_or_null()?.map(|zone| String::from_utf8_lossy(zone).into_owned()))
}

fn pairs(reply: &Reply) -> Result<Vec<(String, String)>, Error> {
    reply.as_pairs()?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
}
