//! Runs everything over everything.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use watchdog::engine::id::{BootTime, Bytes};
use watchdog::engine::leak::{Ceilings, Change, Demand, Limit, SERIES_BYTES, Watch};

use super::Options;
use super::baselines::{five_cycles, over_uptime, regression, threshold};
use super::generate::{HEALTHY, LEAKING, Leak, Trace};
use super::score::Score;
use super::traces::captured;
use crate::cargo::workspace;

/// MiB that the host has available, without what the process takes.
const AVAILABLE: f64 = 24_000.0;
/// Between the seeds of two families.
const APART: u64 = 1_000_000;
/// The seeds of tests are below.
const FIRST: u64 = 1 << 40;

/// What a detector is told of a process besides its memory: V8's heap limit in MiB.
type Heap = Option<f64>;

/// Gives the second of the first alarm.
struct Detector {
    name: &'static str,
    alarm: fn(&Trace, Heap) -> Option<f64>,
}

const DETECTORS: [Detector; 5] = [
    Detector { name: "agent-watchdog", alarm: |trace, heap| watch(trace, heap).map(|(at, _)| at) },
    Detector { name: "2 GB every 30 min", alarm: |trace, _| threshold(trace) },
    Detector { name: "r² of a regression", alarm: |trace, _| regression(trace) },
    Detector { name: "RSS over uptime", alarm: |trace, _| over_uptime(trace) },
    Detector { name: "monit: 5 cycles", alarm: |trace, _| five_cycles(trace) },
];

/// The detector of this project: the second of its first alarm, and the rate in MiB per second.
fn watch(trace: &Trace, heap: Heap) -> Option<(f64, f64)> {
    let moment = |seconds: f64| BootTime((seconds * 1e9) as u64 + 10_000_000_000);
    let bytes = |mib: f64| Bytes((mib.max(0.0) * 1_048_576.0) as u64);
    let (first, rest) = trace.split_first()?;
    let mut watch = Watch::new(moment(first.0), bytes(first.1));
    for &(at, memory) in rest {
        let mut ceilings = Ceilings::default();
        let left = bytes(AVAILABLE - memory);
        ceilings.add(Limit::Host, left, left);
        if let Some(heap) = heap {
            ceilings.add(Limit::V8Heap, bytes(heap), bytes(heap - memory));
        }
        if watch.push(moment(at), bytes(memory), &ceilings, Demand::default()) == Some(Change::Opened) {
            let rate = watch.found().map_or(0.0, |found| found.growth.rate);
            return Some((at, rate / 1_048_576.0));
        }
    }
    None
}

/// Prints what every detector says of the traces and of the made-up processes.
///
/// # Errors
/// When a trace cannot be read, or the detector misses what it has to reach.
pub(crate) fn evaluate(options: &Options) -> Result<()> {
    traces()?;
    let seed = FIRST + u64::from(options.seed) * 100 * APART;
    let mut totals: [Score; DETECTORS.len()] = Default::default();
    let mut own = Vec::new();
    let mut cost = Cost::default();
    let hours = f64::from(options.hours) / HEALTHY.len() as f64;
    for (family, number) in HEALTHY.iter().zip(0..) {
        let mut scores: [Score; DETECTORS.len()] = Default::default();
        let mut process = 0;
        while scores[0].hours < hours {
            let trace = family.case(seed + number * APART + process).trace;
            process += 1;
            let seconds = trace.last().map_or(0.0, |(at, _)| *at);
            if process % 8 == 0 {
                cost.measure(&trace);
            }
            for (detector, score) in DETECTORS.iter().zip(&mut scores) {
                score.add_healthy(seconds, (detector.alarm)(&trace, None));
            }
        }
        own.push((family.name, scores[0].clone()));
        totals.iter_mut().zip(&scores).for_each(|(total, score)| total.merge(score));
    }
    let mut off = Vec::new();
    for (family, number) in LEAKING.iter().zip(50..) {
        let mut scores: [Score; DETECTORS.len()] = Default::default();
        for process in 0..u64::from(options.leaks) {
            let case = family.case(seed + number * APART + process);
            let Some(leak) = case.leak else { continue };
            off.extend(watch(&case.trace, None).map(|(_, rate)| (rate / leak.rate - 1.0).abs()));
            for (detector, score) in DETECTORS.iter().zip(&mut scores) {
                score.add_leak(leak, (detector.alarm)(&case.trace, None));
            }
        }
        own.push((family.name, scores[0].clone()));
        totals.iter_mut().zip(&scores).for_each(|(total, score)| total.merge(score));
    }
    println!("\nagent-watchdog, by family\n{}", Score::head());
    own.iter().for_each(|(name, score)| println!("{}", score.row(name)));
    println!("\nall families together\n{}", Score::head());
    DETECTORS.iter().zip(&totals).for_each(|(detector, total)| println!("{}", total.row(detector.name)));
    println!("late: leaks of 100 MiB/h and more that had grown 300 MiB and were not found");
    rest(&totals[0], off, &cost)
}

