//! Runs everything over everything.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use watchdog_engine::leak::{Ceilings, Change, Demand, LeakLimit, SERIES_BYTES, Watch};
use watchdog_types::{BootTime, Bytes};

use super::EvalOptions;
use super::baselines::{five_cycles, over_uptime, regression, threshold};
use super::generate::{Case, GeneratedTrace, HEALTHY, LEAKING, LeakShape};
use super::score::Score;
use crate::quantile::{median, quantile};
use watchdog_fixtures::traces::traces as captured;
use xtask::cargo::workspace;

/// Between the seeds of two families.
const APART: u64 = 1_000_000;
/// The part of the leaks that has to be found.
const RECALL: f64 = 0.99;
/// Seeds are counted up from here.
const FIRST: u64 = 1 << 40;

/// This project's detector, and what it is compared with.
const DETECTORS: [&str; 5] =
    ["agent-watchdog", "2 GB every 30 min", "r² of a regression", "RSS over uptime", "monit: 5 cycles"];

/// A sum over a session is judged by windows of this length and longer ones, as the engine does.
const SESSION_WINDOW: Duration = Duration::from_secs(3_200);
/// The same of the sum over a role, and the seconds between two sums.
const ROLE_WINDOW: Duration = Duration::from_secs(800);
const GROUP_INTERVAL: f64 = 12.0;
/// Seconds without a sample in which the host slept.
const ASLEEP: f64 = 16.0;

/// The second of each detector's first alarm, when this project's said this.
fn alarms(trace: &GeneratedTrace, own: Option<(f64, f64)>) -> [Option<f64>; DETECTORS.len()] {
    [own.map(|(at, _)| at), threshold(trace), regression(trace), over_uptime(trace), five_cycles(trace)]
}

/// The detector of this project: the second of its first alarm, and the rate in MiB per second.
fn watch(case: &Case) -> Option<(f64, f64)> {
    let window = if case.session { SESSION_WINDOW } else { Duration::ZERO };
    let mut rest = &case.trace[..];
    for end in case.restarts.iter().skip(1).chain([&f64::INFINITY]) {
        let (life, later) = rest.split_at(rest.partition_point(|(at, _)| at < end));
        let found = watch_series(life, case, case.heap, window);
        if found.is_some() {
            return found;
        }
        rest = later;
    }
    // The role is a series of its own, over all lives.
    let role = || watch_series(&every(&case.trace, GROUP_INTERVAL), case, None, ROLE_WINDOW);
    (!case.restarts.is_empty()).then(role).flatten()
}

/// The samples of a trace that are so many seconds apart.
fn every(trace: &GeneratedTrace, interval: f64) -> GeneratedTrace {
    let mut next = 0.0;
    let due = |(at, _): &&(f64, f64)| {
        let due = *at >= next;
        next = if due { at + interval } else { next };
        due
    };
    trace.iter().filter(due).copied().collect()
}

/// One series, by windows of this length and longer ones.
fn watch_series(
    trace: &[(f64, f64)],
    Case { available, .. }: &Case,
    heap: Option<f64>,
    window: Duration,
) -> Option<(f64, f64)> {
    let demand = Demand { window, ..Demand::default() };
    let moment = |seconds: f64| BootTime((seconds * 1e9) as u64 + 10_000_000_000);
    let bytes = |mib: f64| Bytes((mib.max(0.0) * 1_048_576.0) as u64);
    let (first, rest) = trace.split_first()?;
    let mut watch = Watch::new(moment(first.0), bytes(first.1));
    let mut last = first.0;
    for &(at, memory) in rest {
        // Ticks come each second: the engine notices that the host slept.
        if at - last > ASLEEP {
            watch.skip(moment(at - 1.0));
        }
        last = at;
        let mut ceilings = Ceilings::default();
        let left = bytes(available - memory);
        ceilings.add(LeakLimit::Host, left, left);
        if let Some(heap) = heap {
            ceilings.add(LeakLimit::V8Heap, bytes(heap), bytes(heap - memory));
        }
        if watch.push(moment(at), bytes(memory), &ceilings, demand) == Some(Change::Opened) {
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
pub(crate) fn evaluate(options: &EvalOptions) -> Result<()> {
    println!("{}", method(options)?);
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
            let case = family.case(seed + number * APART + process);
            process += 1;
            let seconds = case.trace.last().map_or(0.0, |(at, _)| *at);
            let alarms = alarms(case.resident(), cost.watch(&case));
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
            let own = watch(&case);
            off.extend(own.map(|(_, rate)| (rate / leak.rate - 1.0).abs()));
            let alarms = alarms(case.resident(), own).map(|alarm| alarm.map(|at| case.awake(at)));
            scores.iter_mut().zip(alarms).for_each(|(score, alarm)| score.add_leak(leak, alarm));
        }
        own.push((family.name, scores[0].clone()));
        totals.iter_mut().zip(&scores).for_each(|(total, score)| total.merge(score));
    }
    println!("\nagent-watchdog, by family\n{}", Score::head());
    own.iter().for_each(|(name, score)| println!("{}", score.row(name)));
    println!("\nagent-watchdog, verdicts by family\n{}", Score::confusion_head());
    own.iter().for_each(|(name, score)| println!("{}", score.confusion_row(name)));
    println!("\nall families together\n{}", Score::head());
    DETECTORS.iter().zip(&totals).for_each(|(detector, total)| println!("{}", total.row(detector)));
    println!("late: leaks of 100 MiB/h and more that had grown 300 MiB and were not found");
    rest(&totals[0], &off, &cost)
}

/// Where and how the figures were taken.
fn method(EvalOptions { hours, leaks, seed }: &EvalOptions) -> Result<String> {
    let (kernel, cpus) = (rustix::system::uname(), std::thread::available_parallelism()?);
    let cpu_info = std::fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).unzip().1;
    Ok(format!(
        "machine: {cpus} × {}, {}\nkernel: {} {}\nmethod: captured traces; generated processes, {hours} healthy hours in \
         {} families and {leaks} leaks in each of {} families; a process counts until its first alarm\nseed: {seed}\n",
        model.unwrap_or("unknown processor"),
        kernel.machine().to_string_lossy(),
        kernel.sysname().to_string_lossy(),
        kernel.release().to_string_lossy(),
        HEALTHY.len(),
        LEAKING.len(),
    ))
}

