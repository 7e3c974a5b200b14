//! Reading a day key: its members in their order, a page at a time, from a place that is known by what stands there.
//!
//! Members come and go while somebody reads, so a rank alone says nothing. A page begins with the last member that was
//! read before, or with one in front of it: only then is it proven that nothing was skipped.

use std::cmp::Ordering;
use std::time::Duration;

use bytes::Bytes;
use jiff::civil::Date;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::query::{ask, command};
use super::reply::milliseconds;
use super::{Error, Pipeline, Pipes, Reply, Topology};
use crate::change::UserId;
use crate::error::{Disposition, ServerCode};
use crate::key::{Key, ShardKeys};

/// The fields of `state` that say which of the shard's days are whole.
const FIRST_FIELD: &str = "first";
const ROLLED_FIELD: &str = "rolled";
const OPEN_FIELD: &str = "open";
/// Between two tries; doubled with each.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How many members in front of a place are read along with a page where one was not enough to prove it, for each try anew.
const OVERLAP_FACTOR: usize = 16;
const OVERLAP_MAX: usize = 4096;

/// A member of a day key as it stands there.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub score: f64,
    pub name: Bytes,
}

/// A place in a day key: what is not behind it is still to be read.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    Begin,
    /// Behind all that is due up to this moment.
    Due(f64),
    /// Behind this member, whether it still stands there or not.
    After(Member),
}

/// What follows a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub members: Vec<Member>,
    /// The rank of the first of them at that moment.
    pub rank: u64,
    /// Whether more may follow.
    pub more: bool,
    pub progress: Progress,
}

/// Which of a shard's days are whole, and the server's time in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first day that changes keep: those before it are over, even where the server's clock says otherwise by now.
    pub first: Option<Date>,
    /// The last day that is complete.
    pub rolled: Option<Date>,
    /// The last day that changes keep.
    pub open: Option<Date>,
    pub now: u64,
}

/// What a user knows of some friends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dates {
    /// One for each friend; none of one who is no friend.
    Known(Vec<Option<Bytes>>),
    /// Somebody else put something of another type there: no friend can be found.
    Foreign,
}

/// Where a shard's days are read from, and until when it is tried.
pub struct Source<'a> {
    pub topology: &'a Topology,
    pub pipes: &'a Pipes,
    pub keys: &'a ShardKeys,
    pub timeout: Duration,
    end: Instant,
}

impl Place {
    /// Whether a member is behind this place.
    pub fn is_past(&self, member: &Member) -> bool {
        match self {
            Place::Begin => false,
            Place::Due(due) => member.score <= *due,
            Place::After(last) => order(member, last) != Ordering::Greater,
        }
    }
}

/// The order of the key itself: by score, then by bytes.
fn order(left: &Member, right: &Member) -> Ordering {
    left.score.total_cmp(&right.score).then_with(|| left.name.cmp(&right.name))
}

