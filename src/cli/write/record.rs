//! One line of NDJSON as the fields of a change.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields in the order of the line, also where one stands there twice: that is for the change to refuse.
pub(super) fn fields(line: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let fields = deserializer.deserialize_map(Fields);
    let fields = fields.and_then(|fields| deserializer.end().map(|()| fields));
    fields.map_err(|error| in_line(&error.to_string()))
}

/// The parser counts lines; here there is only one.
fn in_line(message: &str) -> String {
    match message.split_once(" at line 1 column ") {
        // What we say ourselves is about a field, which says more than a column.
        Some((message, _)) if message.starts_with("field ") => message.to_owned(),
        Some((message, _)) if message.ends_with("a flat JSON object") => message.to_owned(),
        Some((message, column)) => format!("not JSON: {message} at column {column}"),
        None => message.to_owned(),
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(String, String)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a flat JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let value = map.next_value::<&'de RawValue>()?;
            if let Some(text) =
                text(value.get()).map_err(|problem| A::Error::custom(format!("field {name:?}: {problem}")))?
            {
                fields.push((name.into_owned(), text));
            }
        }
        Ok(fields)
    }
}

/// A number as it is written, so that no digit of a long id is lost; none for null.
fn text(raw: &str) -> Result<Option<String>, String> {
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map(Some).map_err(|error| in_line(&error.to_string())),
        Some(b'{') => Err("an object; expected a text, a number, true, false or null".to_owned()),
        Some(b'[') => Err("a list; expected a text, a number, true, false or null".to_owned()),
        Some(b'n') => Ok(None),
        _ => Ok(Some(raw.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_objects_become_fields() {
        let cases: [(&str, &[(&str, &str)]); 6] = [
            ("{}", &[]),
            (r#"{"type":"add","user":42}"#, &[("type", "add"), ("user", "42")]),
            (r#" { "user" : "Zo\u00eb" , "friend" : null } "#, &[("user", "Zoë")]),
            (r#"{"user":123456789012345678901234567890}"#, &[("user", "123456789012345678901234567890")]),
            (
                r#"{"weight":1.50,"profile.vip":true,"x":false}"#,
                &[("weight", "1.50"), ("profile.vip", "true"), ("x", "false")],
            ),
            (r#"{"user":"a","user":"b"}"#, &[("user", "a"), ("user", "b")]),
        ];
        for (line, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(fields(line.as_bytes()), Ok(expected), "{line}");
        }
    }

    #[test]
    fn anything_else_says_what_is_wrong() {
        let cases: [(&[u8], &str); 7] = [
            (b"[1]", "expected a flat JSON object"),
            (b"42", "expected a flat JSON object"),
            (b"{\"a\":1", "EOF while parsing an object at column 6"),
            (b"{\"a\":1} {}", "trailing characters at column 9"),
            (b"{\"profile\":{\"x\":1}}", "field \"profile\": an object; expected a text, a number"),
            (b"{\"friend\":[7]}", "field \"friend\": a list; expected a text, a number"),
            (b"{\"user\":\"\xff\"}", "invalid unicode code point"),
        ];
        for (line, expected) in cases {
            let error = fields(line).unwrap_err();
            assert!(error.contains(expected), "{error}, expected {expected}");
        }
    }
}
