//! What a shard's link sends and how it reads the answers, without the link: for benchmarks.

use super::{commit, encode, load, read};
use crate::key::ShardKeys;
use crate::redis::decode::{Decoder, REPLY_BYTES_MAX};
use crate::redis::{Error, Pipeline, Reply};
use crate::reduce::{Commit, Entry, Loaded, Plan};
use crate::store::Committed;

/// Every whole answer in `bytes`, as a link takes them in.
pub fn replies(bytes: &[u8]) -> Result<Vec<Reply>, Error> {
    let mut decoder = Decoder::new(REPLY_BYTES_MAX);
    decoder.space().extend_from_slice(bytes);
    std::iter::from_fn(|| decoder.next().transpose()).collect()
}

/// The answer to a read of new entries.
pub fn entries(bytes: &[u8]) -> Result<Vec<Entry>, Error> {
    read::entries(replies(bytes)?.pop().unwrap_or(Reply::Null))
}

pub fn ask_load(pipeline: &mut Pipeline, keys: &ShardKeys, plan: &Plan) {
    encode::load(pipeline, keys, plan);
}

pub fn loaded(keys: &ShardKeys, plan: &Plan, bytes: &[u8]) -> Result<Loaded, Error> {
    load::loaded(keys, plan, replies(bytes)?).map_err(|failure| failure.error)
}

pub fn ask_commit(pipeline: &mut Pipeline, keys: &ShardKeys, commit: &Commit) {
    encode::commit(pipeline, keys, commit, Some(0));
}

pub fn committed(keys: &ShardKeys, commit: &Commit, bytes: &[u8]) -> Result<Committed, Error> {
    commit::outcome(keys, commit, replies(bytes)?).map_err(|refusal| refusal.error)
}
