//! The roll: a day that comes within the horizon is filled from the views of all users, in bounded steps between batches.
//!
//! A day is *open* once changes keep it, and *complete* once the roll has been through. Filling needs no look at what is
//! there: whoever changed a date since the day was opened has put it right already, and putting somebody there twice does
//! no harm.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

use super::batch::StepEffects;
use super::days::Days;
use super::step::Place;
use super::user::DateChange;
use super::{Commit, Loaded, Op, ShardState};
use crate::birthday::Birthday;
use crate::calendar::{Calendar, Window};
use crate::change::UserId;
use crate::key::Key;
use crate::profile::{EXPIRES_FIELD, Fields, expired, expires_at};
use crate::signal::Views;

/// The fields that say nothing of a user by themselves.
const HEAD: [&str; 4] = ["schema", "version", "updated_at", EXPIRES_FIELD];
/// Days that one commit closes at most.
const CLOSED_MAX: i64 = 1000;
/// The fields of `state` about the roll.
pub const ROLL_FIELD: &str = "roll";
pub const ROLLED_AT_FIELD: &str = "rolled_at";
pub const ROLL_ASKED_FIELD: &str = "roll_asked";

/// A roll under way. Its text is the field `roll` of `state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roll {
    pub from: Date,
    pub to: Date,
    /// The last user that it came to; none at the beginning.
    pub user: Option<UserId>,
    /// Where that user's friends go on; none where all of them are done. The store knows what it means.
    pub cursor: Option<String>,
}

/// A text that is no roll.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the first day, the last day, and how far it has come")]
pub struct ParseError;

/// A bounded part of what a roll has still to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surveyed {
    pub users: Vec<RolledUser>,
    /// How far the roll has come with these; none where it is done then.
    pub next: Option<Roll>,
}

/// A user as far as days need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledUser {
    pub user: UserId,
    /// Field `tz` of the profile.
    pub zone: Option<String>,
    /// Friends and their dates, all or a part.
    pub friends: Vec<(String, String)>,
    /// All of the profile, where its own fields have expired.
    pub expired: Option<Fields>,
    /// How many friends there are, where the profile has expired.
    pub friends_count: u64,
}

/// What the calendar of a shard needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Days after this one are beyond the horizon now: they are given up.
    Close { last: Date },
    /// The clock was far ahead, and days that it took to be over were not kept meanwhile: they begin anew.
    Anew { window: Window },
    Roll {
        roll: Roll,
        /// Whether somebody has asked for it.
        asked: bool,
    },
}

/// One step of a roll.
#[derive(Clone, Copy, Debug)]
pub struct RollStep<'a> {
    pub roll: &'a Roll,
    pub asked: bool,
    pub survey: &'a Surveyed,
}

impl ShardState {
    /// `roll` is under way, and `asked` whether somebody wants all open days to be filled again.
    pub fn turn(&self, calendar: &Calendar, milliseconds: u64, (roll, asked): (Option<&Roll>, bool)) -> Option<Turn> {
        let named = calendar.window(milliseconds);
        let window = self.window(calendar, milliseconds);
        // One day more is only a clock that is a little behind.
        if named.last.tomorrow().is_ok_and(|tomorrow| window.last > tomorrow) {
            let bounded = window.last.saturating_sub(jiff::Span::new().days(CLOSED_MAX));
            return Some(Turn::Close { last: bounded.max(named.last) });
        }
        if named.first.tomorrow().is_ok_and(|tomorrow| window.first > tomorrow) {
            return Some(Turn::Anew { window: named });
        }
        if let Some(roll) = roll.filter(|roll| Some(roll.to) <= self.open) {
            return Some(Turn::Roll { roll: roll.clone(), asked: false });
        }
        let after = self.rolled.map(|rolled| rolled.tomorrow().unwrap_or(Date::MAX));
        let from = after.filter(|_| !asked).map_or(window.first, |after| after.max(window.first));
        let due = asked || self.rolled.is_none_or(|rolled| rolled < named.last);
        let roll = Roll { from, to: window.last, user: None, cursor: None };
        due.then_some(Turn::Roll { roll, asked })
    }

    /// The commit that gives up the days after `last`.
    pub fn close(&self, place: Place<'_>, last: Date, loaded: &Loaded) -> Commit {
        let window = self.window(&place.rules.calendar, loaded.milliseconds);
        let closed = Window { first: last.tomorrow().unwrap_or(last), last: window.last };
        let rolled = self.rolled.map(|rolled| rolled.min(last));
        self.without(place, closed, ShardState { open: Some(last), rolled, ..self.next(window) }, loaded)
    }

    /// The commit after which the days of `window` are open and empty, to be rolled.
    pub fn anew(&self, place: Place<'_>, window: Window, loaded: &Loaded) -> Commit {
        let last = self.open.map_or(window.last, |open| open.max(window.last));
        // None of them is complete.
        let rolled = window.first.yesterday().unwrap_or(window.first);
        let after = ShardState { rolled: Some(rolled), ..self.next(window) };
        self.without(place, Window { last, ..window }, after, loaded)
    }

