//! What a key's name says about its type and its life.

use jiff::civil::Date;

use super::{Kind, Repair, Violation};
use crate::calendar::Calendar;
use crate::key::{Found, MAINTENANCE, Row};

/// What every move of a slot may add: a key that is moved lives on by the time it was on the way.
const EXPIRY_DRIFT_MAX_MILLISECONDS: i64 = 10 * 60 * 1000;
/// What a move adds or takes where the clocks of the two nodes differ: a key takes the time it has left along, and not the
/// moment of its end. Clocks that are further apart are named.
const CLOCKS_APART_MAX_MILLISECONDS: i64 = 2 * 60 * 60 * 1000;

/// How long a key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    ForEver,
    Bounded,
    /// Sometimes this, sometimes that.
    Either,
    /// A day key's.
    Day(Date, i64),
}

/// The life that a key's row gives it.
pub fn life(calendar: &Calendar, found: &Found<'_>) -> Life {
    match (found.space, found.view) {
        _ if found.row.pattern == MAINTENANCE => Life::Bounded,
        ("lease" | "dedup", _) | ("user", "activity") => Life::Bounded,
        ("user", "versions") => Life::Either,
        ("birthdays", _) => match found.part.parse() {
            Ok(date) => Life::Day(date, calendar.expires_at(date).saturating_mul(1000)),
            Err(_) => Life::Bounded,
        },
        _ => Life::ForEver,
    }
}

impl Life {
    /// `expires_at` is what PEXPIRETIME answers: Unix milliseconds, -1 for never.
    pub fn judge(self, key: &str, expires_at: i64) -> Option<Violation> {
        let bounded = expires_at >= 0;
        let expected = match self {
            Life::ForEver if bounded => "to live for ever".to_owned(),
            Life::Bounded if !bounded => "to expire".to_owned(),
            Life::Day(_, end) if !is_about(end, expires_at) => {
                format!("to expire at {end}")
            }
            _ => return None,
        };
        let found = if bounded { format!("that it expires at {expires_at}") } else { "no time to live".to_owned() };
        let violation = Violation::new(Kind::Expiry, key, expected, found);
        Some(match self {
            Life::Day(date, _) => violation.with(Repair::Expiry { date }),
            _ => violation,
        })
    }
}

fn is_about(end: i64, expires_at: i64) -> bool {
    let moved = CLOCKS_APART_MAX_MILLISECONDS + EXPIRY_DRIFT_MAX_MILLISECONDS;
    (end - moved..=end + moved).contains(&expires_at)
}

/// `found` is what TYPE answers.
pub fn judge_kind(key: &str, row: &Row, found: &str) -> Option<Violation> {
    let expected = row.kind.to_ascii_lowercase();
    (expected != found).then(|| Violation::new(Kind::WrongType, key, format!("a {expected}"), format!("a {found}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Keys;

    #[test]
    fn each_key_lives_as_its_row_says() {
        let (keys, calendar) = (Keys::new("").unwrap(), Calendar::default());
        let end = calendar.expires_at(jiff::civil::date(2026, 1, 2)) * 1000;
        let cases = [
            ("lease:{0}", -1, false),
            ("lease:{0}", 7, true),
            ("dedup:{0}:x", -1, false),
            ("lock:maintenance", 7, true),
            ("lock:maintenance", -1, false),
            ("state:{0}", -1, true),
            ("state:{0}", 7, false),
            ("user:{0}:a:versions", 7, true),
            ("user:{0}:a:versions", -1, true),
            ("user:{0}:a:activity", 7, true),
            ("user:{0}:a:activity", -1, false),
            ("user:{0}:a:top", 7, false),
            ("birthdays:{0}:2026-01-02", -1, false),
            ("birthdays:{0}:2026-01-02", end, true),
            ("birthdays:{0}:2026-01-02", end + 1000, true),
            ("birthdays:{0}:2026-01-02", end - 7_200_000, true),
            ("birthdays:{0}:2026-01-02", end + 7_200_003, true),
            ("birthdays:{0}:2026-01-02", end - 3 * 3_600_000, false),
            ("birthdays:{0}:2026-01-02", end + 3 * 3_600_000, false),
        ];
        for (name, expires_at, good) in cases {
            let found = keys.parse(name).unwrap();
            let violation = life(&calendar, &found).judge(name, expires_at);
            assert_eq!(violation.is_none(), good, "{name} {expires_at}: {violation:?}");
        }
    }

    #[test]
    fn each_key_is_of_its_row_s_type() {
        let keys = Keys::new("").unwrap();
        let row = keys.row_of("users:{0}").unwrap();
        assert_eq!(judge_kind("users:{0}", row, "zset"), None);
        let violation = judge_kind("users:{0}", row, "string").unwrap();
        assert_eq!(violation.to_string(), "wrong_type users:{0}: expected a zset, found a string");
    }
}
