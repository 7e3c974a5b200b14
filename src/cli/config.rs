//! `heyday config show`: which settings are in force, and where each came from.

use super::output::{self, Format};
use super::{Context, Exit};

/// Show the settings
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print every setting, its value, and where the value came from; secrets as ***
    #[command(after_help = "Example:\n  HEYDAY_WORKER__LEASE_TTL=15s heyday --config heyday.toml config show")]
    Show(Format),
}

pub fn run(arguments: Arguments, context: &Context) -> anyhow::Result<Exit> {
    let Action::Show(format) = arguments.action;
    let rows = context.settings.effective();
    if format.json {
        output::print_json(&rows)?;
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["setting", "value", "source"]);
    for row in &rows {
        table.add_row([row.key.clone(), shown(&row.value), row.source.clone()]);
    }
    output::whole(&mut table, &[0]);
    output::print_table(&table)?;
    Ok(Exit::Done)
}

/// Texts without quotation marks, so that a table reads like the file; what is not set as a dash.
fn shown(value: &serde_json::Value) -> String {
    match value.as_str() {
        Some("") => "-".to_owned(),
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}
