//! Jobs that take more than one commit: telling all friends of a date, and forgetting a user. Each lies in `fanout:{tag}`
//! with how far it has come, so that whoever owns the shard next goes on with it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::change::{Fields, UserId};
use crate::position::{CommitId, EntryId, Order};

/// What is to be done. Its text is the field of `fanout`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// All friends of the user hear of the user's own date, as it is when they are told.
    Birthday { user: UserId },
    /// All friends of a user who was forgotten in this commit hear of that, and the dead letters about the user go.
    Forget { user: UserId, commit: CommitId },
}

/// How far a job has come. Its text is the value in `fanout`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Friends up to here have been told; the store knows what it means.
    Birthday { cursor: String },
    Forget {
        order: Order,
        /// The last dead letter that there was.
        until: EntryId,
        /// The last dead letter looked at; none while there may be friends left.
        letters: Option<EntryId>,
    },
}

/// How far a job has come with a commit; none where it is done, or no longer wanted.
pub type JobChange = (Job, Option<Progress>);

/// A bounded part of what a job has still to work through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Friends and their dates, as stored.
    pub friends: BTreeMap<String, String>,
    pub letters: Vec<(EntryId, Fields)>,
    /// How far the job has come with these; none where it is done then.
    pub next: Option<Progress>,
}

/// The jobs under way in a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs(BTreeMap<Job, Progress>);

/// A field of `fanout` that is no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job {job:?} {progress:?}: expected a user, or a user and a commit, and how far it has come")]
pub struct ParseError {
    pub job: String,
    pub progress: String,
}

impl Job {
    pub fn user(&self) -> &UserId {
        match self {
            Job::Birthday { user } | Job::Forget { user, .. } => user,
        }
    }
}

impl Progress {
    /// Of an announcement.
    pub fn begin() -> Progress {
        Progress::Birthday { cursor: String::new() }
    }

    pub fn forgetting(order: Order, until: EntryId) -> Progress {
        Progress::Forget { order, until, letters: None }
    }
}

impl Jobs {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn first(&self) -> Option<(&Job, &Progress)> {
        self.0.first_key_value()
    }

    /// The job after this one, or else the first: so each has its turn.
    pub fn after(&self, job: Option<&Job>) -> Option<(&Job, &Progress)> {
        let next =
            job.and_then(|job| self.0.range((std::ops::Bound::Excluded(job), std::ops::Bound::Unbounded)).next());
        next.or_else(|| self.first())
    }

    /// None as progress: the job is done, or no longer wanted.
    pub fn note(&mut self, job: &Job, progress: Option<&Progress>) {
        match progress {
            Some(progress) => drop(self.0.insert(job.clone(), progress.clone())),
            None => drop(self.0.remove(job)),
        }
    }

    /// When the user was forgotten last, where not all friends may have heard of it.
    pub fn forgotten(&self, user: &UserId) -> Option<Order> {
        let first = Job::Forget { user: user.clone(), commit: CommitId::ZERO };
        let of_user = self.0.range(first..).take_while(|(job, _)| job.user() == user);
        let order = |progress: &Progress| match progress {
            Progress::Forget { order, letters: None, .. } => Some(*order),
            Progress::Forget { .. } | Progress::Birthday { .. } => None,
        };
        of_user.filter_map(|(_, progress)| order(progress)).max()
    }
}

impl IntoIterator for Jobs {
    type Item = (Job, Progress);
    type IntoIter = std::collections::btree_map::IntoIter<Job, Progress>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<(Job, Progress)> for Jobs {
    fn from_iter<I: IntoIterator<Item = (Job, Progress)>>(jobs: I) -> Jobs {
        Jobs(jobs.into_iter().collect())
    }
}

/// A job and its progress as `fanout` holds them.
pub fn parse(job: &str, progress: &str) -> Result<(Job, Progress), ParseError> {
    let error = || ParseError { job: job.to_owned(), progress: progress.to_owned() };
    match job.split_once(':') {
        None => {
            let user = job.parse().map_err(|_| error())?;
            Ok((Job::Birthday { user }, Progress::Birthday { cursor: progress.to_owned() }))
        }
        Some((user, commit)) => {
            let (user, commit) = (user.parse().map_err(|_| error())?, commit.parse().map_err(|_| error())?);
            let progress = forgetting(progress).ok_or_else(error)?;
            Ok((Job::Forget { user, commit }, progress))
        }
    }
}

fn forgetting(text: &str) -> Option<Progress> {
    let words: Vec<&str> = text.split(' ').collect();
    let (order, until, letters) = match words[..] {
        [order, until] => (order, until, None),
        [order, until, letters] => (order, until, Some(EntryId::from_str(letters).ok()?)),
        _ => return None,
    };
    Some(Progress::Forget { order: order.parse().ok()?, until: until.parse().ok()?, letters })
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Birthday { user } => user.fmt(f),
            Job::Forget { user, commit } => write!(f, "{user}:{commit}"),
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Birthday { cursor } => f.write_str(cursor),
            Progress::Forget { order, until, letters: None } => write!(f, "{order} {until}"),
            Progress::Forget { order, until, letters: Some(letters) } => write!(f, "{order} {until} {letters}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_print_and_parse_alike() {
        for (job, progress) in [("42", ""), ("42", "ab12:77"), ("42:7-1", "5-0-3 8-0"), ("42:7-1", "5-0-3 8-0 7-1")] {
            let (parsed, come) = parse(job, progress).unwrap();
            assert_eq!((parsed.to_string(), come.to_string()), (job.to_owned(), progress.to_owned()));
        }
        for (job, progress) in [("", ""), ("4 2", ""), ("42:7", "5-0-3 1-0"), ("42:7-1", ""), ("42:7-1", "5-0-3 x")] {
            let error = parse(job, progress).unwrap_err().to_string();
            assert!(error.contains(&format!("{job:?}")), "{error}");
        }
    }

    #[test]
    fn each_job_has_its_turn() {
        let jobs: Jobs = [parse("a", "").unwrap(), parse("b", "").unwrap()].into_iter().collect();
        let (first, _) = jobs.after(None).unwrap();
        let (second, _) = jobs.after(Some(first)).unwrap();
        assert_eq!((first.to_string(), second.to_string()), ("a".to_owned(), "b".to_owned()));
        assert_eq!(jobs.after(Some(second)).unwrap().0, first);
    }

    #[test]
    fn a_user_is_being_forgotten_until_all_friends_have_heard_of_it() {
        let mut jobs: Jobs = [parse("42", "").unwrap(), parse("42:7-1", "5-0-3 1-0").unwrap()].into_iter().collect();
        let user: UserId = "42".parse().unwrap();
        assert_eq!(jobs.forgotten(&user), "5-0-3".parse().ok());
        assert_eq!(jobs.forgotten(&"4".parse().unwrap()), None);
        let (job, progress) = parse("42:7-1", "5-0-3 1-0 0-0").unwrap();
        jobs.note(&job, Some(&progress));
        assert_eq!(jobs.forgotten(&user), None);
    }
}