impl<'a> Source<'a> {
    pub fn new(topology: &'a Topology, pipes: &'a Pipes, keys: &'a ShardKeys, timeout: Duration) -> Source<'a> {
        Source { topology, pipes, keys, timeout, end: Instant::now() + timeout }
    }

    /// At most `count` members of a day from a place on. `rank` is where they may stand by what an earlier page found; it
    /// saves a look.
    pub async fn page(&self, date: Date, place: &Place, rank: Option<u64>, count: usize) -> Result<Page, Error> {
        let key = self.keys.day(date);
        let (mut rank, mut overlap) = (rank, 1);
        loop {
            let from = match rank.take() {
                Some(rank) => rank,
                None => self.rank(&key, place).await?,
            };
            let start = from.saturating_sub(overlap as u64);
            let stop = from.saturating_add(count as u64).saturating_sub(1);
            let (members, progress) = self.range(&key, start, stop).await?;
            if let Some(page) = proven(members, (start, stop), place, progress) {
                return Ok(page);
            }
            // It changed between two looks. The more there is in front of the place, the less that matters.
            overlap = (overlap * OVERLAP_FACTOR).min(OVERLAP_MAX);
            if Instant::now() >= self.end {
                return Err(self.late());
            }
        }
    }

    /// What users know of the friends who are asked for, in this order; none of one who is no friend.
    pub async fn dates(&self, asked: &[(UserId, Vec<UserId>)]) -> Result<Vec<Dates>, Error> {
        let commands = asked.iter().map(|(user, friends)| {
            let mut pipeline = Pipeline::new();
            let key = self.keys.birthdays(user);
            pipeline.command("HMGET").arg(key.as_bytes()).args(friends.iter().map(UserId::as_str));
            pipeline
        });
        let replies = self.ask(&commands.collect::<Vec<_>>()).await?;
        replies.iter().map(dates).collect()
    }

    /// Progress is read before the members and the time after them: what is said to be whole was so when they were read.
    async fn range(&self, key: &Key, start: u64, stop: u64) -> Result<(Vec<Member>, Progress), Error> {
        let (start, stop) = (start.to_string(), stop.to_string());
        let commands = [
            command(&["HMGET", self.keys.state.as_str(), FIRST_FIELD, ROLLED_FIELD, OPEN_FIELD]),
            command(&["ZRANGE", key.as_str(), &start, &stop, "WITHSCORES"]),
            command(&["TIME"]),
        ];
        let [state, range, time] = self.ask_all(&commands).await?;
        let date = |reply: Option<&Reply>| -> Option<Date> { reply?.to_str().ok()?.parse().ok() };
        let state = state.as_array()?;
        let [first, rolled, open] = [0, 1, 2].map(|at| date(state.get(at)));
        Ok((members(&range)?, Progress { first, rolled, open, now: milliseconds(&time)? }))
    }

    /// Where the first member stands that is not behind the place, as far as that can be said in passing.
    async fn rank(&self, key: &Key, place: &Place) -> Result<u64, Error> {
        match place {
            Place::Begin => Ok(0),
            Place::Due(due) => {
                let [count] = self.ask_all(&[command(&["ZCOUNT", key.as_str(), "-inf", &due.to_string()])]).await?;
                count.as_u64()
            }
            Place::After(last) => {
                let name: &[u8] = &last.name;
                let asked = |words: &str| command(&[words.as_bytes(), key.as_bytes(), name]);
                let [score, rank] = self.ask_all(&[asked("ZSCORE"), asked("ZRANK")]).await?;
                let stands = score.as_bytes_or_null()?.map(number).transpose()? == Some(last.score);
                if stands && !rank.is_null() { Ok(rank.as_u64()? + 1) } else { self.search(key, last).await }
            }
        }
    }

    /// The same for a member that is gone, or stands elsewhere now: among those of its score, by halves.
    async fn search(&self, key: &Key, last: &Member) -> Result<u64, Error> {
        let (score, place) = (last.score.to_string(), Place::After(last.clone()));
        let below = command(&["ZCOUNT", key.as_str(), "-inf", &format!("({score}")]);
        let up_to = command(&["ZCOUNT", key.as_str(), "-inf", &score]);
        let [below, up_to] = self.ask_all(&[below, up_to]).await?;
        let (mut low, mut high) = (below.as_u64()?, up_to.as_u64()?);
        while low < high {
            let middle = low + (high - low) / 2;
            let rank = middle.to_string();
            let [found] = self.ask_all(&[command(&["ZRANGE", key.as_str(), &rank, &rank, "WITHSCORES"])]).await?;
            match members(&found)?.first() {
                Some(member) if place.is_past(member) => low = middle + 1,
                Some(_) | None => high = middle,
            }
        }
        Ok(low)
    }

    async fn ask_all<const N: usize>(&self, commands: &[Pipeline; N]) -> Result<[Reply; N], Error> {
        let replies = self.ask(commands).await?;
        replies.try_into().map_err(|_| Error::protocol("an answer to each command", "another number"))
    }

    /// One reply to each command, all of them reads of this shard's slot, from whoever owns it by then.
    async fn ask(&self, commands: &[Pipeline]) -> Result<Vec<Reply>, Error> {
        let mut pause = PAUSE_MIN;
        loop {
            let failure = match timeout_at(self.end, self.attempt(commands)).await {
                Ok(Ok(replies)) => return Ok(replies),
                Ok(Err(failure)) => failure,
                Err(_) => return Err(self.late()),
            };
            let again = Instant::now() + pause;
            if !may_pass(&failure) || again >= self.end {
                return Err(failure);
            }
            sleep_until(again).await;
            pause = (pause * 2).min(PAUSE_MAX);
            if failure.disposition() != Disposition::Retry {
                // What this finds out, the next try says.
                let _ = timeout_at(self.end, self.topology.refresh()).await;
            }
        }
    }

    async fn attempt(&self, commands: &[Pipeline]) -> Result<Vec<Reply>, Error> {
        let node = self.topology.node_of(self.keys.slot)?;
        let replies = ask(self.topology, self.pipes, &node.address, commands).await?;
        // One foreign key is its user's concern alone.
        let answer = |reply: Reply| if is_foreign(&reply) { Ok(reply) } else { reply.checked() };
        replies.into_iter().map(answer).collect()
    }

    fn late(&self) -> Error {
        match self.topology.node_of(self.keys.slot) {
            Ok(node) => Error::Timeout { node: node.address.clone(), after: self.timeout, sent: true },
            Err(error) => error,
        }
    }
}

/// The page that a range holds, where the range itself shows that nothing before it is still to be read.
fn proven(mut members: Vec<Member>, (start, stop): (u64, u64), place: &Place, progress: Progress) -> Option<Page> {
    let full = members.len() as u64 == stop - start + 1;
    if start > 0 && !members.first().is_some_and(|first| place.is_past(first)) {
        return None;
    }
    let past = members.iter().take_while(|member| place.is_past(member)).count();
    if full && past == members.len() {
        return None;
    }
    members.drain(..past);
    Some(Page { members, rank: start + past as u64, more: full, progress })
}

fn members(range: &Reply) -> Result<Vec<Member>, Error> {
    let member = |(name, score): (&Reply, &Reply)| -> Result<Member, Error> {
        Ok(Member { score: number(score.as_bytes()?)?, name: name.as_bytes()?.clone() })
    };
    range.as_pairs()?.map(member).collect()
}

fn number(text: &Bytes) -> Result<f64, Error> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::protocol("a score", format!("{text:?}")))
}

