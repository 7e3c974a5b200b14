//! What became of the lines of a file.

use serde::Serialize;

use crate::client::writer;

/// Runs of line numbers that are named in one sentence.
const RUNS_NAMED_MAX: usize = 20;

/// Counts, and the numbers of lines that were not appended although they are changes. There are never more of those than
/// changes on their way at once, since the first one ends the reading.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    /// Lines read.
    pub lines: u64,
    pub appended: u64,
    /// Lines that are no changes.
    pub bad: u64,
    /// Certainly not appended.
    pub refused: Vec<u64>,
    /// May or may not be appended.
    pub unknown: Vec<u64>,
    #[serde(skip)]
    pub failure: Option<writer::Error>,
}

impl Tally {
    pub fn failed(&mut self, line: u64, error: writer::Error) {
        let lines = if error.possibly_appended() { &mut self.unknown } else { &mut self.refused };
        lines.push(line);
        // What came first explains the others: behind it stands what only waited for it, of which some are told at once.
        let explained = self.failure.as_ref().is_some_and(|failure| !matches!(failure, writer::Error::Behind { .. }));
        if !explained {
            self.failure = Some(error);
        }
    }

    /// One sentence for each kind of trouble.
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        if !self.refused.is_empty() {
            troubles.push(format!("not appended: {}", runs(&self.refused)));
        }
        if !self.unknown.is_empty() {
            troubles.push(format!("may or may not be appended: {}", runs(&self.unknown)));
        }
        troubles
    }
}

/// `line 3`, or `lines 3-7, 9`.
fn runs(lines: &[u64]) -> String {
    let mut sorted = lines.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for line in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == line => *last = line,
            _ => runs.push((line, line)),
        }
    }
    let text = |(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let named: Vec<String> = runs.iter().take(RUNS_NAMED_MAX).map(text).collect();
    let more = match runs.len().saturating_sub(RUNS_NAMED_MAX) {
        0 => String::new(),
        _ => format!(" and more, {} in all", lines.len()),
    };
    format!("{} {}{more}", if lines.len() == 1 { "line" } else { "lines" }, named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn lines_are_named_in_runs() {
        assert_eq!(runs(&[7]), "line 7");
        assert_eq!(runs(&[5, 3, 4, 9]), "lines 3-5, 9");
        let odd: Vec<u64> = (0..100).map(|at| 2 * at).collect();
        assert!(runs(&odd).ends_with("36, 38 and more, 100 in all"), "{}", runs(&odd));
    }
}