    /// The commit that deletes days, whatever roll is under way.
    fn without(&self, place: Place<'_>, days: Window, after: ShardState, loaded: &Loaded) -> Commit {
        let keys: Vec<Key> = days.days().map(|date| place.keys.day(date)).collect();
        let mut ops = vec![Op::HashDelete { key: place.keys.state.clone(), fields: vec![ROLL_FIELD.to_owned()] }];
        if !keys.is_empty() {
            ops.push(Op::Delete { keys });
        }
        Commit::of_step(place, (self, after), loaded.milliseconds, StepEffects { ops, ..StepEffects::default() })
    }
}

impl RollStep<'_> {
    /// The commit, on top of `state`.
    pub fn reduce(&self, place: Place<'_>, state: &ShardState, loaded: &Loaded) -> Commit {
        let named = state.window(&place.rules.calendar, loaded.milliseconds);
        // What is filled must be open: the clock may be a little behind where the roll was begun.
        let open = Window { last: named.last.max(self.roll.to), ..named };
        let window = Window { first: self.roll.from.max(open.first), last: self.roll.to };
        let mut days = Days::new(place.rules, window);
        for rolled in &self.survey.users {
            let friend = |(friend, date): &'_ (String, String)| -> Option<Date> {
                friend
                    .parse::<UserId>()
                    .ok()
                    .and_then(|_| place.rules.calendar.days(Birthday::lenient(date), window).next())
            };
            let near = rolled.friends.iter().filter(|entry| friend(entry).is_some());
            let change =
                near.map(|(friend, date)| DateChange { friend, before: None, after: Some(Birthday::lenient(date)) });
            days.note(&rolled.user, rolled.zone.as_deref(), &change.collect::<Vec<_>>());
        }
        let mut effects = StepEffects::default();
        days.write(place.keys, &mut effects.ops);
        let expired = self.survey.users.iter().filter_map(|user| Some((user, user.expired.as_ref()?)));
        expired.for_each(|(user, profile)| expire(place, user, profile, loaded.milliseconds, &mut effects));
        let ops = &mut effects.ops;
        let mut after = state.next(open);
        let (mut set, mut deleted) = (Vec::new(), Vec::new());
        match &self.survey.next {
            Some(next) => set.push((ROLL_FIELD.to_owned(), next.to_string())),
            None => {
                after.rolled = Some(self.roll.to);
                set.push((ROLLED_AT_FIELD.to_owned(), loaded.milliseconds.to_string()));
                deleted.push(ROLL_FIELD.to_owned());
            }
        }
        if self.asked {
            deleted.push(ROLL_ASKED_FIELD.to_owned());
        }
        if !deleted.is_empty() {
            ops.push(Op::HashDelete { key: place.keys.state.clone(), fields: deleted });
        }
        ops.push(Op::HashSet { key: place.keys.state.clone(), fields: set });
        Commit::of_step(place, (state, after), loaded.milliseconds, effects)
    }
}

/// What has expired of a profile goes, and all of it where nothing else is left.
fn expire(place: Place<'_>, rolled: &RolledUser, profile: &Fields, now: u64, effects: &mut StepEffects) {
    let (keys, keep, user) = (place.keys, &place.rules.profile_keep, &rolled.user);
    let mut gone: Vec<String> = expired(profile, keep, now).map(str::to_owned).collect();
    if expires_at(profile).is_none_or(|at| at > now) {
        return;
    }
    let (key, ops) = (keys.profile(user), &mut effects.ops);
    effects.users.push((user.clone(), Views::PROFILE));
    let stays = |name: &String| !HEAD.contains(&name.as_str()) && !gone.contains(name);
    if !profile.keys().any(stays) {
        ops.push(Op::Delete { keys: vec![key] });
        if rolled.friends_count == 0 {
            ops.push(Op::ExpireAfter { key: keys.versions(user), after: place.rules.tombstone_retention });
            ops.push(Op::SortedRemove { key: keys.users.clone(), members: vec![user.to_string()] });
        }
        return;
    }
    gone.push(EXPIRES_FIELD.to_owned());
    ops.push(Op::HashDelete { key: key.clone(), fields: gone });
    let version: u64 = profile.get("version").and_then(|text| text.parse().ok()).unwrap_or(0);
    ops.push(Op::HashSet { key, fields: vec![("version".to_owned(), version.saturating_add(1).to_string())] });
}

impl Roll {
    /// The same with the friends of `user` done up to the cursor; up to the last one where there is none.
    pub fn came(&self, user: UserId, cursor: Option<String>) -> Roll {
        Roll { user: Some(user), cursor, ..self.clone() }
    }
}

impl FromStr for Roll {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Roll, ParseError> {
        let words: Vec<&str> = text.split(' ').collect();
        let (from, to, user, cursor) = match words[..] {
            [from, to] => (from, to, None, None),
            [from, to, user] => (from, to, Some(user), None),
            [from, to, user, cursor] => (from, to, Some(user), Some(cursor.to_owned())),
            _ => return Err(ParseError),
        };
        let date = |text: &str| text.parse::<Date>().map_err(|_| ParseError);
        let user = user.map(str::parse).transpose().map_err(|_| ParseError)?;
        Ok(Roll { from: date(from)?, to: date(to)?, user, cursor })
    }
}

