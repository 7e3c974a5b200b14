//! What a job works through, in bounded parts.
//!
//! A cursor of HSCAN means something to the very server process that gave it and to no other, so it is kept together with
//! the run id of that process. Where another one answers the scan begins anew: telling somebody twice does no harm.

use std::collections::BTreeMap;

use super::link::RedisLink;
use super::read::entry;
use crate::key::{Key, ShardKeys};
use crate::position::EntryId;
use crate::redis::reply::milliseconds;
use crate::redis::{Error, Reply};
use crate::reduce::{Entry, Job, Jobs, Progress, ROLL_ASKED_FIELD, ROLL_FIELD, Survey, parse_job};
use crate::store::{self, CalendarNews, Unfinished};

/// Scans of one survey: a part of a hash from which much was deleted may hold nothing.
const SCANS_MAX: usize = 16;
/// Bytes of dead letters after which one survey reads no more.
const LETTERS_BYTES_MAX: usize = 1 << 20;
/// The cursor at which a scan begins, and which it answers at its end.
pub(super) const EDGE: &str = "0";

impl RedisLink {
    pub(super) async fn ask_unfinished(&mut self, jobs_max: usize) -> Result<Unfinished, store::Error> {
        let ShardKeys { outbox, fanout, state, .. } = self.keys.clone();
        self.pipeline.command("XLEN").arg(outbox.as_bytes());
        self.pipeline.command("HRANDFIELD").arg(fanout.as_bytes()).arg_u64(jobs_max as u64).arg("WITHVALUES");
        self.pipeline.command("HMGET").arg(state.as_bytes()).arg(ROLL_FIELD).arg(ROLL_ASKED_FIELD);
        self.pipeline.command("TIME");
        let replies = self.request("unfinished", self.reply_timeout()).await?;
        unfinished(&replies, jobs_max).map_err(|error| self.failed("unfinished", &error))
    }

    pub(super) async fn survey_job(
        &mut self,
        job: &Job,
        progress: &Progress,
        count: usize,
    ) -> Result<Survey, store::Error> {
        match (job, progress) {
            (Job::Forget { user, commit }, Progress::Forget { order, until, letters: None }) => {
                let friends = self.some(&self.keys.forgotten(user, *commit), count).await?;
                // What is worked through is deleted. All friends are gone when none is found; the letters come after them.
                let letters = friends.is_empty().then_some(EntryId::ZERO);
                let next = Some(Progress::Forget { order: *order, until: *until, letters });
                Ok(Survey { friends, letters: Vec::new(), next })
            }
            (Job::Forget { .. }, Progress::Forget { order, until, letters: Some(after) }) => {
                let (letters, more) = self.letters(*after, count).await?;
                let last = letters.last().filter(|last| more && last.id < *until);
                let next = last.map(|last| Progress::Forget { order: *order, until: *until, letters: Some(last.id) });
                let letters = letters.into_iter().map(|letter| (letter.id, letter.fields.unwrap_or_default()));
                Ok(Survey { friends: BTreeMap::new(), letters: letters.collect(), next })
            }
            (Job::Birthday { user } | Job::Forget { user, .. }, progress) => {
                let key = self.keys.birthdays(user);
                let (friends, cursor) = self.scan_from(&key, &progress.to_string(), count).await?;
                let next = cursor.map(|cursor| Progress::Birthday { cursor });
                Ok(Survey { friends, letters: Vec::new(), next })
            }
        }
    }

    /// About so many fields from where an earlier scan has come to, and where this one has; none at the end.
    pub(super) async fn scan_from(
        &mut self,
        key: &Key,
        come: &str,
        count: usize,
    ) -> Result<(BTreeMap<String, String>, Option<String>), store::Error> {
        let run = self.run_id().await?;
        let cursor = come.split_once(':').filter(|(earlier, _)| *earlier == run).map_or(EDGE, |(_, cursor)| cursor);
        let (found, cursor) = self.scan(key, cursor, count).await?;
        Ok((found, (cursor != EDGE).then(|| format!("{run}:{cursor}"))))
    }

