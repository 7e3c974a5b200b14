//! What must be true between shards, in a simulated life as on a real cluster.

use std::collections::BTreeMap;

use heyday::change::{Fields, UserId};
use heyday::key::Keys;
use heyday::oracle::{Content, Contents, Mirrored, Oracle};
use heyday::position::EntryId;
use heyday::reduce::Rules;
use heyday::shard::{Layout, Shard};

/// All there is to know of what was settled.
pub struct Evidence<'a> {
    pub rules: &'a Rules,
    pub keys: &'a Keys,
    pub layout: &'a Layout,
    pub contents: &'a Contents,
    /// What each shard has settled; no fields where an entry was trimmed before it was applied.
    pub entries: BTreeMap<Shard, Vec<(EntryId, Option<Fields>)>>,
    /// What all streams together have held.
    pub accepted: Vec<Fields>,
}

impl Evidence<'_> {
    /// The other side of every change to both sides came once, in order, to the other shard.
    pub fn relays(&self) -> Vec<String> {
        let mut oracle = Oracle::new(self.rules.clone(), self.keys.clone(), self.layout.clone());
        let mut found: BTreeMap<Shard, BTreeMap<EntryId, Mirrored>> = BTreeMap::new();
        for (shard, entries) in &self.entries {
            for (id, fields) in entries {
                oracle.entry(*shard, *id, fields.as_ref());
            }
        }
        for (source, place, mirrored) in self.accepted.iter().filter_map(Mirrored::of) {
            found.entry(source).or_default().insert(place, mirrored);
        }
        let mut wrong = Vec::new();
        for shard in self.layout.shards() {
            let found: Vec<Mirrored> = found.remove(&shard).unwrap_or_default().into_values().collect();
            let expected = oracle.told(shard);
            if found != expected {
                let at = found.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
                let (found, expected) = (found.get(at), expected.get(at));
                wrong.push(format!("shard {shard}: told others {found:?} as number {at}, expected {expected:?}"));
            }
        }
        wrong
    }

    /// Users who are friends of each other only by changes to both sides see each other, each with the other's own date.
    pub fn friendships(&self, users: &[UserId]) -> Vec<String> {
        let keys = |user: &UserId| self.keys.shard(self.layout, self.layout.shard_of(user));
        let mut wrong = Vec::new();
        for user in users {
            let friends = self.hash(keys(user).birthdays(user).as_str());
            for friend in users {
                let date = friends.get(friend.as_str());
                let back = self.hash(keys(friend).birthdays(friend).as_str());
                if date.is_some() != back.contains_key(user.as_str()) {
                    wrong.push(format!("{user} and {friend} are friends on one side only"));
                }
                let own = self.hash(keys(friend).profile(friend).as_str()).remove("birthday").unwrap_or_default();
                if date.is_some_and(|date| *date != own) {
                    wrong.push(format!("{user} knows {friend} by {date:?}, {friend}'s own date is {own:?}"));
                }
            }
        }
        wrong
    }

    fn hash(&self, name: &str) -> BTreeMap<String, String> {
        match self.contents.get(name) {
            Some(Content::Hash(fields)) => fields.clone(),
            _ => BTreeMap::new(),
        }
    }
}
