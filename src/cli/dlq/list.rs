//! `heyday dlq list`.

use indicatif::ProgressBar;
use serde::Serialize;

use super::walk::{Filter, Walk};
use super::{field, open, shown};
use crate::cli::cluster::block_on;
use crate::cli::output::{self, Format, Rows};
use crate::cli::{Context, Exit, progress};
use crate::redis::dead_letters::DeadLetter;

/// List dead letters: where, since when, whose, and why
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  heyday dlq list --reason birthday\n  heyday dlq list --limit 0 --json | jq -r .kind | sort | uniq -c\n\n\
    With --json each letter is a line of its own, its fields pairs of name and value; bytes that are no \
    UTF-8 stand as \\xff."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    filter: Filter,
    /// At most so many; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u64,
    #[command(flatten)]
    format: Format,
}

/// One letter in JSON.
#[derive(Serialize)]
pub(super) struct Row {
    shard: u16,
    id: String,
    kind: String,
    reason: String,
    entry: String,
    /// Decides what a replay does: none means that it is applied as if it happened now.
    version: Option<String>,
    fields: Vec<(String, String)>,
}

impl Row {
    pub fn new(letter: &DeadLetter) -> Row {
        Row {
            shard: letter.shard.0,
            id: letter.id.to_string(),
            kind: letter.kind.clone(),
            reason: letter.reason.clone(),
            entry: letter.entry.clone(),
            version: field(letter, "version").map(shown),
            fields: letter.fields.iter().map(|(name, value)| (shown(name), shown(value))).collect(),
        }
    }
}

pub(super) fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    block_on(async {
        let (letters, layout) = open(context).await?;
        let mut walk = Walk::start(letters, &layout, arguments.filter).await?;
        let mut listing = Listing::new(arguments.format.json);
        let limit = if arguments.limit == 0 { u64::MAX } else { arguments.limit };
        let bar = if output::is_terminal() { ProgressBar::hidden() } else { progress::of_items(walk.progress().1) };
        let (mut listed, mut more) = (0, false);
        while !more && let Some(page) = walk.next().await? {
            for letter in &page {
                more = listed == limit;
                if more {
                    break;
                }
                listed += 1;
                listing.add(letter)?;
            }
            progress::show(&bar, walk.progress());
        }
        bar.finish_and_clear();
        listing.rows.print()?;
        if more {
            eprintln!("heyday: there are more; --limit 0 lists all");
        } else if listed == 0 {
            eprintln!("heyday: no dead letters");
        }
        Ok(Exit::Done)
    })
}

/// Letters as they come: lines of JSON at once, rows of a table some at a time.
struct Listing {
    json: bool,
    rows: Rows,
}

impl Listing {
    fn new(json: bool) -> Listing {
        let headings = ["shard", "letter", "since", "user", "type", "kind", "reason"];
        Listing { json, rows: Rows::new(&headings, &[0]) }
    }

    fn add(&mut self, letter: &DeadLetter) -> std::io::Result<()> {
        if self.json { output::print_json(&Row::new(letter)) } else { self.rows.add(cells(letter)) }
    }
}

fn cells(letter: &DeadLetter) -> [String; 7] {
    let text = |name: &str| field(letter, name).map_or("-".to_owned(), shown);
    [
        letter.shard.to_string(),
        letter.id.to_string(),
        output::moment(letter.id.milliseconds),
        text("user"),
        text("type"),
        letter.kind.clone(),
        letter.reason.clone(),
    ]
}
