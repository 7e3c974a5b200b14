//! `heyday keys`: every key and channel that heyday uses.

use serde::Serialize;

use super::output::{self, Format};
use super::{Context, Exit};
use crate::key;

/// List every key and channel: its type, content and life
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  heyday keys --json")]
pub struct Arguments {
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Row {
    key: String,
    r#type: &'static str,
    content: &'static str,
    life: &'static str,
    public: bool,
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let prefix = &context.settings.config.redis.prefix;
    let rows = key::REGISTRY.iter().map(|row| Row {
        key: format!("{prefix}{}", row.pattern),
        r#type: row.kind,
        content: row.content,
        life: row.life,
        public: row.public,
    });
    if arguments.format.json {
        output::print_json(&rows.collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["key", "type", "content", "life", "format"]);
    for row in rows {
        let format = if row.public { "public" } else { "private" };
        table.add_row([row.key.as_str(), row.r#type, row.content, row.life, format]);
    }
    output::whole(&mut table, &[0, 1]);
    output::print_table(&table)?;
    Ok(Exit::Done)
}
