//! `heyday shard`: where a user's keys are.

use serde::Serialize;

use super::cluster::{self, Cluster, block_on};
use super::output::{self, Format};
use super::{Context, Exit};
use crate::change::UserId;
use crate::shard::slot_of;

/// Show where a user is: slot, shard, tag, node and keys
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday shard 42\n  redis-cli -c HGETALL \"$(heyday shard 42 --json | jq -r .keys.birthdays)\""
)]
pub struct Arguments {
    /// The user's id
    user: String,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    user: UserId,
    /// The slot of the user's id, which decides the shard.
    slot: u16,
    shard: u16,
    tag: String,
    /// The slot of the shard's tag, which decides the node.
    tag_slot: u16,
    node: Option<String>,
    keys: Keys,
}

#[derive(Serialize)]
struct Keys {
    profile: String,
    birthdays: String,
    versions: String,
    activity: String,
    top: String,
    changes: String,
    lease: String,
    state: String,
    users: String,
    producers: String,
    dead_letters: String,
    log: String,
    push: String,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let user = cluster::user(&arguments.user)?;
    let answer = block_on(async { Ok(look(&Cluster::open(context).await?, user)) })?;
    if arguments.format.json {
        output::print_json(&answer)?;
    } else {
        print(&answer)?;
    }
    Ok(Exit::Done)
}

fn look(cluster: &Cluster, user: UserId) -> Answer {
    let shard = cluster.layout.shard_of(&user);
    let keys = cluster.keys.shard(&cluster.layout, shard);
    let named = Keys {
        profile: keys.profile(&user).to_string(),
        birthdays: keys.birthdays(&user).to_string(),
        versions: keys.versions(&user).to_string(),
        activity: keys.activity(&user).to_string(),
        top: keys.top(&user).to_string(),
        changes: keys.changes.to_string(),
        lease: keys.lease.to_string(),
        state: keys.state.to_string(),
        users: keys.users.to_string(),
        producers: keys.producers.to_string(),
        dead_letters: keys.dead_letters.to_string(),
        log: keys.log.to_string(),
        push: keys.push.to_string(),
    };
    Answer {
        slot: slot_of(user.as_str().as_bytes()),
        shard: shard.0,
        tag: keys.tag().to_owned(),
        tag_slot: keys.slot,
        node: cluster.topology.node_of(keys.slot).ok().map(|node| node.address.to_string()),
        keys: named,
        user,
    }
}

fn print(answer: &Answer) -> anyhow::Result<()> {
    let mut table = output::plain();
    table.add_row(["user", answer.user.as_str()]);
    table.add_row(["slot", &answer.slot.to_string()]);
    table.add_row(["shard", &answer.shard.to_string()]);
    table.add_row(["tag", &format!("{} (slot {})", answer.tag, answer.tag_slot)]);
    table.add_row(["node", answer.node.as_deref().unwrap_or("-")]);
    let keys = serde_json::to_value(&answer.keys)?;
    for (name, key) in keys.as_object().into_iter().flatten() {
        table.add_row([&name.replace('_', " "), key.as_str().unwrap_or_default()]);
    }
    output::print_table(&table)?;
    Ok(())
}
