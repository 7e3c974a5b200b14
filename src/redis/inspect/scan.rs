//! Through one hash or sorted set in bounded steps.

use bytes::Bytes;

use super::Check;
use crate::redis::query::command;
use crate::redis::{Error, Pipeline, Reply};

/// Fields or members asked for at once.
pub(super) const PAGE: usize = 200;
/// How often a key is begun anew whose node changes under the cursor, which then means nothing.
const RESTARTS_MAX: u32 = 20;

/// Which command goes through a key.
#[derive(Clone, Copy)]
pub(super) enum By {
    Hash,
    Sorted,
}

/// Where a walk through a key has come to.
pub(super) struct Scan {
    by: By,
    key: String,
    slot: u16,
    cursor: Bytes,
    unrest: u64,
    restarts: u32,
    done: bool,
}

/// Names and values.
pub(super) type Page = Vec<(Bytes, Bytes)>;

impl Scan {
    pub fn new(by: By, key: impl ToString, slot: u16) -> Scan {
        let cursor = Bytes::from_static(b"0");
        Scan { by, key: key.to_string(), slot, cursor, unrest: 0, restarts: 0, done: false }
    }

    /// The next step's command, for who asks many things at once.
    pub fn step(&self) -> Pipeline {
        let name: &[u8] = match self.by {
            By::Hash => b"HSCAN",
            By::Sorted => b"ZSCAN",
        };
        command(&[name, self.key.as_bytes(), &self.cursor, b"COUNT", PAGE.to_string().as_bytes()])
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes the answer to [`Scan::step`]; `unrest` is what the source says after it. A key of another type has nothing.
    pub fn take(&mut self, reply: &Reply, unrest: u64) -> Result<Page, Error> {
        if self.cursor != "0" && self.unrest != unrest {
            self.restarts += 1;
            self.done = self.restarts > RESTARTS_MAX;
            self.cursor = Bytes::from_static(b"0");
            return Ok(Page::new());
        }
        self.unrest = unrest;
        let Some(reply) = super::readable(reply) else {
            self.done = true;
            return Ok(Page::new());
        };
        let [cursor, items] = reply.as_array()? else {
            return Err(Error::protocol("a cursor and a page", "another number"));
        };
        self.cursor = cursor.as_bytes()?.clone();
        self.done = self.cursor == "0";
        items.as_pairs()?.map(|(name, value)| Ok((name.as_bytes()?.clone(), value.as_bytes()?.clone()))).collect()
    }

    fn is_given_up(&self) -> bool {
        self.restarts > RESTARTS_MAX
    }
}

impl Check<'_> {
    /// The next page; none at the end.
    pub(super) async fn page(&mut self, scan: &mut Scan) -> Result<Option<Page>, Error> {
        if scan.is_done() {
            if scan.is_given_up() {
                self.findings.undecided(&scan.key, "its slot kept moving");
            }
            return Ok(None);
        }
        let reply = self.source.ask(&[(scan.slot, scan.step())]).await?.pop().unwrap_or(Reply::Null);
        scan.take(&reply, self.source.unrest()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(cursor: &'static str, names: &[&'static str]) -> Reply {
        let text = |text: &'static str| Reply::Bytes(Bytes::from_static(text.as_bytes()));
        Reply::Array(vec![text(cursor), Reply::Array(names.iter().map(|name| text(name)).collect())])
    }

    #[test]
    fn a_cursor_of_another_node_is_begun_anew_and_given_up_at_last() {
        let mut scan = Scan::new(By::Hash, "k", 0);
        assert_eq!(scan.take(&page("7", &["a", "1"]), 1).unwrap().len(), 1);
        assert!(scan.take(&page("9", &["b", "1"]), 2).unwrap().is_empty(), "its cursor was another's");
        assert_eq!(scan.cursor, "0");
        assert_eq!(scan.take(&page("0", &["a", "1", "b", "1"]), 2).unwrap().len(), 2);
        assert!(scan.is_done() && !scan.is_given_up());
        let mut scan = Scan::new(By::Hash, "k", 0);
        for unrest in 0..1000 {
            if scan.is_done() {
                break;
            }
            scan.take(&page("7", &["a", "1"]), unrest).unwrap();
        }
        assert!(scan.is_done() && scan.is_given_up());
    }
}
