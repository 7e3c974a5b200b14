//! Lines of a file of any size, in memory of a bounded size.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Longest line; a longer one is passed over as a whole.
pub(in crate::cli) const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(in crate::cli) struct Lines<R> {
    reader: R,
    /// The line that is being read.
    line: Vec<u8>,
    /// Whether the line was given out, so that the next one begins.
    given: bool,
    too_long: bool,
    number: u64,
    bytes: u64,
}

/// A line without its end, and its number, from 1.
pub(in crate::cli) struct Line<'a> {
    pub number: u64,
    /// None where it is longer than [`LINE_BYTES_MAX`].
    pub text: Option<&'a [u8]>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub fn new(reader: R) -> Lines<R> {
        Lines::at(reader, 0, 0)
    }

    /// Behind so many lines and bytes, where the reader is now.
    pub fn at(reader: R, number: u64, bytes: u64) -> Lines<R> {
        Lines { reader, line: Vec::new(), given: true, too_long: false, number, bytes }
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line; none at the end. Nothing is lost where this future is dropped before it is ready.
    pub async fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        if self.given {
            self.line.clear();
            self.too_long = false;
            self.given = false;
        }
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                let nothing = self.line.is_empty() && !self.too_long;
                return Ok(if nothing { None } else { Some(self.give()) });
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if self.line.len() + part.len() > LINE_BYTES_MAX {
                self.too_long = true;
                self.line.clear();
            } else if !self.too_long {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                return Ok(Some(self.give()));
            }
        }
    }

    fn give(&mut self) -> Line<'_> {
        self.given = true;
        self.number += 1;
        Line { number: self.number, text: (!self.too_long).then_some(&self.line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &[u8], chunk: usize) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = Lines::new(tokio::io::BufReader::with_capacity(chunk, text));
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push((line.number, line.text.map(<[u8]>::to_vec)));
        }
        assert_eq!(lines.bytes(), text.len() as u64);
        found
    }

    #[tokio::test]
    async fn lines_come_with_their_numbers_however_they_arrive() {
        let expected = [(1, "one"), (2, ""), (3, "three"), (4, "end")];
        let expected: Vec<_> = expected.map(|(number, text)| (number, Some(text.as_bytes().to_vec()))).to_vec();
        for chunk in [1, 2, 3, 100] {
            assert_eq!(read(b"one\n\nthree\nend", chunk).await, expected);
            assert_eq!(read(b"one\n\nthree\nend\n", chunk).await, expected);
        }
        assert!(read(b"", 8).await.is_empty());
    }

    #[tokio::test]
    async fn a_line_without_end_takes_no_memory_and_hides_no_other() {
        let mut text = vec![b'x'; 3 * LINE_BYTES_MAX];
        text.extend_from_slice(b"\nnext\n");
        let found = read(&text, 64 * 1024).await;
        assert_eq!(found, [(1, None), (2, Some(b"next".to_vec()))]);
    }
}
