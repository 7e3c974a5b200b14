//! One line of a snapshot file as a user.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use crate::birthday::{Birthday, ParseError};
use crate::change::{Listed, PROFILE_RESERVED, Problem, Rejection, UserId, ZONE_FIELD};

/// A user as the file has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub user: Option<UserId>,
    pub birthday: Option<Birthday>,
    pub profile: Vec<(String, Option<String>)>,
    pub versions: Vec<(String, u64)>,
    /// In byte order.
    pub friends: Vec<Listed>,
}

/// The user of a line, or what is wrong with it: field, value and what was expected.
pub(super) fn record(line: &[u8]) -> Result<Record, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let record = deserializer.deserialize_map(Line);
    let record = record.and_then(|record| deserializer.end().map(|()| record));
    let mut record = record.map_err(|error| in_line(&error.to_string()))?;
    let Some(user) = &record.user else {
        return Err(told("user", None, Problem::Missing));
    };
    record.check_fields()?;
    record.friends.sort_unstable_by(|left, right| left.friend.cmp(&right.friend));
    let twice = record.friends.windows(2).find(|pair| pair[0].friend == pair[1].friend);
    if let Some(twice) = twice {
        return Err(told(&format!("friends.{}", twice[0].friend), None, Problem::Repeated));
    }
    if record.friends.binary_search_by(|listed| listed.friend.cmp(user)).is_ok() {
        return Err(told(&format!("friends.{user}"), None, Problem::SameAsUser));
    }
    Ok(record)
}

/// The parser counts lines; here there is only one.
fn in_line(message: &str) -> String {
    match message.split_once(" at line 1 column ") {
        // What is about a field says more than a column.
        Some((message, _)) if message.starts_with("field ") || message.starts_with("invalid type") => {
            message.to_owned()
        }
        Some((message, column)) => format!("not JSON: {message} at column {column}"),
        None => message.to_owned(),
    }
}

fn told(field: &str, value: Option<&str>, problem: Problem) -> String {
    format!("field {}", Rejection::new(field, value.map(str::as_bytes), problem))
}

/// The line's object.
struct Line;

impl<'de> Visitor<'de> for Line {
    type Value = Record;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .write_str("an object with user, and birthday, profile, profile_versions and friends where there are any")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut record = Record::default();
        let mut seen: Vec<String> = Vec::with_capacity(5);
        while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
            if seen.iter().any(|known| *known == name) {
                return Err(A::Error::custom(told(&name, None, Problem::Repeated)));
            }
            record.take(&name, &mut map)?;
            seen.push(name.into_owned());
        }
        Ok(record)
    }
}

impl Record {
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "user" => {
                let Text(text) = map.next_value()?;
                self.user = Some(user(&text, "user").map_err(A::Error::custom)?);
            }
            "birthday" => {
                let text = map.next_value::<Option<Text<'de>>>()?;
                let read = |text: Text<'_>| birthday(&text.0, "birthday");
                self.birthday = text.map(read).transpose().map_err(A::Error::custom)?;
            }
            "profile" => map.next_value_seed(Members::new(|name: Cow<'de, str>, value: Option<Text<'de>>| {
                self.profile.push(field(name, value)?);
                Ok(())
            }))?,
            "profile_versions" => map.next_value_seed(Members::new(|name: Cow<'de, str>, value: Text<'de>| {
                let field = format!("profile_versions.{name}");
                let version = value.0.parse().map_err(|_| told(&field, Some(&value.0), Problem::NotANumber))?;
                self.versions.push((name.into_owned(), version));
                Ok(())
            }))?,
            "friends" => map.next_value_seed(Members::new(|name: Cow<'de, str>, value: Told<'de>| {
                self.friends.push(friend(&name, &value)?);
                Ok(())
            }))?,
            _ => return Err(A::Error::custom(told(name, None, Problem::UnknownField))),
        }
        Ok(())
    }

    /// Each field once, and a version only of what is told.
    fn check_fields(&self) -> Result<(), String> {
        let repeated = |field: String| Err(told(&field, None, Problem::Repeated));
        let mut named: HashSet<&str> = HashSet::with_capacity(self.profile.len() + 1);
        for (name, _) in &self.profile {
            if !named.insert(name) {
                return repeated(format!("profile.{name}"));
            }
        }
        if self.birthday.is_some() {
            named.insert("birthday");
        }
        let mut versions: HashSet<&str> = HashSet::with_capacity(self.versions.len());
        for (name, version) in &self.versions {
            if !versions.insert(name) {
                return repeated(format!("profile_versions.{name}"));
            }
            if !named.contains(name.as_str()) {
                return Err(format!("field profile_versions.{name} \"{version}\": the line has no such field"));
            }
        }
        Ok(())
    }
}

