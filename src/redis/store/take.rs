//! What `take.lua` answers.

use std::fmt::Display;
use std::str::FromStr;

use jiff::civil::Date;

use crate::position::{CommitId, EntryId, Order};
use crate::redis::{Error, Reply};
use crate::reduce::{Counts, ShardState};
use crate::store::{Cause, Taken};

/// The lease's answer, with the number of entries that the stream has had up to the applied one where Redis can tell; or what
/// stands in a shard's keys that heyday does not write.
pub(super) fn taken(reply: Reply) -> Result<Result<(Taken, Option<u64>), String>, Error> {
    let answer = reply.checked()?.into_array()?;
    let (kind, values) = answer.split_first().ok_or_else(|| Error::protocol("an answer", "none"))?;
    match (kind.to_str()?, values) {
        ("mine", [cause, read, values @ ..]) => {
            let cause = cause_named(cause.to_str()?)?;
            let read = if read.is_null() { None } else { Some(read.as_u64()?) };
            Ok(state(values).map(|state| (Taken::Mine(state, cause), read)))
        }
        ("held", [holder]) => Ok(field("lease", holder).map(|holder| (Taken::Held(holder), None))),
        ("foreign", [what]) => Ok(Err(what.to_str()?.to_owned())),
        (other, _) => Err(Error::protocol("mine, held or foreign", other)),
    }
}

fn cause_named(name: &str) -> Result<Cause, Error> {
    let all = [Cause::First, Cause::Released, Cause::Expired, Cause::Same];
    all.into_iter().find(|cause| cause.name() == name).ok_or_else(|| Error::protocol("a cause", name))
}

fn state(values: &[Reply]) -> Result<ShardState, String> {
    let [generation, last, applied, entries, dead, skipped, order, first, open, rolled] = values else {
        return Err(format!("the state has {} values, expected 10", values.len()));
    };
    Ok(ShardState {
        generation: field("generation", generation)?,
        last: field_or("last", last, CommitId::ZERO)?,
        applied: field_or("applied", applied, EntryId::ZERO)?,
        order: field_or("order", order, Order::default())?,
        // What is no date is made anew by the next roll.
        first: date(first),
        open: date(open),
        rolled: date(rolled),
        rebuild: None,
        counts: Counts {
            entries: field_or("entries", entries, 0)?,
            dead: field_or("dead", dead, 0)?,
            skipped: field_or("skipped", skipped, 0)?,
        },
    })
}

fn date(reply: &Reply) -> Option<Date> {
    reply.as_bytes_or_null().ok()??;
    reply.to_str().ok()?.parse().ok()
}

fn field_or<T: FromStr<Err: Display>>(name: &str, reply: &Reply, absent: T) -> Result<T, String> {
    if reply.is_null() { Ok(absent) } else { field(name, reply) }
}

fn field<T: FromStr<Err: Display>>(name: &str, reply: &Reply) -> Result<T, String> {
    let text = reply.to_str().map_err(|error| format!("{name}: {error}"))?;
    text.parse().map_err(|error| format!("{name} {text:?}: {error}"))
}
