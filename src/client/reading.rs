//! What a look at a shard's log proves, where signals may have been heard since the look began.

use crate::position::CommitId;
use crate::redis::log::LogEntry;
use crate::signal::{Continuity, Signal, Step};

/// A look at a log.
#[derive(Debug)]
pub(super) struct Reading {
    /// The position when the look began; none before there was one.
    pub after: CommitId,
    /// The newest commit.
    pub tip: CommitId,
    /// What follows `after`, read after the tip.
    pub entries: Vec<LogEntry>,
}

impl Reading {
    /// What follows for the shard. [`Step::Fetch`] asks for another look: this one is older than the position.
    ///
    /// # Errors
    ///
    /// Where an entry cannot be read. The position is behind it then, and what it says is lost to the caller.
    pub fn settle(self, continuity: &mut Continuity) -> Result<Step, String> {
        let position = continuity.position();
        let overtaken = self.after != position;
        let last = self.entries.last().map_or(self.tip, |(id, _)| self.tip.max(*id));
        let new: Vec<LogEntry> = self.entries.into_iter().filter(|(id, _)| *id > position).collect();
        if overtaken && self.tip <= position {
            // A tip below the position proves nothing: the position may have passed it in good order.
            return Ok(Step::Deliver(Vec::new()));
        }
        if overtaken && new.is_empty() {
            return Ok(Step::Fetch);
        }
        match new.into_iter().map(decode).collect::<Result<_, _>>() {
            Ok(signals) => Ok(continuity.read(signals, self.tip)),
            Err(error) => {
                *continuity = Continuity::new(last);
                Err(error)
            }
        }
    }
}

fn decode((id, payload): LogEntry) -> Result<Signal, String> {
    let payload = payload.ok_or_else(|| format!("log entry {id}: no signal"))?;
    let signal = Signal::decode(&payload).map_err(|error| format!("log entry {id}: {error}"))?;
    if signal.id != id {
        return Err(format!("log entry {id}: the signal is of commit {}", signal.id));
    }
    Ok(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> CommitId {
        CommitId::new(5, sequence)
    }

    fn signal(sequence: u64) -> Signal {
        Signal { id: id(sequence), previous: id(sequence - 1), at_milliseconds: 1, users: Vec::new() }
    }

    fn entries(sequences: std::ops::RangeInclusive<u64>) -> Vec<LogEntry> {
        sequences.map(|sequence| (id(sequence), Some(signal(sequence).encode().into()))).collect()
    }

    /// The commits delivered, or `fetch` or `reset`, and the position afterwards.
    fn check((position, after, tip): (u64, u64, u64), read: Vec<LogEntry>, expected: &str, then: u64) {
        let mut continuity = Continuity::new(id(position));
        let reading = Reading { after: id(after), tip: id(tip), entries: read };
        let found = match reading.settle(&mut continuity) {
            Ok(Step::Deliver(signals)) => {
                signals.iter().map(|signal| signal.id.sequence.to_string()).collect::<Vec<_>>().join(" ")
            }
            Ok(Step::Fetch) => "fetch".to_owned(),
            Ok(Step::Reset) => "reset".to_owned(),
            Err(_) => "unreadable".to_owned(),
        };
        let case = format!("position {position}, read after {after}, tip {tip}");
        assert_eq!((found.as_str(), continuity.position()), (expected, id(then)), "{case}");
    }

    #[test]
    fn a_look_that_nothing_overtook_is_what_the_log_says() {
        check((3, 3, 3), vec![], "", 3);
        check((3, 3, 5), entries(4..=5), "4 5", 5);
        check((3, 3, 5), entries(4..=6), "4 5 6", 6);
        check((3, 3, 9), entries(8..=9), "reset", 9);
        check((3, 3, 2), vec![], "reset", 2);
        check((3, 3, 9), vec![], "reset", 9);
    }

    #[test]
    fn signals_heard_meanwhile_are_neither_told_again_nor_taken_for_a_loss() {
        check((5, 3, 5), entries(4..=5), "", 5);
        check((6, 3, 5), entries(4..=5), "", 6);
        check((5, 3, 7), entries(4..=7), "6 7", 7);
        check((5, 3, 4), vec![], "", 5);
    }

    #[test]
    fn a_look_that_ends_below_the_position_is_taken_again() {
        check((6, 3, 9), entries(4..=5), "fetch", 6);
        check((6, 3, 9), vec![], "fetch", 6);
    }

    #[test]
    fn what_cannot_be_read_is_passed_over_as_a_whole() {
        let nonsense = |sequence| (id(sequence), Some("nonsense".into()));
        check((3, 3, 5), vec![entries(4..=4).remove(0), nonsense(5)], "unreadable", 5);
        check((3, 3, 4), vec![nonsense(4), nonsense(6)], "unreadable", 6);
        check((3, 3, 4), vec![(id(4), None)], "unreadable", 4);
        check((3, 3, 4), vec![(id(4), Some(signal(9).encode().into()))], "unreadable", 4);
    }
}
