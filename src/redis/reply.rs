//! One answer, and typed ways to look at it. A shape that a command never has is an error that says what was expected.

use bytes::Bytes;

use super::error::Error;
use crate::error::ServerError;

/// An answer. Bodies share the bytes that were read; nothing is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Null,
    Integer(i64),
    /// A short line such as `OK` or `QUEUED`.
    Status(Bytes),
    Bytes(Bytes),
    Array(Vec<Reply>),
    /// The command was refused. This is an answer like any other: commands around it have theirs.
    Error(Box<ServerError>),
}

impl Reply {
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The refusal, if it is one.
    pub fn error(&self) -> Option<&ServerError> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }

    /// Turns a refusal into an error, so that `?` can be used where none is expected.
    pub fn checked(self) -> Result<Self, Error> {
        match self {
            Self::Error(error) => Err(Error::Server(*error)),
            other => Ok(other),
        }
    }

    pub fn as_bytes(&self) -> Result<&Bytes, Error> {
        match self {
            Self::Bytes(bytes) | Self::Status(bytes) => Ok(bytes),
            other => Err(other.unexpected("a string")),
        }
    }

    pub fn into_bytes(self) -> Result<Bytes, Error> {
        match self {
            Self::Bytes(bytes) | Self::Status(bytes) => Ok(bytes),
            other => Err(other.unexpected("a string")),
        }
    }

    /// A string, or nothing where the key or field is absent.
    pub fn as_bytes_or_null(&self) -> Result<Option<&Bytes>, Error> {
        match self {
            Self::Null => Ok(None),
            other => other.as_bytes().map(Some),
        }
    }

    pub fn to_str(&self) -> Result<&str, Error> {
        std::str::from_utf8(self.as_bytes()?).map_err(|_| self.unexpected("a string in UTF-8"))
    }

    pub fn as_status(&self) -> Result<&str, Error> {
        match self {
            Self::Status(line) => std::str::from_utf8(line).map_err(|_| self.unexpected("a status in UTF-8")),
            other => Err(other.unexpected("a status")),
        }
    }

    /// Checks for a status such as `OK`.
    pub fn expect_status(&self, status: &str) -> Result<(), Error> {
        match self {
            Self::Status(line) if line == status.as_bytes() => Ok(()),
            other => Err(other.unexpected(&format!("the status {status}"))),
        }
    }

    /// An integer, or a string of digits as hash fields hold them.
    pub fn as_i64(&self) -> Result<i64, Error> {
        match self {
            Self::Integer(number) => Ok(*number),
            Self::Bytes(_) => self.parsed("an integer"),
            other => Err(other.unexpected("an integer")),
        }
    }

    pub fn as_u64(&self) -> Result<u64, Error> {
        match self {
            Self::Integer(number) => u64::try_from(*number).map_err(|_| self.unexpected("an integer from 0")),
            Self::Bytes(_) => self.parsed("an integer from 0"),
            other => Err(other.unexpected("an integer from 0")),
        }
    }

    pub fn as_array(&self) -> Result<&[Reply], Error> {
        match self {
            Self::Array(items) => Ok(items),
            other => Err(other.unexpected("an array")),
        }
    }

    pub fn into_array(self) -> Result<Vec<Reply>, Error> {
        match self {
            Self::Array(items) => Ok(items),
            other => Err(other.unexpected("an array")),
        }
    }

    /// Name and value pairs, as HGETALL and XINFO give them.
    pub fn as_pairs(&self) -> Result<impl Iterator<Item = (&Reply, &Reply)>, Error> {
        let items = self.as_array()?;
        if items.len() % 2 == 1 {
            return Err(self.unexpected("an array of pairs"));
        }
        Ok(items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])))
    }

    fn parsed<N: std::str::FromStr>(&self, expected: &str) -> Result<N, Error> {
        let number = self.to_str().ok().and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| self.unexpected(expected))
    }

    fn unexpected(&self, expected: &str) -> Error {
        match self {
            Self::Error(error) => Error::Server((**error).clone()),
            other => Error::protocol(expected, other.description()),
        }
    }

    /// Names the shape and shows the beginning: an answer may be huge, and its content may be private.
    fn description(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Integer(number) => format!("the integer {number}"),
            Self::Status(line) => format!("the status {}", beginning(line)),
            Self::Bytes(bytes) => {
                format!("a string of {} bytes, {}", bytes.len(), beginning(bytes))
            }
            Self::Array(items) => format!("an array of {}", items.len()),
            Self::Error(error) => format!("the error {error}"),
        }
    }
}

