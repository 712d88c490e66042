//! Memory of real programs over time, each with the verdict that is right: `fixtures/rss-traces`.

use std::path::Path;

use super::{Ceilings, Change, Demand, Found, LeakLimit, Watch};
use watchdog_fixtures::traces::{AVAILABLE_MIB, Trace};
use watchdog_types::{BootTime, Bytes};

/// It dies three seconds after its start, of a limit that it set itself: it cannot be distinguished from a program that starts up.
const NOT_TO_BE_TOLD: &str = "oom-worker-150mb-node20";

fn traces() -> Vec<Trace> {
    watchdog_fixtures::traces::traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/rss-traces")).unwrap()
}

/// When a leak was found first, in milliseconds, and what was.
fn found(trace: &Trace) -> Option<(u64, Found)> {
    let at = |millis: u64| BootTime(1_000_000_000_000 + millis * 1_000_000);
    let mut samples = trace.samples.iter().map(|(millis, kib)| (*millis, Bytes::from_kib(*kib)));
    let (first, memory) = samples.next().unwrap();
    let mut watch = Watch::new(at(first), memory);
    for (millis, memory) in samples {
        let mut ceilings = Ceilings::default();
        let left = Bytes(Bytes::from_mib(AVAILABLE_MIB).0 - memory.0);
        ceilings.add(LeakLimit::Host, left, left);
        if let Some(heap) = trace.heap_mib.map(Bytes::from_mib) {
            ceilings.add(LeakLimit::V8Heap, heap, Bytes(heap.0.saturating_sub(memory.0)));
        }
        if watch.push(at(millis), memory, &ceilings, Demand::default()) == Some(Change::Opened) {
            return Some((millis, *watch.found().unwrap()));
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
fn fast_leak_found_within_75_seconds() {
    let traces = traces();
    let trace = traces.iter().find(|trace| trace.name == "leak-heap-50mb-min").unwrap();
    let (at, found) = found(trace).unwrap();
    assert!(at < 75_000, "{at} ms");
    let per_minute = found.growth.rate * 60.0 / 1e6;
    assert!((40.0..60.0).contains(&per_minute), "{per_minute} MB a minute");
}

#[test]
fn heap_leak_found_before_its_limit() {
    for trace in traces().iter().filter(|trace| trace.heap_mib.is_some()) {
        let (at, _) = found(trace).unwrap();
        let end = trace.samples.last().unwrap().0;
        assert!(at + 1_000 < end, "{}: found after {at} ms of {end} ms", trace.name);
    }
}
