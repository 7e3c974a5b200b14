//! One page of a day after the other, shard by shard, with every user's friends together.

use bytes::Bytes;
use jiff::civil::Date;

use super::{Celebrant, Celebrations, Cursor, Error, Incomplete, Options};
use crate::birthday::{Birthday, LeapDay};
use crate::calendar::Calendar;
use crate::change::UserId;
use crate::client::{Failure, Hub};
use crate::key::ShardKeys;
use crate::redis::day::{Dates, Member, Page, Place, Progress, Source};
use crate::shard::Shard;

/// How far a walk has come. It goes on only with what was read whole.
pub(super) struct Walk {
    hub: Hub,
    calendar: Calendar,
    date: Date,
    options: Options,
    shard: Shard,
    place: Place,
    /// Where the place is in its key by what was read last.
    rank: Option<u64>,
    /// Members to read next; more than the options say where one user has more.
    count: usize,
    /// Whether this shard was found to be incomplete already.
    told: bool,
    /// Whether a user's key was found to be of a foreign type already: one line in the log is enough.
    warned: bool,
}

/// What a page gave.
#[derive(Default)]
pub(super) struct Step {
    pub items: Vec<Celebrations>,
    pub incomplete: Option<Incomplete>,
    /// Whether the shard is done with; then the walk stands at the beginning of the next one.
    pub shard_done: bool,
}

/// A user's members of one moment, as they stand side by side in the key.
struct Group {
    user: UserId,
    score: f64,
    friends: Vec<UserId>,
    cursor: Cursor,
}

impl Walk {
    pub fn new(hub: Hub, calendar: Calendar, date: Date, options: Options) -> Walk {
        let cursor = options.cursor.clone().unwrap_or_else(|| Cursor::of_shard(date, Shard(0)));
        let (shard, count) = (cursor.shard(), options.page.max(1));
        let mut walk = Walk {
            hub,
            calendar,
            date,
            options,
            shard,
            place: Place::Begin,
            rank: None,
            count,
            told: false,
            warned: false,
        };
        walk.place = walk.later(cursor.place());
        walk
    }

    pub fn is_over(&self) -> bool {
        u32::from(self.shard.0) >= self.hub.layout().count()
    }

    /// The place where the walk stands, where nothing of its shard was given out.
    pub fn shard_begin(&self) -> Cursor {
        Cursor::of_shard(self.date, self.shard)
    }

    /// Reads the next page. `cursor` is where to go on from should that fail.
    pub async fn step(&mut self, cursor: &Cursor) -> Result<Step, Error> {
        let hub = self.hub.clone();
        let keys = hub.shard_keys(self.shard);
        let source = Source::new(hub.topology(), hub.pipes(), keys, self.options.timeout);
        let failed = |error| self.failed(keys, cursor, error);
        let page = source.page(self.date, &self.place, self.rank, self.count).await.map_err(failed)?;
        let incomplete = self.judge(&page.progress, cursor)?;
        let (taken, done) = self.whole(&page);
        let (groups, taken) = (self.groups(&page.members[..taken]), &page.members[..taken]);
        let asked: Vec<_> = groups.iter().map(|group| (group.user.clone(), group.friends.clone())).collect();
        let dates = source.dates(&asked).await.map_err(failed)?;
        self.warn(groups.iter().zip(&dates));
        let items = groups.into_iter().zip(dates).filter_map(|(group, dates)| self.item(group, dates)).collect();
        self.go_on(taken, page.rank, done);
        self.told |= incomplete.is_some();
        if done {
            self.next_shard();
        }
        Ok(Step { items, incomplete, shard_done: done })
    }

    fn failed(&self, keys: &ShardKeys, cursor: &Cursor, error: crate::redis::Error) -> Error {
        let owner = self.hub.topology().node_of(keys.slot).ok();
        let why = Failure::new(owner.as_ref().map(|node| &node.address), error);
        Error::Redis { date: self.date, shard: self.shard, cursor: cursor.clone(), why: Box::new(why) }
    }

    /// Whether the day is kept at all, and whole in this shard.
    fn judge(&self, progress: &Progress, cursor: &Cursor) -> Result<Option<Incomplete>, Error> {
        let window = self.calendar.window(progress.now);
        if !window.holds(self.date) {
            return Err(Error::NotKept { date: self.date, first: window.first, last: window.last });
        }
        let (date, shard, Progress { first, rolled, open, .. }) = (self.date, self.shard, *progress);
        // A clock that goes back does not bring back days that are over.
        if first.is_none_or(|first| first <= date) && rolled.is_some_and(|rolled| date <= rolled) {
            return Ok(None);
        }
        if !self.options.incomplete {
            return Err(Error::NotRolled { date, shard, first, rolled, cursor: cursor.clone() });
        }
        Ok((!self.told).then_some(Incomplete { shard, first, rolled, open }))
    }

