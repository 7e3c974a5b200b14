//! Reading views: a ready answer in one round trip, fresh or honestly marked stale.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;

use super::{Failure, Hub};
use crate::birthday::{Birthday, Next};
use crate::calendar::Calendar;
use crate::change::{UserId, ZONE_FIELD};
use crate::error::Disposition;
use crate::redis::views::{StoredView, read_view};
use crate::shard::Shard;

/// How a reader works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a read may take, all tries together.
    pub timeout: Duration,
    /// How far a shard may be behind before its views count as stale.
    pub fresh_within: Duration,
    /// Whose day is today, and when 29 February is celebrated in other years.
    pub calendar: Calendar,
}

impl Default for Options {
    fn default() -> Options {
        Options { timeout: Duration::from_secs(2), fresh_within: Duration::from_secs(5), calendar: Calendar::default() }
    }
}

/// How far an answer can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Everything appended up to `freshness` ago is in it.
    Live,
    /// The shard is further behind than the options allow.
    Stale,
    /// Nothing is known of this user.
    Cold,
}

/// A user's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub user: UserId,
    pub shard: Shard,
    pub state: State,
    /// How long the oldest change that the view may lack has been waiting; zero where there is none.
    pub freshness: Duration,
    /// The day that it is for the user: in the zone of the profile, or the calendar's where it tells none.
    pub today: Date,
    pub profile: Profile,
    /// Soonest celebration first, unknown dates last, each by id.
    pub friends: Vec<Friend>,
}

/// A user's profile. A newer schema than this build knows is read in its known part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// 0 where there is no profile.
    pub schema: u32,
    /// The number of changes applied to it.
    pub version: u64,
    /// The time of the last one, Unix milliseconds.
    pub updated_at: Option<u64>,
    pub birthday: Birthday,
    /// All other fields.
    pub fields: BTreeMap<String, String>,
}

/// A friend in a user's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Friend {
    pub friend: UserId,
    pub birthday: Birthday,
    /// The next celebration; none where the date is unknown.
    pub next: Option<Next>,
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("user {user}, shard {shard}: not read: {why}")]
    Redis { user: UserId, shard: Shard, why: Failure },
}

impl Error {
    pub fn disposition(&self) -> Disposition {
        match self {
            Error::Redis { why, .. } => match why.error.disposition() {
                // A read has no effect that could be in doubt.
                Disposition::Ambiguous => Disposition::Refresh,
                other => other,
            },
        }
    }
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Live => "live",
            State::Stale => "stale",
            State::Cold => "cold",
        }
    }
}

/// Reads views. Cheap to clone, and to use from many tasks at once.
///
/// ```no_run
/// # async fn example(hub: heyday::client::Hub) -> Result<(), Box<dyn std::error::Error>> {
/// use heyday::client::reader::Options;
///
/// let reader = hub.reader(Options::default());
/// let view = reader.read(&"42".parse()?).await?;
/// println!("{:?}, {:?} behind", view.state, view.freshness);
/// for friend in &view.friends {
///     println!("{} {:?}", friend.friend, friend.next);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    hub: Hub,
    options: Arc<Options>,
}

