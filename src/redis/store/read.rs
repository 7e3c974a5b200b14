//! Entries of the stream as Redis gives them, and how many there are.

use std::collections::BTreeMap;

use crate::key::CONSUMER;
use crate::position::EntryId;
use crate::redis::{Error, Reply};
use crate::reduce::Entry;
use crate::store::{Backlog, CalendarNews};

/// The answer of XREADGROUP for one stream: nothing at all where the wait was in vain.
pub(super) fn entries(reply: Reply) -> Result<Vec<Entry>, Error> {
    if reply.is_null() {
        return Ok(Vec::new());
    }
    let Some(stream) = reply.checked()?.into_array()?.pop() else {
        return Ok(Vec::new());
    };
    following(stream.into_array()?.pop().ok_or_else(|| Error::protocol("a stream and its entries", "less"))?)
}

/// The answer of XRANGE.
pub(super) fn following(reply: Reply) -> Result<Vec<Entry>, Error> {
    reply.into_array()?.into_iter().map(entry).collect()
}

/// What an owner settles that finds entries pending: those that are applied already, to be acknowledged again, and then what
/// follows in the stream, with such as were deleted while they were pending in their places; nothing where none is pending.
pub(super) fn unsettled(pending: Vec<Entry>, following: Vec<Entry>, (applied, count): (EntryId, usize)) -> Vec<Entry> {
    if pending.is_empty() {
        return Vec::new();
    }
    // What lies behind the last one that was asked for is not known.
    let known_to = following.last().filter(|_| following.len() >= count).map(|entry| entry.id);
    let mut entries: BTreeMap<EntryId, Entry> = following.into_iter().map(|entry| (entry.id, entry)).collect();
    for entry in pending {
        let known = known_to.is_none_or(|last| entry.id <= last);
        let deleted = entry.fields.is_none() && known;
        if entry.id <= applied || deleted || entries.contains_key(&entry.id) {
            entries.insert(entry.id, entry);
        }
    }
    entries.into_values().take(count).collect()
}

/// A delivered entry as XPENDING lists it.
pub(super) struct Pending {
    pub id: EntryId,
    /// Whether somebody else than the owner holds it.
    pub stray: bool,
    deliveries: u64,
}

impl Pending {
    /// The entry as far as it is known without its fields.
    pub fn unread(self) -> Entry {
        Entry { id: self.id, fields: None, deliveries: self.deliveries.max(1) }
    }
}

pub(super) fn pending(reply: &Reply) -> Result<Vec<Pending>, Error> {
    let row = |row: &Reply| {
        let row = row.as_array()?;
        let [id, consumer, _, deliveries] = row else {
            return Err(Error::protocol("id, consumer, idle time and count", format!("{} values", row.len())));
        };
        let stray = consumer.as_bytes()? != CONSUMER.as_bytes();
        Ok(Pending { id: position(id)?, stray, deliveries: deliveries.as_u64()? })
    };
    reply.as_array()?.iter().map(row).collect()
}

/// Puts beside the entries how often each was delivered, by a list from before they were read; both are in stream order.
pub(super) fn count_deliveries(entries: &mut [Entry], pending: Vec<Pending>) {
    let mut rows = pending.into_iter().peekable();
    for entry in entries {
        while rows.next_if(|row| row.id < entry.id).is_some() {}
        // One that was acknowledged in between is not in the list.
        if let Some(row) = rows.next_if(|row| row.id == entry.id) {
            // This reading is one more, but where the entry itself is gone.
            entry.deliveries = (row.deliveries + u64::from(entry.fields.is_some())).max(1);
        }
    }
}

/// What `backlog.lua` answers; with it how many entries the stream has had up to the applied one, where none follows.
pub(super) fn backlog(reply: &Reply) -> Result<(Backlog, Option<u64>), Error> {
    let [unread, pending, oldest, dead_letters, outbox, now, asked, state, read] = reply.as_array()? else {
        return Err(Error::protocol("nine numbers", "another number of values"));
    };
    let read = if read.is_null() { None } else { Some(read.as_u64()?) };
    let backlog = Backlog {
        unread: unread.as_u64()?,
        pending: pending.as_u64()?,
        oldest_milliseconds: if oldest.is_null() { None } else { Some(oldest.as_u64()?) },
        dead_letters: dead_letters.as_u64()?,
        outbox: outbox.as_u64()?,
        state_lost: state.as_u64()? == 0,
        calendar: CalendarNews { milliseconds: now.as_u64()?, roll_asked: asked.as_u64()? > 0 },
    };
    Ok((backlog, read))
}

pub(super) fn position(reply: &Reply) -> Result<EntryId, Error> {
    let text = reply.to_str()?;
    text.parse().map_err(|_| Error::protocol("an entry id", format!("{text:?}")))
}

pub(super) fn entry(reply: Reply) -> Result<Entry, Error> {
    let [id, body]: [Reply; 2] = reply
        .into_array()?
        .try_into()
        .map_err(|items: Vec<_>| Error::protocol("an entry's id and fields", format!("{} values", items.len())))?;
    let id = position(&id)?;
    if body.is_null() {
        return Ok(Entry { id, fields: None, deliveries: 1 });
    }
    let mut words = body.into_array()?.into_iter();
    let mut fields = Vec::with_capacity(words.len() / 2);
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| Error::protocol("names and values", "a name without a value"))?;
        fields.push((name.into_bytes()?, value.into_bytes()?));
    }
    Ok(Entry { id, fields: Some(fields), deliveries: 1 })
}