    /// About so many fields from a cursor on, and the cursor behind them.
    async fn scan(
        &mut self,
        key: &Key,
        cursor: &str,
        count: usize,
    ) -> Result<(BTreeMap<String, String>, String), store::Error> {
        let (mut found, mut cursor) = (BTreeMap::new(), cursor.to_owned());
        for _ in 0..SCANS_MAX {
            self.pipeline.command("HSCAN").arg(key.as_bytes()).arg(&cursor).arg("COUNT").arg_u64(count as u64);
            let reply = self.request("survey", self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
            cursor = page(&reply, &mut found).map_err(|error| self.failed("survey", &error))?;
            if cursor == EDGE || !found.is_empty() {
                break;
            }
        }
        Ok((found, cursor))
    }

    /// So many fields at most, any of them. A scan from the beginning would find less and less of what is left of a large hash.
    async fn some(&mut self, key: &Key, count: usize) -> Result<BTreeMap<String, String>, store::Error> {
        self.pipeline.command("HRANDFIELD").arg(key.as_bytes()).arg_u64(count as u64).arg("WITHVALUES");
        let reply = self.request("survey", self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
        readable(&reply).map_err(|error| self.failed("survey", &error))
    }

    /// About so many letters, fewer where they are large, and whether there are more. It begins with one: how large they are
    /// nobody knows before.
    async fn letters(&mut self, after: EntryId, count: usize) -> Result<(Vec<Entry>, bool), store::Error> {
        let (mut found, mut after, mut bytes, mut page): (Vec<Entry>, _, _, _) = (Vec::new(), after, 0, 1);
        while found.len() < count && bytes < LETTERS_BYTES_MAX {
            let more = self.letters_page(after, page).await?;
            let ended = more.len() < page;
            let fields = more.iter().flat_map(|letter| letter.fields.iter().flatten());
            bytes += fields.map(|(name, value)| name.len() + value.len()).sum::<usize>();
            after = more.last().map_or(after, |last| last.id);
            found.extend(more);
            if ended {
                return Ok((found, false));
            }
            let mean = (bytes / found.len()).max(1);
            page = (LETTERS_BYTES_MAX.saturating_sub(bytes) / mean).clamp(1, (2 * page).min(count));
        }
        Ok((found, true))
    }

    async fn letters_page(&mut self, after: EntryId, count: usize) -> Result<Vec<Entry>, store::Error> {
        let (key, after) = (self.keys.dead_letters.clone(), format!("({after}"));
        self.pipeline.command("XRANGE").arg(key.as_bytes()).arg(after).arg("+").arg("COUNT").arg_u64(count as u64);
        let reply = self.request("survey", self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
        let letters = reply.checked().and_then(Reply::into_array);
        let letters = letters.and_then(|letters| letters.into_iter().map(entry).collect());
        letters.map_err(|error| self.failed("survey", &error))
    }

    /// Names the server process at the other end; a link does not outlive it.
    async fn run_id(&mut self) -> Result<String, store::Error> {
        if let Some(run) = &self.run {
            return Ok(run.clone());
        }
        self.pipeline.command("INFO").arg("server");
        let reply = self.request("survey", self.reply_timeout()).await?.pop().unwrap_or(Reply::Null);
        let run = run_id(&reply).map_err(|error| self.failed("survey", &error))?;
        Ok(self.run.insert(run).clone())
    }
}

fn unfinished(replies: &[Reply], jobs_max: usize) -> Result<Unfinished, Error> {
    let [outbox, jobs, roll, time] = replies else {
        return Err(Error::protocol("a length, jobs, a roll and the time", format!("{} answers", replies.len())));
    };
    let (mut found, mut seen) = (Vec::new(), 0);
    for (job, progress) in jobs.as_pairs()? {
        seen += 1;
        match parse_job(&text(job)?, &text(progress)?) {
            Ok(job) => found.push(job),
            Err(error) => tracing::warn!("left alone: {error}"),
        }
    }
    let [roll, asked] = roll.as_array()? else {
        return Err(Error::protocol("a roll and whether one is asked for", "another number of values"));
    };
    // A roll that cannot be read begins anew.
    let roll = if roll.is_null() { None } else { text(roll)?.parse().ok() };
    let calendar = CalendarNews { milliseconds: milliseconds(time)?, roll_asked: !asked.is_null() };
    Ok(Unfinished { outbox: outbox.as_u64()?, jobs: Jobs::from_iter(found), more: seen >= jobs_max, roll, calendar })
}

/// Puts the fields that HSCAN gave beside the others, and answers its cursor.
fn page(reply: &Reply, found: &mut BTreeMap<String, String>) -> Result<String, Error> {
    let [cursor, fields] = reply.as_array()? else {
        return Err(Error::protocol("a cursor and fields", "another number of values"));
    };
    for (name, value) in fields.as_pairs()? {
        found.insert(text(name)?, text(value)?);
    }
    Ok(cursor.to_str()?.to_owned())
}

/// Fields that are text; others nobody of heyday wrote.
fn readable(reply: &Reply) -> Result<BTreeMap<String, String>, Error> {
    let mut found = BTreeMap::new();
    for (name, value) in reply.as_pairs()? {
        if let Ok(name) = std::str::from_utf8(name.as_bytes()?) {
            found.insert(name.to_owned(), text(value)?);
        }
    }
    Ok(found)
}

fn run_id(reply: &Reply) -> Result<String, Error> {
    let info = reply.to_str()?;
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    run.map(|run| run.trim().to_owned()).ok_or_else(|| Error::protocol("a run id", "none"))
}

pub(super) fn text(reply: &Reply) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(reply.as_bytes()?).into_owned())
}
