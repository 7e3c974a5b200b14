//! Reads a user's view: `cargo run --example read -- 127.0.0.1:17100 42`.

use std::error::Error;

use heyday::client::{self, reader};
use heyday::redis::ConnectOptions;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let node = arguments.next().unwrap_or_else(|| "127.0.0.1:17100".to_owned());
    let user = arguments.next().unwrap_or_else(|| "42".to_owned());
    let hub = client::connect(ConnectOptions::new(vec![node.parse()?]), "").await?;
    let reader = hub.reader(reader::Options::default());

    let view = reader.read(&user.parse()?).await?;
    println!("user {}, shard {}: {}, {:?} behind", view.user, view.shard, view.state.name(), view.freshness);
    println!("born {}", or_unknown(view.profile.birthday.to_string()));
    for (name, value) in &view.profile.fields {
        println!("{name}: {value}");
    }
    for friend in &view.friends {
        let born = or_unknown(friend.birthday.to_string());
        match friend.next {
            None => println!("{}: born {born}", friend.friend),
            Some(next) => {
                let age = next.age.map_or_else(String::new, |age| format!(", turns {age}"));
                println!("{}: born {born}, in {} days, on {}{age}", friend.friend, next.days, next.date);
            }
        }
    }
    Ok(())
}

fn or_unknown(date: String) -> String {
    if date.is_empty() { "on an unknown day".to_owned() } else { date }
}
