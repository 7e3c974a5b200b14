//! How fast views are read, and how many round trips that takes, with and without a near cache:
//! `cargo run --release --example read_speed -- 127.0.0.1:17100 [USERS [SECONDS]]`.
//!
//! Users are 0, 1, 2 and so on: whoever has no view is read as cold. Nothing is written.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use heyday::change::UserId;
use heyday::client::{self, near, reader};
use heyday::redis::ConnectOptions;

/// Reads under way at the same time.
const CALLERS: usize = 64;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let node = arguments.next().unwrap_or_else(|| "127.0.0.1:17100".to_owned());
    let count: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let time = Duration::from_secs(arguments.next().map_or(Ok(3), |text| text.parse())?);
    let users: Arc<[UserId]> = (0..count).map(|number| number.to_string().parse()).collect::<Result<_, _>>()?;
    let hub = client::connect(ConnectOptions::new(vec![node.parse()?]), "").await?;
    let reader = hub.reader(reader::Options::default());
    let near = hub.near(near::Options::default()).await?;
    while !hub.layout().shards().all(|shard| near.is_sure(shard)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    println!("{count} users, {CALLERS} reads at a time, {time:?} each");
    println!("{:<24} {:>12} {:>22}", "", "reads/s", "round trips a read");
    let trips = || reader.round_trips();
    measure("Reader::read", &users, time, trips, async |user| reader.read(user).await.is_ok()).await;
    measure("Reader::profile", &users, time, trips, async |user| reader.profile(user).await.is_ok()).await;
    let trips = || near.round_trips();
    // The first time nothing is kept yet; the second time everything is.
    for when in ["at first", "then"] {
        let name = format!("Near::read, {when}");
        measure(&name, &users, time, trips, async |user| near.read(user).await.is_ok()).await;
        let name = format!("Near::profile, {when}");
        measure(&name, &users, time, trips, async |user| near.profile(user).await.is_ok()).await;
    }
    println!("{:?}", near.counts());
    Ok(())
}

/// Reads one user after the other until the time is over.
async fn measure(
    name: &str,
    users: &[UserId],
    time: Duration,
    round_trips: impl Fn() -> u64,
    read: impl AsyncFn(&UserId) -> bool,
) {
    let (next, failed, trips) = (AtomicUsize::new(0), AtomicUsize::new(0), round_trips());
    let begun = Instant::now();
    let caller = async || {
        while begun.elapsed() < time {
            let user = &users[next.fetch_add(1, Ordering::Relaxed) % users.len()];
            if !read(user).await {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    join_all((0..CALLERS).map(|_| caller())).await;
    let (reads, took) = (next.into_inner() as f64, begun.elapsed().as_secs_f64());
    let trips = (round_trips() - trips) as f64 / reads;
    let failed = failed.into_inner();
    let note = if failed > 0 { format!(" {failed} failed") } else { String::new() };
    println!("{name:<24} {:>12.0} {trips:>22.3}{note}", reads / took);
}
