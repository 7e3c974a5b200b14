//! What keys take, kind by kind.

use jiff::civil::Date;

use super::super::ground::{Field, Ground};
use super::super::workload::id;
use super::fill::sampled;
use crate::key::Key;
use crate::redis::{Pipeline, Reply};

/// Users whose keys are asked for.
const SAMPLE: u64 = 2000;
/// Questions that are sent together.
const ASKED_MAX: usize = 2000;

/// All keys of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kind {
    pub name: &'static str,
    pub keys: f64,
    pub bytes: f64,
}

impl Kind {
    /// What a sample's answers make of all users.
    fn of_sample(name: &'static str, answers: &[Option<u64>], all: u64) -> Kind {
        let share = all as f64 / answers.len().max(1) as f64;
        let found = answers.iter().flatten();
        let (keys, bytes) = (found.clone().count() as f64, found.sum::<u64>() as f64);
        Kind { name, keys: keys * share, bytes: bytes * share }
    }
}

/// Of this field: keys of users by a sample of them, keys of shards all.
pub async fn kinds(ground: &Ground, field: &Field, users: u64) -> anyhow::Result<Vec<Kind>> {
    let window = ground.config.rules().calendar.window(super::super::now_milliseconds());
    let days: Vec<Date> = window.days().collect();
    let mut found = Vec::new();
    for (name, key) in of_users() {
        let keys = sampled(users, SAMPLE).map(|number| {
            let user = id(number);
            let keys = field.hub.keys_of(&user);
            (keys.slot, key(keys, &user))
        });
        let answers = usage(field, &keys.collect::<Vec<_>>()).await?;
        found.push(Kind::of_sample(name, &answers, users));
    }
    let mut of_shards: Vec<(&'static str, Vec<(u16, Key)>)> = Vec::new();
    for shard in field.hub.layout().shards() {
        let keys = field.hub.shard_keys(shard);
        let rest = [&keys.lease, &keys.producers, &keys.outbox, &keys.fanout, &keys.dead_letters];
        let kinds = [
            ("users' index", vec![keys.users.clone()]),
            ("day keys", days.iter().map(|day| keys.day(*day)).collect()),
            ("log", vec![keys.log.clone()]),
            ("stream, empty", vec![keys.changes.clone()]),
            ("state", vec![keys.state.clone()]),
            ("lease and others", rest.into_iter().cloned().collect()),
        ];
        of_shards.resize(kinds.len(), Default::default());
        for ((name, all), (kind, names)) in of_shards.iter_mut().zip(kinds) {
            *name = kind;
            all.extend(names.into_iter().map(|name| (keys.slot, name)));
        }
    }
    for (name, keys) in of_shards {
        let answers = usage(field, &keys).await?;
        found.push(Kind::of_sample(name, &answers, keys.len() as u64));
    }
    found.retain(|kind| kind.keys > 0.0);
    Ok(found)
}

type OfUser = fn(&crate::key::ShardKeys, &crate::change::UserId) -> Key;

fn of_users() -> [(&'static str, OfUser); 3] {
    [
        ("birthdays", |keys, user| keys.birthdays(user)),
        ("profiles", |keys, user| keys.profile(user)),
        ("versions", |keys, user| keys.versions(user)),
    ]
}

/// Bytes of each key; none where it is not there.
pub async fn usage(field: &Field, keys: &[(u16, Key)]) -> anyhow::Result<Vec<Option<u64>>> {
    let mut found = Vec::new();
    for part in keys.chunks(ASKED_MAX) {
        let questions = part.iter().map(|(slot, key)| {
            let mut pipeline = Pipeline::new();
            pipeline.push(&["MEMORY", "USAGE", key.as_str(), "SAMPLES", "0"]);
            (*slot, pipeline)
        });
        let answers = field.ask(&questions.collect::<Vec<_>>()).await?;
        for answer in &answers {
            found.push(if answer.is_null() { None } else { Some(Reply::as_u64(answer)?) });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_all() {
        let kind = Kind::of_sample("some", &[Some(100), None, Some(300), Some(200)], 40);
        assert_eq!(kind, Kind { name: "some", keys: 30.0, bytes: 6000.0 });
        assert_eq!(Kind::of_sample("none", &[], 40).keys, 0.0);
    }
}
