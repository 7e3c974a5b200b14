//! Dead letters on their way back into the stream while the server refuses: each is in one place, and it is told why.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heyday::change::Fields;
use heyday::error::Disposition;
use heyday::local::{LocalCluster, Options};
use heyday::position::EntryId;
use heyday::redis::Pipes;
use heyday::redis::dead_letters::DeadLetters;
use heyday::shard::Shard;

use super::client::{Ground, begin_move, end_move, move_keys, other_primary};
use crate::support::cluster::{own_cluster, redis_cli};
use crate::support::eventually;

const SHARD: Shard = Shard(0);
/// A request is tried for three seconds, of which each try may take two.
const BOUNDED: Duration = Duration::from_secs(10);

struct Letters {
    cluster: LocalCluster,
    ground: Ground,
    api: DeadLetters,
    /// As they are to be appended.
    ready: Vec<(EntryId, Fields)>,
}

impl Letters {
    /// So many that can be replayed.
    async fn new(count: usize) -> Letters {
        let cluster = own_cluster(Options::default()).await;
        let ground = Ground::new(&cluster, 1).await;
        let keys = ground.hub.shard_keys(SHARD).clone();
        let user = ground.user(SHARD, 0);
        for number in 0..count {
            let friend = format!("f{number}");
            let fields =
                ["reason", "r", "kind", "refused", "entry", "1-0", "f.type", "remove", "f.user", user.as_str()];
            let words = [&["XADD", keys.dead_letters.as_str(), "*"], &fields[..], &["f.friend", &friend]].concat();
            ground.ask_one(SHARD, &words).await;
        }
        let topology = ground.hub.topology().clone();
        let pipes = Arc::new(Pipes::new(topology.options().clone()));
        let api = DeadLetters::new(topology, pipes, ground.hub.keys().clone(), ground.layout.clone());
        let survey = api.survey(SHARD).await.unwrap();
        assert_eq!(survey.count, count as u64);
        let all = api.page(SHARD, (EntryId::ZERO, survey.last.unwrap()), count).await.unwrap();
        let ready = all.into_iter().map(|letter| (letter.id, letter.fields)).collect();
        Letters { cluster, ground, api, ready }
    }

    /// How many there are, and how many entries in the stream.
    async fn count(&self) -> (u64, usize) {
        (self.api.survey(SHARD).await.unwrap().count, self.ground.appended(SHARD, "friend").await.len())
    }

    async fn replays_all_in_order(&self) {
        let replayed = self.api.replay(SHARD, &self.ready).await.unwrap();
        assert!(replayed.iter().all(Option::is_some) && replayed.is_sorted(), "{replayed:?}");
        let expected: Vec<String> = (0..self.ready.len()).map(|number| format!("f{number}")).collect();
        assert_eq!(self.ground.appended(SHARD, "friend").await, expected);
        // Whoever tries once more finds nothing.
        let again = self.api.replay(SHARD, &self.ready).await.unwrap();
        assert_eq!((again.iter().flatten().count(), self.count().await), (0, (0, expected.len())));
    }
}

#[tokio::test]
async fn full_memory_keeps_letters_where_they_are_cluster_own() {
    let letters = Letters::new(20).await;
    let owner = letters.ground.index_of(&letters.ground.owner(SHARD));
    redis_cli(&letters.cluster, owner, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let begun = Instant::now();
    let refused = letters.api.replay(SHARD, &letters.ready).await.unwrap_err();
    assert!(begun.elapsed() < BOUNDED, "it took {:?}", begun.elapsed());
    assert_eq!(refused.disposition(), Disposition::Full, "{refused}");
    assert_eq!(letters.count().await, (20, 0));
    // Memory that is there again within the time makes it a success.
    let relieved = async {
        eventually(BOUNDED, "the replay was refused", async || {
            let stats = redis_cli(&letters.cluster, owner, &["INFO", "errorstats"]).await;
            stats.contains("errorstat_OOM").then_some(())
        })
        .await;
        redis_cli(&letters.cluster, owner, &["CONFIG", "SET", "maxmemory", "0"]).await;
    };
    tokio::join!(letters.replays_all_in_order(), relieved);
}

#[tokio::test]
async fn a_slot_on_its_way_keeps_letters_where_they_are_cluster_own() {
    let letters = Letters::new(20).await;
    let ground = &letters.ground;
    let (source, target) = (ground.index_of(&ground.owner(SHARD)), other_primary(ground, SHARD));
    let keys = ground.hub.shard_keys(SHARD).clone();
    // The stream stays with the source while the letters are on the other side already.
    ground.ask_one(SHARD, &["XADD", keys.changes.as_str(), "*", "friend", "first"]).await;
    ground.ask_one(SHARD, &["XTRIM", keys.changes.as_str(), "MAXLEN", "0"]).await;
    begin_move(ground, SHARD, target).await;
    move_keys(ground, source, target, &[keys.dead_letters.as_str()]).await;
    let begun = Instant::now();
    let refused = letters.api.replay(SHARD, &letters.ready).await.unwrap_err();
    assert!(begun.elapsed() < BOUNDED, "it took {:?}", begun.elapsed());
    assert!(refused.to_string().contains("TRYAGAIN"), "{refused}");
    end_move(ground, SHARD, source, target).await;
    assert_eq!(letters.count().await, (20, 0));
    letters.replays_all_in_order().await;
}
