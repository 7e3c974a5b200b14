//! What goes from shard to shard waits for the replicas, where that is asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use heyday::change::UserId;
use heyday::client::writer;
use heyday::local::Options;
use heyday::shard::Shard;

use crate::support::cluster::own_cluster;
use crate::support::eventually;
use crate::support::scene::{Scene, Snapshot};

const WAIT: Duration = Duration::from_secs(60);
/// Of three primaries and three replicas: the replica of the first one.
const REPLICA: usize = 3;

async fn append(scene: &Scene, text: &str) {
    let fields: Vec<(&str, &str)> = text.split(' ').filter_map(|pair| pair.split_once('=')).collect();
    scene.hub.writer(writer::Options::default()).append_fields(&fields).await.expect("a good change");
}

/// Somebody of this shard.
fn someone(scene: &Scene, shard: Shard) -> UserId {
    let mut names = (0..).map(|number| format!("u{number}").parse().expect("a good id"));
    names.find(|user| scene.layout.shard_of(user) == shard).expect("every shard has users")
}

#[tokio::test]
async fn nothing_is_told_to_another_shard_before_a_replica_has_it() {
    let cluster = own_cluster(Options::default()).await;
    let scene = Scene::begin_with(&cluster, "", 4, &[("HEYDAY_WORKER__WAIT_REPLICAS", "1")]).await;
    // Slices of slots: the first shard is on the first node, the last one on the last.
    let (source, target) = (Shard(0), Shard(3));
    let (user, friend) = (someone(&scene, source), someone(&scene, target));
    let mut workers = scene.workers();
    workers.start();
    append(&scene, &format!("type=birthday user={user} birthday=1990-05-01")).await;
    scene.settle(WAIT).await;

    cluster.stop_process(REPLICA).expect("a replica that stands still");
    append(&scene, &format!("type=add user={user} friend={friend} mutual=1")).await;
    // The shard itself goes on meanwhile: a change behind that one is applied.
    append(&scene, &format!("type=profile user={user} profile.role=later")).await;
    let keys = scene.shard_keys(source);
    let applied = async || {
        let role = scene.command(source, &["HGET", keys.profile(&user).as_str(), "role"]).await;
        role.as_bytes().is_ok_and(|role| role == "later").then_some(())
    };
    eventually(WAIT, "the own side was applied", applied).await;
    let length = async |shard, name: &str| scene.command(shard, &["XLEN", name]).await.as_u64().expect("a length");
    assert_eq!(length(source, keys.outbox.as_str()).await, 1, "what is for the other shard waits");
    assert_eq!(length(target, scene.shard_keys(target).changes.as_str()).await, 0, "the other shard has heard of it");

    cluster.cont(REPLICA).expect("a replica that goes on");
    scene.settle(WAIT).await;
    let snapshot: Snapshot = scene.prove().await;
    let told = snapshot.hash(scene.shard_keys(target).birthdays(&friend).as_str());
    assert_eq!(told, BTreeMap::from([(user.to_string(), "1990-05-01".to_owned())]));
}
