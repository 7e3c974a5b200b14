//! Signals: the payload of `push:{tag}` and of the log, and the rule that proves nothing was missed between two of them.

use serde::{Deserialize, Serialize};

use crate::change::UserId;
use crate::position::CommitId;

/// The payload format this build writes and reads.
pub const FORMAT: u8 = 1;

/// The views of a user that a commit changed: a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Views(u8);

impl Views {
    pub const NONE: Views = Views(0);
    pub const PROFILE: Views = Views(1);
    pub const BIRTHDAYS: Views = Views(2);
    pub const ACTIVITY: Views = Views(4);
    const NAMES: [(Views, &'static str); 3] =
        [(Views::PROFILE, "profile"), (Views::BIRTHDAYS, "birthdays"), (Views::ACTIVITY, "activity")];

    pub fn with(self, other: Views) -> Views {
        Views(self.0 | other.0)
    }

    pub fn contains(self, other: Views) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    /// The names of the views in the set.
    pub fn names(self) -> Vec<&'static str> {
        Views::NAMES.iter().filter(|(view, _)| self.contains(*view)).map(|(_, name)| *name).collect()
    }
}

/// What one commit changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    pub id: CommitId,
    /// The commit before it in this shard; [`CommitId::ZERO`] for the first.
    pub previous: CommitId,
    /// Server time of the commit, Unix milliseconds.
    pub at_milliseconds: u64,
    pub users: Vec<(UserId, Views)>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("signal: {0}")]
    Payload(#[from] rmp_serde::decode::Error),
    #[error("signal format {0}: this build reads format {FORMAT}")]
    Format(u8),
    #[error("signal: {0}")]
    Position(#[from] crate::position::ParseError),
    #[error("signal: user {0:?}: {1}")]
    User(String, crate::change::Problem),
}

/// `[format, id, prev, at_ms, [[user, views], …]]`
type Payload<'a, User> = (u8, std::borrow::Cow<'a, str>, std::borrow::Cow<'a, str>, u64, Vec<(User, u8)>);

impl Signal {
    pub fn encode(&self) -> Vec<u8> {
        let users = self.users.iter().map(|(user, views)| (user.as_str(), views.0)).collect();
        let payload: Payload<'_, &str> =
            (FORMAT, self.id.to_string().into(), self.previous.to_string().into(), self.at_milliseconds, users);
        let mut bytes = Vec::with_capacity(64 + 16 * self.users.len());
        payload.serialize(&mut rmp_serde::Serializer::new(&mut bytes)).expect("memory takes every write");
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Signal, Error> {
        // The format comes first in the array, so that a newer payload is named as such whatever else it holds.
        if let [_, format, ..] = *bytes
            && format != FORMAT
            && format < 128
        {
            return Err(Error::Format(format));
        }
        let (_, id, previous, at_milliseconds, users) =
            Payload::<'_, String>::deserialize(&mut rmp_serde::Deserializer::new(bytes))?;
        let users = users
            .into_iter()
            .map(|(user, views)| match user.parse() {
                Ok(user) => Ok((user, Views(views))),
                Err(problem) => Err(Error::User(user, problem)),
            })
            .collect::<Result<_, _>>()?;
        Ok(Signal { id: id.parse()?, previous: previous.parse()?, at_milliseconds, users })
    }
}

/// Whether what came in continues what was delivered: one shard's position in its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuity {
    position: CommitId,
}

/// What to do with something that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These continue without a gap: deliver them in this order.
    Deliver(Vec<Signal>),
    /// A gap, or a signal from before: read the log after the position.
    Fetch,
    /// Continuity cannot be proven: the position is the log's tip now, and the caller re-reads what it holds.
    Reset,
}

impl Continuity {
    /// Starts at the tip of the log, read after subscribing.
    pub fn new(tip: CommitId) -> Continuity {
        Continuity { position: tip }
    }

    pub fn position(&self) -> CommitId {
        self.position
    }

    /// A signal heard over Pub/Sub.
    pub fn heard(&mut self, signal: Signal) -> Step {
        if signal.previous == self.position && signal.id > self.position {
            self.position = signal.id;
            return Step::Deliver(vec![signal]);
        }
        // The same signal again, heard after the log had told it.
        if signal.id == self.position { Step::Deliver(Vec::new()) } else { Step::Fetch }
    }