impl fmt::Display for Roll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.from, self.to)?;
        if let Some(user) = &self.user {
            write!(f, " {user}")?;
        }
        if let Some(cursor) = &self.cursor {
            write!(f, " {cursor}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    /// 2026-11-29T19:00:00Z: open from 28 November to 8 December.
    const NOW: u64 = 1_795_978_800_000;
    const DAY: u64 = 24 * 3_600_000;

    fn state(open: Option<Date>, rolled: Option<Date>) -> ShardState {
        ShardState { open, rolled, ..ShardState::default() }
    }

    fn roll(from: Date, to: Date) -> Roll {
        Roll { from, to, user: None, cursor: None }
    }

    #[test]
    fn rolls_print_and_parse_alike() {
        for text in ["2026-11-29 2026-12-08", "2026-11-29 2026-12-08 42", "2026-11-29 2026-12-08 42 ab12:77"] {
            assert_eq!(text.parse::<Roll>().unwrap().to_string(), text);
        }
        for text in ["", "2026-11-29", "2026-11-29 x", "2026-11-29 2026-12-08 a:b", "2026-11-29 2026-12-08 4 2 1"] {
            assert_eq!(text.parse::<Roll>(), Err(ParseError), "{text:?}");
        }
    }

    #[test]
    fn a_shard_rolls_what_is_newly_reached_and_nothing_else() {
        let calendar = Calendar::default();
        let (first, last) = (date(2026, 11, 28), date(2026, 12, 8));
        let cases = [
            ("a new shard: all days", state(None, None), Some(roll(first, last))),
            ("up to date", state(Some(last), Some(last)), None),
            ("a new day", state(Some(date(2026, 12, 7)), Some(date(2026, 12, 7))), Some(roll(last, last))),
            ("opened by a change", state(Some(last), Some(date(2026, 12, 7))), Some(roll(last, last))),
            (
                "three days asleep",
                state(Some(date(2026, 12, 5)), Some(date(2026, 12, 5))),
                Some(roll(date(2026, 12, 6), last)),
            ),
            ("a month asleep", state(Some(date(2026, 11, 1)), Some(date(2026, 11, 1))), Some(roll(first, last))),
            ("a clock a little behind", state(Some(date(2026, 12, 9)), Some(date(2026, 12, 9))), None),
        ];
        for (case, state, expected) in cases {
            let expected = expected.map(|roll| Turn::Roll { roll, asked: false });
            assert_eq!(state.turn(&calendar, NOW, (None, false)), expected, "{case}");
        }
        let done = state(Some(last), Some(last));
        let asked = done.turn(&calendar, NOW, (None, true));
        assert_eq!(asked, Some(Turn::Roll { roll: roll(first, last), asked: true }));
    }

    #[test]
    fn a_roll_under_way_goes_on_before_another_begins() {
        let last = date(2026, 12, 8);
        let under_way = roll(last, last).came("42".parse().unwrap(), Some("cursor".to_owned()));
        let turn = |now| state(Some(last), None).turn(&Calendar::default(), now, (Some(&under_way), true));
        let expected = Some(Turn::Roll { roll: under_way.clone(), asked: false });
        assert_eq!(turn(NOW), expected);
        assert_eq!(turn(NOW + DAY), expected, "although there is a further day by now");
    }

    #[test]
    fn days_beyond_a_smaller_horizon_are_closed() {
        let smaller = Calendar { horizon_days: 3, ..Calendar::default() };
        let state = state(Some(date(2026, 12, 8)), Some(date(2026, 12, 8)));
        let last = date(2026, 12, 3);
        assert_eq!(state.turn(&smaller, NOW, (Some(&roll(last, last)), true)), Some(Turn::Close { last }));
        // A clock that was years ahead has opened many days.
        let far = ShardState { open: Some(date(2036, 1, 1)), ..state };
        let Some(Turn::Close { last }) = far.turn(&smaller, NOW, (None, false)) else { panic!("nothing closed") };
        assert_eq!((date(2036, 1, 1) - last).get_days(), 1000);
    }

    #[test]
    fn days_that_a_clock_far_ahead_took_to_be_over_begin_anew() {
        let calendar = Calendar::default();
        let over = |first| ShardState { first: Some(first), ..state(Some(date(2026, 12, 8)), Some(date(2026, 12, 8))) };
        let turn = |first| over(first).turn(&calendar, NOW, (None, false));
        assert_eq!(turn(date(2026, 11, 29)), None, "a clock a little behind");
        let window = calendar.window(NOW);
        assert_eq!(turn(date(2026, 11, 30)), Some(Turn::Anew { window }));
        // First the days beyond the horizon go.
        let far = date(2027, 6, 11);
        let ahead = ShardState { first: Some(date(2027, 6, 1)), ..state(Some(far), Some(far)) };
        assert_eq!(ahead.turn(&calendar, NOW, (None, false)), Some(Turn::Close { last: window.last }));
    }
}
