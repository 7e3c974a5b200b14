//! From what is stored to what is answered. But for the asking it is pure, so that a kept answer can be made again for a later
//! moment.

use std::future::Future;
use std::time::Duration;

use jiff::civil::Date;

use super::profile::{Profile, ProfileView};
use super::reader::{Friend, Options, State, View};
use crate::activity::{self, Activity};
use crate::birthday::Birthday;
use crate::calendar::Calendar;
use crate::change::UserId;
use crate::position::CommitId;
use crate::redis;
use crate::redis::views::{Standing, StoredProfile, StoredView, Way, read_profile, read_view};
use crate::shard::Shard;

/// What was read, and what a cache needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer<T> {
    pub value: T,
    /// The last commit that it certainly has.
    pub commit: CommitId,
    /// The server's time when it was read, Unix milliseconds.
    pub now: u64,
    /// The server's time from which on it says something else although nothing changes: another day, or an expiry.
    pub until: u64,
    /// Whether the shard had changes that it may lack.
    pub behind: bool,
}

/// What can be asked about a user.
pub(super) trait Asked: Sized + Send {
    /// The answer, and how often it was waited for.
    fn ask(
        way: Way<'_>,
        user: &UserId,
        options: &Options,
    ) -> impl Future<Output = Result<(Answer<Self>, u32), redis::Error>> + Send;

    fn state(&self) -> State;
}

impl Asked for View {
    async fn ask(way: Way<'_>, user: &UserId, options: &Options) -> Result<(Answer<View>, u32), redis::Error> {
        let stored = read_view(way, user).await?;
        let round_trips = stored.standing.round_trips;
        Ok((view(user.clone(), way.keys.shard, stored, options), round_trips))
    }

    fn state(&self) -> State {
        self.state
    }
}

impl Asked for ProfileView {
    async fn ask(way: Way<'_>, user: &UserId, options: &Options) -> Result<(Answer<ProfileView>, u32), redis::Error> {
        let stored = read_profile(way, user).await?;
        let round_trips = stored.standing.round_trips;
        Ok((profile_view(user.clone(), way.keys.shard, stored, options), round_trips))
    }

    fn state(&self) -> State {
        self.state
    }
}

fn view(user: UserId, shard: Shard, stored: StoredView, options: &Options) -> Answer<View> {
    let Standing { commit, now, unapplied, .. } = stored.standing;
    let cold = stored.profile.is_empty() && stored.birthdays.is_empty();
    let (state, freshness) = standing(cold, &stored.standing, options);
    let friend = |(id, date): (String, String)| {
        Some(Friend { friend: id.parse().ok()?, birthday: Birthday::lenient(&date), next: None })
    };
    let friends = stored.birthdays.into_iter().filter_map(friend).collect();
    let profile = Profile::stored(stored.profile);
    let (today, age) = (today(&profile, now, &options.calendar), Duration::ZERO);
    let mut value = View { user, shard, state, freshness, today, age, profile, friends };
    value.turn_to(now, options);
    let until = valid_until(&value.profile, now, &options.calendar);
    Answer { value, commit, now, until, behind: unapplied.is_some() }
}

fn profile_view(user: UserId, shard: Shard, stored: StoredProfile, options: &Options) -> Answer<ProfileView> {
    let Standing { commit, now, unapplied, .. } = stored.standing;
    let empty = stored.profile.is_empty() && stored.activity.is_empty() && stored.top.is_empty();
    let cold = empty && !stored.has_friends;
    let (state, freshness) = standing(cold, &stored.standing, options);
    let profile = Profile::stored(stored.profile);
    let (activity, days) = (Activity::default(), activity::read(&stored.activity));
    let mut top: Vec<(String, u64)> = stored.top.into_iter().filter_map(ranked).collect();
    top.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    let (today, age) = (today(&profile, now, &options.calendar), Duration::ZERO);
    let mut value = ProfileView { user, shard, state, freshness, today, age, profile, activity, days, top };
    value.turn_to(now, options);
    let until = valid_until(&value.profile, now, &options.calendar);
    Answer { value, commit, now, until, behind: unapplied.is_some() }
}

