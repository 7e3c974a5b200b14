//! A user's profile as a reader gives it, and typed ways to look at it.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::Date;

use super::reader::State;
use crate::activity::Activity;
use crate::birthday::Birthday;
use crate::calendar::zone_named;
use crate::change::{UserId, ZONE_FIELD};
use crate::profile::{EXPIRES_FIELD, SCHEMA_FIELD, expires_at, migrate};
use crate::shard::Shard;

/// A user's profile, activity and top categories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileView {
    pub user: UserId,
    pub shard: Shard,
    pub state: State,
    /// How long the oldest change that the answer may lack had been waiting when it was read; zero where there was none.
    pub freshness: Duration,
    /// The day that it is for the user: in the zone of the profile, or the calendar's where it tells none.
    pub today: Date,
    /// Zero for an answer of Redis, or one that is known to be no other now; else how long ago Redis gave it.
    pub age: Duration,
    pub profile: Profile,
    pub activity: Activity,
    /// Activity by day of the user's own zone, as far back as it is kept.
    pub days: BTreeMap<Date, u64>,
    /// Categories by weight, the heaviest first; alike weights by name.
    pub top: Vec<(String, u64)>,
}

/// A user's profile. A newer schema than this build knows is read in its known part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// That of the stored profile; what is here says the same in this build's words. 0 where there is no profile.
    pub schema: u32,
    /// The number of changes applied to it.
    pub version: u64,
    /// The time of the last one, Unix milliseconds.
    pub updated_at: Option<u64>,
    pub birthday: Birthday,
    /// The newest activity, Unix milliseconds.
    pub last_activity: Option<u64>,
    /// When the own fields expire, Unix milliseconds; none where they stay.
    pub expires_at: Option<u64>,
    /// All other fields.
    pub fields: BTreeMap<String, String>,
}

/// A field that holds something else than it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile field {field:?}: {value:?}: expected {expected}")]
pub struct FieldError {
    pub field: String,
    pub value: String,
    pub expected: String,
}

impl Profile {
    pub(super) fn stored(stored: Vec<(String, String)>) -> Profile {
        let mut fields: BTreeMap<String, String> = stored.into_iter().collect();
        let schema = migrate(&mut fields);
        let expires_at = expires_at(&fields);
        fields.remove(SCHEMA_FIELD);
        fields.remove(EXPIRES_FIELD);
        let mut number = |name: &str| fields.remove(name).and_then(|text| text.parse().ok());
        let (version, updated_at) = (number("version").unwrap_or(0), number("updated_at"));
        let last_activity = number("last_activity");
        let birthday = fields.remove("birthday").as_deref().map(Birthday::lenient).unwrap_or_default();
        Profile { schema, version, updated_at, birthday, last_activity, expires_at, fields }
    }

    /// Drops what does not outlive the profile's time, once that is over.
    pub(super) fn expire(&mut self, now: u64, keep: &BTreeSet<String>) {
        if self.expires_at.is_some_and(|expires_at| expires_at <= now) {
            self.fields.retain(|name, _| name == ZONE_FIELD || keep.contains(name));
        }
    }

    /// An own field as it is.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// An own field that is on or off: `true` or `false`, `yes` or `no`, `1` or `0`, in capitals or not. None where it is absent.
    ///
    /// # Errors
    ///
    /// Where it holds anything else.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, FieldError> {
        self.typed(name, "true, false, yes, no, 1 or 0", |text| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Some(true),
            "false" | "no" | "0" => Some(false),
            _ => None,
        })
    }

    /// An own field that is a number: `profile.number::<u32>("level")`. None where it is absent.
    ///
    /// # Errors
    ///
    /// Where it is no such number.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, FieldError> {
        self.typed(name, type_name::<T>(), |text| text.parse().ok())
    }

    /// The own field `role`.
    pub fn role(&self) -> Option<&str> {
        self.text("role")
    }

    /// The own field `segment`.
    pub fn segment(&self) -> Option<&str> {
        self.text("segment")
    }

    /// The name of the user's own time zone; none where the profile says none, or nothing that is one.
    pub fn tz(&self) -> Option<&str> {
        self.text(ZONE_FIELD).filter(|name| zone_named(name).is_some())
    }

    fn typed<T>(&self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, FieldError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match parse(text) {
            Some(value) => Ok(Some(value)),
            None => Err(FieldError { field: name.to_owned(), value: text.to_owned(), expected: expected.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(fields: &[(&str, &str)]) -> Profile {
        let schema = [("schema", "2")];
        Profile::stored(
            schema.iter().chain(fields).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn a_flag_is_on_off_absent_or_named_as_neither() {
        let profile = profile(&[("on", "Yes"), ("off", "0"), ("odd", "maybe")]);
        assert_eq!(profile.flag("on"), Ok(Some(true)));
        assert_eq!(profile.flag("off"), Ok(Some(false)));
        assert_eq!(profile.flag("absent"), Ok(None));
        let error = profile.flag("odd").unwrap_err();
        assert_eq!(error.to_string(), r#"profile field "odd": "maybe": expected true, false, yes, no, 1 or 0"#);
    }

    #[test]
    fn a_number_is_of_the_type_that_is_asked_for() {
        let profile = profile(&[("level", "300"), ("rate", "0.5")]);
        assert_eq!(profile.number::<u32>("level"), Ok(Some(300)));
        assert_eq!(profile.number::<f64>("rate"), Ok(Some(0.5)));
        assert_eq!(profile.number::<i64>("absent"), Ok(None));
        let error = profile.number::<u8>("level").unwrap_err();
        assert_eq!(error.to_string(), r#"profile field "level": "300": expected u8"#);
    }

    #[test]
    fn own_fields_go_when_the_profile_has_expired_but_those_that_are_kept() {
        let fields =
            [("role", "admin"), ("tz", "Europe/Kyiv"), ("level", "3"), ("birthday", "--02-29"), ("expires_at", "1000")];
        let keep = BTreeSet::from(["level".to_owned()]);
        let mut profile = profile(&fields);
        profile.expire(999, &keep);
        assert_eq!((profile.role(), profile.tz()), (Some("admin"), Some("Europe/Kyiv")));
        profile.expire(1000, &keep);
        assert_eq!((profile.role(), profile.tz(), profile.text("level")), (None, Some("Europe/Kyiv"), Some("3")));
        assert_eq!(profile.birthday, Birthday::Day { month: 2, day: 29 });
    }
}