/// The figures of this project's detector alone, and its goals.
fn rest(own: &Score, off: &[f64], cost: &Cost) -> Result<()> {
    let (usual, most) = (median(off) * 100.0, quantile(off, 0.95) * 100.0);
    println!("\nslope when found: off by {usual:.0} % (median), {most:.0} % (95 %)");
    let second = steady_leak();
    println!("a steady leak of 1 MiB/s: found after {}", second.map_or("-".into(), |at| format!("{at:.0} s")));
    println!("{SERIES_BYTES} bytes per series, {:.0} ns per sample", cost.per_sample());
    ensure!(own.false_alarms == 0, "{} false alarms in {:.0} healthy hours", own.false_alarms, own.hours);
    ensure!(own.recall() >= RECALL, "recall is {:.4}, below {RECALL}", own.recall());
    ensure!(own.overdue == 0, "{} leaks of 45 MiB/min and more were found after 150 MiB", own.overdue);
    ensure!(own.late == 0, "{} leaks were found late", own.late);
    ensure!(second.is_some_and(|at| at <= 60.0), "the leak of 1 MiB/s was not found within 60 s");
    Ok(())
}

/// A process that takes 1 MiB a second after five calm minutes: how long that takes to be found.
fn steady_leak() -> Option<f64> {
    let leak = LeakShape { began: 300.0, rate: 1.0 };
    let trace: GeneratedTrace =
        (0..1_000).map(f64::from).map(|at| (at, 80.0 + (at - leak.began).max(0.0) * leak.rate)).collect();
    watch(&Case::of(trace, Some(leak))).map(|(at, _)| at - leak.began)
}

fn traces() -> Result<()> {
    print!("{:30} {:9}", "trace", "verdict");
    DETECTORS.iter().for_each(|detector| print!(" {detector:>18}"));
    println!();
    for trace in captured(&workspace().join("watchdog/fixtures/rss-traces"))? {
        print!("{:30} {:9}", trace.name, if trace.leaks { "leak" } else { "not leak" });
        let samples: GeneratedTrace =
            trace.samples.iter().map(|(ms, kib)| (*ms as f64 / 1e3, *kib as f64 / 1_024.0)).collect();
        let heap = trace.heap_mib.map(|mib| mib as f64);
        let own = watch(&Case { heap, ..Case::of(samples.clone(), None) });
        for alarm in alarms(&samples, own) {
            let right = alarm.is_some() == trace.leaks;
            let said = alarm.map_or("-".into(), |at| format!("{at:.0} s"));
            print!(" {:>18}", format!("{said} {}", if right { "ok" } else { "WRONG" }));
        }
        println!();
    }
    Ok(())
}

/// CPU time of the detector. Other processes may share the processor.
#[derive(Default)]
struct Cost {
    time: Duration,
    samples: u64,
}

impl Cost {
    /// The detector's verdict on a trace. Only traces that it reads to their end count.
    fn watch(&mut self, case: &Case) -> Option<(f64, f64)> {
        let began = cpu_time();
        let found = watch(case);
        if found.is_none() {
            self.time += cpu_time().saturating_sub(began);
            self.samples += case.trace.len() as u64;
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
