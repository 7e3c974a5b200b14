//! `heyday watch`: changes as they come.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use super::cluster::{self, block_on};
use super::output::{self, Format};
use super::signals::Signals;
use super::{Context, Exit};
use crate::change::UserId;
use crate::client::subscriber::Event;
use crate::shard::Shard;

/// Print changes as they come, until interrupted
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday watch --user 42 --user 77\n  heyday watch --json --for 10s | jq -r 'select(.type == \"changed\").user'\n\n\
    Changes of a shard come in order and each once. A reset says that some may have been missed: whoever \
    keeps views of that shard reads them again."
)]
pub struct Arguments {
    /// Only changes of this user; may be repeated
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
    /// Only this shard; may be repeated
    #[arg(long = "shard", value_name = "NUMBER")]
    shards: Vec<u32>,
    /// End after so many
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, such as 10s
    #[arg(long = "for", value_name = "DURATION", value_parser = super::flags::duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Changed { shard: u16, commit: String, user: String, views: Vec<&'static str> },
    Reset { shard: u16 },
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let users: BTreeSet<UserId> = arguments.users.iter().map(|user| cluster::user(user)).collect::<Result<_, _>>()?;
    block_on(async {
        let mut signals = Signals::new()?;
        let hub = cluster::hub(context).await?;
        let shards = arguments.shards.iter().map(|shard| hub.layout().shard(*shard));
        let shards: BTreeSet<Shard> = shards.collect::<Result<_, _>>()?;
        let options = context.settings.config.subscriber(users, shards);
        let mut subscriber = hub.subscribe(options).await?;
        // Whoever reads this knows that no later change is missed.
        eprintln!("heyday: watching");
        let mut left = arguments.count.unwrap_or(u64::MAX);
        let mut end = std::pin::pin!(over(arguments.duration));
        while left > 0 {
            tokio::select! {
                biased;
                () = signals.next() => break,
                () = &mut end => break,
                event = subscriber.next_event() => match event {
                    Some(event) => print(&Line::new(event), arguments.format)?,
                    None => anyhow::bail!("the subscription ended by itself"),
                },
            }
            left -= 1;
        }
        Ok(Exit::Done)
    })
}

async fn over(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

impl Line {
    fn new(event: Event) -> Line {
        match event {
            Event::Changed { shard, commit, user, views } => Line::Changed {
                shard: shard.0,
                commit: commit.to_string(),
                user: user.to_string(),
                views: views.names(),
            },
            Event::Reset { shard } => Line::Reset { shard: shard.0 },
        }
    }
}

/// Each line at once: somebody may be waiting for it behind a pipe.
fn print(line: &Line, format: Format) -> std::io::Result<()> {
    if format.json {
        return output::print_json(line);
    }
    output::print(&match line {
        Line::Changed { shard, commit, user, views } => {
            format!("{user}: {} (shard {shard}, commit {commit})\n", views.join(", "))
        }
        Line::Reset { shard } => format!("reset of shard {shard}: some changes may have been missed\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::CommitId;
    use crate::signal::Views;

    #[test]
    fn lines_are_public_and_keep_their_shape() {
        let line = |event| serde_json::to_string(&Line::new(event)).unwrap();
        let views = Views::BIRTHDAYS.with(Views::PROFILE);
        let (shard, commit) = (Shard(17), CommitId::new(1_700_000_000_000, 42));
        let changed = line(Event::Changed { shard, commit, user: "7".parse().unwrap(), views });
        insta::assert_snapshot!(changed, @r#"{"type":"changed","shard":17,"commit":"1700000000000-42","user":"7","views":["profile","birthdays"]}"#);
        insta::assert_snapshot!(line(Event::Reset { shard }), @r#"{"type":"reset","shard":17}"#);
    }
}
