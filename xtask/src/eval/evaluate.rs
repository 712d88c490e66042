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
use super::traces::{AVAILABLE_MIB, traces as captured};
use crate::cargo::workspace;
use crate::quantile::{median, quantile};

/// Between the seeds of two families.
const APART: u64 = 1_000_000;
/// Seeds are counted up from here.
const FIRST: u64 = 1 << 40;

/// What a detector is told of a process besides its memory: V8's heap limit in MiB.
type Heap = Option<f64>;

/// This project's detector, and what it is compared with.
const DETECTORS: [&str; 5] =
    ["agent-watchdog", "2 GB every 30 min", "r² of a regression", "RSS over uptime", "monit: 5 cycles"];

/// The second of each detector's first alarm, when this project's said this.
fn alarms(trace: &Trace, own: Option<(f64, f64)>) -> [Option<f64>; DETECTORS.len()] {
    [own.map(|(at, _)| at), threshold(trace), regression(trace), over_uptime(trace), five_cycles(trace)]
}

/// The detector of this project: the second of its first alarm, and the rate in MiB per second.
fn watch(trace: &Trace, heap: Heap) -> Option<(f64, f64)> {
    let moment = |seconds: f64| BootTime((seconds * 1e9) as u64 + 10_000_000_000);
    let bytes = |mib: f64| Bytes((mib.max(0.0) * 1_048_576.0) as u64);
    let (first, rest) = trace.split_first()?;
    let mut watch = Watch::new(moment(first.0), bytes(first.1));
    for &(at, memory) in rest {
        let mut ceilings = Ceilings::default();
        let left = bytes(AVAILABLE_MIB as f64 - memory);
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
            let alarms = alarms(&trace, cost.watch(&trace));
            scores.iter_mut().zip(alarms).for_each(|(score, alarm)| score.add_healthy(seconds, alarm));
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
            let own = watch(&case.trace, None);
            off.extend(own.map(|(_, rate)| (rate / leak.rate - 1.0).abs()));
            scores.iter_mut().zip(alarms(&case.trace, own)).for_each(|(score, alarm)| score.add_leak(leak, alarm));
        }
        own.push((family.name, scores[0].clone()));
        totals.iter_mut().zip(&scores).for_each(|(total, score)| total.merge(score));
    }
    println!("\nagent-watchdog, by family\n{}", Score::head());
    own.iter().for_each(|(name, score)| println!("{}", score.row(name)));
    println!("\nall families together\n{}", Score::head());
    DETECTORS.iter().zip(&totals).for_each(|(detector, total)| println!("{}", total.row(detector)));
    println!("late: leaks of 100 MiB/h and more that had grown 300 MiB and were not found");
    rest(&totals[0], &off, &cost)
}

/// The figures of this project's detector alone, and its goals.
fn rest(own: &Score, off: &[f64], cost: &Cost) -> Result<()> {
    let (usual, most) = (median(off) * 100.0, quantile(off, 0.95) * 100.0);
    println!("\nslope when found: off by {usual:.0} % (median), {most:.0} % (95 %)");
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
    DETECTORS.iter().for_each(|detector| print!(" {detector:>18}"));
    println!();
    for trace in captured(&workspace().join("watchdog/fixtures/rss-traces"))? {
        print!("{:30} {:9}", trace.name, if trace.leaks { "leak" } else { "not leak" });
        let samples: Trace = trace.samples.iter().map(|(ms, kib)| (*ms as f64 / 1e3, *kib as f64 / 1_024.0)).collect();
        let own = watch(&samples, trace.heap_mib.map(|mib| mib as f64));
        for alarm in alarms(&samples, own) {
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
    samples: u64,
}

impl Cost {
    /// What the detector says of a trace. Only one that it looks at to its end is counted.
    fn watch(&mut self, trace: &Trace) -> Option<(f64, f64)> {
        let began = cpu_time();
        let found = watch(trace, None);
        if found.is_none() {
            self.time += cpu_time().saturating_sub(began);
            self.samples += trace.len() as u64;
        }
        found
    }

    fn per_sample(&self) -> f64 {
        self.time.as_nanos() as f64 / self.samples.max(1) as f64
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
