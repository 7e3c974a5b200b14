//! A report in a folder: everything as JSON, the tables as Markdown, the plots as SVG.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::draw::draw;
use super::{Chapter, Report, Table};

/// Writes `report.json`, `report.md` and one file a plot.
///
/// # Errors
///
/// Where the folder cannot be made or written to.
pub fn write(report: &Report, folder: &Path) -> anyhow::Result<()> {
    let at = |name: &str| folder.join(name);
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let put = |name: &str, text: String| {
        fs::write(at(name), text).with_context(|| format!("{} cannot be written", at(name).display()))
    };
    put("report.json", serde_json::to_string_pretty(report)? + "\n")?;
    put("report.md", markdown(report))?;
    for plot in report.chapters.iter().flat_map(|chapter| &chapter.plots) {
        draw(plot, &at(&format!("{}.svg", plot.name)))?;
    }
    Ok(())
}

/// The whole report as a page.
pub fn markdown(report: &Report) -> String {
    let mut text = "# A run of `heyday bench`\n\n| | |\n|---|---|\n".to_owned();
    for (name, value) in &report.setting {
        line(&mut text, format_args!("| {name} | {value} |"));
    }
    report.chapters.iter().for_each(|chapter| describe(chapter, &mut text));
    text
}

fn describe(chapter: &Chapter, text: &mut String) {
    line(text, format_args!("\n## {}\n\n{}", chapter.title, chapter.method));
    chapter.tables.iter().for_each(|table| rows(table, text));
    for plot in chapter.plots.iter().filter(|plot| plot.series.iter().any(|series| !series.points.is_empty())) {
        line(text, format_args!("\n![{}]({}.svg)", plot.title, plot.name));
    }
    for trouble in &chapter.troubles {
        line(text, format_args!("\n**{trouble}**"));
    }
}

fn rows(table: &Table, text: &mut String) {
    line(text, format_args!("\n### {}\n\n| {} |", table.title, table.headings.join(" | ")));
    line(text, format_args!("|{}", "---|".repeat(table.headings.len())));
    for row in &table.rows {
        let figures: Vec<String> = row.figures.iter().map(ToString::to_string).collect();
        line(text, format_args!("| {} | {} |", row.name, figures.join(" | ")));
    }
    for note in &table.notes {
        line(text, format_args!("\n{note}"));
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Figure, Plot, Series};
    use super::*;

    #[test]
    fn a_report_is_written_in_all_three_forms() {
        let mut table = Table::new("add only", &["consumer", "changes/s"]);
        table.row("heyday", [Figure::of([1000.0, 1200.0, 1100.0])]);
        table.notes.push("a note".to_owned());
        let plot = Plot {
            name: "drain-0".to_owned(),
            title: "over time".to_owned(),
            x: Axis::linear("seconds"),
            y: Axis::linear("changes/s"),
            series: vec![Series { name: "heyday".to_owned(), points: vec![(0.1, 1000.0), (0.2, 1100.0)] }],
            marks: Vec::new(),
        };
        let chapter =
            Chapter { title: "Drain".to_owned(), tables: vec![table], plots: vec![plot], ..Chapter::default() };
        let report = Report { setting: vec![("seed".to_owned(), "7".to_owned())], chapters: vec![chapter] };
        let folder = tempfile::tempdir().unwrap();
        write(&report, &folder.path().join("new")).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join("new").join(name)).unwrap();
        assert!(read("drain-0.svg").contains("over time"));
        let page = read("report.md");
        for part in
            ["| seed | 7 |", "| consumer | changes/s |", "| heyday | 1100 (1000-1200) |", "a note", "](drain-0.svg)"]
        {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        let json: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
        assert_eq!(json["chapters"][0]["tables"][0]["rows"][0]["figures"][0]["median"], 1100.0);
    }
}