/// The answer to TIME, seconds and microseconds, as milliseconds.
pub(super) fn milliseconds(time: &Reply) -> Result<u64, Error> {
    match time.as_array()? {
        [seconds, microseconds] => Ok(seconds.as_u64()? * 1000 + microseconds.as_u64()? / 1000),
        _ => Err(Error::protocol("seconds and microseconds", "another number")),
    }
}

fn beginning(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 32;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]);
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Reply {
        Reply::Bytes(Bytes::from_static(text.as_bytes()))
    }

    fn check<T: std::fmt::Debug>(result: Result<T, Error>, message: &str) {
        assert_eq!(result.unwrap_err().to_string(), message);
    }

    #[test]
    fn answers_are_read_as_what_they_are() {
        assert_eq!(bytes("abc").as_bytes().unwrap(), "abc");
        assert_eq!(bytes("42").as_u64().unwrap(), 42);
        assert_eq!(bytes("-42").as_i64().unwrap(), -42);
        assert_eq!(Reply::Integer(7).as_u64().unwrap(), 7);
        assert!(Reply::Null.as_bytes_or_null().unwrap().is_none());
        let array = Reply::Array(vec![bytes("a"), bytes("1"), bytes("b"), bytes("2")]);
        let pairs: Vec<_> =
            array.as_pairs().unwrap().map(|(name, value)| (name.to_str().unwrap(), value.as_u64().unwrap())).collect();
        assert_eq!(pairs, [("a", 1), ("b", 2)]);
    }

    #[test]
    fn a_time_is_read_in_milliseconds() {
        let time = Reply::Array(vec![bytes("1795978800"), bytes("123999")]);
        assert_eq!(milliseconds(&time).unwrap(), 1_795_978_800_123);
        let wrong = "unexpected answer: expected seconds and microseconds, found another number";
        check(milliseconds(&Reply::Array(vec![bytes("5")])), wrong);
    }

    #[test]
    fn another_shape_is_an_error_that_says_what_was_expected() {
        check(Reply::Null.as_bytes(), "unexpected answer: expected a string, found nothing");
        check(
            bytes("abc").as_u64(),
            "unexpected answer: expected an integer from 0, found a string of 3 bytes, \"abc\"",
        );
        check(Reply::Integer(-1).as_u64(), "unexpected answer: expected an integer from 0, found the integer -1");
        check(bytes("x").as_array(), "unexpected answer: expected an array, found a string of 1 bytes, \"x\"");
        check(bytes("OK").as_status(), "unexpected answer: expected a status, found a string of 2 bytes, \"OK\"");
        check(
            Reply::Array(vec![Reply::Null]).as_pairs().map(Iterator::count),
            "unexpected answer: expected an array of pairs, found an array of 1",
        );
        let status = Reply::Status(Bytes::from_static(b"QUEUED"));
        check(status.expect_status("OK"), "unexpected answer: expected the status OK, found the status \"QUEUED\"");
        let invalid = Reply::Bytes(Bytes::from_static(b"\xff"));
        assert!(invalid.to_str().unwrap_err().to_string().contains("in UTF-8"));
    }

    #[test]
    fn a_refusal_keeps_its_own_words_and_consequence() {
        let refusal = Reply::Error(Box::new(ServerError::parse("OOM command not allowed")));
        let error = refusal.as_array().unwrap_err();
        assert_eq!(error.disposition(), crate::error::Disposition::Full);
        assert_eq!(refusal.checked().unwrap_err().to_string(), "OOM command not allowed");
    }
}
