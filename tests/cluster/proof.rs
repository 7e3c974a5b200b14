//! The proof that other tests rely on finds each thing that can be wrong.

use std::time::Duration;

use heyday::shard::Shard;

use crate::support::cluster::{foreign_prefix, shared_cluster};
use crate::support::scene::{Earlier, Load, Plan, Scene, Snapshot};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_proof_finds_whatever_is_spoilt() {
    // Several commits, so that the log has one in its middle.
    let settings = [("HEYDAY_WORKER__BATCH_CHANGES_MAX", "50")];
    let scene = Scene::begin_with(&shared_cluster().await, &foreign_prefix(), 1, &settings).await;
    let mut workers = scene.workers();
    let worker = workers.start();
    let load =
        Load::start(&scene, Plan { seed: 5, writers: 1, users: 20, changes: 400, pace: None, mutual_percent: 0 });
    let mut written = load.finish().await;
    scene.settle(WAIT).await;
    workers.stop(worker).await;
    let whole = scene.prove().await;
    scene.prove_written(&whole, &written, true);

    let keys = scene.shard_keys(Shard(0));
    let prefix = scene.keys.prefix();
    let user = |part: &str| {
        let mut names = whole.contents.keys();
        let name = names.find(|name| name.starts_with(&format!("{prefix}user:")) && name.ends_with(part));
        name.expect("a view").clone()
    };
    let (birthdays, profile) = (user(":birthdays"), user(":profile"));
    let day =
        whole.contents.keys().find(|name| name.starts_with(&format!("{prefix}birthdays:"))).expect("a day").clone();
    let stranger = format!("{prefix}friends:{{{}}}", keys.tag());
    let commit = whole.stream(keys.log.as_str())[1].0.clone();
    let letter = whole.stream(keys.dead_letters.as_str())[0].0.clone();
    let mistyped = keys.dedup("mistyped").to_string();
    let spoilt: [(&[&str], &str); 11] = [
        (&["HSET", &birthdays, "nobody", "1990-05-01"], &birthdays),
        (&["HSET", &profile, "version", "1000000"], &profile),
        (&["ZADD", &day, "1", "nobody:nothing"], &day),
        (&["PERSIST", &day], &day),
        (&["HINCRBY", keys.state.as_str(), "entries", "1"], keys.state.as_str()),
        (&["XDEL", keys.dead_letters.as_str(), &letter], keys.dead_letters.as_str()),
        (&["ZADD", keys.users.as_str(), "0", "nobody"], keys.users.as_str()),
        (&["SET", &stranger, "1"], "no row of the registry"),
        (&["HSET", &mistyped, "a", "1"], "is a HASH, its row of the registry says STRING"),
        (&["XDEL", keys.log.as_str(), &commit], keys.log.as_str()),
        (&["XGROUP", "CREATECONSUMER", keys.changes.as_str(), "heyday", "stranger"], "stranger"),
    ];
    // One after the other, and each is seen beside all those before it.
    for (number, (command, named)) in spoilt.into_iter().enumerate() {
        scene.command(Shard(0), command).await;
        let found = scene.judge(&Snapshot::take(&scene).await, &Earlier::new()).await;
        let kinds = found.iter().filter(|line| line.contains(named)).count();
        assert!(kinds > 0, "{command:?} was not found, only {found:?}");
        assert!(found.len() > number, "{command:?} hid something: {found:?}");
    }

    // What writers were told is compared too.
    assert_eq!(scene.misled(&whole, &written, true), Vec::<String>::new());
    let (trace, appended, fields) = written.acknowledged.pop().expect("an append");
    written.acknowledged.push((format!("{trace}x"), appended, fields));
    assert_eq!(scene.misled(&whole, &written, true).len(), 1, "an acknowledged append that is not in the stream");
    written.refused.insert(trace, "an invented reason".to_owned());
    assert_eq!(scene.misled(&whole, &written, false).len(), 1, "a refused append that is in the stream");
    written.malformed.values_mut().next().expect("one that is no change").push('!');
    assert_eq!(scene.misled(&whole, &written, false).len(), 2, "a dead letter with another reason");
}
