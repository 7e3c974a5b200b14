//! What is loaded for a batch, and a commit, as commands.

use std::time::Duration;

use crate::change::{UserId, ZONE_FIELD};
use crate::key::{CONSUMER, GROUP, Key, ShardKeys};
use crate::position::{EntryId, Order};
use crate::redis::{Command, Pipeline};
use crate::reduce::{Commit, Op, PRUNE_SAMPLE, Plan, REBUILD_FIELD, UserPlan};

/// The value of a remembered event id: it being there says all.
const SEEN: &str = "";

/// Sends the signal. It is a script because an EXEC with a bare SPUBLISH in it is executed by newer servers without a look
/// at which of its keys a migrating slot has already given away (Redis from 8.0; Valkey from 8.0, and Valkey 9 does not
/// look when commands are queued either), and so would write them a second time. Short, as it travels with every commit.
const PUBLISH: &str = "return redis.call('SPUBLISH',ARGV[1],ARGV[2])";

/// Reads delivered entries anew, and what follows `applied`.
pub(super) fn read_pending(pipeline: &mut Pipeline, keys: &ShardKeys, (applied, count): (EntryId, usize)) {
    let mut command = read(pipeline, count);
    command.arg("STREAMS").arg(keys.changes.as_bytes()).arg("0");
    drop(command);
    following(pipeline, keys, applied, count);
}

/// Waits for an entry that was never delivered, then reads what follows `applied`. Only the first of a batch is delivered by
/// the group, and so is pending until the batch is settled: a group notes, replicates and acknowledges each entry for itself,
/// which costs more than all else that is done with it.
pub(super) fn read_new(pipeline: &mut Pipeline, keys: &ShardKeys, block: Duration, (applied, count): (EntryId, usize)) {
    let mut command = read(pipeline, 1);
    // To Redis, zero means for ever.
    if !block.is_zero() {
        command.arg("BLOCK").arg_u64(milliseconds(&block).max(1));
    }
    command.arg("STREAMS").arg(keys.changes.as_bytes()).arg(">");
    drop(command);
    following(pipeline, keys, applied, count);
}

fn following(pipeline: &mut Pipeline, keys: &ShardKeys, applied: EntryId, count: usize) {
    let mut command = pipeline.command("XRANGE");
    command.arg(keys.changes.as_bytes()).arg_parts(&["(", &applied.to_string()]);
    command.arg("+").arg("COUNT").arg_u64(count as u64);
}

fn read(pipeline: &mut Pipeline, count: usize) -> Command<'_> {
    let mut command = pipeline.command("XREADGROUP");
    command.arg("GROUP").arg(GROUP).arg(CONSUMER).arg("COUNT").arg_u64(count as u64);
    command
}

/// Lists delivered entries without reading them.
pub(super) fn pending(pipeline: &mut Pipeline, keys: &ShardKeys, count: usize) {
    let mut command = pipeline.command("XPENDING");
    command.arg(keys.changes.as_bytes()).arg(GROUP).arg("-").arg("+").arg_u64(count as u64);
}

/// Makes entries the owner's that somebody read from the workers' group under another name.
pub(super) fn claim(pipeline: &mut Pipeline, keys: &ShardKeys, strays: &[EntryId]) {
    let mut command = pipeline.command("XCLAIM");
    command.arg(keys.changes.as_bytes()).arg(GROUP).arg(CONSUMER).arg("0");
    for id in strays {
        command.arg_position(id.milliseconds, id.sequence);
    }
    command.arg("JUSTID");
}

/// Watches the state, then reads everything that the plan names, in the order in which [`super::load`] takes the answers.
pub(super) fn load(pipeline: &mut Pipeline, keys: &ShardKeys, plan: &Plan) {
    pipeline.command("WATCH").arg(keys.state.as_bytes());
    pipeline.command("HMGET").arg(keys.state.as_bytes()).arg("generation").arg("last").arg(REBUILD_FIELD);
    pipeline.command("XPENDING").arg(keys.changes.as_bytes()).arg(GROUP);
    pipeline.command("TIME");
    for (command, key) in written(keys, plan) {
        pipeline.command(command).arg(key.as_bytes());
    }
    if plan.letters {
        pipeline.command("XREVRANGE").arg(keys.dead_letters.as_bytes()).arg("+").arg("-").arg("COUNT").arg("1");
    }
    for user in &plan.users {
        load_user(pipeline, keys, user);
    }
    if !plan.events.is_empty() {
        let mut command = pipeline.command("MGET");
        for event in &plan.events {
            command.arg_parts(&keys.dedup_parts(event));
        }
    }
    if !plan.producers.is_empty() {
        pipeline.command("HMGET").arg(keys.producers.as_bytes()).args(&plan.producers);
        let mut command = pipeline.command("HRANDFIELD");
        command.arg(keys.producers.as_bytes()).arg_u64(PRUNE_SAMPLE as u64).arg("WITHVALUES");
    }
}

