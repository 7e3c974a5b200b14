//! The log is a chain: each commit names the one before it.

use super::{Kind, Violation};
use crate::key::Key;
use crate::position::CommitId;
use crate::signal::Signal;

/// The signal of a log entry.
pub fn read_entry(key: &Key, id: CommitId, payload: Option<&[u8]>) -> Result<Signal, Violation> {
    let wrong = |found: String| Violation::new(Kind::Log, key, format!("a signal of {id}"), found);
    let payload = payload.ok_or_else(|| wrong(format!("{id} without one")))?;
    match Signal::decode(payload) {
        Ok(signal) if signal.id == id => Ok(signal),
        Ok(signal) => Err(wrong(format!("{id} with the signal of {}", signal.id))),
        Err(error) => Err(wrong(format!("{id}: {error}"))),
    }
}

/// Whether an entry continues the one before it in the log; `before` is none where older entries were trimmed.
pub fn follows(key: &Key, before: Option<CommitId>, entry: &Signal) -> Result<(), Violation> {
    let good = entry.previous < entry.id && before.is_none_or(|before| entry.previous == before);
    if good {
        return Ok(());
    }
    let expected = before.map_or_else(|| "one before it".to_owned(), |before| before.to_string());
    let expected = format!("{} to follow {expected}", entry.id);
    Err(Violation::new(Kind::Log, key, expected, format!("that it follows {}", entry.previous)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Keys;
    use crate::shard::{Layout, Shard};

    #[test]
    fn links_of_the_chain() {
        let key = Keys::new("").unwrap().shard(&Layout::new(1).unwrap(), Shard(0)).log;
        let id = |number| CommitId::new(number, 1);
        let signal = |previous| Signal { id: id(9), previous, at_milliseconds: 1, users: Vec::new() };
        assert_eq!(follows(&key, Some(id(8)), &signal(id(8))), Ok(()));
        assert_eq!(follows(&key, None, &signal(id(3))), Ok(()));
        assert_eq!(follows(&key, None, &signal(CommitId::ZERO)), Ok(()));
        let broken = follows(&key, Some(id(8)), &signal(id(7))).unwrap_err();
        assert_eq!(broken.to_string(), format!("log {key}: expected 9-1 to follow 8-1, found that it follows 7-1"));
        assert!(follows(&key, None, &signal(id(9))).is_err());
        let payload = signal(id(8)).encode();
        assert!(read_entry(&key, id(9), Some(&payload)).is_ok());
        assert!(read_entry(&key, id(8), Some(&payload)).is_err());
        assert!(read_entry(&key, id(9), Some(b"x")).is_err());
        assert!(read_entry(&key, id(9), None).is_err());
    }
}
