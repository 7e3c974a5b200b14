//! A shard's slot moved to another primary under load, and back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use heyday::shard::Shard;

use super::schedule::{Choice, PAIRS};
use super::stage::Stage;
use super::strike::{Done, Result};
use crate::support::lasts;

/// Keys moved at once.
const KEYS_MOVED_MAX: &str = "100";
/// How long a slot may be on its way, full servers included.
const MOVED_WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long to look for a shard while nobody answers.
const FOUND_WAIT: Duration = Duration::from_secs(20);

type Moved<T> = std::result::Result<T, String>;

pub async fn there_and_back(
    stage: &Stage,
    (choice, further): (Choice, usize),
    atomically: bool,
    time: Duration,
) -> Result {
    let shard = chosen(stage, choice).await?;
    // Valkey holds all writes of a node up for the moment in which a slot is handed over.
    let mut touched: BTreeSet<Shard> = [shard].into();
    let slot = stage.scene.shard_keys(shard).slot;
    let first = {
        let _pairs = stage.all_pairs().await;
        let home = pair_of(stage, shard).await?;
        if atomically {
            touched.extend(stage.shards_of_pair(home).await);
            touched.extend(stage.shards_of_pair((home + further) % PAIRS).await);
        }
        move_to(stage, slot, (home, (home + further) % PAIRS), atomically).await?
    };
    lasts(time).await;
    let _pairs = stage.all_pairs().await;
    let away = pair_of(stage, shard).await?;
    let second = move_to(stage, slot, (away, (away + PAIRS - further) % PAIRS), atomically).await?;
    Ok(Done::new(format!("shard {shard} moved: {first}; {second}"), touched))
}

async fn chosen(stage: &Stage, choice: Choice) -> Moved<Shard> {
    let started = Instant::now();
    loop {
        let asked = stage.scene.ask_shards(|keys, pipeline| match choice {
            Choice::Busiest => pipeline.push(&["XLEN", keys.changes.as_str()]),
            Choice::Fullest => pipeline.push(&["CLUSTER", "COUNTKEYSINSLOT", &keys.slot.to_string()]),
        });
        if let Ok(Some(answers)) = tokio::time::timeout(FOUND_WAIT, asked).await {
            let counts = answers.iter().map(|(shard, replies)| (replies[0].as_u64().unwrap_or(0), *shard));
            return Ok(counts.max().expect("a shard").1);
        }
        if started.elapsed() > FOUND_WAIT {
            return Err(format!("within {FOUND_WAIT:?} not all shards told how large they are"));
        }
        lasts(LOOK_EVERY).await;
    }
}

async fn pair_of(stage: &Stage, shard: Shard) -> Moved<usize> {
    let started = Instant::now();
    loop {
        let by_node = stage.shards_by_node().await;
        if let Some((node, _)) = by_node.iter().find(|(_, shards)| shards.contains(&shard)) {
            return Ok(node % PAIRS);
        }
        if started.elapsed() > FOUND_WAIT {
            return Err(format!("within {FOUND_WAIT:?} nobody owned shard {shard}"));
        }
        lasts(LOOK_EVERY).await;
    }
}

async fn move_to(stage: &Stage, slot: u16, (from, to): (usize, usize), atomically: bool) -> Moved<String> {
    let ((from, _), (to, _)) = (stage.whole(from).await?, stage.whole(to).await?);
    let started = Instant::now();
    if atomically {
        atomically_moved(stage, slot, from, to).await?;
    } else {
        moved(stage, slot, from, to).await?;
    }
    Ok(format!("from node {from} to {to} in {:?}", started.elapsed()))
}

async fn moved(stage: &Stage, slot: u16, from: usize, to: usize) -> Moved<()> {
    let slot = slot.to_string();
    let from_id = stage.order(from, &["CLUSTER", "MYID"]).await?;
    let to_id = stage.order(to, &["CLUSTER", "MYID"]).await?;
    stage.order(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await?;
    stage.order(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await?;
    let (host, port) = stage.nodes.nodes()[to].clone();
    let port = port.to_string();
    let started = Instant::now();
    loop {
        let keys = stage.order(from, &["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_MOVED_MAX]).await?;
        let keys: Vec<&str> = keys.lines().collect();
        if keys.is_empty() {
            break;
        }
        let command = ["MIGRATE", &host, &port, "", "0", "5000", "REPLACE", "KEYS"];
        if let Err(error) = stage.attempt(from, &[&command[..], &keys].concat()).await {
            if started.elapsed() > MOVED_WAIT {
                return Err(error);
            }
            lasts(LOOK_EVERY).await;
        }
    }
    // The new owner first, so that at no moment nobody owns it.
    stage.order(to, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await?;
    stage.order(from, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await?;
    Ok(())
}

/// As Valkey 9 moves a slot: by one command, in the background. An attempt that failed is made again.
async fn atomically_moved(stage: &Stage, slot: u16, from: usize, to: usize) -> Moved<()> {
    let to_id = stage.order(to, &["CLUSTER", "MYID"]).await?;
    let slot_text = slot.to_string();
    let started = Instant::now();
    let mut said = String::new();
    loop {
        let owned = stage.attempt(to, &["CLUSTER", "NODES"]).await.unwrap_or_default();
        let mine = owned.lines().find(|line| line.contains("myself")).unwrap_or_default();
        if owns(mine, slot) {
            return Ok(());
        }
        if started.elapsed() > MOVED_WAIT {
            return Err(format!("slot {slot} was not moved within {MOVED_WAIT:?}: {said}"));
        }
        // Refused while one is under way, which is as good.
        if let Err(error) = stage
            .attempt(from, &["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot_text, &slot_text, "NODE", &to_id])
            .await
        {
            said = error;
        }
        lasts(LOOK_EVERY).await;
    }
}

/// Whether a line of CLUSTER NODES lists a slot.
fn owns(line: &str, slot: u16) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}

#[test]
fn slots_are_read_from_a_nodes_line() {
    let line = "e7d1 127.0.0.1:17100@27100 myself,master - 0 0 1 connected 0-5459 5461 [93->-292f]";
    for (slot, owned) in [(0, true), (5459, true), (5460, false), (5461, true), (93, true), (6000, false)] {
        assert_eq!(owns(line, slot), owned, "{slot}");
    }
}
