//! Reading what is stored of a user: all of it in one round trip, also while its slot is on the way to another node.

mod query;
mod source;

use std::sync::atomic::Ordering;
use std::time::Duration;

use query::Query;
use source::Source;

use super::reply::{Reply, milliseconds};
use super::{error::Error, nodes::Nodes, pipes::Pipes};
use crate::change::UserId;
use crate::error::ServerCode;
use crate::key::ShardKeys;
use crate::position::{CommitId, EntryId};

/// The fields of `state` that say up to where the views hold the stream, and by which commit.
const STATE_FIELDS: &[&str] = &["applied", "last"];

/// How far a shard had come when something of it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The oldest entry of the stream whose effects may be lacking.
    pub unapplied: Option<EntryId>,
    /// The last commit whose effects cannot be lacking.
    pub commit: CommitId,
    /// The server's time, Unix milliseconds.
    pub now: u64,
    /// How often an answer had to be waited for.
    pub round_trips: u32,
}

/// A user's view as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredView {
    /// Fields of `profile`.
    pub profile: Vec<(String, String)>,
    /// Fields of `birthdays`.
    pub birthdays: Vec<(String, String)>,
    pub standing: Standing,
}

/// A user's profile and activity as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProfile {
    /// Fields of `profile`.
    pub profile: Vec<(String, String)>,
    /// Fields of `activity`.
    pub activity: Vec<(String, String)>,
    /// Members of `top` and their scores, the highest first.
    pub top: Vec<(String, String)>,
    /// Whether there are birthdays too: then the user is known, though there may be no profile.
    pub has_friends: bool,
    pub standing: Standing,
}

/// Where a read goes, and how long it may take.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    pub nodes: &'a Nodes,
    pub pipes: &'a Pipes,
    pub keys: &'a ShardKeys,
    pub deadline: Duration,
}

/// Reads profile and birthdays.
pub async fn read_view(way: Way<'_>, user: &UserId) -> Result<StoredView, Error> {
    let queries = [Query::Hash(way.keys.profile(user)), Query::Hash(way.keys.birthdays(user))];
    let ([profile, birthdays], standing) = read(way, queries).await?;
    Ok(StoredView { profile: pairs(&profile)?, birthdays: pairs(&birthdays)?, standing })
}

/// Reads profile, activity and top categories, and whether there is more.
pub async fn read_profile(way: Way<'_>, user: &UserId) -> Result<StoredProfile, Error> {
    let keys = way.keys;
    let queries = [
        Query::Hash(keys.profile(user)),
        Query::Hash(keys.activity(user)),
        Query::Ranking(keys.top(user)),
        Query::Exists(keys.birthdays(user)),
    ];
    let ([profile, activity, top, birthdays], standing) = read(way, queries).await?;
    let (profile, activity, top) = (pairs(&profile)?, pairs(&activity)?, pairs(&top)?);
    Ok(StoredProfile { profile, activity, top, has_friends: birthdays.as_u64()? > 0, standing })
}

/// The answers to `of_user`, and how far the shard had come.
///
/// The commands are not one transaction, so their order counts. What is pending comes before the position: entries are
/// delivered and acknowledged in order, so the oldest pending one, where it is above the position, is the oldest of all that
/// are not applied. The position comes before the views: what is applied in between makes them newer than it says.
async fn read<const N: usize>(way: Way<'_>, of_user: [Query; N]) -> Result<([Reply; N], Standing), Error> {
    let changes = || way.keys.changes.clone();
    let mut queries = vec![Query::Pending(changes()), Query::HashFields(way.keys.state.clone(), STATE_FIELDS)];
    queries.extend(of_user);
    queries.extend([Query::StreamTip(changes()), Query::Time]);
    let source = Source::new(way.nodes, way.pipes, way.keys.slot, way.deadline);
    let mut replies = source.ask(&queries).await?.into_iter();
    let mut next = || replies.next().ok_or_else(|| Error::protocol("an answer to each query", "fewer"));
    let (pending, state) = (oldest_pending(&next()?)?, next()?);
    let views = [(); N].map(|()| next());
    let (tip, time) = (first_id(&next()?)?, milliseconds(&next()?)?);
    let applied = state_field(&state, 0)?.unwrap_or(EntryId::ZERO);
    let mut unapplied = tip.filter(|tip| *tip > applied);
    if unapplied.is_some() {
        unapplied = match pending.filter(|oldest| *oldest > applied) {
            Some(oldest) => Some(oldest),
            // No worker has read it yet: the stream itself says which is the oldest.
            None => first_id(&source.ask_one(Query::StreamAfter(changes(), applied)).await?)?,
        };
    }
    let standing = Standing {
        unapplied,
        commit: state_field(&state, 1)?.unwrap_or(CommitId::ZERO),
        now: time,
        round_trips: source.round_trips.load(Ordering::Relaxed),
    };
    let views: Vec<Reply> = views.into_iter().collect::<Result<_, _>>()?;
    Ok((views.try_into().map_err(|_| Error::protocol("an answer to each query", "fewer"))?, standing))
}

fn state_field<P: std::str::FromStr>(state: &Reply, at: usize) -> Result<Option<P>, Error> {
    let text = state.as_array()?.get(at).map(Reply::as_bytes_or_null).transpose()?.flatten();
    text.map(|text| position(&String::from_utf8_lossy(text))).transpose()
}

/// `[count, lowest, highest, consumers]`
fn oldest_pending(summary: &Reply) -> Result<Option<EntryId>, Error> {
    if summary.error().is_some_and(|error| error.code == ServerCode::NoGroup) {
        return Ok(None);
    }
    match summary.as_array()?.get(1) {
        None | Some(Reply::Null) => Ok(None),
        Some(lowest) => position(lowest.to_str()?).map(Some),
    }
}

fn pairs(reply: &Reply) -> Result<Vec<(String, String)>, Error> {
    let text = |reply: &Reply| reply.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    reply.as_pairs()?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
}

fn first_id(entries: &Reply) -> Result<Option<EntryId>, Error> {
    let Some(entry) = entries.as_array()?.first() else {
        return Ok(None);
    };
    let id = entry.as_array()?.first().ok_or_else(|| Error::protocol("an entry id", "nothing"))?;
    position(id.to_str()?).map(Some)
}

fn position<P: std::str::FromStr>(text: &str) -> Result<P, Error> {
    text.parse().map_err(|_| Error::protocol("a position", text))
}
