//! Answers on their way in: bytes become replies, each byte looked at a bounded number of times.

use bytes::{Bytes, BytesMut};
use redis_protocol::resp2::{decode::decode_range, types::RangeFrame};

use super::{error::Error, reply::Reply};
use crate::error::ServerError;

/// The largest answer taken in unless told otherwise, which is the largest string Redis can hold.
pub const REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Arrays within arrays: what Redis sends has at most five levels.
const DEPTH_MAX: usize = 32;
/// What an idle connection holds.
const BUFFER_BYTES_MIN: usize = 4 * 1024;
/// A buffer larger than this is given back once it is empty.
const BUFFER_BYTES_KEPT_MAX: usize = 64 * 1024;

/// The bytes of answers that have arrived and were not taken yet.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    scan: Scan,
    reply_bytes_max: usize,
    /// How much the next read should be able to take in; it follows what recent reads took.
    read_bytes: usize,
}

impl Decoder {
    pub fn new(reply_bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), scan: Scan::default(), reply_bytes_max, read_bytes: 0 }
    }

    /// Where the next bytes from the connection go.
    pub fn space(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_BYTES_KEPT_MAX {
            self.buffer = BytesMut::new();
        }
        let missing = self.scan.bytes_known.saturating_sub(self.buffer.len());
        self.buffer.reserve(self.read_bytes.max(BUFFER_BYTES_MIN).max(missing));
        &mut self.buffer
    }

    /// Tells how many bytes a read brought.
    pub fn filled(&mut self, read: usize) {
        if self.buffer.len() == self.buffer.capacity() {
            self.read_bytes = (2 * read).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_KEPT_MAX);
        } else if read < self.read_bytes / 8 {
            self.read_bytes /= 2;
        }
    }

    /// Whether bytes of an answer are waiting.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes the next complete answer.
    pub fn next(&mut self) -> Result<Option<Reply>, Error> {
        if !self.scan.is_complete(&self.buffer)? {
            return match self.scan.bytes_known > self.reply_bytes_max {
                true => Err(Error::TooLarge { bytes_max: self.reply_bytes_max }),
                false => Ok(None),
            };
        }
        let decoded = decode_range(&self.buffer).map_err(|error| Error::protocol("RESP2", error.to_string()))?;
        let (frame, length) = decoded.ok_or_else(|| Error::protocol("a whole answer", "the beginning of one"))?;
        self.scan = Scan::default();
        let body = self.buffer.split_to(length).freeze();
        Ok(Some(build(&body, frame)))
    }
}

fn build(body: &Bytes, frame: RangeFrame) -> Reply {
    match frame {
        RangeFrame::Null => Reply::Null,
        RangeFrame::Integer(number) => Reply::Integer(number),
        RangeFrame::SimpleString((start, end)) => Reply::Status(body.slice(start..end)),
        RangeFrame::BulkString((start, end)) => Reply::Bytes(body.slice(start..end)),
        RangeFrame::Error((start, end)) => {
            let line = String::from_utf8_lossy(&body[start..end]);
            Reply::Error(Box::new(ServerError::parse(&line)))
        }
        RangeFrame::Array(frames) => Reply::Array(frames.into_iter().map(|frame| build(body, frame)).collect()),
    }
}

/// Finds the end of an answer, going on where it stopped: decoding a large answer anew with each read would cost the
/// square of its length.
#[derive(Debug, Default)]
struct Scan {
    position: usize,
    /// Elements still missing, per level of array.
    open: Vec<usize>,
    started: bool,
    /// How many bytes the answer has at the least, as far as is known.
    bytes_known: usize,
}

