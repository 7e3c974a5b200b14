//! Answers on stdout: tables for people, JSON for programs.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width};
use jiff::civil::Date;
use serde::Serialize;

use crate::config::color_wanted;

/// A terminal that is narrower, or does not say, gets lines as long as they are.
const WIDTH_MIN: u16 = 60;
/// Spaces behind each column.
const PADDING: u16 = 2;

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

/// Whether text on stdout may be bold and coloured.
#[must_use]
pub fn is_styled() -> bool {
    is_terminal() && color_wanted()
}

/// A table with these headings: as wide as the terminal, plain columns where there is none.
#[must_use]
pub fn table(headings: &[&str]) -> Table {
    let mut table = plain();
    let styled = is_styled();
    table.set_header(headings.iter().map(|heading| {
        let cell = Cell::new(heading.to_uppercase());
        if styled { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
    table
}

/// The same without headings: names and values.
#[must_use]
pub fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !is_terminal() {
        table.force_no_tty();
    }
    if table.width().is_none_or(|width| width < WIDTH_MIN) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table
}

/// Prints a table without trailing spaces.
///
/// # Errors
///
/// Where stdout cannot be written to.
pub fn print_table(table: &Table) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let mut table = table.clone();
    // A space on both sides of a cell is the default, but no line shall begin with one.
    for column in table.column_iter_mut() {
        column.set_padding((0, PADDING));
    }
    for line in table.lines() {
        writeln!(stdout, "{}", line.trim_end())?;
    }
    stdout.flush()
}

/// Rows of a table that are printed together.
const ROWS_MAX: usize = 1000;

/// A table of any length: its rows are printed some at a time.
pub struct Rows {
    table: Table,
    /// These are set to the right.
    numbers: &'static [usize],
    /// The widths of the columns printed before, for those below to be no narrower.
    widths: Vec<u16>,
}

impl Rows {
    pub fn new(headings: &[&str], numbers: &'static [usize]) -> Rows {
        Rows { table: table(headings), numbers, widths: Vec::new() }
    }

    /// # Errors
    ///
    /// Where stdout cannot be written to.
    pub fn add(&mut self, row: impl Into<Row>) -> std::io::Result<()> {
        self.table.add_row(row);
        if self.table.row_count() < ROWS_MAX { Ok(()) } else { self.print() }
    }

    /// Prints the rows that wait.
    ///
    /// # Errors
    ///
    /// Where stdout cannot be written to.
    pub fn print(&mut self) -> std::io::Result<()> {
        if self.table.row_count() == 0 {
            return Ok(());
        }
        right(&mut self.table, self.numbers);
        at_least(&mut self.table, &self.widths);
        self.widths = self.table.column_max_content_widths();
        print_table(&self.table)?;
        self.table = plain();
        Ok(())
    }
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

/// Keeps these columns whole, of names and ids: what is left of the line is for the others.
pub fn whole(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Makes these columns, from the first on, wide enough for texts of these widths.
pub fn at_least(table: &mut Table, widths: &[u16]) {
    for (at, width) in widths.iter().enumerate() {
        if let Some(column) = table.column_mut(at) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width.saturating_add(PADDING))));
        }
    }
}

/// Leaves every line as long as it is, where all columns are names and numbers.
pub fn unwrapped(table: &mut Table) {
    table.set_content_arrangement(ContentArrangement::Disabled);
}

/// Sets these columns, of numbers, to the right.
pub fn right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Text of anybody's making as a terminal may have it: no control characters, and none that turn the line around.
#[must_use]
pub fn harmless(text: &str) -> String {
    let turns =
        |character| matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || turns(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A number of things: `1 shard`, `2 shards`.
#[must_use]
pub fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// How far an answer can be relied on, and for how long changes have been waiting that it may lack.
#[must_use]
pub fn state(state: &str, freshness: Duration) -> String {
    match u64::try_from(freshness.as_millis()).unwrap_or(u64::MAX) {
        0 => state.to_owned(),
        waiting => format!("{state}, changes wait for {}", age(waiting)),
    }
}

/// A date with its weekday: `Sun 2026-11-29`.
#[must_use]
pub fn weekday(date: Date) -> String {
    date.strftime("%a %Y-%m-%d").to_string()
}

/// So many days ahead.
#[must_use]
pub fn in_days(days: i32) -> String {
    match days {
        0 => "today".to_owned(),
        1 => "tomorrow".to_owned(),
        days => format!("{days} days"),
    }
}

/// A value that may not be known.
#[must_use]
pub fn shown(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// A moment in Unix milliseconds, in UTC: `2026-11-29 19:00:00Z`.
#[must_use]
pub fn moment(milliseconds: u64) -> String {
    let known = i64::try_from(milliseconds).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    known.map_or_else(|| milliseconds.to_string(), |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// A span of time with the two largest units that say something: `40ms`, `2s 500ms`, `3h 5m`.
#[must_use]
pub fn age(milliseconds: u64) -> String {
    const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let first = UNITS.iter().position(|(_, length)| milliseconds >= *length).unwrap_or(UNITS.len() - 1);
    let mut rest = milliseconds;
    let parts = UNITS[first..].iter().take(2).map(|(unit, length)| {
        let count = rest / length;
        rest %= length;
        (count, unit)
    });
    let parts: Vec<String> = parts
        .enumerate()
        .filter(|(at, (count, _))| *at == 0 || *count > 0)
        .map(|(_, (count, unit))| format!("{count}{unit}"))
        .collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobodys_text_drives_a_terminal() {
        assert_eq!(harmless("a\x1b[31mred\x07\n\u{202e}кіт 🎂"), "a\\u{1b}[31mred\\u{7}\\n\\u{202e}кіт 🎂");
    }

    #[test]
    fn ages_read_well() {
        let cases = [
            (0, "0ms"),
            (40, "40ms"),
            (1000, "1s"),
            (2500, "2s 500ms"),
            (65_000, "1m 5s"),
            (3_600_000, "1h"),
            (11_100_000, "3h 5m"),
            (900_000_000_000, "10416d 16h"),
        ];
        for (milliseconds, expected) in cases {
            assert_eq!(age(milliseconds), expected);
        }
    }
}
