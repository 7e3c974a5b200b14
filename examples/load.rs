//! Answers from memory, and loads whom nobody has told of yet: `cargo run --example load -- 127.0.0.1:17100 42`.

use std::error::Error;

use heyday::birthday::Birthday;
use heyday::change::{Action, Change, UserId};
use heyday::client::loader::{self, Loader, Loading, Loads};
use heyday::client::{self, near, writer};
use heyday::redis::ConnectOptions;

/// In place of a database.
struct Database;

impl Loader for Database {
    fn load<'a>(&'a self, user: &'a UserId) -> Loading<'a> {
        Box::pin(async move {
            // SELECT … FROM users WHERE id = $1; no rows, no changes.
            let fields = vec![("role".to_owned(), Some("member".to_owned()))];
            let actions = [Action::Birthday { birthday: Birthday::parse("1990-05-01")? }, Action::Profile { fields }];
            let change = |action| Change {
                // The row's own version: what others have written since stays.
                version: Some(1),
                ..Change::new(user.clone(), action)
            };
            Ok(actions.map(change).into())
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let node = arguments.next().unwrap_or_else(|| "127.0.0.1:17100".to_owned());
    let user: UserId = arguments.next().unwrap_or_else(|| "42".to_owned()).parse()?;
    let hub = client::connect(ConnectOptions::new(vec![node.parse()?]), "").await?;

    // The first read waits for what is loaded and for a worker to apply it; without `wait` it would be cold, and a later one not.
    let options = loader::Options { wait: true, ..loader::Options::default() };
    let loads = Loads::new(Database, hub.writer(writer::Options::default()), options);
    let near = hub.near(near::Options { loads: Some(loads.clone()), ..near::Options::default() }).await?;

    for read in 1..=3 {
        let answer = near.profile(&user).await?;
        let (state, role) = (answer.state.name(), answer.profile.role());
        println!("read {read}: {state}, role {role:?}, {} round trips so far", near.round_trips());
    }
    println!("{:?}", loads.counts());
    Ok(())
}
