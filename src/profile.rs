//! The schemas of a profile: what a stored one of any age says in the words of this build.
//!
//! A reader migrates what it reads, the worker what it is about to change; both by the same functions, so that a profile means
//! the same before and after it was rewritten. One of a schema above this build's is left as it is.

use std::collections::{BTreeMap, BTreeSet};

use crate::calendar::zone_named;
use crate::change::ZONE_FIELD;

/// The schema of a profile as this build writes it.
pub const PROFILE_SCHEMA: u32 = 2;

/// The field that says which schema a profile has.
pub const SCHEMA_FIELD: &str = "schema";
/// The moment of the newest activity, Unix milliseconds.
pub const LAST_ACTIVITY_FIELD: &str = "last_activity";
/// When the own fields of a profile end, Unix milliseconds.
pub const EXPIRES_FIELD: &str = "expires_at";

/// The fields that are no own ones: heyday's, and those with a meaning for it.
pub const KEPT: [&str; 7] =
    [SCHEMA_FIELD, "version", "updated_at", "birthday", ZONE_FIELD, LAST_ACTIVITY_FIELD, EXPIRES_FIELD];

/// The fields that a migration looks at or changes, besides the schema: to migrate these alone is to migrate the profile.
pub const MIGRATED: [&str; 4] = [ZONE_FIELD, "tz_text", EXPIRES_FIELD, "expires_at_text"];

/// Fields by name.
pub type Fields = BTreeMap<String, String>;

/// One step from each schema to the next, from schema 1 on.
const STEPS: [fn(&mut Fields); PROFILE_SCHEMA as usize - 1] = [zones_are_names];

/// The schema of a profile that is there, from its field: one from before there were schemas has the first.
pub fn schema_of(field: Option<&str>) -> u32 {
    let number = field.and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}

/// Whether a field is the writers' alone, of those that may be bounded.
pub fn is_own(field: &str) -> bool {
    !KEPT.contains(&field)
}

/// Whether a profile with this field `schema` has own fields that may end: in older schemas the field that says when was the
/// writers' own, and what a newer one means by it that build alone knows.
pub fn may_expire(schema: Option<&str>) -> bool {
    schema_of(schema) == PROFILE_SCHEMA
}

/// When the own fields of a profile end, Unix milliseconds; none where they do not.
pub fn expires_at(fields: &Fields) -> Option<u64> {
    let known = may_expire(fields.get(SCHEMA_FIELD).map(String::as_str));
    fields.get(EXPIRES_FIELD).filter(|_| known).and_then(|text| text.parse().ok())
}

/// The own fields that have ended by `now`: all but those to keep, where the profile has a time to live and it is over.
pub fn expired<'a>(fields: &'a Fields, keep: &BTreeSet<String>, now: u64) -> impl Iterator<Item = &'a str> {
    let over = expires_at(fields).is_some_and(|at| at <= now);
    fields.keys().map(String::as_str).filter(move |name| over && is_own(name) && !keep.contains(*name))
}

/// Makes a stored profile one of this build's schema, and answers which it had. No profile at all has schema 0; a newer
/// one stays as it is.
pub fn migrate(fields: &mut Fields) -> u32 {
    if fields.is_empty() {
        return 0;
    }
    let schema = schema_of(fields.get(SCHEMA_FIELD).map(String::as_str));
    if schema >= PROFILE_SCHEMA {
        return schema;
    }
    STEPS[schema as usize - 1..].iter().for_each(|step| step(fields));
    fields.insert(SCHEMA_FIELD.to_owned(), PROFILE_SCHEMA.to_string());
    schema
}

/// From 1 to 2: `tz` names a zone, where it was an own field of any text, and `expires_at` is heyday's, where it was an own
/// field like any other. What was meant otherwise stays readable under another name.
fn zones_are_names(fields: &mut Fields) {
    if fields.get(ZONE_FIELD).is_some_and(|text| zone_named(text).is_none()) {
        put_aside(fields, ZONE_FIELD, "tz_text");
    }
    put_aside(fields, EXPIRES_FIELD, "expires_at_text");
}

/// Gives a field another name, unless there is a field of that name already: then it goes.
fn put_aside(fields: &mut Fields, name: &str, aside: &str) {
    if let Some(text) = fields.remove(name) {
        fields.entry(aside.to_owned()).or_insert(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Stored examples of every schema, what this build makes of each, and which schema it had.
    const EXAMPLES: [(&str, &str, u32); 10] = [
        ("", "", 0),
        ("version=3 role=admin", "schema=2 version=3 role=admin", 1),
        ("schema=0 tz=Mars", "schema=2 tz_text=Mars", 1),
        ("schema=1 version=3 updated_at=9 tz=Europe/Berlin", "schema=2 version=3 updated_at=9 tz=Europe/Berlin", 1),
        ("schema=1 version=3 tz=GMT+3 city=Ulm", "schema=2 version=3 tz_text=GMT+3 city=Ulm", 1),
        ("schema=1 tz=Mars tz_text=mine", "schema=2 tz_text=mine", 1),
        ("schema=1 expires_at=soon birthday=--02-29", "schema=2 expires_at_text=soon birthday=--02-29", 1),
        ("schema=2 tz=Mars expires_at=17", "schema=2 tz=Mars expires_at=17", 2),
        ("schema=9 tz=later expires_at=a whatever=x", "schema=9 tz=later expires_at=a whatever=x", 9),
        ("schema=99999999999 tz=later", "schema=99999999999 tz=later", u32::MAX),
    ];

    #[test]
    fn every_stored_schema_is_read() {
        for (stored, expected, schema) in EXAMPLES {
            let mut found = fields(stored);
            assert_eq!(migrate(&mut found), schema, "{stored}");
            assert_eq!(found, fields(expected), "{stored}");
            let settled = found.clone();
            migrate(&mut found);
            assert_eq!(found, settled, "{stored} migrated twice");
        }
    }

    #[test]
    fn the_named_fields_are_all_that_a_migration_needs() {
        let part = |fields: &Fields| {
            let named = |name: &str| name == SCHEMA_FIELD || MIGRATED.contains(&name);
            fields.iter().filter(|(name, _)| named(name)).map(|(n, v)| (n.clone(), v.clone())).collect::<Fields>()
        };
        let rest = |fields: &Fields, part: &Fields| fields.iter().filter(|(name, _)| !part.contains_key(*name)).count();
        for (stored, ..) in EXAMPLES {
            let whole = fields(stored);
            let (mut migrated, mut alone) = (whole.clone(), part(&whole));
            migrate(&mut migrated);
            // Of a profile without a schema nothing may be left of which to tell that there is one.
            if !whole.is_empty() && alone.is_empty() {
                alone.insert(SCHEMA_FIELD.to_owned(), "1".to_owned());
            }
            migrate(&mut alone);
            assert_eq!(part(&migrated), alone, "{stored}");
            assert_eq!(rest(&migrated, &alone), rest(&whole, &part(&whole)), "{stored}");
        }
    }
}
