//! When a friendship or a profile field was changed last while a rebuild was on: what a snapshot of an earlier moment must
//! leave alone.

use crate::birthday::Birthday;

/// Prints as `MS`, `MS?` or `MS=DATE`, with `@VERSION` behind the date where there is one.
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
    /// That there is a friendship; not its date.
    Friendship,
    /// The date, as long as there is a friendship: whether there is one a snapshot may yet say.
    Date { birthday: Birthday, version: Option<u64> },
}

impl Changed {
    pub fn parse(text: &str) -> Option<Changed> {
        if let Some(at) = text.strip_suffix('?') {
            return Some(Changed { at: at.parse().ok()?, what: What::Friendship });
        }
        let Some((at, told)) = text.split_once('=') else {
            return Some(Changed { at: text.parse().ok()?, what: What::All });
        };
        let (date, version) = match told.split_once('@') {
            None => (told, None),
            Some((date, version)) => (date, Some(version.parse().ok()?)),
        };
        let birthday = Birthday::parse(date).ok()?;
        Some(Changed { at: at.parse().ok()?, what: What::Date { birthday, version } })
    }

    pub fn text(self) -> String {
        let at = self.at;
        match self.what {
            What::All => at.to_string(),
            What::Friendship => format!("{at}?"),
            What::Date { birthday, version: None } => format!("{at}={birthday}"),
            What::Date { birthday, version: Some(version) } => format!("{at}={birthday}@{version}"),
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
        for text in ["7", "7?", "7=1990-05-01", "7=", "7=--05-01@9"] {
            assert_eq!(Changed::parse(text).map(Changed::text).as_deref(), Some(text));
        }
        for text in ["", "x", "?", "=", "7=x", "7=@", "7=@x"] {
            assert_eq!(Changed::parse(text), None, "{text}");
        }
    }
}