fn dates(reply: &Reply) -> Result<Dates, Error> {
    if is_foreign(reply) {
        return Ok(Dates::Foreign);
    }
    let dates = reply.as_array()?.iter().map(|date| Ok(date.as_bytes_or_null()?.cloned()));
    dates.collect::<Result<_, Error>>().map(Dates::Known)
}

/// Whether somebody else put something of another type in the key's place.
fn is_foreign(reply: &Reply) -> bool {
    reply.error().is_some_and(|error| error.code == ServerCode::WrongType)
}

/// Whether the same read may well succeed a moment later.
fn may_pass(error: &Error) -> bool {
    match error.disposition() {
        Disposition::Retry | Disposition::Refresh => true,
        Disposition::Ambiguous => !matches!(error, Error::Protocol { .. } | Error::TooLarge { .. }),
        Disposition::Fenced | Disposition::Full | Disposition::Poison | Disposition::Fatal => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member((score, name): (i32, &'static str)) -> Member {
        Member { score: score.into(), name: name.into() }
    }

    /// What is read of a range, or `not proven`.
    fn check(place: &Place, start: u64, stop: u64, range: &[(i32, &'static str)], expected: &str) {
        let range = range.iter().copied().map(member).collect();
        let progress = Progress { first: None, rolled: None, open: None, now: 0 };
        let found = proven(range, (start, stop), place, progress).map_or("not proven".to_owned(), |page| {
            let names = page.members.iter().map(|member| std::str::from_utf8(&member.name).unwrap());
            let more = if page.more { " and more" } else { "" };
            format!("{} from {}{more}", names.collect::<Vec<_>>().join(" "), page.rank)
        });
        assert_eq!(found, expected, "{place:?} {start} {stop}");
    }

    #[test]
    fn a_page_is_taken_only_where_it_shows_that_nothing_is_skipped() {
        let after = Place::After(member((5, "b:1")));
        check(&Place::Begin, 0, 1, &[(5, "a:1"), (5, "b:1")], "a:1 b:1 from 0 and more");
        check(&Place::Begin, 0, 1, &[], " from 0");
        check(&after, 1, 2, &[(5, "b:1"), (5, "b:2")], "b:2 from 2 and more");
        // The member is gone, and its predecessor stands where it stood.
        check(&after, 1, 2, &[(5, "a:9"), (6, "a:1")], "a:1 from 2 and more");
        // Some before it are gone: others may lie between.
        check(&after, 1, 2, &[(6, "a:1"), (6, "a:2")], "not proven");
        check(&after, 0, 2, &[(6, "a:1"), (6, "a:2")], "a:1 a:2 from 0");
        // Some before it are new: all of this was read before.
        check(&after, 1, 2, &[(5, "a:8"), (5, "a:9")], "not proven");
        check(&after, 1, 3, &[(5, "a:8"), (5, "a:9")], " from 3");
        check(&after, 1, 2, &[], "not proven");
        check(&Place::Due(5.0), 1, 3, &[(5, "a:8"), (5, "z:9"), (6, "a:1")], "a:1 from 3 and more");
    }
}
