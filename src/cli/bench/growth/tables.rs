//! The tables and plots of what was measured by size.

use super::super::report::{Axis, Chapter, Figure, Plot, Series, Table};
use super::super::rounds::Sample;
use super::measure::Point;

impl Chapter {
    pub(super) fn by_size(&mut self, points: &[Point]) {
        if points.is_empty() {
            return;
        }
        self.tables.push(costs(points));
        self.tables.push(memory(points));
        self.tables.push(kinds(points));
        self.tables.push(days_and_reads(points));
        self.plots.push(plot(
            "growth-cost",
            "CPU of a change by the size of the data",
            "us/change",
            points,
            &[
                ("servers", &|point| median(point, Sample::server_cpu)),
                ("worker", &|point| median(point, Sample::worker_cpu)),
            ],
        ));
        self.plots.push(plot(
            "growth-memory",
            "Memory by the size of the data",
            "bytes/friendship",
            points,
            &[
                ("heyday", &|point| point.bytes / point.friendships as f64),
                ("bare hashes", &|point| point.bare_bytes / point.friendships as f64),
            ],
        ));
    }
}

fn costs(points: &[Point]) -> Table {
    let headings = [
        "friendships",
        "changes/s",
        "server CPU us/change",
        "worker CPU us/change",
        "sum us/change",
        "beside the first",
    ];
    let mut table = Table::new("Changes by the size of the data", &headings);
    let sum = |sample: &Sample| sample.server_cpu() + sample.worker_cpu();
    let first = median(&points[0], sum);
    for point in points {
        let of = |what: fn(&Sample) -> f64| Figure::of(point.drains.iter().map(what));
        let beside = Figure::of(point.drains.iter().map(|sample| sum(sample) / first));
        table.row(
            size(point.friendships),
            [
                of(Sample::rate),
                of(Sample::server_cpu),
                of(Sample::worker_cpu),
                Figure::of(point.drains.iter().map(sum)),
                beside,
            ],
        );
    }
    table
}

fn memory(points: &[Point]) -> Table {
    let headings = ["friendships", "bytes/friendship", "bare hashes alone", "beside bare"];
    let mut table = Table::new("Memory of all primaries by the size of the data", &headings);
    for point in points {
        let each = |bytes: f64| Figure::of([bytes / point.friendships as f64]);
        let beside = Figure::of([point.bytes / point.bare_bytes]);
        table.row(size(point.friendships), [each(point.bytes), each(point.bare_bytes), beside]);
    }
    table.notes.push("Every replica takes as much once more.".to_owned());
    table
}

/// Of the largest.
fn kinds(points: &[Point]) -> Table {
    let headings = ["keys", "number", "bytes/key", "bytes/friendship", "share of all, %"];
    let Some(point) = points.last() else { return Table::default() };
    let mut table = Table::new(&format!("Memory by kind of key, {} friendships", size(point.friendships)), &headings);
    let mut rest = point.bytes;
    for kind in &point.kinds {
        rest -= kind.bytes;
        let figures = [
            kind.keys,
            kind.bytes / kind.keys,
            kind.bytes / point.friendships as f64,
            100.0 * kind.bytes / point.bytes,
        ];
        table.row(kind.name, figures.map(|figure| Figure::of([figure])));
    }
    let rest = [rest / point.friendships as f64, 100.0 * rest / point.bytes];
    let none = [Figure::default(), Figure::default()];
    table.row("tables of names and others", none.into_iter().chain(rest.map(|figure| Figure::of([figure]))));
    table.notes.push("Of users' keys by a sample, of shards' keys all, by MEMORY USAGE.".to_owned());
    table
}

fn days_and_reads(points: &[Point]) -> Table {
    let headings = [
        "friendships",
        "roll, seconds",
        "users/s",
        "friendships/s",
        "server CPU us/user",
        "worker CPU us/user",
        "read p50 us",
        "read p99 us",
        "loaded, seconds",
    ];
    let mut table = Table::new("A roll of all shards, reads one at a time, and the load", &headings);
    for point in points {
        let friends = point.friendships as f64 / point.users as f64;
        let figures = [
            point.roll.seconds,
            point.roll.rate(),
            point.roll.rate() * friends,
            point.roll.server_cpu(),
            point.roll.worker_cpu(),
            point.read_median.as_secs_f64() * 1e6,
            point.read_p99.as_secs_f64() * 1e6,
            point.loaded_in.as_secs_f64(),
        ];
        table.row(size(point.friendships), figures.map(|figure| Figure::of([figure])));
    }
    table.notes.push("A roll begins up to worker.trim_interval after it was asked for.".to_owned());
    table
}

type Line<'a> = (&'a str, &'a dyn Fn(&Point) -> f64);

fn plot(name: &str, title: &str, unit: &str, points: &[Point], lines: &[Line<'_>]) -> Plot {
    let series = lines.iter().map(|(name, what)| Series {
        name: (*name).to_owned(),
        points: points
            .iter()
            .map(|point| (point.friendships as f64, what(point)))
            .filter(|at| at.1.is_finite())
            .collect(),
    });
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis { label: "friendships".to_owned(), logarithmic: true },
        y: Axis::linear(unit),
        series: series.collect(),
        marks: Vec::new(),
    }
}

fn median(point: &Point, what: impl Fn(&Sample) -> f64) -> f64 {
    Figure::of(point.drains.iter().map(what)).median.unwrap_or(f64::NAN)
}

/// As people say it.
pub fn size(friendships: u64) -> String {
    match friendships {
        number if number >= 1_000_000 && number % 1_000_000 == 0 => format!("{} million", number / 1_000_000),
        number if number >= 1000 && number % 1000 == 0 => format!("{} thousand", number / 1000),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_as_people_do() {
        for (number, said) in [(10_000, "10 thousand"), (10_000_000, "10 million"), (1234, "1234")] {
            assert_eq!(size(number), said);
        }
    }
}
