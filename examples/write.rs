//! Appends a few changes, many at a time: `cargo run --example write -- 127.0.0.1:17100`.

use std::error::Error;

use heyday::birthday::Birthday;
use heyday::change::{Action, Change, Producer};
use heyday::client::{self, writer};
use heyday::redis::ConnectOptions;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let node = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:17100".to_owned());
    let hub = client::connect(ConnectOptions::new(vec![node.parse()?]), "").await?;
    let writer = hub.writer(writer::Options::default());

    // One at a time: each waits until it is in the stream.
    let own = Action::Birthday { birthday: Birthday::parse("1990-05-01")? };
    let appended = writer.append(&Change::new("42".parse()?, own)).await?;
    println!("birthday of 42: shard {}, entry {}", appended.shard, appended.id);

    // Many at a time: the receipts tell later what became of each. With a producer and a sequence that never falls, a
    // lost answer is no question: what was sent twice is applied once.
    let mut receipts = Vec::new();
    for (sequence, (friend, date)) in [("77", "1988-11-30"), ("78", "--02-29"), ("79", "")].into_iter().enumerate() {
        let action = Action::Add { friend: friend.parse()?, birthday: Some(Birthday::parse(date)?), mutual: true };
        let mut change = Change::new("42".parse()?, action);
        change.producer = Some(Producer { name: "example".to_owned(), sequence: sequence as u64 + 1 });
        receipts.push((friend, writer.enqueue(&change).await?));
    }
    for (friend, receipt) in receipts {
        match receipt.await {
            Ok(appended) => println!("friend {friend}: entry {}", appended.id),
            Err(error) if error.possibly_appended() => println!("friend {friend}: nobody knows: {error}"),
            Err(error) => println!("friend {friend}: {error}"),
        }
    }

    // What no worker would apply is refused before anything is sent.
    let refused = writer.append_fields(&[("type", "add"), ("user", "42"), ("friend", "42")]).await;
    println!("a friend of oneself: {}", refused.expect_err("the friend is the user"));
    Ok(())
}
