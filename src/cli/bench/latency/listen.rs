//! Who hears of changes: over a bare subscription, or as heyday's clients do.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::workload::number_of;
use super::board::Board;
use super::floor::SEPARATOR;
use crate::change::UserId;
use crate::client::subscriber::Event as Heard;
use crate::client::{self, Hub, Reader, Subscriber, reader, subscriber};
use crate::redis::{ConnectOptions, Event, NodeAddress, Subscription};
use crate::task;

/// One subscription connection a node, as heyday has it, and what comes is written on the board.
pub async fn bare(hub: Hub, board: Arc<Board>) -> anyhow::Result<()> {
    let mut channels: BTreeMap<NodeAddress, Vec<Vec<u8>>> = BTreeMap::new();
    for shard in hub.layout().shards() {
        let keys = hub.shard_keys(shard);
        let node = hub.topology().node_of(keys.slot)?.address.clone();
        channels.entry(node).or_default().push(keys.push.as_bytes().to_vec());
    }
    for (node, channels) in channels {
        let mut subscription = Subscription::connect(&node, hub.topology().options()).await?;
        let mut waited = channels.len();
        channels.into_iter().for_each(|channel| subscription.subscribe(channel));
        while waited > 0 {
            match subscription.next().await? {
                Event::Subscribed { .. } => waited -= 1,
                other => anyhow::bail!("{node}: not subscribed: {other:?}"),
            }
        }
        let board = board.clone();
        task::spawn("bench subscription", async move {
            if let Err(error) = hear(subscription, &board).await {
                board.failed(&error);
            }
        });
    }
    Ok(())
}

async fn hear(mut subscription: Subscription, board: &Board) -> anyhow::Result<()> {
    loop {
        match subscription.next().await? {
            Event::Message { payload, .. } => {
                for user in payload.split(|byte| *byte == SEPARATOR) {
                    if let Some(number) = number_of(std::str::from_utf8(user)?) {
                        board.heard(number);
                    }
                }
            }
            other => anyhow::bail!("nothing but messages was expected: {other:?}"),
        }
    }
}

/// heyday's subscriber, and its reader for what is to be read.
pub async fn subscribed(options: ConnectOptions, prefix: String, board: Arc<Board>) -> anyhow::Result<()> {
    let hub = client::connect(options, &prefix).await?;
    let subscriber = hub.subscribe(subscriber::Options::default()).await?;
    let reader = hub.reader(reader::Options::default());
    task::spawn("bench subscriber", follow(subscriber, reader, board));
    Ok(())
}

async fn follow(mut subscriber: Subscriber, reader: Reader, board: Arc<Board>) {
    while let Some(event) = subscriber.next_event().await {
        let Heard::Changed { user, .. } = event else {
            board.failed(&anyhow::anyhow!("a shard was reset, though nothing was disturbed"));
            continue;
        };
        let Some(number) = number_of(user.as_str()) else { continue };
        if board.heard(number) {
            let (reader, board) = (reader.clone(), board.clone());
            task::spawn("bench read", async move {
                if let Err(error) = look(&reader, &user, number, &board).await {
                    board.failed(&error);
                }
            });
        }
    }
}

/// Reads until the change is there. Each user has one friend, and had none before.
async fn look(reader: &Reader, user: &UserId, number: u64, board: &Board) -> anyhow::Result<()> {
    while reader.read(user).await?.friends.is_empty() {
        board.unseen();
    }
    board.read(number);
    Ok(())
}
