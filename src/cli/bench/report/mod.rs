//! What a run found: tables and plots, with everything one must know to believe or repeat them.

mod draw;
mod files;

use serde::Serialize;

use crate::cli::output;

pub use files::write;

/// All of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it was measured on and with, as lines of name and value.
    pub setting: Vec<(String, String)>,
    pub chapters: Vec<Chapter>,
}

/// The figures of one question.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chapter {
    pub name: String,
    pub title: String,
    /// What was done, in sentences.
    pub method: String,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    /// What did not go as it should.
    pub troubles: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    pub title: String,
    /// The heading of the first column, then of each figure, with its unit.
    pub headings: Vec<String>,
    pub rows: Vec<Row>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub figures: Vec<Figure>,
}

/// The median of several rounds and how far they were apart; none where there is nothing to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    pub median: Option<f64>,
    pub least: f64,
    pub most: f64,
}

/// Lines to be drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// Of the file, without its ending: letters, digits and hyphens.
    pub name: String,
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Moments to be marked: where on the x axis, and what happened.
    pub marks: Vec<(f64, String)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    pub label: String,
    pub logarithmic: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Figure {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let Some((least, most)) = values.first().copied().zip(values.last().copied()) else {
            return Figure::default();
        };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Figure { median: Some(median), least, most }
    }
}

/// The tables for people: medians, and behind each the spread where it is more than a few percent.
///
/// # Errors
///
/// Where stdout cannot be written to.
pub fn print(chapter: &Chapter) -> std::io::Result<()> {
    output::print(&format!("\n{}\n{}\n", chapter.title, chapter.method))?;
    chapter.tables.iter().try_for_each(print_table)?;
    chapter.troubles.iter().try_for_each(|trouble| output::print(&format!("{trouble}\n")))
}

fn print_table(table: &Table) -> std::io::Result<()> {
    output::print(&format!("\n{}\n", table.title))?;
    let headings: Vec<&str> = table.headings.iter().map(String::as_str).collect();
    let mut shown = output::table(&headings);
    for row in &table.rows {
        let figures = row.figures.iter().map(ToString::to_string);
        shown.add_row(std::iter::once(row.name.clone()).chain(figures));
    }
    output::print_table(&shown)?;
    table.notes.iter().try_for_each(|note| output::print(&format!("{note}\n")))
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(median) = self.median else { return f.write_str("-") };
        write!(f, "{}", number(median))?;
        if self.most - self.least > 0.02 * median.abs() {
            write!(f, " ({}-{})", number(self.least), number(self.most))?;
        }
        Ok(())
    }
}

/// Three digits, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl Axis {
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), logarithmic: false }
    }

    pub fn logarithmic(label: &str) -> Axis {
        Axis { label: label.to_owned(), logarithmic: true }
    }
}

impl Table {
    pub fn new(title: &str, headings: &[&str]) -> Table {
        let headings = headings.iter().map(|&heading| heading.to_owned()).collect();
        Table { title: title.to_owned(), headings, ..Table::default() }
    }

    pub fn row(&mut self, name: impl Into<String>, figures: impl IntoIterator<Item = Figure>) {
        self.rows.push(Row { name: name.into(), figures: figures.into_iter().collect() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_and_the_spread() {
        let figure = |values: &[f64]| Figure::of(values.iter().copied());
        assert_eq!(figure(&[3.0, 1.0, 2.0]), Figure { median: Some(2.0), least: 1.0, most: 3.0 });
        assert_eq!(figure(&[4.0, 1.0]).median, Some(2.5));
        assert_eq!(figure(&[f64::NAN, 1.0]).median, Some(1.0));
        assert_eq!(figure(&[]), Figure::default());
    }
}
