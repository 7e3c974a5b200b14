//! Answers on their way in: bytes become replies, each byte looked at a bounded number of times.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

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
/// Memory for more elements than this is given back after each answer.
const ELEMENTS_KEPT_MAX: usize = 1024;
/// The answer to a command within a transaction: there is one for each, so they share it.
const QUEUED: &[u8] = b"QUEUED";

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
        let reply = match self.scan.elements[..] {
            // Nothing of it is needed any more, so nothing is shared.
            [Element::Null] => Some(Reply::Null),
            [Element::Integer(number)] => Some(Reply::Integer(number)),
            _ => None,
        };
        let reply = match reply {
            Some(reply) => {
                self.buffer.advance(self.scan.position);
                reply
            }
            None => {
                let body = self.buffer.split_to(self.scan.position).freeze();
                build(&body, &mut self.scan.elements.iter())
            }
        };
        self.scan.clear();
        Ok(Some(reply))
    }
}

/// The next of the elements, with all that belong to it.
fn build(body: &Bytes, elements: &mut std::slice::Iter<'_, Element>) -> Reply {
    match elements.next() {
        None | Some(Element::Null) => Reply::Null,
        Some(Element::Integer(number)) => Reply::Integer(*number),
        Some(Element::Status(range)) if body[range.clone()] == *QUEUED => Reply::Status(Bytes::from_static(QUEUED)),
        Some(Element::Status(range)) => Reply::Status(body.slice(range.clone())),
        Some(Element::Bytes(range)) => Reply::Bytes(body.slice(range.clone())),
        Some(Element::Error(range)) => {
            let line = String::from_utf8_lossy(&body[range.clone()]);
            Reply::Error(Box::new(ServerError::parse(&line)))
        }
        Some(Element::Array(length)) => Reply::Array((0..*length).map(|_| build(body, elements)).collect()),
    }
}

/// A part of an answer, by where its content stands. The elements of an array follow it.
#[derive(Debug)]
enum Element {
    Null,
    Integer(i64),
    Status(Range<usize>),
    Bytes(Range<usize>),
    Error(Range<usize>),
    Array(usize),
}

/// Takes an answer apart, going on where it stopped: decoding a large answer anew with each read would cost the square of
/// its length.
#[derive(Debug, Default)]
struct Scan {
    position: usize,
    elements: Vec<Element>,
    /// Elements still missing, per level of array.
    open: Vec<usize>,
    /// How many bytes the answer has at the least, as far as is known.
    bytes_known: usize,
}

