//! Writes the views of a snapshot file straight into a fresh cluster, by nobody's rules: what `heyday rebuild` is
//! measured against. Never on a cluster that has workers.
//!
//! `cargo run --release --example bare_load -- users.ndjson 127.0.0.1:7000`

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::time::Instant;

use heyday::birthday::Birthday;
use heyday::calendar::Calendar;
use heyday::change::UserId;
use heyday::key::day_member;
use heyday::redis::{ConnectOptions, Pipeline, Pipes};

type Fields = BTreeMap<String, String>;

#[derive(serde::Deserialize)]
struct User {
    user: String,
    profile: Fields,
    friends: Fields,
}

/// Commands of one node that are sent together.
const BATCH: usize = 2000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (file, node) = (arguments.next().ok_or("a file")?, arguments.next().ok_or("a node")?);
    let options = ConnectOptions::new(vec![node.parse()?]);
    let hub = heyday::client::connect(options.clone(), "").await?;
    let (pipes, calendar) = (Pipes::new(Arc::new(options)), Calendar::default());
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_millis() as u64;
    let (window, started, mut users) = (calendar.window(now), Instant::now(), 0);
    let mut batches = BTreeMap::new();
    for line in std::io::BufReader::new(std::fs::File::open(file)?).lines() {
        let User { user, profile, friends } = serde_json::from_str(&line?)?;
        let user: UserId = user.parse()?;
        let keys = hub.keys_of(&user);
        let node = hub.topology().node_of(keys.slot)?.address.clone();
        let batch = batches.entry(node.clone()).or_insert_with(Pipeline::new);
        batch
            .command("HSET")
            .arg(keys.birthdays(&user).as_bytes())
            .arg_pairs(&friends.iter().map(|(friend, date)| (friend.clone(), date.clone())).collect::<Vec<_>>());
        let head = [("schema", "2"), ("version", "1"), ("updated_at", "0")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        batch
            .command("HSET")
            .arg(keys.profile(&user).as_bytes())
            .arg_pairs(&profile.into_iter().chain(head).collect::<Vec<_>>());
        batch.push(&["ZADD", keys.users.as_str(), "0", user.as_str()]);
        for (friend, date) in &friends {
            for day in calendar.days(Birthday::parse(date)?, window) {
                let due = calendar.due(&calendar.time_zone, day).to_string();
                batch.push(&["ZADD", keys.day(day).as_str(), &due, &day_member(&user, friend)]);
            }
        }
        if batch.len() >= BATCH {
            let full = std::mem::take(batch);
            pipes.get(&node).await?.submit(full).await?;
        }
        users += 1;
    }
    for (node, batch) in batches {
        pipes.get(&node).await?.submit(batch).await?;
    }
    println!("{users} users in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}
