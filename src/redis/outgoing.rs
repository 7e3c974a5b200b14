//! Bytes on their way to a node whose answers are read at the same time.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// A buffer larger than this is not kept for the next use.
const BUFFER_BYTES_KEPT_MAX: usize = 256 * 1024;

/// Bytes being written, and where in the whole stream of bytes they stand.
#[derive(Debug, Default)]
pub struct Outgoing {
    buffer: Vec<u8>,
    written: usize,
    /// Bytes of all earlier buffers.
    before: u64,
    /// Whether bytes may still be held back by the TLS layer.
    unflushed: bool,
}

impl Outgoing {
    pub fn is_done(&self) -> bool {
        self.written == self.buffer.len() && !self.unflushed
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.written
    }

    /// How many bytes were handed to the system since the connection began.
    pub fn sent(&self) -> u64 {
        self.before + self.written as u64
    }

    /// Adds bytes, and says where in the stream they begin.
    pub fn add(&mut self, bytes: &[u8]) -> u64 {
        if self.written == self.buffer.len() {
            self.before += self.written as u64;
            self.written = 0;
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER_BYTES_KEPT_MAX);
        }
        let start = self.before + self.buffer.len() as u64;
        self.buffer.extend_from_slice(bytes);
        start
    }

    /// Writes on. Nothing is lost or repeated where this future is dropped before it is ready.
    pub async fn push(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.waiting() > 0 {
            let written = writer.write(&self.buffer[self.written..]).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += written;
            self.unflushed = true;
        } else {
            writer.flush().await?;
            self.unflushed = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, BufWriter};

    use super::*;

    #[tokio::test]
    async fn what_a_layer_below_holds_back_is_pushed_out() {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut layer = BufWriter::new(near);
        let mut outgoing = Outgoing::default();
        outgoing.add(b"hello");
        while !outgoing.is_done() {
            outgoing.push(&mut layer).await.unwrap();
        }
        drop(layer);
        let mut arrived = String::new();
        far.read_to_string(&mut arrived).await.unwrap();
        assert_eq!(arrived, "hello");
    }

    #[test]
    fn what_was_added_later_is_unsent_until_its_first_byte_goes() {
        let mut outgoing = Outgoing::default();
        let first = outgoing.add(b"12345");
        let second = outgoing.add(b"67");
        outgoing.written = 5;
        assert!(outgoing.sent() > first && outgoing.sent() <= second);
        outgoing.written = 6;
        assert!(outgoing.sent() > second);
        outgoing.written = 7;
        let third = outgoing.add(b"89");
        assert_eq!((third, outgoing.waiting(), outgoing.sent()), (7, 2, 7));
    }
}
