//! Memory of real programs over time, each with the verdict that is right: `fixtures/rss-traces`.

use std::path::Path;

use super::{Ceilings, Change, Demand, Found, Limit, Watch};
use crate::engine::id::{BootTime, Bytes};

/// It dies three seconds after its start, of a limit that it set itself: nothing tells it from a program that starts up.
const NOT_TO_BE_TOLD: &str = "oom-worker-150mb-node20.csv";

/// What the machine had where the traces were taken.
const AVAILABLE: Bytes = Bytes::from_mib(22 * 1024);

struct Trace {
    name: String,
    leaks: bool,
    heap: Option<Bytes>,
    /// Milliseconds, and what the process cost.
    samples: Vec<(u64, Bytes)>,
}

fn traces() -> Vec<Trace> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/rss-traces");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            read(path.file_name().unwrap().to_str().unwrap(), &text)
        })
        .collect()
}

fn read(name: &str, text: &str) -> Trace {
    let heads: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('#')).collect();
    let verdict = heads.iter().find_map(|head| head.trim().strip_prefix("verdict: ")).expect("a verdict");
    let heap = heads.iter().find_map(|head| head.split_once("--max-old-space-size=")).map(|(_, rest)| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        Bytes::from_mib(digits.parse().unwrap())
    });
    let rows = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let samples = rows
        .map(|row| {
            let numbers: Vec<u64> = row.split(',').map(|number| number.parse().unwrap()).collect();
            let kib = match numbers[..] {
                [_, rss] => rss,
                [_, anon, _file, shmem] => anon + shmem,
                _ => panic!("{name}: {row}"),
            };
            (numbers[0], Bytes::from_kib(kib))
        })
        .collect();
    Trace { name: name.to_owned(), leaks: verdict.starts_with("leak"), heap, samples }
}

/// When a leak was found first, in milliseconds, and what was.
fn found(trace: &Trace) -> Option<(u64, Found)> {
    let at = |millis: u64| BootTime(1_000_000_000_000 + millis * 1_000_000);
    let (first, rest) = trace.samples.split_first().unwrap();
    let mut watch = Watch::new(at(first.0), first.1);
    for (millis, memory) in rest {
        let mut ceilings = Ceilings::default();
        let left = Bytes(AVAILABLE.0 - memory.0);
        ceilings.add(Limit::Host, left, left);
        if let Some(heap) = trace.heap {
            ceilings.add(Limit::V8Heap, heap, Bytes(heap.0.saturating_sub(memory.0)));
        }
        if watch.push(at(*millis), *memory, &ceilings, Demand::default()) == Some(Change::Opened) {
            return Some((*millis, *watch.found().unwrap()));
        }
    }
    None
}

#[test]
fn every_trace_gets_its_verdict() {
    let traces = traces();
    assert!(traces.iter().filter(|trace| trace.leaks).count() >= 7, "leaks are among them");
    assert!(traces.iter().filter(|trace| !trace.leaks).count() >= 5, "and healthy programs");
    for trace in traces.iter().filter(|trace| trace.name != NOT_TO_BE_TOLD) {
        let found = found(trace);
        assert_eq!(found.is_some(), trace.leaks, "{}: {found:#?}", trace.name);
    }
}

#[test]
fn a_leak_of_50_mb_a_minute_is_found_within_75_seconds_of_the_start_with_its_slope() {
    let traces = traces();
    let trace = traces.iter().find(|trace| trace.name == "leak-heap-50mb-min.csv").unwrap();
    let (at, found) = found(trace).unwrap();
    assert!(at < 75_000, "{at} ms");
    let per_minute = found.growth.rate * 60.0 / 1e6;
    assert!((40.0..60.0).contains(&per_minute), "{per_minute} MB a minute");
}

#[test]
fn a_heap_that_runs_into_its_limit_is_found_before_it_is_there() {
    for trace in traces().iter().filter(|trace| trace.heap.is_some()) {
        let (at, _) = found(trace).unwrap();
        let end = trace.samples.last().unwrap().0;
        assert!(at + 1_000 < end, "{}: found after {at} ms of {end} ms", trace.name);
    }
}
