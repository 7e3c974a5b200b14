//! Makes anew what is derived: decided and written in one step, so that no commit comes in between.
//!
//! The state is watched and not written: every commit and every take-over writes it, so what was decided here from the
//! views is not executed once they may have changed, and the owner's own commits are not disturbed. See
//! `docs/decisions/0011-repair-without-a-lease.md`.

use tokio::time::{Instant, sleep};

use super::confirm::{Seen, Suspect, listing};
use super::{Check, readable, source};
use crate::error::ServerCode;
use crate::invariant::{Day, Repair, Violation};
use crate::key::ShardKeys;
use crate::redis::query::command;
use crate::redis::reply::milliseconds;
use crate::redis::{Error, Link, Pipeline, Reply};

/// Repairs in one transaction.
const REPAIRED_MAX: usize = 64;
/// How often a repair is begun anew because a commit came in between.
const RACES_MAX: u32 = 50;
/// What a commit needs to be through.
const RACE_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

enum Outcome {
    Done,
    /// A commit came in between.
    Raced,
    /// Something in it was refused.
    Refused,
}

impl Check<'_> {
    /// `violations` are derived ones. What cannot be repaired is noted as what it was.
    pub(super) async fn repair(&mut self, keys: &ShardKeys, violations: Vec<Violation>) -> Result<(), Error> {
        for chunk in violations.chunks(REPAIRED_MAX) {
            match self.repaired(keys, chunk).await {
                Ok(true) => chunk.iter().for_each(|violation| self.findings.repaired.note(violation.clone())),
                Ok(false) => self.findings.note_all(chunk.iter().cloned()),
                Err(error) => {
                    self.findings.note_all(chunk.iter().cloned());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn repaired(&mut self, keys: &ShardKeys, violations: &[Violation]) -> Result<bool, Error> {
        let mut races = 0;
        let mut end = Instant::now() + self.source.patience();
        loop {
            match self.try_repair(keys, violations).await {
                Ok(Outcome::Done) => return Ok(true),
                Ok(Outcome::Refused) => return Ok(false),
                Ok(Outcome::Raced) if races >= RACES_MAX => return Ok(false),
                Ok(Outcome::Raced) => {
                    races += 1;
                    end = Instant::now() + self.source.patience();
                    sleep(RACE_PAUSE).await;
                }
                // Whatever became of it, looking again and doing the rest of it is right.
                Err(error) => match self.source.wait_out(error, end).await {
                    Err(Error::Server(error)) if is_on_its_way(&error.code) => return Ok(false),
                    waited => waited?,
                },
            }
        }
    }

    async fn try_repair(&mut self, keys: &ShardKeys, violations: &[Violation]) -> Result<Outcome, Error> {
        let node = self.source.topology().node_of(keys.slot)?.address.clone();
        let options = self.source.topology().options().clone();
        let mut link = Link::connect(&node, &options).await?;
        let repairs: Vec<&Repair> = violations.iter().filter_map(|violation| violation.repair.as_ref()).collect();
        let asked: Vec<Vec<Pipeline>> = repairs.iter().map(|repair| questions(keys, repair)).collect();
        let mut pipeline = command(&["WATCH", keys.state.as_str()]);
        pipeline.append(&command(&["TIME"]));
        asked.iter().flatten().for_each(|question| pipeline.append(question));
        let replies = link.request(&pipeline, options.reply_timeout).await?;
        if let Some(refusal) = replies.iter().filter_map(Reply::error).find(|error| source::passes(error.disposition()))
        {
            return Err(Error::Server(refusal.clone()));
        }
        replies[0].expect_status("OK")?;
        let now = milliseconds(&replies[1])?;
        let mut rest = &replies[2..];
        let mut writes = Vec::new();
        for (repair, asked) in repairs.into_iter().zip(&asked) {
            let (mine, others) = rest.split_at(asked.len());
            writes.extend(self.writes(keys, repair, mine, now));
            rest = others;
        }
        if writes.is_empty() {
            return Ok(Outcome::Done);
        }
        let mut pipeline = command(&["MULTI"]);
        writes.iter().for_each(|write| pipeline.append(write));
        pipeline.append(&command(&["EXEC"]));
        outcome(link.request(&pipeline, options.reply_timeout).await?)
    }

    /// What makes it right, as things are now.
    fn writes(&self, keys: &ShardKeys, repair: &Repair, replies: &[Reply], now: u64) -> Vec<Pipeline> {
        let calendar = &self.rules.calendar;
        let expire = |day: &Day| command(&["EXPIREAT", day.key.as_str(), &calendar.expires_at(day.date).to_string()]);
        match repair {
            Repair::Expiry { date } => vec![expire(&Day::new(calendar, keys, *date))],
            Repair::Member { date, member } => {
                let day = Day::new(calendar, keys, *date);
                let kept = |seen: &Seen| *date >= calendar.window(now).first && seen.progress.is_kept(*date);
                let Some(seen) = Seen::of(member, replies).filter(kept) else {
                    return Vec::new();
                };
                let sight = seen.sight(now);
                match day.score(sight.stored, sight.tz) {
                    Some(due) => vec![command(&["ZADD", day.key.as_str(), &due.to_string(), member]), expire(&day)],
                    None => vec![command(&["ZREM", day.key.as_str(), member])],
                }
            }
            Repair::Listing { user } => match listing(replies).map(|listing| listing.expected()) {
                Some(Some(score)) => vec![command(&["ZADD", keys.users.as_str(), &score.to_string(), user])],
                Some(None) => vec![command(&["ZREM", keys.users.as_str(), user])],
                None => Vec::new(),
            },
        }
    }
}

fn questions(keys: &ShardKeys, repair: &Repair) -> Vec<Pipeline> {
    match repair {
        Repair::Expiry { .. } => Vec::new(),
        Repair::Member { date, member } => Suspect::Member { date: *date, member: member.clone() }.questions(keys),
        Repair::Listing { user } => Suspect::Listing { user: user.clone() }.questions(keys),
    }
}

fn outcome(replies: Vec<Reply>) -> Result<Outcome, Error> {
    let (executed, queued) = replies.split_last().ok_or_else(|| Error::protocol("an answer", "none"))?;
    if let Some(refusal) = queued.iter().chain([executed]).find_map(Reply::error) {
        return Err(Error::Server(refusal.clone()));
    }
    match executed {
        Reply::Null => Ok(Outcome::Raced),
        executed => {
            let all = executed.as_array()?.iter().all(|reply| readable(reply).is_some());
            Ok(if all { Outcome::Done } else { Outcome::Refused })
        }
    }
}

fn is_on_its_way(code: &ServerCode) -> bool {
    matches!(code, ServerCode::Ask { .. } | ServerCode::TryAgain)
}
