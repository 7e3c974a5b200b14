//! Keys and values in memory, with the types and the expiry of Redis.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::stream::Stream;
use crate::key::Key;
use crate::oracle::{Content, Contents};
use crate::reduce::Op;

pub(super) type Hash = BTreeMap<String, String>;
pub(super) type Sorted = BTreeMap<String, i64>;

/// What Redis answers to a command that does not fit the key's type.
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A shard's keys.
#[derive(Debug, Default)]
pub(super) struct Keyspace {
    keys: BTreeMap<Key, Stored>,
    /// For each mark, what was there of the keys that were written since, up to the next mark; none where there was none.
    earlier: VecDeque<BTreeMap<Key, Option<Stored>>>,
    /// Unix milliseconds; decides what has expired.
    pub now: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    value: Arc<Value>,
    expires_at: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Hash(Hash),
    Sorted(Sorted),
    Stream(Stream),
}

/// A type of value that a key may hold.
pub(super) trait Kind: Default + Clone {
    fn wrap(self) -> Value;
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl Kind for $type {
            fn wrap(self) -> Value {
                Value::$variant(self)
            }
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$variant(inner) = value { Some(inner) } else { None }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(inner) = value { Some(inner) } else { None }
            }
        }
    };
}

kind!(String, Text);
kind!(Hash, Hash);
kind!(Sorted, Sorted);
kind!(Stream, Stream);

impl Keyspace {
    /// The value where there is one of this type.
    pub fn get<K: Kind>(&self, key: &Key) -> Result<Option<&K>, String> {
        let live = self.keys.get(key).filter(|stored| stored.expires_at.is_none_or(|at| at > self.now));
        live.map(|stored| K::of(&stored.value).ok_or_else(|| WRONG_TYPE.to_owned())).transpose()
    }

    /// The value to be written, made where there is none.
    pub fn get_mut<K: Kind>(&mut self, key: &Key) -> Result<&mut K, String> {
        self.expire(key);
        self.note(key);
        let made = || Stored { value: Arc::new(K::default().wrap()), expires_at: None };
        let stored = self.keys.entry(key.clone()).or_insert_with(made);
        K::of_mut(Arc::make_mut(&mut stored.value)).ok_or_else(|| WRONG_TYPE.to_owned())
    }

    /// The value to be written, where there is one.
    pub fn find_mut<K: Kind>(&mut self, key: &Key) -> Result<Option<&mut K>, String> {
        self.expire(key);
        self.note(key);
        let stored = self.keys.get_mut(key);
        stored
            .map(|stored| K::of_mut(Arc::make_mut(&mut stored.value)).ok_or_else(|| WRONG_TYPE.to_owned()))
            .transpose()
    }

