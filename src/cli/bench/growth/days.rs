//! Day keys with few and many members, in one piece of memory or as a skip list.

use jiff::civil::Date;

use super::super::ground::{Field, Ground};
use super::super::report::{Chapter, Figure, Table};
use super::super::servers::between;
use super::super::workload::id;
use super::super::{Plan, now_milliseconds};
use super::encodings::took;
use super::memory::usage;
use crate::key::{Key, day_member};
use crate::redis::Pipeline;

/// Up to so many members a sorted set is one piece.
const SETTING: &str = "zset-max-listpack-entries";
/// Members of a day key, and the bound.
const CASES: [(u64, u64); 7] = [(10, 128), (100, 128), (250, 128), (250, 256), (500, 128), (500, 512), (1000, 1024)];
const SMOKE_CASES: [(u64, u64); 2] = [(150, 128), (150, 256)];
const SHARDS: u32 = 64;

pub async fn measure(ground: &Ground, plan: &Plan, chapter: &mut Chapter) -> anyhow::Result<()> {
    let usual = ground.setting(SETTING).await?;
    let headings = ["members and the bound of one piece", "bytes/member", "ZADD of a new member us", "ZREM us"];
    let mut table = Table::new(&format!("Day keys with few and many members, by {SETTING}"), &headings);
    for &(members, bound) in if plan.smoke { &SMOKE_CASES[..] } else { &CASES[..] } {
        ground.configure(SETTING, &bound.to_string()).await?;
        let measured = one(ground, members).await;
        ground.configure(SETTING, &usual).await?;
        let form = if members < bound { "one piece" } else { "skip list" };
        let figures = measured?.map(|figure| Figure::of([figure]));
        table.row(format!("{members} members, up to {bound}: {form}"), figures);
    }
    chapter.tables.push(table);
    Ok(())
}

/// Bytes of a member; microseconds to add one, and to remove it.
async fn one(ground: &Ground, members: u64) -> anyhow::Result<[f64; 3]> {
    let field = ground.field(SHARDS).await?;
    let date = ground.config.rules().calendar.window(now_milliseconds()).first;
    let keys = keys(&field, date);
    let fill = keys.iter().map(|(slot, key)| (*slot, zadd(key, (0..members).map(|number| 2 * number))));
    field.ask(&fill.collect::<Vec<_>>()).await?;
    let bytes: u64 = usage(&field, &keys).await?.iter().flatten().sum();
    let before = ground.look().await?;
    for step in 0..20 {
        // Between all others, evenly.
        let number = step * members / 20 * 2 + 1;
        let more = keys.iter().map(|(slot, key)| (*slot, zadd(key, [number].into_iter())));
        field.ask(&more.collect::<Vec<_>>()).await?;
        let less = keys.iter().map(|(slot, key)| {
            let mut pipeline = Pipeline::new();
            pipeline.push(&["ZREM", key.as_str(), &member(number)]);
            (*slot, pipeline)
        });
        field.ask(&less.collect::<Vec<_>>()).await?;
    }
    let used = between(&before, &ground.look().await?);
    ground.clear(field).await?;
    Ok([bytes as f64 / (members * keys.len() as u64) as f64, took(&used, "zadd"), took(&used, "zrem")])
}

fn keys(field: &Field, date: Date) -> Vec<(u16, Key)> {
    let key = |shard| {
        let keys = field.hub.shard_keys(shard);
        (keys.slot, keys.day(date))
    };
    field.hub.layout().shards().map(key).collect()
}

/// All due at the same moment, as most of a day are.
fn zadd(key: &Key, numbers: impl Iterator<Item = u64>) -> Pipeline {
    const DUE: &str = "1790000000";
    let mut pipeline = Pipeline::new();
    let mut command = pipeline.command("ZADD");
    command.arg(key.as_bytes());
    for number in numbers {
        command.arg(DUE).arg(member(number));
    }
    drop(command);
    pipeline
}

fn member(number: u64) -> String {
    day_member(&id(number), id(u64::from(u32::MAX) + number).as_str())
}
