//! Whose birthday comes next for a user: the view, up to so many days ahead.

use std::time::Duration;

use jiff::civil::Date;

use super::Reader;
use super::reader::{Error, State, View};
use crate::birthday::{Birthday, Next};
use crate::change::UserId;
use crate::shard::Shard;

/// Every friend with a date celebrates within so many days, unless born later than that.
pub const DAYS_MAX: u16 = 366;

/// The friends of a user who celebrate soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upcoming {
    pub user: UserId,
    pub shard: Shard,
    pub state: State,
    /// These two as in a view.
    pub freshness: Duration,
    pub age: Duration,
    /// The day that it is for the user.
    pub today: Date,
    /// Soonest first, each by id.
    pub friends: Vec<Celebrating>,
}

/// A friend, and when it is that they celebrate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Celebrating {
    pub friend: UserId,
    pub birthday: Birthday,
    pub next: Next,
}

impl Reader {
    /// The friends who celebrate within `days` (at most [`DAYS_MAX`]) from the user's own today; 0 is today alone.
    ///
    /// One round trip, as [`Reader::read`] makes it, with the same state and freshness.
    ///
    /// # Errors
    ///
    /// Those of [`Reader::read`].
    pub async fn upcoming(&self, user: &UserId, days: u16) -> Result<Upcoming, Error> {
        Ok(Upcoming::of(self.read(user).await?, days))
    }
}

impl Upcoming {
    /// Those of a view.
    pub fn of(view: View, days: u16) -> Upcoming {
        let days = i32::from(days.min(DAYS_MAX));
        let View { user, shard, state, freshness, age, today, friends, .. } = view;
        let friends = friends.into_iter().filter_map(|friend| {
            let next = friend.next.filter(|next| next.days <= days)?;
            Some(Celebrating { friend: friend.friend, birthday: friend.birthday, next })
        });
        Upcoming { user, shard, state, freshness, age, today, friends: friends.collect() }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::birthday::LeapDay;
    use crate::client::reader::{Friend, Profile};

    const TODAY: Date = date(2027, 12, 31);

    fn view(dates: &[&str]) -> View {
        let friends = dates.iter().map(|text| {
            let birthday = Birthday::parse(text).unwrap();
            let friend = format!("born{text}").parse().unwrap();
            Friend { friend, birthday, next: birthday.next(TODAY, LeapDay::February28) }
        });
        View {
            user: "42".parse().unwrap(),
            shard: Shard(3),
            state: State::Stale,
            freshness: Duration::from_secs(9),
            today: TODAY,
            age: Duration::ZERO,
            profile: Profile::default(),
            friends: friends.collect(),
        }
    }

    #[test]
    fn only_who_celebrates_within_the_days_is_upcoming() {
        let dates = ["1990-12-31", "--01-01", "2000-02-29", "1990-12-30", "2029-01-01", ""];
        let within = |days| {
            let upcoming = Upcoming::of(view(&dates), days);
            assert_eq!(
                (upcoming.state, upcoming.freshness, upcoming.today),
                (State::Stale, Duration::from_secs(9), TODAY)
            );
            upcoming.friends.iter().map(|friend| (friend.next.days, friend.next.age)).collect::<Vec<_>>()
        };
        assert_eq!(within(0), [(0, Some(37))]);
        assert_eq!(within(1), [(0, Some(37)), (1, None)]);
        assert_eq!(within(59), within(1));
        assert_eq!(within(60), [(0, Some(37)), (1, None), (60, Some(28))]);
        // 2028 is a leap year: its 30 December is 365 days away.
        assert_eq!(within(366).len(), 4);
        assert_eq!(within(u16::MAX), within(366), "who is born in 2029 celebrates for the first time in 2030");
    }
}
