//! Prints what changes, as it changes: `cargo run --example subscribe -- 127.0.0.1:17100 [USER]…`. Ctrl-C ends it.

use std::collections::BTreeSet;
use std::error::Error;

use futures_util::StreamExt;
use heyday::change::UserId;
use heyday::client::subscriber::{Event, Options};
use heyday::client::{self, reader};
use heyday::redis::ConnectOptions;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let node = arguments.next().unwrap_or_else(|| "127.0.0.1:17100".to_owned());
    let users = arguments.map(|user| user.parse()).collect::<Result<BTreeSet<UserId>, _>>()?;
    let hub = client::connect(ConnectOptions::new(vec![node.parse()?]), "").await?;

    // Subscribe first and read afterwards: then no change falls between the two.
    let users = (!users.is_empty()).then_some(users);
    let mut changes = hub.subscribe(Options { users: users.clone(), ..Options::default() }).await?;
    let reader = hub.reader(reader::Options::default());
    for user in users.iter().flatten() {
        println!("{user}: {} friends to begin with", reader.read(user).await?.friends.len());
    }

    while let Some(event) = changes.next().await {
        match event {
            Event::Changed { user, views, commit, .. } => {
                let view = reader.read(&user).await?;
                println!("{user}: {} in commit {commit}, {} friends now", views.names().join(", "), view.friends.len());
            }
            // Something may have been missed: whoever keeps views of this shard reads them again.
            Event::Reset { shard } => println!("shard {shard}: read again what you keep"),
        }
    }
    Ok(())
}