/// The figures that have goals.
fn rest(own: &Score, mut off: Vec<f64>, cost: &Cost) -> Result<()> {
    off.sort_by(f64::total_cmp);
    let at = |part: f64| off.get((off.len() as f64 * part) as usize).copied().unwrap_or(0.0) * 100.0;
    println!("\nslope when found: off by {:.0} % (median), {:.0} % (95 %)", at(0.5), at(0.95));
    let second = steady_leak();
    println!("a steady leak of 1 MiB/s: found after {}", second.map_or("-".into(), |at| format!("{at:.0} s")));
    println!("{SERIES_BYTES} bytes per series, {:.0} ns per sample", cost.per_sample());
    ensure!(own.false_alarms == 0, "{} false alarms in {:.0} healthy hours", own.false_alarms, own.hours);
    ensure!(own.late == 0, "{} leaks were found late", own.late);
    ensure!(second.is_some_and(|at| at <= 60.0), "the leak of 1 MiB/s was not found within 60 s");
    Ok(())
}

/// A process that takes 1 MiB a second after five calm minutes: how long that takes to be found.
fn steady_leak() -> Option<f64> {
    let leak = Leak { began: 300.0, rate: 1.0 };
    let trace: Trace =
        (0..1_000).map(f64::from).map(|at| (at, 80.0 + (at - leak.began).max(0.0) * leak.rate)).collect();
    watch(&trace, None).map(|(at, _)| at - leak.began)
}

fn traces() -> Result<()> {
    print!("{:30} {:9}", "trace", "verdict");
    DETECTORS.iter().for_each(|detector| print!(" {:>18}", detector.name));
    println!();
    for trace in captured(&workspace().join("watchdog/fixtures/rss-traces"))? {
        print!("{:30} {:9}", trace.name, if trace.leaks { "leak" } else { "not leak" });
        for detector in &DETECTORS {
            let alarm = (detector.alarm)(&trace.trace, trace.heap);
            let right = alarm.is_some() == trace.leaks;
            let said = alarm.map_or("-".into(), |at| format!("{at:.0} s"));
            print!(" {:>18}", format!("{said} {}", if right { "ok" } else { "WRONG" }));
        }
        println!();
    }
    Ok(())
}

/// What the detector takes of a processor, which others may use meanwhile.
#[derive(Default)]
struct Cost {
    time: Duration,
    samples: u32,
}

impl Cost {
    fn measure(&mut self, trace: &Trace) {
        let began = cpu_time();
        if watch(trace, None).is_none() {
            self.time += cpu_time().saturating_sub(began);
            self.samples += u32::try_from(trace.len()).unwrap_or(0);
        }
    }

    fn per_sample(&self) -> f64 {
        self.time.as_nanos() as f64 / f64::from(self.samples.max(1))
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
