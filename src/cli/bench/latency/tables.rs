//! What was recorded as tables and curves.

use super::super::report::{Axis, Figure, Plot, Series, Table};
use super::Step;
use super::board::{Busy, Latencies, Recording, empty};

/// A percentile is told only where so many changes are beyond it.
const BEYOND_MIN: f64 = 1.0;
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
/// Points of a curve for each factor of ten.
const POINTS_PER_DECADE: u32 = 12;
/// The step whose curves are drawn: 5,000/s.
const DRAWN: usize = 3;

pub fn all(steps: &[Step], highest: (f64, f64)) -> Vec<Table> {
    vec![signals(steps, highest), views(steps), beside(steps), busy(steps)]
}

fn signals(steps: &[Step], (drained, highest): (f64, f64)) -> Table {
    let headings = ["who and rate", "p50 us", "p99 us", "p99.9 us", "max us", "sent late p99 us", "heard/s"];
    let mut table = Table::new("from XADD to the signal", &headings);
    for step in steps {
        for (who, recordings) in [("floor B", &step.floor), ("heyday", &step.heyday)] {
            let late = figure(recordings, |found| quantile(&found.sent, 0.99));
            let heard = figure(recordings, |found| Some(found.signal.len() as f64 / found.seconds));
            let columns = percentiles(recordings, |found| &found.signal);
            table.row(format!("{who}, {}", step.name), columns.into_iter().chain([late, heard]));
        }
    }
    table.notes = vec![
        format!("one worker drains {drained:.0} changes/s, and keeps up with {highest:.0}/s while they are appended"),
        "sent late: from the planned moment until the generator hands the change over; it is part of every latency"
            .to_owned(),
        "a percentile beyond which there is not one change of a turn is left out".to_owned(),
    ];
    table
}

fn views(steps: &[Step]) -> Table {
    let headings = ["rate", "p50 us", "p99 us", "p99.9 us", "max us", "reads", "reads too early"];
    let mut table = Table::new("heyday, from XADD to the view in the reader's hand", &headings);
    for step in steps {
        let reads = figure(&step.heyday, |found| Some(found.view.len() as f64));
        let unseen = figure(&step.heyday, |found| Some(found.unseen as f64));
        let columns = percentiles(&step.heyday, |found| &found.view);
        table.row(step.name.clone(), columns.into_iter().chain([reads, unseen]));
    }
    table.notes = vec!["too early: reads after a signal whose answer did not hold the change yet".to_owned()];
    table
}

/// heyday's latency as a multiple of the floor's, round by round.
fn beside(steps: &[Step]) -> Table {
    let headings = ["rate", "p50", "p99", "p50 more by us"];
    let mut table = Table::new("to the signal, heyday beside floor B", &headings);
    for step in steps {
        let of = |what: &dyn Fn(&Recording, &Recording) -> Option<f64>| {
            let pairs = step.floor.iter().zip(&step.heyday);
            Figure::of(pairs.filter_map(|(floor, heyday)| what(floor, heyday)))
        };
        let ratio = |at: f64| of(&|floor, heyday| Some(quantile(&heyday.signal, at)? / quantile(&floor.signal, at)?));
        let more = of(&|floor, heyday| Some(quantile(&heyday.signal, 0.5)? - quantile(&floor.signal, 0.5)?));
        table.row(step.name.clone(), [ratio(0.5), ratio(0.99), more]);
    }
    table.notes = vec![
        "heyday goes to Redis three times for a batch (read, load, commit), the floor twice (read, publish); where the machine \
         has cores to spare that is the difference, and where it has none both wait for a core at every step"
            .to_owned(),
    ];
    table
}

/// What limits both: where the machine has no more to give, latency is that of a queue.
fn busy(steps: &[Step]) -> Table {
    let headings =
        ["who and rate", "between", "generator and audience", "primaries", "replicas", "sum", "changes/signal"];
    let mut table = Table::new("busy at that, in cores", &headings);
    for step in steps {
        for (who, recordings) in [("floor B", &step.floor), ("heyday", &step.heyday)] {
            let of = |what: fn(&Busy) -> f64| figure(recordings, |found| Some(what(&found.busy)));
            let sum = of(|busy| busy.worker + busy.audience + busy.primaries + busy.replicas);
            let columns = [
                of(|busy| busy.worker),
                of(|busy| busy.audience),
                of(|busy| busy.primaries),
                of(|busy| busy.replicas),
                sum,
                of(|busy| busy.batch),
            ];
            table.row(format!("{who}, {}", step.name), columns);
        }
    }
    table.notes =
        vec!["between: the one thread that reads streams and signals, which has one core at the most".to_owned()];
    table
}

