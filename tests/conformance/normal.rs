//! Answers and keys without what follows from a side's clock.

use heyday::key::ShardKeys;
use heyday::oracle::Content;
use heyday::position::CommitId;
use heyday::reduce::{Loaded, ShardState};
use heyday::signal::Signal;

/// The generations a side has given, in order, and the last time it told.
#[derive(Default)]
pub struct Normal {
    generations: Vec<u64>,
    now: u64,
}

impl Normal {
    /// Server time as it was last told, Unix milliseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Which one it is of those given so far.
    fn generation(&mut self, generation: u64) -> u64 {
        if generation == 0 {
            return 0;
        }
        let known = self.generations.iter().position(|known| *known == generation);
        let at = known.unwrap_or_else(|| {
            self.generations.push(generation);
            self.generations.len() - 1
        });
        at as u64 + 1
    }

    fn commit(&mut self, id: CommitId) -> CommitId {
        CommitId::new(self.generation(id.generation), id.sequence)
    }

    pub fn state(&mut self, state: &ShardState) -> ShardState {
        let generation = self.generation(state.generation);
        ShardState { generation, last: self.commit(state.last), ..*state }
    }

    pub fn loaded(&mut self, mut loaded: Loaded) -> Loaded {
        self.now = loaded.milliseconds;
        loaded.milliseconds = 0;
        loaded.generation = self.generation(loaded.generation);
        loaded.last = self.commit(loaded.last);
        for user in &mut loaded.users {
            user.versions.iter_mut().flatten().for_each(|value| *value = timeless(value));
            user.sample = sample(&user.sample);
            user.everyone.sort();
            user.all_versions.iter_mut().for_each(|(_, value)| *value = timeless(value));
            user.all_versions.sort();
        }
        loaded.producers.iter_mut().flatten().for_each(|value| *value = timeless(value));
        loaded.producers_sample = sample(&loaded.producers_sample);
        loaded
    }

    pub fn content(&mut self, keys: &ShardKeys, name: &str, content: Content) -> Content {
        let same = |key: &heyday::key::Key| key.as_str() == name;
        match content {
            Content::Hash(fields) if same(&keys.state) => {
                Content::Hash(fields.into_iter().map(|(name, value)| self.state_field(name, value)).collect())
            }
            Content::Hash(fields) if same(&keys.producers) || name.ends_with(":versions") => {
                Content::Hash(fields.into_iter().map(|(name, value)| (name, timeless(&value))).collect())
            }
            Content::Stream(entries) if same(&keys.dead_letters) => {
                Content::Stream(entries.into_iter().map(|(_, fields)| (String::new(), fields)).collect())
            }
            Content::Stream(entries) if same(&keys.log) => {
                let entry = |(id, fields): (String, heyday::change::Fields)| {
                    let mut signal = Signal::decode(&fields[0].1).expect("a signal");
                    assert_eq!((id, fields.len()), (signal.id.to_string(), 1), "a log entry's id is its commit's");
                    signal.at_milliseconds = 0;
                    signal.id = self.commit(signal.id);
                    signal.previous = self.commit(signal.previous);
                    (signal.id.to_string(), vec![("s".into(), signal.encode().into())])
                };
                Content::Stream(entries.into_iter().map(entry).collect())
            }
            other => other,
        }
    }

    fn state_field(&mut self, name: String, value: String) -> (String, String) {
        let value = match name.as_str() {
            "generation" => self.generation(value.parse().expect("a generation")).to_string(),
            "last" => self.commit(value.parse().expect("a commit id")).to_string(),
            "applied_at" | "owned_at" | "rolled_at" | "released_at" => String::new(),
            _ => value,
        };
        (name, value)
    }
}

/// Without the time behind a colon.
fn timeless(value: &str) -> String {
    match value.split_once(':') {
        Some((value, _)) => format!("{value}:"),
        None => value.to_owned(),
    }
}

/// Redis picks them at random: in order, and only where they are all there are.
fn sample(pairs: &[(String, String)]) -> Vec<(String, String)> {
    let mut sorted: Vec<_> = pairs.iter().map(|(name, value)| (name.clone(), timeless(value))).collect();
    sorted.sort();
    if sorted.len() < heyday::reduce::PRUNE_SAMPLE { sorted } else { Vec::new() }
}
