//! User ids: what may stand in a key, in a day key's member and on a command line without quoting.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Problem, USER_BYTES_MAX};

/// The id of a user or friend: 1 to 64 bytes of UTF-8 without control characters, spaces, `{`, `}` or `:`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(Arc<str>);

impl UserId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserId {
    type Err = Problem;

    fn from_str(text: &str) -> Result<UserId, Problem> {
        name(text, USER_BYTES_MAX).map(|()| UserId(text.into()))
    }
}

/// The rule of ids and of profile field names.
pub(super) fn name(text: &str, bytes_max: usize) -> Result<(), Problem> {
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    if text.len() > bytes_max {
        return Err(Problem::TooLong { bytes: text.len(), bytes_max });
    }
    // Nearly all ids are plain, and no byte of a plain one has to become a character first.
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b':');
    if text.bytes().all(plain) {
        return Ok(());
    }
    let forbidden = |c: &char| c.is_control() || c.is_whitespace() || matches!(c, '{' | '}' | ':');
    match text.chars().find(forbidden) {
        Some(character) => Err(Problem::Forbidden(character)),
        None => Ok(()),
    }
}

impl Borrow<str> for UserId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl serde::Serialize for UserId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}