pub fn plots(steps: &[Step]) -> Vec<Plot> {
    let Some(step) = steps.get(DRAWN).filter(|step| !step.floor.is_empty() && !step.heyday.is_empty()) else {
        return Vec::new();
    };
    let series = |name: &str, latencies: Latencies| Series { name: name.to_owned(), points: curve(&latencies) };
    let merged = |recordings: &[Recording], of: fn(&Recording) -> &Latencies| {
        let mut sum = empty();
        // All have the same bounds.
        recordings.iter().for_each(|found| sum.add(of(found)).unwrap_or_default());
        sum
    };
    vec![Plot {
        name: "latency-percentiles".to_owned(),
        title: format!("Latency at {}", step.name),
        x: Axis::logarithmic("1 of so many changes takes longer (100: p99)"),
        y: Axis::logarithmic("milliseconds"),
        series: vec![
            series("floor B, signal", merged(&step.floor, |found| &found.signal)),
            series("heyday, signal", merged(&step.heyday, |found| &found.signal)),
            series("heyday, view", merged(&step.heyday, |found| &found.view)),
        ],
        marks: Vec::new(),
    }]
}

/// Latency in milliseconds by how rarely it is exceeded, from every one to one of all.
fn curve(latencies: &Latencies) -> Vec<(f64, f64)> {
    if latencies.is_empty() {
        return Vec::new();
    }
    let all = latencies.len() as f64;
    let rarities = (0..).map(|step| 10_f64.powf(f64::from(step) / f64::from(POINTS_PER_DECADE)));
    let within = rarities.take_while(|rarity| *rarity <= all);
    within.map(|rarity| (rarity, latencies.value_at_quantile(1.0 - 1.0 / rarity) as f64 / 1e3)).collect()
}

fn percentiles(recordings: &[Recording], of: impl Fn(&Recording) -> &Latencies) -> Vec<Figure> {
    let at = |at: f64| figure(recordings, |found| quantile(of(found), at));
    let most =
        figure(recordings, |found| Some(of(found)).filter(|found| !found.is_empty()).map(|found| found.max() as f64));
    QUANTILES.iter().map(|quantile| at(*quantile)).chain([most]).collect()
}

/// None where too few changes were measured to tell.
fn quantile(latencies: &Latencies, at: f64) -> Option<f64> {
    let beyond = latencies.len() as f64 * (1.0 - at);
    // One of a thousand is beyond the 99.9th percentile, whatever binary fractions say.
    (beyond > BEYOND_MIN - 1e-6).then(|| latencies.value_at_quantile(at) as f64)
}

fn figure(recordings: &[Recording], what: impl Fn(&Recording) -> Option<f64>) -> Figure {
    Figure::of(recordings.iter().filter_map(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(values: std::ops::RangeInclusive<u64>) -> Latencies {
        let mut latencies = empty();
        values.for_each(|value| latencies.record(value).unwrap());
        latencies
    }

    #[test]
    fn a_percentile_is_told_only_where_something_is_beyond_it() {
        let (many, few) = (latencies(1..=1000), latencies(1..=99));
        assert_eq!(QUANTILES.map(|at| quantile(&many, at)), [Some(500.0), Some(990.0), Some(999.0)]);
        assert_eq!(QUANTILES.map(|at| quantile(&few, at)), [Some(50.0), None, None]);
        assert_eq!(quantile(&empty(), 0.5), None);
    }

    #[test]
    fn a_curve_goes_from_every_change_to_one_of_all() {
        let points = curve(&latencies(1..=1000));
        assert_eq!(points.len() as u32, 3 * POINTS_PER_DECADE + 1);
        let (last, latency) = points[points.len() - 1];
        assert!((last - 1000.0).abs() < 1e-6 && (latency - 0.999).abs() < 0.002, "{last} {latency}");
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        assert!(curve(&empty()).is_empty());
    }
}