/// Keys that a commit writes and never reads, each with a cheap read that shows whether it is of the right type: a command
/// that fails inside EXEC would leave the rest of the commit standing.
pub(super) fn written<'a>(keys: &'a ShardKeys, plan: &Plan) -> impl Iterator<Item = (&'static str, &'a Key)> {
    let always = [("XLEN", &keys.log), ("XLEN", &keys.dead_letters), ("ZCARD", &keys.users)];
    let beyond = [("XLEN", &keys.outbox), ("HLEN", &keys.fanout)];
    always.into_iter().chain(beyond.into_iter().filter(|_| plan.outbox))
}

fn load_user(pipeline: &mut Pipeline, keys: &ShardKeys, plan: &UserPlan) {
    if plan.all {
        pipeline.command("HGETALL").arg_parts(&keys.birthdays_parts(&plan.user));
        pipeline.command("HGETALL").arg_parts(&keys.versions_parts(&plan.user));
        pipeline.command("HGETALL").arg_parts(&keys.profile_parts(&plan.user));
    } else {
        load_named(pipeline, keys, plan);
    }
    let user = &plan.user;
    if plan.sample {
        let mut command = pipeline.command("HRANDFIELD");
        command.arg_parts(&keys.versions_parts(user)).arg_u64(PRUNE_SAMPLE as u64).arg("WITHVALUES");
    }
    if plan.activity {
        pipeline.command("HGETALL").arg_parts(&keys.activity_parts(user));
    }
    if !plan.categories.is_empty() {
        pipeline.command("ZMSCORE").arg_parts(&keys.top_parts(user)).args(&plan.categories);
        pipeline.command("ZCARD").arg_parts(&keys.top_parts(user));
        let mut command = pipeline.command("ZRANGE");
        let last = plan.lightest() as u64 - 1;
        command.arg_parts(&keys.top_parts(user)).arg("0").arg_u64(last).arg("WITHSCORES");
    }
}

fn load_named(pipeline: &mut Pipeline, keys: &ShardKeys, plan: &UserPlan) {
    let user = &plan.user;
    if !plan.friends.is_empty() {
        let friends = plan.friends.iter().map(UserId::as_str);
        pipeline.command("HMGET").arg_parts(&keys.birthdays_parts(user)).args(friends);
    }
    if !plan.versions.is_empty() {
        pipeline.command("HMGET").arg_parts(&keys.versions_parts(user)).args(&plan.versions);
    }
    if plan.whole {
        pipeline.command("HGETALL").arg_parts(&keys.profile_parts(user));
    } else if plan.profile {
        pipeline.command("HMGET").arg_parts(&keys.profile_parts(user)).args(plan.profile_fields());
    }
    if !plan.fields.is_empty() && !plan.whole {
        pipeline.command("HLEN").arg_parts(&keys.profile_parts(user));
    }
    if plan.birthday {
        pipeline.command("HGET").arg_parts(&keys.profile_parts(user)).arg("birthday");
    }
    if plan.zone {
        pipeline.command("HGET").arg_parts(&keys.profile_parts(user)).arg(ZONE_FIELD);
    }
    if plan.everyone {
        pipeline.command("HGETALL").arg_parts(&keys.birthdays_parts(user));
    }
    if plan.extent {
        pipeline.command("HLEN").arg_parts(&keys.birthdays_parts(user));
        pipeline.command("EXISTS").arg_parts(&keys.profile_parts(user));
    }
}

/// MULTI, the acknowledgement, the effects, the log, the state, the signal, EXEC. `read` is how many entries the stream has had
/// up to the last of the batch, where that is known.
pub(super) fn commit(pipeline: &mut Pipeline, keys: &ShardKeys, commit: &Commit, read: Option<u64>) {
    let payload = commit.signal.encode();
    let state = &commit.state;
    pipeline.command("MULTI");
    if !commit.acks.is_empty() {
        let mut command = pipeline.command("XACK");
        command.arg(keys.changes.as_bytes()).arg(GROUP);
        for id in &commit.acks {
            command.arg_position(id.milliseconds, id.sequence);
        }
    }
    if !commit.settled.is_empty() {
        let mut command = pipeline.command("XGROUP");
        command.arg("SETID").arg(keys.changes.as_bytes()).arg(GROUP);
        command.arg_position(state.applied.milliseconds, state.applied.sequence);
        if let Some(read) = read {
            command.arg("ENTRIESREAD").arg_u64(read);
        }
    }
    for op in &commit.ops {
        write(pipeline, op);
    }
    let id = commit.signal.id;
    pipeline
        .command("XADD")
        .arg(keys.log.as_bytes())
        .arg("MAXLEN")
        .arg("~")
        .arg_u64(commit.log_length_max)
        .arg_position(id.generation, id.sequence)
        .arg("s")
        .arg(&payload);
    let mut command = pipeline.command("HSET");
    command.arg(keys.state.as_bytes());
    command.arg("last").arg_position(state.last.generation, state.last.sequence);
    command.arg("applied").arg_position(state.applied.milliseconds, state.applied.sequence);
    command.arg("applied_at").arg_u64(commit.signal.at_milliseconds);
    command.arg("entries").arg_u64(state.counts.entries);
    command.arg("dead").arg_u64(state.counts.dead);
    command.arg("skipped").arg_u64(state.counts.skipped);
    if state.order != Order::default() {
        command.arg("order").arg(state.order.to_string());
    }
    for (name, date) in [("first", state.first), ("open", state.open), ("rolled", state.rolled)] {
        if let Some(date) = date {
            command.arg(name).arg(date.to_string());
        }
    }
    drop(command);
    let mut command = pipeline.command("EVAL");
    command.arg(PUBLISH).arg("1").arg(keys.state.as_bytes()).arg(keys.push.as_bytes()).arg(&payload);
    drop(command);
    pipeline.command("EXEC");
}

