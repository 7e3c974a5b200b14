//! What one batch costs the worker's own processor, stage by stage, for batches of several shapes: no server, no socket.
//!
//! `make bench-core` measures times. `--count N STAGE/SHAPE` runs one stage N times and nothing else, so that its
//! instructions can be counted, which repeat exactly where times do not (`tools/instructions`). `--names` lists them.

mod answers;
mod course;
mod shapes;

use std::hint::black_box;

use criterion::{Criterion, Throughput};

use course::Course;
use shapes::{CHANGES, SHAPES};

/// Named as in ARCHITECTURE.md's life of a change. What a stage makes is dropped in it.
type Stage = (&'static str, fn(&mut Course));

const STAGES: [Stage; 9] = [
    ("decode", |course| done(course.decode())),
    ("route", |course| done(course.route())),
    ("plan", |course| done(course.plan())),
    ("ask_load", |course| done(course.ask_load())),
    ("take_load", |course| done(course.take_load())),
    ("reduce", |course| done(course.reduce())),
    ("signal", |course| done(course.signal())),
    ("ask_commit", |course| done(course.ask_commit())),
    ("take_commit", |course| done(course.take_commit())),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--names"] => names().for_each(|name| println!("{name}")),
        ["--count", times, name] => count(times.parse().expect("a number of times"), name),
        _ => measure(),
    }
}

/// The compiler may not leave out what nobody looks at.
fn done<T>(made: T) {
    drop(black_box(made));
}

fn names() -> impl Iterator<Item = String> {
    STAGES.iter().flat_map(|(stage, _)| SHAPES.iter().map(move |(shape, _)| format!("{stage}/{shape}")))
}

fn count(times: usize, name: &str) {
    let (stage, shape) = name.split_once('/').expect("STAGE/SHAPE");
    let (_, run) = STAGES.iter().find(|(name, _)| *name == stage).expect("the name of a stage");
    let (_, changes) = SHAPES.iter().find(|(name, _)| *name == shape).expect("the name of a shape");
    let mut course = Course::new(*changes);
    (0..times).for_each(|_| run(&mut course));
}

fn measure() {
    let mut criterion = Criterion::default().configure_from_args();
    for (stage, run) in STAGES {
        let mut group = criterion.benchmark_group(stage);
        group.throughput(Throughput::Elements(CHANGES as u64));
        for (shape, changes) in SHAPES {
            group.bench_function(shape, |bencher| {
                let mut course = Course::new(changes);
                bencher.iter(|| run(&mut course));
            });
        }
    }
    criterion.final_summary();
}
