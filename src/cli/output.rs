//! Answers on stdout: tables for people, JSON for programs.

use std::io::{IsTerminal, Write};

use comfy_table::{Attribute, Cell, ContentArrangement, Table};
use serde::Serialize;

use crate::config::color_wanted;

/// Flags of every command whose answer a program may read.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Format {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Whether stdout is read by a person.
#[must_use]
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// A table with these headings: as wide as the terminal, plain columns where there is none.
#[must_use]
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !is_terminal() {
        table.force_no_tty().set_content_arrangement(ContentArrangement::Disabled);
    }
    let styled = is_terminal() && color_wanted();
    table.set_header(headings.iter().map(|heading| {
        let cell = Cell::new(heading.to_uppercase());
        if styled { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
    table
}

/// The same without headings: names and values.
#[must_use]
pub fn plain() -> Table {
    let mut table = table(&[]);
    table.set_header(Vec::<Cell>::new());
    table
}

/// Prints a table without trailing spaces.
///
/// # Errors
///
/// Where stdout cannot be written to.
pub fn print_table(table: &Table) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    for line in table.lines() {
        writeln!(stdout, "{}", line.trim().trim_end())?;
    }
    stdout.flush()
}

/// Prints one value as one line of JSON.
///
/// # Errors
///
/// Where stdout cannot be written to.
pub fn print_json(value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    print(&line)
}

/// Prints text as it is.
///
/// # Errors
///
/// Where stdout cannot be written to.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