    /// The log's tip, and the entries after the position in order, read after the tip. More may follow the last entry.
    pub fn read(&mut self, entries: Vec<Signal>, tip: CommitId) -> Step {
        let lost = tip < self.position;
        let emptied = entries.is_empty() && tip > self.position;
        if lost || emptied {
            return self.reset(tip);
        }
        let mut last = self.position;
        for entry in &entries {
            if entry.previous != last {
                return self.reset(tip);
            }
            last = entry.id;
        }
        self.position = last;
        Step::Deliver(entries)
    }

    fn reset(&mut self, tip: CommitId) -> Step {
        self.position = tip;
        Step::Reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(previous: (u64, u64), id: (u64, u64)) -> Signal {
        Signal {
            id: CommitId::new(id.0, id.1),
            previous: CommitId::new(previous.0, previous.1),
            at_milliseconds: 1,
            users: vec![("42".parse().unwrap(), Views::BIRTHDAYS)],
        }
    }

    #[test]
    fn the_payload_is_as_documented() {
        let signal = Signal {
            id: CommitId::new(7, 2),
            previous: CommitId::new(7, 1),
            at_milliseconds: 300,
            users: vec![("a".parse().unwrap(), Views::PROFILE.with(Views::BIRTHDAYS))],
        };
        let bytes = signal.encode();
        assert_eq!(bytes, b"\x95\x01\xa37-2\xa37-1\xcd\x01\x2c\x91\x92\xa1a\x03");
        assert_eq!(Signal::decode(&bytes).unwrap(), signal);
    }

    #[test]
    fn foreign_payloads_are_errors() {
        let mut newer = signal((0, 0), (1, 1)).encode();
        newer[1] = 9;
        assert_eq!(Signal::decode(&newer).unwrap_err().to_string(), "signal format 9: this build reads format 1");
        for bytes in [&b""[..], b"\x95", b"\x95\x01", b"hello", b"\x95\x01\xa1x\xa37-1\x01\x90"] {
            assert!(Signal::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_chain_is_delivered_in_order() {
        let mut continuity = Continuity::new(CommitId::new(5, 0));
        for (previous, id) in [((5, 0), (5, 1)), ((5, 1), (5, 2)), ((5, 2), (9, 1))] {
            let next = signal(previous, id);
            assert_eq!(continuity.heard(next.clone()), Step::Deliver(vec![next]));
        }
        assert_eq!(continuity.position(), CommitId::new(9, 1));
    }

    #[test]
    fn a_gap_is_fetched_and_healed() {
        let mut continuity = Continuity::new(CommitId::new(5, 1));
        assert_eq!(continuity.heard(signal((5, 2), (5, 3))), Step::Fetch);
        let missed = vec![signal((5, 1), (5, 2)), signal((5, 2), (5, 3))];
        assert_eq!(continuity.read(missed.clone(), CommitId::new(5, 3)), Step::Deliver(missed));
        assert_eq!(continuity.heard(signal((5, 2), (5, 3))), Step::Deliver(vec![]), "told by the log already");
    }

    #[test]
    fn a_trimmed_log_resets() {
        let mut continuity = Continuity::new(CommitId::new(5, 1));
        let step = continuity.read(vec![signal((5, 7), (5, 8))], CommitId::new(5, 8));
        assert_eq!(step, Step::Reset);
        assert_eq!(continuity.position(), CommitId::new(5, 8));
    }

    #[test]
    fn a_log_that_lost_commits_resets() {
        let mut continuity = Continuity::new(CommitId::new(5, 9));
        assert_eq!(continuity.read(vec![], CommitId::new(5, 4)), Step::Reset);
        assert_eq!(continuity.position(), CommitId::new(5, 4));
        // The lost commit's successor does not name it.
        let mut continuity = Continuity::new(CommitId::new(5, 9));
        assert_eq!(continuity.heard(signal((5, 4), (8, 1))), Step::Fetch);
        assert_eq!(continuity.read(vec![signal((5, 4), (8, 1))], CommitId::new(8, 1)), Step::Reset);
    }

    #[test]
    fn an_emptied_log_resets() {
        let mut continuity = Continuity::new(CommitId::new(5, 9));
        assert_eq!(continuity.read(vec![], CommitId::ZERO), Step::Reset);
    }
}