impl View {
    /// Makes it the view of a later moment: days are counted from then, and what has expired by then is gone.
    pub(super) fn turn_to(&mut self, now: u64, options: &Options) {
        self.profile.expire(now, &options.profile_keep);
        self.today = today(&self.profile, now, &options.calendar);
        for friend in &mut self.friends {
            friend.next = friend.birthday.next(self.today, options.calendar.leap_day);
        }
        self.friends.sort_by(|left, right| {
            let key = |friend: &Friend| friend.next.map_or(i32::MAX, |next| next.days);
            key(left).cmp(&key(right)).then_with(|| left.friend.cmp(&right.friend))
        });
    }
}

impl ProfileView {
    /// The same for a profile.
    pub(super) fn turn_to(&mut self, now: u64, options: &Options) {
        self.profile.expire(now, &options.profile_keep);
        self.today = today(&self.profile, now, &options.calendar);
        let (today, last_7_days, last_30_days) = activity::windows(&self.days, self.today);
        self.activity = Activity { today, last_7_days, last_30_days, last: self.profile.last_activity };
    }
}

/// The user's own date.
pub(super) fn today(profile: &Profile, now: u64, calendar: &Calendar) -> Date {
    Calendar::today_in(&calendar.zone(profile.tz()), now)
}

fn valid_until(profile: &Profile, now: u64, calendar: &Calendar) -> u64 {
    let zone = calendar.zone(profile.tz());
    let tomorrow = Calendar::today_in(&zone, now).tomorrow();
    let midnight = tomorrow.and_then(|date| zone.to_timestamp(date.at(0, 0, 0, 0)));
    let midnight = midnight.map_or(u64::MAX, |moment| moment.as_millisecond().unsigned_abs());
    profile.expires_at.filter(|at| *at > now).map_or(midnight, |at| at.min(midnight))
}

fn standing(cold: bool, standing: &Standing, options: &Options) -> (State, Duration) {
    let behind = standing.unapplied.map_or(0, |oldest| standing.now.saturating_sub(oldest.milliseconds));
    let freshness = Duration::from_millis(behind);
    let state = if cold {
        State::Cold
    } else if freshness > options.fresh_within {
        State::Stale
    } else {
        State::Live
    };
    (state, freshness)
}

