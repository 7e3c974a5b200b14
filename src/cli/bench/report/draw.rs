//! Plots as SVG.

use std::path::Path;

use anyhow::anyhow;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::{Axis, Plot};

const SIZE: (u32, u32) = (900, 420);
/// Told apart by most who do not see all colours.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(150, 110, 40),
];

/// Draws one plot into a file; nothing where it has no points.
///
/// # Errors
///
/// Where the file cannot be written.
pub fn draw(plot: &Plot, file: &Path) -> anyhow::Result<()> {
    let (Some(x), Some(y)) = (range(plot, &plot.x, |point| point.0), range(plot, &plot.y, |point| point.1)) else {
        return Ok(());
    };
    let linear = |range: &std::ops::Range<f64>| -> RangedCoordf64 { range.clone().into() };
    let logarithmic = |range: &std::ops::Range<f64>| range.clone().log_scale();
    match (plot.x.logarithmic, plot.y.logarithmic) {
        (false, false) => lines(plot, file, linear(&x), linear(&y)),
        (false, true) => lines(plot, file, linear(&x), logarithmic(&y)),
        (true, false) => lines(plot, file, logarithmic(&x), linear(&y)),
        (true, true) => lines(plot, file, logarithmic(&x), logarithmic(&y)),
    }
}

/// From the least to the most, or from zero on a linear axis.
fn range(plot: &Plot, axis: &Axis, of: impl Fn(&(f64, f64)) -> f64) -> Option<std::ops::Range<f64>> {
    let values = || plot.series.iter().flat_map(|series| &series.points).map(&of).filter(|value| value.is_finite());
    let (least, most) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    Some(match axis.logarithmic {
        true => least.max(1e-3)..(most * 1.2).max(1e-2),
        false => 0.0..(most * 1.08).max(1e-9),
    })
}

fn lines<X, Y>(plot: &Plot, file: &Path, x: X, y: Y) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    let failed = |error: DrawingAreaErrorKind<_>| anyhow!("{}: {error}", file.display());
    area.fill(&WHITE).map_err(failed)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(&plot.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&plot.x.label).y_desc(&plot.y.label).light_line_style(WHITE.mix(0.0));
    mesh.x_label_formatter(&|value| label(*value)).y_label_formatter(&|value| label(*value));
    mesh.draw().map_err(failed)?;
    for (series, color) in plot.series.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(2);
        let drawn = chart.draw_series(LineSeries::new(series.points.iter().copied(), style)).map_err(failed)?;
        drawn.label(&series.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        let dots = series.points.iter().map(|&point| Circle::new(point, 2, color.filled()));
        chart.draw_series(dots).map_err(failed)?;
    }
    let (_, heights) = (chart.x_range(), chart.y_range());
    for (at, what) in &plot.marks {
        let line = [(*at, heights.start), (*at, heights.end)];
        chart.draw_series([PathElement::new(line, BLACK.mix(0.5))]).map_err(failed)?;
        chart.draw_series([Text::new(what.clone(), (*at, heights.end), ("sans-serif", 12))]).map_err(failed)?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(failed)?;
    area.present().map_err(failed)
}

/// As few digits as tell one place from the next.
fn label(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        size if size >= 1e3 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::*;

    #[test]
    fn labels_are_short() {
        let labels = [0.0, 0.25, 1.0, 1500.0, 2_000_000.0].map(label);
        assert_eq!(labels, ["0", "0.25", "1", "1.5k", "2M"]);
    }

    #[test]
    fn a_plot_names_its_series_axes_and_marks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plot.svg");
        for logarithmic in [false, true] {
            let axis = |label: &str| Axis { label: label.to_owned(), logarithmic };
            let plot = Plot {
                name: "plot".to_owned(),
                title: "cost by size".to_owned(),
                x: axis("friendships"),
                y: axis("us a change"),
                series: vec![Series { name: "heyday".to_owned(), points: vec![(1e4, 9.0), (1e6, 9.5)] }],
                marks: vec![(5e5, "killed".to_owned())],
            };
            draw(&plot, &file).unwrap();
            let text = std::fs::read_to_string(&file).unwrap();
            for part in ["<svg", "cost by size", "friendships", "us a change", "heyday", "killed"] {
                assert!(text.contains(part), "{part}");
            }
        }
    }

    #[test]
    fn a_plot_without_points_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plot.svg");
        let plot = Plot {
            name: "plot".to_owned(),
            title: String::new(),
            x: Axis::linear(""),
            y: Axis::linear(""),
            series: Vec::new(),
            marks: Vec::new(),
        };
        draw(&plot, &file).unwrap();
        assert!(!file.exists());
    }
}
