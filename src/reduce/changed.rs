//! When a friendship or a profile field was changed last while a rebuild was on: what a snapshot of an earlier moment must
//! leave alone.

use crate::birthday::Birthday;

/// Prints as `MS`, `MS?`, `MS=DATE` or `MS?=DATE`, with `@VERSION` behind the date where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    /// The time of the entry, Unix milliseconds.
    pub at: u64,
    pub what: What,
}

/// What the change has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The whole friendship, its end too, or the field.
    All,
    /// That there is a friendship. Its date is the snapshot's, or one that was told before that and after the snapshot.
    Friendship(Option<Told>),
    /// The date, as long as there is a friendship: whether there is one a snapshot may yet say.
    Date(Told),
}

/// A date that holds for a friendship if there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub birthday: Birthday,
    pub version: Option<u64>,
}

impl Changed {
    pub fn parse(text: &str) -> Option<Changed> {
        let (head, told) = match text.split_once('=') {
            None => (text, None),
            Some((head, told)) => (head, Some(Told::parse(told)?)),
        };
        let (at, what) = match (head.strip_suffix('?'), told) {
            (Some(at), told) => (at, What::Friendship(told)),
            (None, Some(told)) => (head, What::Date(told)),
            (None, None) => (head, What::All),
        };
        Some(Changed { at: at.parse().ok()?, what })
    }

    pub fn text(self) -> String {
        let at = self.at;
        match self.what {
            What::All => at.to_string(),
            What::Friendship(None) => format!("{at}?"),
            What::Friendship(Some(told)) => format!("{at}?={}", told.text()),
            What::Date(told) => format!("{at}={}", told.text()),
        }
    }
}

impl Told {
    fn parse(text: &str) -> Option<Told> {
        let (date, version) = match text.split_once('@') {
            None => (text, None),
            Some((date, version)) => (date, Some(version.parse().ok()?)),
        };
        Some(Told { birthday: Birthday::parse(date).ok()?, version })
    }

    fn text(self) -> String {
        match self.version {
            None => self.birthday.to_string(),
            Some(version) => format!("{}@{version}", self.birthday),
        }
    }
}

/// Whether a text is such a mark.
pub fn is_change_mark(text: &str) -> bool {
    Changed::parse(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_read_as_it_was_written() {
        for text in ["7", "7?", "7?=", "7?=1990-05-01@9", "7=1990-05-01", "7=", "7=--05-01@9"] {
            assert_eq!(Changed::parse(text).map(Changed::text).as_deref(), Some(text));
        }
        for text in ["", "x", "?", "=", "7=x", "7=@", "7=@x"] {
            assert_eq!(Changed::parse(text), None, "{text}");
        }
    }
}