impl Scan {
    fn is_complete(&mut self, buffer: &[u8]) -> Result<bool, Error> {
        while !(self.started && self.open.is_empty()) {
            if !self.step(buffer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes one element. False: it has not arrived whole.
    fn step(&mut self, buffer: &[u8]) -> Result<bool, Error> {
        let rest = &buffer[self.position..];
        let Some(line) = line(rest) else {
            return self.wait(buffer.len() + 1);
        };
        let mut length = line.len() + 2;
        let mut elements = 0;
        match line.first() {
            Some(b'$') => {
                if let Some(content) = count(line)? {
                    length = length.saturating_add(content).saturating_add(2);
                }
            }
            Some(b'*') => elements = count(line)?.unwrap_or(0),
            Some(b'+' | b'-' | b':') => {}
            _ => {
                return Err(Error::protocol("RESP2", format!("{:?}", String::from_utf8_lossy(line))));
            }
        }
        if rest.len() < length {
            return self.wait(self.position.saturating_add(length));
        }
        self.position += length;
        self.enter(elements)?;
        Ok(true)
    }

    fn wait(&mut self, bytes_known: usize) -> Result<bool, Error> {
        self.bytes_known = bytes_known;
        Ok(false)
    }

    fn enter(&mut self, elements: usize) -> Result<(), Error> {
        self.started = true;
        if let Some(missing) = self.open.last_mut() {
            *missing -= 1;
        }
        if elements > 0 {
            self.open.push(elements);
        }
        if self.open.len() > DEPTH_MAX {
            return Err(Error::protocol(format!("at most {DEPTH_MAX} levels of arrays"), "more"));
        }
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
        Ok(())
    }
}

/// The first line without its end, once it is there.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    (bytes.len() > end + 1).then(|| &bytes[..end])
}

/// The number in a header line; nothing for -1, which stands for null.
fn count(line: &[u8]) -> Result<Option<usize>, Error> {
    let text = std::str::from_utf8(&line[1..]).unwrap_or_default();
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(number) if number >= 0 => Ok(usize::try_from(number).ok()),
        _ => Err(Error::protocol("a length", format!("{:?}", String::from_utf8_lossy(line)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(decoder: &mut Decoder, bytes: &[u8]) {
        decoder.space().extend_from_slice(bytes);
        decoder.filled(bytes.len());
    }

    fn text(text: &'static str) -> Reply {
        Reply::Bytes(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn every_kind_of_answer_is_read_however_it_is_cut() {
        let wire = b"+OK\r\n:-7\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n$5\r\na\r\nbc\r\n-ERR no\r\n*2\r\n*1\r\n$1\r\nx\r\n*2\r\n:1\r\n*0\r\n";
        let expected = [
            Reply::Status(Bytes::from_static(b"OK")),
            Reply::Integer(-7),
            Reply::Null,
            Reply::Null,
            Reply::Array(vec![]),
            text(""),
            text("a\r\nbc"),
            Reply::Error(Box::new(ServerError::parse("ERR no"))),
            Reply::Array(vec![
                Reply::Array(vec![text("x")]),
                Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![])]),
            ]),
        ];
        for piece in 1..=wire.len() {
            let mut decoder = Decoder::new(REPLY_BYTES_MAX);
            let mut replies = Vec::new();
            for bytes in wire.chunks(piece) {
                feed(&mut decoder, bytes);
                while let Some(reply) = decoder.next().unwrap() {
                    replies.push(reply);
                }
            }
            assert_eq!(replies, expected, "in pieces of {piece}");
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for (wire, expected) in [
            ("HTTP/1.1 400\r\n", "RESP2"),
            ("$x\r\n", "a length"),
            ("$-2\r\n", "a length"),
            ("*-3\r\n", "a length"),
            ("$536870913\r\n", "more than 536870912 bytes"),
            ("$9223372036854775807\r\n", "more than 536870912 bytes"),
            (":abc\r\n", "RESP2"),
        ] {
            let mut decoder = Decoder::new(REPLY_BYTES_MAX);
            feed(&mut decoder, wire.as_bytes());
            let message = decoder.next().unwrap_err().to_string();
            assert!(message.contains(expected), "{wire:?}: {message}");
        }
        let mut decoder = Decoder::new(REPLY_BYTES_MAX);
        feed(&mut decoder, "*1\r\n".repeat(DEPTH_MAX + 1).as_bytes());
        assert!(decoder.next().unwrap_err().to_string().contains("levels"));
    }

    #[test]
    fn a_huge_answer_leaves_no_huge_buffer() {
        let mut decoder = Decoder::new(REPLY_BYTES_MAX);
        let length = 8 * 1024 * 1024;
        feed(&mut decoder, format!("${length}\r\n").as_bytes());
        assert_eq!(decoder.next().unwrap(), None);
        assert!(decoder.space().capacity() >= length, "room for the whole answer is made at once");
        feed(&mut decoder, &vec![b'x'; length]);
        feed(&mut decoder, b"\r\n");
        assert_eq!(decoder.next().unwrap().unwrap().as_bytes().unwrap().len(), length);
        assert!(decoder.space().capacity() <= BUFFER_BYTES_KEPT_MAX);
    }
}