fn user(text: &str, field: &str) -> Result<UserId, String> {
    text.parse().map_err(|problem| told(field, Some(text), problem))
}

fn birthday(text: &str, field: &str) -> Result<Birthday, String> {
    Birthday::parse(text).map_err(|error| {
        let problem = match error {
            ParseError::Form => Problem::DateForm,
            ParseError::NoSuchDay => Problem::NoSuchDay,
        };
        told(field, Some(text), problem)
    })
}

fn friend(name: &str, value: &Told<'_>) -> Result<Listed, String> {
    // Where all is well no text is made for what could be wrong.
    let field = || format!("friends.{name}");
    let friend = name.parse().map_err(|problem| told(&field(), None, problem))?;
    let birthday = Birthday::parse(&value.date).or_else(|_| birthday(&value.date, &field()))?;
    Ok(Listed { friend, birthday, version: value.version })
}

fn field(name: Cow<'_, str>, value: Option<Text<'_>>) -> Result<(String, Option<String>), String> {
    let field = || format!("profile.{name}");
    if PROFILE_RESERVED.contains(&&*name) {
        return Err(told(&field(), None, Problem::Reserved));
    }
    // Names of fields have the rules of ids.
    name.parse::<UserId>().map_err(|problem| told(&field(), None, problem))?;
    let value = value.map(|text| text.0.into_owned()).filter(|text| !text.is_empty());
    if name == ZONE_FIELD
        && let Some(zone) = &value
        && crate::calendar::zone_named(zone).is_none()
    {
        return Err(told(&field(), Some(zone), Problem::NoSuchZone));
    }
    Ok((name.into_owned(), value))
}

/// Calls a function with each member of an object.
struct Members<F, V>(F, PhantomData<V>);

impl<F, V> Members<F, V> {
    fn new(each: F) -> Members<F, V> {
        Members(each, PhantomData)
    }
}