impl Scan {
    fn is_complete(&mut self, buffer: &[u8]) -> Result<bool, Error> {
        while self.elements.is_empty() || !self.open.is_empty() {
            if !self.step(buffer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn clear(&mut self) {
        (self.position, self.bytes_known) = (0, 0);
        self.elements.clear();
        self.elements.shrink_to(ELEMENTS_KEPT_MAX);
    }

    /// Passes one element. False: it has not arrived whole.
    fn step(&mut self, buffer: &[u8]) -> Result<bool, Error> {
        let Some(line) = line(&buffer[self.position..])? else {
            return self.wait(buffer.len() + 1);
        };
        let content = self.position + 1..self.position + line.len();
        let mut end = content.end + 2;
        let element = match line.first() {
            Some(b'$') => match length(line)? {
                None => Element::Null,
                Some(length) => {
                    let start = end;
                    end = end.saturating_add(length).saturating_add(2);
                    if buffer.len() < end {
                        return self.wait(end);
                    }
                    if buffer[end - 2..end] != *b"\r\n" {
                        return Err(Error::protocol("the end of a string", "more of it"));
                    }
                    Element::Bytes(start..end - 2)
                }
            },
            Some(b'*') => length(line)?.map_or(Element::Null, Element::Array),
            Some(b':') => Element::Integer(number(&line[1..]).ok_or_else(|| unknown(line))?),
            Some(b'+') => Element::Status(content),
            Some(b'-') => Element::Error(content),
            _ => return Err(unknown(line)),
        };
        self.position = end;
        self.enter(element)?;
        Ok(true)
    }

    fn wait(&mut self, bytes_known: usize) -> Result<bool, Error> {
        self.bytes_known = bytes_known;
        Ok(false)
    }

    fn enter(&mut self, element: Element) -> Result<(), Error> {
        if let Some(missing) = self.open.last_mut() {
            *missing -= 1;
        }
        if let Element::Array(length @ 1..) = element {
            self.open.push(length);
        }
        self.elements.push(element);
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
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Error> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\r') else {
        return Ok(None);
    };
    match bytes.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some(&bytes[..end])),
        Some(_) => Err(Error::protocol("the end of a line", "more of it")),
    }
}

/// The number in a header line; nothing for -1, which stands for null.
fn length(line: &[u8]) -> Result<Option<usize>, Error> {
    match number(&line[1..]) {
        Some(-1) => Ok(None),
        Some(length @ 0..) => Ok(Some(usize::try_from(length).unwrap_or(usize::MAX))),
        _ => Err(Error::protocol("a length", format!("{:?}", String::from_utf8_lossy(line)))),
    }
}

fn number(text: &[u8]) -> Option<i64> {
    let (digits, sign) = text.strip_prefix(b"-").map_or((text, 1), |digits| (digits, -1));
    let add = |number: i64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        // Towards its own sign, since the least number has no positive one.
        number.checked_mul(10)?.checked_add(sign * digit)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

fn unknown(line: &[u8]) -> Error {
    Error::protocol("RESP2", format!("{:?}", String::from_utf8_lossy(line)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis_protocol::resp2::encode::extend_encode;
    use redis_protocol::resp2::types::BytesFrame;

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
            (":\r\n", "RESP2"),
            (":9223372036854775808\r\n", "RESP2"),
            ("+O\rK\r\n", "the end of a line"),
            ("$1\r\nabc\r\n", "the end of a string"),
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
    fn frame(reply: Reply) -> BytesFrame {
        match reply {
            Reply::Null => BytesFrame::Null,
            Reply::Integer(number) => BytesFrame::Integer(number),
            Reply::Status(line) => BytesFrame::SimpleString(line),
            Reply::Bytes(bytes) => BytesFrame::BulkString(bytes),
            Reply::Array(items) => BytesFrame::Array(items.into_iter().map(frame).collect()),
            Reply::Error(error) => BytesFrame::Error(error.message.as_str().into()),
        }
    }

    fn frames() -> impl Strategy<Value = BytesFrame> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        let leaf = prop_oneof![
            Just(BytesFrame::Null),
            any::<i64>().prop_map(BytesFrame::Integer),
            "[ -~]{0,20}".prop_map(|line| BytesFrame::SimpleString(line.into())),
            "ERR [ -~]{0,20}".prop_map(|line| BytesFrame::Error(line.into())),
            bytes().prop_map(BytesFrame::BulkString),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| prop::collection::vec(inner, 0..8).prop_map(BytesFrame::Array))
    }

    proptest! {
        /// What a second implementation has encoded.
        #[test]
        fn answers_are_read_as_they_were_written(expected in prop::collection::vec(frames(), 1..8), piece in 1usize..64) {
            let mut wire = BytesMut::new();
            for frame in &expected {
                extend_encode(&mut wire, frame, false).unwrap();
            }
            let (mut decoder, mut found) = (Decoder::new(REPLY_BYTES_MAX), Vec::new());
            for bytes in wire.chunks(piece) {
                feed(&mut decoder, bytes);
                while let Some(reply) = decoder.next().unwrap() {
                    found.push(frame(reply));
                }
            }
            prop_assert_eq!(found, expected);
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"$*:+-019\r\n"[..])], 0..64)) {
            let mut decoder = Decoder::new(REPLY_BYTES_MAX);
            feed(&mut decoder, &bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}