fn write(pipeline: &mut Pipeline, op: &Op) {
    match op {
        Op::HashSet { key, fields } => {
            pipeline.command("HSET").arg(key.as_bytes()).arg_pairs(fields);
        }
        Op::HashDelete { key, fields } => {
            pipeline.command("HDEL").arg(key.as_bytes()).args(fields);
        }
        Op::SortedAdd { key, members } => {
            let mut command = pipeline.command("ZADD");
            command.arg(key.as_bytes());
            for (score, member) in members {
                command.arg_i64(*score).arg(member);
            }
        }
        Op::SortedRemove { key, members } => {
            pipeline.command("ZREM").arg(key.as_bytes()).args(members);
        }
        Op::ExpireAt { key, at_seconds } => {
            pipeline.command("EXPIREAT").arg(key.as_bytes()).arg_i64(*at_seconds);
        }
        Op::ExpireAfter { key, after } => {
            pipeline.command("PEXPIRE").arg(key.as_bytes()).arg_u64(milliseconds(after));
        }
        Op::Persist { key } => {
            pipeline.command("PERSIST").arg(key.as_bytes());
        }
        Op::Remember { key, ttl } => {
            pipeline.command("SET").arg(key.as_bytes()).arg(SEEN).arg("PX").arg_u64(milliseconds(ttl).max(1));
        }
        Op::Rename { key, to } => {
            pipeline.command("RENAME").arg(key.as_bytes()).arg(to.as_bytes());
        }
        Op::Delete { keys } => {
            pipeline.command("UNLINK").args(keys.iter().map(|key| key.as_bytes()));
        }
        Op::Enqueue { key, id, fields } => {
            let mut command = pipeline.command("XADD");
            command.arg(key.as_bytes()).arg_position(id.milliseconds, id.sequence).arg_pairs(fields);
        }
        Op::StreamDelete { key, ids } => {
            let mut command = pipeline.command("XDEL");
            command.arg(key.as_bytes());
            for id in ids {
                command.arg_position(id.milliseconds, id.sequence);
            }
        }
        Op::Append { key, length_max, fields } => {
            let mut command = pipeline.command("XADD");
            command.arg(key.as_bytes()).arg("MAXLEN").arg("~").arg_u64(*length_max).arg("*");
            command.arg_pairs(fields);
        }
    }
}

/// How an op is named where Redis refuses it.
pub(super) fn describe(keys: &ShardKeys, commit: &Commit, mut at: usize) -> String {
    for (there, command) in [(!commit.acks.is_empty(), "XACK"), (!commit.settled.is_empty(), "XGROUP SETID")] {
        if there && at == 0 {
            return format!("{command} {}", keys.changes);
        }
        at -= usize::from(there);
    }
    match commit.ops.get(at) {
        Some(Op::HashSet { key, .. }) => format!("HSET {key}"),
        Some(Op::HashDelete { key, .. }) => format!("HDEL {key}"),
        Some(Op::SortedAdd { key, .. }) => format!("ZADD {key}"),
        Some(Op::SortedRemove { key, .. }) => format!("ZREM {key}"),
        Some(Op::ExpireAt { key, .. }) => format!("EXPIREAT {key}"),
        Some(Op::ExpireAfter { key, .. }) => format!("PEXPIRE {key}"),
        Some(Op::Persist { key }) => format!("PERSIST {key}"),
        Some(Op::Remember { key, .. }) => format!("SET {key}"),
        Some(Op::Append { key, .. } | Op::Enqueue { key, .. }) => format!("XADD {key}"),
        Some(Op::Rename { key, .. }) => format!("RENAME {key}"),
        Some(Op::Delete { keys }) => format!("UNLINK {}", keys.first().map_or("", |key| key.as_str())),
        Some(Op::StreamDelete { key, .. }) => format!("XDEL {key}"),
        None => match at - commit.ops.len() {
            0 => format!("XADD {}", keys.log),
            1 => format!("HSET {}", keys.state),
            _ => format!("SPUBLISH {}", keys.push),
        },
    }
}

/// As Redis takes it: a longer time than it can count is the longest.
fn milliseconds(duration: &Duration) -> u64 {
    const MAX: u128 = i64::MAX as u128 / 4;
    duration.as_millis().min(MAX) as u64
}