impl<'de, V, F> DeserializeSeed<'de> for Members<F, V>
where
    V: Deserialize<'de>,
    F: FnMut(Cow<'de, str>, V) -> Result<(), String>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, V, F> Visitor<'de> for Members<F, V>
where
    V: Deserialize<'de>,
    F: FnMut(Cow<'de, str>, V) -> Result<(), String>,
{
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((Text(name), value)) = map.next_entry::<Text<'de>, V>()? {
            (self.0)(name, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A text, or a number as it is written.
#[derive(Debug)]
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text or a whole number")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A date alone, or one with a version; null for an unknown one.
#[derive(Debug, Default)]
struct Told<'a> {
    date: Cow<'a, str>,
    version: Option<u64>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Told<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Told<'a>, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Told<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a date, null, or an object with birthday and version")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Told<'de>, E> {
                Ok(Told { date: Cow::Borrowed(text), version: None })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Told<'de>, E> {
                Ok(Told { date: Cow::Owned(text.to_owned()), version: None })
            }

            fn visit_unit<E: Error>(self) -> Result<Told<'de>, E> {
                Ok(Told::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Told<'de>, A::Error> {
                let mut told = Told::default();
                while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
                    match &*name {
                        "birthday" => {
                            told.date = map.next_value::<Option<Text<'de>>>()?.map(|text| text.0).unwrap_or_default();
                        }
                        "version" => told.version = map.next_value()?,
                        _ => return Err(A::Error::unknown_field(&name, &["birthday", "version"])),
                    }
                }
                Ok(told)
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_user() {
        let line = br#"{"user":42,"birthday":"1990-05-01","profile":{"city":"Kyiv","vip":1,"old":null,"tz":"Europe/Kyiv"},
            "profile_versions":{"city":7},"friends":{"79":{"birthday":"--05-01","version":7},"77":"1990-12-01","78":null}}"#;
        let record = record(line).unwrap();
        let friends: Vec<String> = record
            .friends
            .iter()
            .map(|listed| format!("{}={} {:?}", listed.friend, listed.birthday, listed.version))
            .collect();
        assert_eq!(friends, ["77=1990-12-01 None", "78= None", "79=--05-01 Some(7)"]);
        assert_eq!(record.user.as_ref().map(UserId::as_str), Some("42"));
        let field = |name: &str| record.profile.iter().find(|(known, _)| known == name).unwrap().1.as_deref();
        assert_eq!((field("city"), field("vip"), field("old")), (Some("Kyiv"), Some("1"), None));
        assert_eq!(record.versions, [("city".to_owned(), 7)]);
        assert_eq!(super::record(br#"{"user":"42"}"#).unwrap().friends, []);
    }

    #[test]
    fn a_bad_line_says_field_value_and_expectation() {
        let cases: [(&[u8], &str); 20] = [
            (b"[1]", "invalid type: sequence, expected an object with user"),
            (b"{", "not JSON: EOF while parsing an object at column 1"),
            (br#"{"user":"1"} {}"#, "not JSON: trailing characters at column 14"),
            (b"{}", "field user: missing"),
            (br#"{"user":""}"#, r#"field user "": empty"#),
            (br#"{"user":"1","user":"2"}"#, "field user: given more than once"),
            (br#"{"user":true}"#, "invalid type: boolean `true`, expected a text or a whole number"),
            (br#"{"user":"1","frends":{}}"#, "field frends: no such field for this type"),
            (br#"{"user":"1","birthday":"1990-02-30"}"#, r#"field birthday "1990-02-30": no such day"#),
            (br#"{"user":"1","friends":{"1":""}}"#, "field friends.1: the same as user"),
            (br#"{"user":"1","friends":{"2":"","2":""}}"#, "field friends.2: given more than once"),
            (
                br#"{"user":"1","friends":{"2":"1.5.1990"}}"#,
                r#"field friends.2 "1.5.1990": expected YYYY-MM-DD, --MM-DD or nothing"#,
            ),
            (br#"{"user":"1","friends":["2"]}"#, "invalid type: sequence, expected an object"),
            (
                br#"{"user":"1","friends":{"2":7}}"#,
                "invalid type: integer `7`, expected a date, null, or an object with birthday and version",
            ),
            (br#"{"user":"1","profile":{"schema":"2"}}"#, "field profile.schema: kept by heyday itself"),
            (
                br#"{"user":"1","profile":{"tz":"Mars"}}"#,
                r#"field profile.tz "Mars": expected the IANA name of a time zone, such as Europe/Berlin"#,
            ),
            (br#"{"user":"1","profile":{"a":"1","a":"2"}}"#, "field profile.a: given more than once"),
            (
                br#"{"user":"1","profile":{"a":"1"},"profile_versions":{"a":1,"a":2}}"#,
                "field profile_versions.a: given more than once",
            ),
            (
                br#"{"user":"1","profile":{"a":"1"},"profile_versions":{"b c":1}}"#,
                r#"field profile_versions.b c "1": the line has no such field"#,
            ),
            (
                br#"{"user":"1","profile_versions":{"birthday":1}}"#,
                r#"field profile_versions.birthday "1": the line has no such field"#,
            ),
        ];
        for (line, expected) in cases {
            let error = record(line).unwrap_err();
            assert!(error.starts_with(expected), "{error}, expected {expected}");
        }
    }
}