    pub fn exists(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|stored| stored.expires_at.is_none_or(|at| at > self.now))
    }

    /// When the key expires, Unix milliseconds; none where it does not or is not there.
    pub fn expires_at(&self, key: &Key) -> Option<u64> {
        self.keys.get(key).filter(|_| self.exists(key)).and_then(|stored| stored.expires_at)
    }

    /// SET … PX, whatever was there.
    pub fn set(&mut self, key: &Key, text: &str, expires_at: Option<u64>) {
        self.note(key);
        let value = Arc::new(Value::Text(text.to_owned()));
        self.keys.insert(key.clone(), Stored { value, expires_at });
    }

    pub fn delete(&mut self, key: &Key) {
        self.note(key);
        self.keys.remove(key);
    }

    pub fn expire_at(&mut self, key: &Key, at: Option<u64>) {
        self.expire(key);
        self.note(key);
        if let Some(stored) = self.keys.get_mut(key) {
            stored.expires_at = at;
        }
        self.expire(key);
    }

    /// Executes one command of a commit; the error is the line that Redis would answer.
    pub fn execute(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::HashSet { key, fields } => self.get_mut::<Hash>(key)?.extend(fields.iter().cloned()),
            Op::HashDelete { key, fields } => {
                if let Some(hash) = self.find_mut::<Hash>(key)? {
                    hash.retain(|field, _| !fields.contains(field));
                }
                self.drop_if(key, Hash::is_empty);
            }
            Op::SortedAdd { key, members } => {
                let members = members.iter().map(|(score, member)| (member.clone(), *score));
                self.get_mut::<Sorted>(key)?.extend(members);
            }
            Op::SortedRemove { key, members } => {
                if let Some(sorted) = self.find_mut::<Sorted>(key)? {
                    sorted.retain(|member, _| !members.contains(member));
                }
                self.drop_if(key, Sorted::is_empty);
            }
            Op::ExpireAt { key, at_seconds } => {
                self.expire_at(key, Some(u64::try_from(*at_seconds).unwrap_or(0).saturating_mul(1000)));
            }
            Op::ExpireAfter { key, after } => self.expire_at(key, Some(self.now + after.as_millis() as u64)),
            Op::Persist { key } => self.expire_at(key, None),
            Op::Remember { key, ttl } => self.set(key, "", Some(self.now + ttl.as_millis() as u64)),
            Op::Rename { key, to } => {
                self.expire(key);
                let stored = self.keys.get(key).cloned().ok_or_else(|| "ERR no such key".to_owned())?;
                self.delete(key);
                self.note(to);
                self.keys.insert(to.clone(), stored);
            }
            Op::Delete { keys } => keys.iter().for_each(|key| self.delete(key)),
            Op::Enqueue { key, id, fields } => self.get_mut::<Stream>(key)?.append_at(*id, fields.clone())?,
            Op::StreamDelete { key, ids } => {
                if let Some(stream) = self.find_mut::<Stream>(key)? {
                    ids.iter().for_each(|id| drop(stream.entries.remove(id)));
                }
            }
            Op::Append { key, length_max, fields } => {
                let now = self.now;
                let stream = self.get_mut::<Stream>(key)?;
                stream.append(now, fields.clone());
                stream.trim_length(*length_max);
            }
        }
        Ok(())
    }

    pub fn clear(&mut self) {
        let keys: Vec<Key> = self.keys.keys().cloned().collect();
        keys.iter().for_each(|key| self.delete(key));
    }

    /// Marks a moment to go back to; of older ones so many are kept in all.
    pub fn mark(&mut self, marks_max: usize) {
        self.earlier.push_back(BTreeMap::new());
        while self.earlier.len() > marks_max {
            self.earlier.pop_front();
        }
    }

    /// Nothing goes back behind this moment any more.
    pub fn keep(&mut self) {
        self.earlier.clear();
    }

    /// Goes back by so many marks, as far as there are any; answers by how many.
    pub fn go_back(&mut self, marks: usize) -> usize {
        let marks = marks.min(self.earlier.len());
        for (key, stored) in self.earlier.drain(self.earlier.len() - marks..).rev().flatten() {
            match stored {
                Some(stored) => drop(self.keys.insert(key, stored)),
                None => drop(self.keys.remove(&key)),
            }
        }
        marks
    }

    /// Before a key is written.
    fn note(&mut self, key: &Key) {
        if let Some(since) = self.earlier.back_mut()
            && !since.contains_key(key)
        {
            since.insert(key.clone(), self.keys.get(key).cloned());
        }
    }

    /// Every live key and what it holds.
    pub fn contents(&self) -> Contents {
        let live = self.keys.iter().filter(|(_, stored)| stored.expires_at.is_none_or(|at| at > self.now));
        live.map(|(key, stored)| (key.to_string(), content(&stored.value))).collect()
    }

    /// When keys expire, Unix milliseconds; those that do not are absent.
    pub fn expiries(&self) -> BTreeMap<String, u64> {
        let live = self.keys.iter().filter(|(key, _)| self.exists(key));
        live.filter_map(|(key, stored)| Some((key.to_string(), stored.expires_at?))).collect()
    }

    fn expire(&mut self, key: &Key) {
        if self.keys.contains_key(key) && !self.exists(key) {
            self.delete(key);
        }
    }

    fn drop_if<K: Kind>(&mut self, key: &Key, empty: fn(&K) -> bool) {
        if self.get::<K>(key).is_ok_and(|value| value.is_some_and(empty)) {
            self.delete(key);
        }
    }
}

fn content(value: &Value) -> Content {
    match value {
        Value::Text(text) => Content::Text(text.clone()),
        Value::Hash(fields) => Content::Hash(fields.clone()),
        Value::Sorted(members) => Content::Sorted(members.clone()),
        Value::Stream(stream) => {
            Content::Stream(stream.entries.iter().map(|(id, fields)| (id.to_string(), fields.clone())).collect())
        }
    }
}