impl Reader {
    pub(super) fn new(hub: Hub, options: Options) -> Reader {
        Reader { hub, options: Arc::new(options) }
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// A user's view; an empty one for a user nobody has told of.
    ///
    /// One round trip, and a second one only where the shard is behind.
    ///
    /// # Errors
    ///
    /// Where the owner of the user's shard does not answer within the timeout, or refuses.
    pub async fn read(&self, user: &UserId) -> Result<View, Error> {
        let keys = self.hub.keys_of(user);
        match read_view(self.hub.nodes(), self.hub.pipes(), keys, user, self.options.timeout).await {
            Ok(stored) => Ok(view(user.clone(), keys.shard, stored, &self.options)),
            Err(error) => {
                let owner = self.hub.topology().node_of(keys.slot).ok();
                let why = Failure::new(owner.as_ref().map(|node| &node.address), error);
                Err(Error::Redis { user: user.clone(), shard: keys.shard, why })
            }
        }
    }
}

fn view(user: UserId, shard: Shard, stored: StoredView, options: &Options) -> View {
    let behind = stored.unapplied.map_or(0, |oldest| stored.now.saturating_sub(oldest.milliseconds));
    let freshness = Duration::from_millis(behind);
    let state = if stored.profile.is_empty() && stored.birthdays.is_empty() {
        State::Cold
    } else if freshness > options.fresh_within {
        State::Stale
    } else {
        State::Live
    };
    let tz = stored.profile.iter().find(|(name, _)| name == ZONE_FIELD).map(|(_, tz)| tz.as_str());
    let today = Calendar::today_in(&options.calendar.zone(tz), stored.now);
    let friend = |(id, date): (String, String)| {
        let birthday = lenient(&date);
        Some(Friend { friend: id.parse().ok()?, birthday, next: birthday.next(today, options.calendar.leap_day) })
    };
    let mut friends: Vec<Friend> = stored.birthdays.into_iter().filter_map(friend).collect();
    friends.sort_by(|left, right| {
        let key = |friend: &Friend| friend.next.map_or(i32::MAX, |next| next.days);
        key(left).cmp(&key(right)).then_with(|| left.friend.cmp(&right.friend))
    });
    View { user, shard, state, freshness, today, profile: profile(stored.profile), friends }
}

fn profile(stored: Vec<(String, String)>) -> Profile {
    let mut fields: BTreeMap<String, String> = stored.into_iter().collect();
    let mut take = |name: &str| fields.remove(name);
    Profile {
        schema: take("schema").and_then(|text| text.parse().ok()).unwrap_or(0),
        version: take("version").and_then(|text| text.parse().ok()).unwrap_or(0),
        updated_at: take("updated_at").and_then(|text| text.parse().ok()),
        birthday: take("birthday").as_deref().map(lenient).unwrap_or_default(),
        fields,
    }
}

/// A date that somebody else spoilt counts as unknown.
fn lenient(text: &str) -> Birthday {
    Birthday::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::position::EntryId;

    /// 2026-11-29T19:00:00Z
    const NOW: u64 = 1_795_978_800_000;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn read(profile: &[(&str, &str)], birthdays: &[(&str, &str)], unapplied: Option<u64>) -> View {
        let unapplied = unapplied.map(|milliseconds| EntryId::new(milliseconds, 0));
        let stored = StoredView { profile: pairs(profile), birthdays: pairs(birthdays), unapplied, now: NOW };
        view("42".parse().unwrap(), Shard(3), stored, &Options::default())
    }

    #[test]
    fn friends_come_soonest_first_and_unknown_last() {
        let view = read(
            &[],
            &[
                ("zoe", "1990-11-29"),
                ("late", "1990-11-28"),
                ("none", ""),
                ("anna", "--11-29"),
                ("spoilt", "soon"),
                ("bad id", "1990-01-01"),
                ("soon", "2000-12-01"),
            ],
            None,
        );
        let found: Vec<_> = view.friends.iter().map(|friend| friend.friend.as_str()).collect();
        assert_eq!(found, ["anna", "zoe", "soon", "late", "none", "spoilt"]);
        let soon = view.friends[2].next.unwrap();
        assert_eq!((soon.date, soon.days, soon.age), (date(2026, 12, 1), 2, Some(26)));
        assert_eq!((view.friends[0].next.unwrap().days, view.friends[4].next), (0, None));
    }

    #[test]
    fn state_follows_from_what_waits() {
        let friends = [("7", "")];
        for (unapplied, state, freshness) in [
            (None, State::Live, 0),
            (Some(NOW - 5_000), State::Live, 5_000),
            (Some(NOW - 5_001), State::Stale, 5_001),
            (Some(NOW + 9), State::Live, 0),
        ] {
            let view = read(&[], &friends, unapplied);
            assert_eq!((view.state, view.freshness), (state, Duration::from_millis(freshness)), "{unapplied:?}");
        }
        let cold = read(&[], &[], Some(NOW - 60_000));
        assert_eq!(
            (cold.state, cold.profile, cold.freshness),
            (State::Cold, Profile::default(), Duration::from_secs(60))
        );
    }

    #[test]
    fn a_profile_of_a_newer_schema_is_read_in_its_known_part() {
        let view = read(
            &[("schema", "9"), ("version", "7"), ("updated_at", "123"), ("birthday", "--02-29"), ("city", "Kyiv")],
            &[],
            None,
        );
        let profile = view.profile;
        assert_eq!((profile.schema, profile.version, profile.updated_at), (9, 7, Some(123)));
        assert_eq!(profile.birthday, Birthday::Day { month: 2, day: 29 });
        assert_eq!(profile.fields.into_iter().collect::<Vec<_>>(), pairs(&[("city", "Kyiv")]));
        let odd = read(&[("version", "many")], &[], None).profile;
        assert_eq!((odd.schema, odd.version, odd.updated_at), (0, 0, None));
    }
}
