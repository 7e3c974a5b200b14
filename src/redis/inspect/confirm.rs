//! A suspicion is looked into: one transaction reads all that its rule speaks of.

use std::collections::BTreeSet;

use jiff::civil::Date;

use super::{Check, Ground, readable};
use crate::change::{UserId, ZONE_FIELD};
use crate::invariant::{Day, Listing, PROGRESS_FIELDS, Progress, Sight, Standing, Violation};
use crate::key::ShardKeys;
use crate::redis::query::command;
use crate::redis::reply::milliseconds;
use crate::redis::{Error, Pipeline, Reply};

/// Suspicions looked into at once.
const CONFIRMED_MAX: usize = 64;

/// Something that looked wrong from afar.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspect {
    /// A member, on the day with this number.
    Member { date: Date, member: String },
    /// Whether a user is listed.
    Listing { user: String },
}

impl Suspect {
    /// All that its rule speaks of.
    pub fn questions(&self, keys: &ShardKeys) -> Vec<Pipeline> {
        match self {
            Suspect::Member { date, member } => {
                let score = command(&["ZSCORE", keys.day(*date).as_str(), member]);
                let [stored, zone] = views(keys, member);
                let progress = command(&[&["HMGET", keys.state.as_str()], &PROGRESS_FIELDS[..]].concat());
                vec![stored, score, command(&["HKEYS", keys.fanout.as_str()]), zone, progress]
            }
            Suspect::Listing { user } => {
                let score = command(&["ZSCORE", keys.users.as_str(), user]);
                let mut questions = vec![score];
                if let Ok(id) = user.parse::<UserId>() {
                    questions.push(command(&["EXISTS", keys.profile(&id).as_str()]));
                    questions.push(command(&["EXISTS", keys.birthdays(&id).as_str()]));
                    questions.push(command(&["EXISTS", keys.activity(&id).as_str(), keys.top(&id).as_str()]));
                }
                questions
            }
        }
    }

    fn judge(&self, ground: &Ground, replies: &[Reply], now: u64) -> Option<Violation> {
        match self {
            Suspect::Member { date, member } => {
                let day = ground.days.iter().find(|day| day.date == *date)?;
                if replies.get(2).is_some_and(|jobs| is_being_forgotten(jobs, member)) {
                    return None;
                }
                let seen = Seen::of(member, replies)?;
                match day.judge(member, seen.sight(now)) {
                    Standing::Wrong(violation) => Some(violation),
                    Standing::Right | Standing::NotRolled => None,
                }
            }
            Suspect::Listing { user } => listing(replies)?.judge(&ground.keys, user),
        }
    }
}

/// What the views say of a member: the friend's date, and the user's zone.
pub(super) fn views(keys: &ShardKeys, member: &str) -> [Pipeline; 2] {
    match ends(member) {
        Some((user, friend)) => [
            command(&["HGET", keys.birthdays(&user).as_str(), friend]),
            command(&["HGET", keys.profile(&user).as_str(), ZONE_FIELD]),
        ],
        // Nobody can have such a friend.
        None => [command(&["ECHO", ""]), command(&["ECHO", ""])],
    }
}

/// The answers to the questions of a member.
pub(super) struct Seen {
    stored: Option<String>,
    zone: Option<String>,
    found: Option<String>,
    pub progress: Progress,
}

impl Seen {
    /// None where something cannot be read.
    pub fn of(member: &str, replies: &[Reply]) -> Option<Seen> {
        let [_, score, _, zone, progress] = replies else { return None };
        let fields = readable(progress)?.as_array().ok()?;
        let field = |at: usize| fields.get(at).and_then(text).flatten();
        let fields = [field(0), field(1), field(2)];
        let progress = Progress::of(fields.each_ref().map(Option::as_deref));
        // A profile that cannot be read names no zone.
        let zone = ends(member).and_then(|_| text(zone).flatten());
        Some(Seen { stored: stored(member, replies)?, zone, found: text(score)?, progress })
    }

    pub fn sight(&self, now: u64) -> Sight<'_> {
        let Seen { stored, zone, found, progress } = self;
        Sight { stored: stored.as_deref(), tz: zone.as_deref(), found: found.as_deref(), now, progress: *progress }
    }
}

/// Whether a job is taking what is left of the member's user off the days.
fn is_being_forgotten(jobs: &Reply, member: &str) -> bool {
    let user = member.split(':').next().unwrap_or_default().as_bytes();
    let of_user = |job: &Reply| {
        let rest = job.as_bytes().ok().and_then(|job| job.strip_prefix(user));
        rest.is_some_and(|rest| rest.starts_with(b":"))
    };
    jobs.as_array().is_ok_and(|jobs| jobs.iter().any(of_user))
}

/// The two ids of a day's member; none where it is no such thing.
pub(super) fn ends(member: &str) -> Option<(UserId, &str)> {
    let (user, friend) = member.split_once(':')?;
    Some((user.parse().ok()?, friend))
}

/// What the view says of a member; none where it cannot be read.
pub(super) fn stored(member: &str, replies: &[Reply]) -> Option<Option<String>> {
    if ends(member).is_some() { text(&replies[0]) } else { Some(None) }
}

/// None where the user's keys cannot be read.
pub(super) fn listing(replies: &[Reply]) -> Option<Listing> {
    let exists = |at: usize| replies.get(at).is_some_and(|reply| reply.as_u64().is_ok_and(|count| count > 0));
    Some(Listing { score: text(&replies[0])?, profile: exists(1), birthdays: exists(2), activity: exists(3) })
}

/// A string or nothing; none where the key is of another type.
pub(super) fn text(reply: &Reply) -> Option<Option<String>> {
    let bytes = readable(reply)?.as_bytes_or_null().ok()?;
    Some(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

impl Check<'_> {
    /// Looks into all of them; what is wrong indeed is repaired or noted.
    pub(super) async fn confirm(&mut self, ground: &Ground, suspects: BTreeSet<Suspect>) -> Result<(), Error> {
        let suspects: Vec<Suspect> = suspects.into_iter().collect();
        for chunk in suspects.chunks(CONFIRMED_MAX) {
            let asked: Vec<Vec<Pipeline>> = chunk.iter().map(|suspect| suspect.questions(&ground.keys)).collect();
            let mut commands = vec![command(&["TIME"])];
            commands.extend(asked.iter().flatten().cloned());
            let Some(replies) = self.source.snapshot(ground.keys.slot, &commands).await? else {
                self.findings.undecided(&ground.keys.users, "its slot is on the way to another node");
                continue;
            };
            let now = milliseconds(&replies[0])?;
            let mut rest = &replies[1..];
            let mut violations = Vec::new();
            for (suspect, asked) in chunk.iter().zip(&asked) {
                let (mine, others) = rest.split_at(asked.len());
                violations.extend(suspect.judge(ground, mine, now));
                rest = others;
            }
            self.settle(&ground.keys, violations).await?;
        }
        Ok(())
    }

    /// Repairs what can be, where that is wanted, and notes the rest.
    pub(super) async fn settle(&mut self, keys: &ShardKeys, violations: Vec<Violation>) -> Result<(), Error> {
        let (derived, others): (Vec<_>, Vec<_>) =
            violations.into_iter().partition(|violation| self.options.repair && violation.repair.is_some());
        self.findings.note_all(others);
        if derived.is_empty() { Ok(()) } else { self.repair(keys, derived).await }
    }
}

/// The days of a shard that can be looked at, by date.
pub(super) fn day(days: &[Day], date: Date) -> Option<&Day> {
    days.iter().find(|day| day.date == date)
}