/// Weights are whole; a score is written as a float once it is large.
fn ranked((category, score): (String, String)) -> Option<(String, u64)> {
    let weight = score.parse().ok().or_else(|| score.parse::<f64>().ok().map(|score| score as u64));
    Some((category, weight?))
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

    fn standing(unapplied: Option<u64>) -> Standing {
        let unapplied = unapplied.map(|milliseconds| EntryId::new(milliseconds, 0));
        Standing { unapplied, commit: CommitId::new(7, 1), now: NOW, round_trips: 1 }
    }

    fn read(profile: &[(&str, &str)], birthdays: &[(&str, &str)], unapplied: Option<u64>) -> View {
        let standing = standing(unapplied);
        let stored = StoredView { profile: pairs(profile), birthdays: pairs(birthdays), standing };
        view("42".parse().unwrap(), Shard(3), stored, &Options::default()).value
    }

    fn until(profile: &[(&str, &str)]) -> u64 {
        let stored = StoredView { profile: pairs(profile), birthdays: Vec::new(), standing: standing(None) };
        view("42".parse().unwrap(), Shard(3), stored, &Options::default()).until
    }

    fn read_profile(profile: &[(&str, &str)], activity: &[(&str, &str)], top: &[(&str, &str)]) -> ProfileView {
        let (profile, activity, top) = (pairs(profile), pairs(activity), pairs(top));
        let stored = StoredProfile { profile, activity, top, has_friends: false, standing: standing(None) };
        profile_view("42".parse().unwrap(), Shard(3), stored, &Options::default()).value
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
            &[
                ("schema", "9"),
                ("version", "7"),
                ("updated_at", "123"),
                ("birthday", "--02-29"),
                ("city", "Kyiv"),
                ("expires_at", "5"),
            ],
            &[],
            None,
        );
        let profile = view.profile;
        assert_eq!((profile.schema, profile.version, profile.updated_at), (9, 7, Some(123)));
        assert_eq!(profile.expires_at, None, "what a newer schema means by it that build alone knows");
        assert_eq!(profile.birthday, Birthday::Day { month: 2, day: 29 });
        assert_eq!(profile.fields.into_iter().collect::<Vec<_>>(), pairs(&[("city", "Kyiv")]));
        let odd = read(&[("version", "many")], &[], None).profile;
        assert_eq!((odd.schema, odd.version, odd.updated_at), (1, 0, None));
    }

    #[test]
    fn a_profile_of_an_older_schema_is_read_as_if_it_had_been_rewritten() {
        let profile = read(&[("schema", "1"), ("tz", "Mars"), ("expires_at", "soon")], &[], None).profile;
        assert_eq!((profile.schema, profile.tz(), profile.expires_at), (1, None, None));
        assert_eq!((profile.text("tz_text"), profile.text("expires_at_text")), (Some("Mars"), Some("soon")));
    }

    #[test]
    fn today_is_the_users_own() {
        let in_zone = |zone: &str| {
            let view = read(&[("schema", "2"), ("tz", zone)], &[("7", "1990-11-30")], None);
            let profile = read_profile(&[("schema", "2"), ("tz", zone)], &[("2026-11-30", "5")], &[]);
            (view.friends[0].next.unwrap().days, profile.activity.today)
        };
        assert_eq!(in_zone("Pacific/Kiritimati"), (0, 5));
        assert_eq!(in_zone("America/New_York"), (1, 0));
        assert_eq!(in_zone("Mars"), (1, 0), "no zone: the calendar's");
    }

    #[test]
    fn a_kept_view_is_turned_to_the_day_on_which_it_is_given() {
        let options = Options::default();
        let mut view = read(&[], &[("a", "1990-11-29"), ("b", "1990-12-01")], None);
        view.turn_to(NOW + 24 * 3600 * 1000, &options);
        let found: Vec<_> =
            view.friends.iter().map(|friend| (friend.friend.as_str(), friend.next.unwrap().days)).collect();
        assert_eq!(found, [("b", 1), ("a", 364)]);
        let mut profile =
            read_profile(&[("schema", "2"), ("expires_at", &(NOW + 1).to_string()), ("a", "b")], &[], &[]);
        assert_eq!(profile.profile.text("a"), Some("b"));
        profile.turn_to(NOW + 1, &options);
        assert_eq!(profile.profile.text("a"), None);
    }

    #[test]
    fn an_answer_holds_until_the_users_midnight_or_the_expiry() {
        let hours = |hours: u64| NOW + hours * 3_600_000;
        assert_eq!(until(&[]), hours(5));
        assert_eq!(until(&[("schema", "2"), ("tz", "America/New_York")]), hours(10));
        assert_eq!(until(&[("schema", "2"), ("expires_at", &hours(1).to_string())]), hours(1));
        assert_eq!(until(&[("schema", "2"), ("expires_at", &hours(6).to_string())]), hours(5));
        assert_eq!(until(&[("schema", "2"), ("expires_at", &NOW.to_string())]), hours(5), "expired already");
    }

    #[test]
    fn categories_come_heaviest_first_and_alike_ones_by_name() {
        let top = [("rust", "9"), ("b", "2"), ("a", "2"), ("large", "1e+17"), ("spoilt", "many")];
        let view = read_profile(&[], &[], &top);
        let found: Vec<_> = view.top.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
        assert_eq!(found, [("large", 100_000_000_000_000_000), ("rust", 9), ("a", 2), ("b", 2)]);
        assert_eq!(view.state, State::Live, "activity alone is something that is known");
        assert_eq!(read_profile(&[], &[], &[]).state, State::Cold);
    }

    #[test]
    fn who_has_friends_alone_is_known() {
        let (profile, activity, top) = (Vec::new(), Vec::new(), Vec::new());
        let stored = StoredProfile { profile, activity, top, has_friends: true, standing: standing(None) };
        let answer = profile_view("42".parse().unwrap(), Shard(3), stored, &Options::default());
        assert_eq!((answer.value.state, answer.value.profile), (State::Live, Profile::default()));
    }
}