    fn warn<'a>(&mut self, found: impl IntoIterator<Item = (&'a Group, &'a Dates)>) {
        let foreign = found.into_iter().find(|(_, dates)| **dates == Dates::Foreign);
        if let Some((Group { user, .. }, _)) = foreign
            && !self.warned
        {
            self.warned = true;
            tracing::warn!(%user, date = %self.date, "left out of the day: the user's friends are in a key of a foreign type");
        }
    }

    /// How many members of a page can be given out, and whether that is all of the shard. The last user's may go on
    /// behind the page: they wait for the next one, which begins with them.
    fn whole(&self, page: &Page) -> (usize, bool) {
        let until = self.options.due_until.map_or(f64::INFINITY, |until| until as f64);
        let due = page.members.iter().take_while(|member| member.score <= until).count();
        if due < page.members.len() || !page.more {
            return (due, true);
        }
        let Some(last) = page.members.last() else {
            return (0, false);
        };
        let together = |member: &&Member| member.score == last.score && owner(&member.name) == owner(&last.name);
        (due - page.members.iter().rev().take_while(together).count(), false)
    }

    fn groups(&self, members: &[Member]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for member in members {
            // What no worker wrote is `heyday check`'s to find.
            let Some((name, user, friend)) = parts(&member.name) else {
                continue;
            };
            let cursor = Cursor::behind(self.date, self.shard, member.score, name);
            match groups.last_mut() {
                Some(last) if last.user == user && last.score == member.score => {
                    last.friends.push(friend);
                    last.cursor = cursor;
                }
                _ => groups.push(Group { user, score: member.score, friends: vec![friend], cursor }),
            }
        }
        groups
    }

    /// None where nobody of them is a friend any more who celebrates on this day.
    fn item(&self, group: Group, dates: Dates) -> Option<Celebrations> {
        let Dates::Known(dates) = dates else {
            return None;
        };
        let celebrant = |(friend, date): (UserId, Option<Bytes>)| {
            let birthday = Birthday::parse(std::str::from_utf8(&date?).ok()?).ok()?;
            let age = birthday.date().map(|birth| self.date.year() - birth.year());
            is_celebrated(birthday, self.date).then_some(Celebrant { friend, birthday, age })
        };
        let friends: Vec<Celebrant> = group.friends.into_iter().zip(dates).filter_map(celebrant).collect();
        let Group { user, score, cursor, .. } = group;
        (!friends.is_empty()).then_some(Celebrations { user, due: score as i64, shard: self.shard, friends, cursor })
    }

    fn go_on(&mut self, taken: &[Member], rank: u64, done: bool) {
        self.rank = Some(rank + taken.len() as u64);
        match taken.last() {
            Some(last) => {
                self.place = Place::After(last.clone());
                self.count = self.options.page.max(1);
            }
            // A page was not enough for one user.
            None if !done => self.count = self.count.saturating_mul(2),
            None => {}
        }
    }

    fn next_shard(&mut self) {
        self.shard = Shard(self.shard.0 + 1);
        self.place = self.later(Place::Begin);
        self.rank = None;
        self.count = self.options.page.max(1);
        self.told = false;
    }

    /// The place, or the one behind what the options leave out.
    fn later(&self, place: Place) -> Place {
        match (self.options.due_after.map(|after| after as f64), place) {
            (Some(after), Place::After(last)) if last.score > after => Place::After(last),
            (Some(after), _) => Place::Due(after),
            (None, place) => place,
        }
    }
}

/// The part of a member that says whose it is.
fn owner(name: &Bytes) -> &[u8] {
    name.split(|byte| *byte == b':').next().unwrap_or_default()
}

fn parts(name: &Bytes) -> Option<(&str, UserId, UserId)> {
    let name = std::str::from_utf8(name).ok()?;
    let (user, friend) = name.split_once(':')?;
    Some((name, user.parse().ok()?, friend.parse().ok()?))
}

/// By either rule for 29 February: which one put it there is the workers' to decide.
fn is_celebrated(birthday: Birthday, date: Date) -> bool {
    let in_year = |rule| birthday.in_year(date.year(), rule) == Some(date);
    in_year(LeapDay::February28) || in_year(LeapDay::March1)
}
