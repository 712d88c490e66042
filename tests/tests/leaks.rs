//! Given node programs below what a profile takes for an agent: one that leaks 50 MB a minute is found with its slope and
//! the time until its heap is full, and one that only makes work for its garbage collector is not.
//!
//! Needs node. Takes 100 seconds: V8 collects every twenty, and a floor takes some collections to be seen rising.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use watchdog::api::{Finding, FindingKind, Severity};
use watchdog_tests::{Daemon, ProcessId, Stage, anonymous_bytes, evidence, poll, seconds};

const MB: f64 = 1e6;
/// Bytes per second: 50 MB a minute.
const RATE: f64 = 50.0 * MB / 60.0;
const HEAP_MIB: u64 = 200;

/// Tells the test who it is, and writes how full its heap is into the file `heap`.
const HEAD: &str = "
const fs = require('fs');
const stat = fs.readFileSync('/proc/self/stat', 'utf8');
const start = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
fs.appendFileSync('reports', `node ${process.pid} ${start}\\n`);
const began = Date.now();
setInterval(() => fs.writeFileSync('heap', String(process.memoryUsage().heapUsed)), 500);
";

/// Keeps arrays of 100 kB, and makes short-lived ones besides.
const LEAK: &str = "
const kept = [];
let churn = [];
setInterval(() => {
  const due = (Date.now() - began) / 1000 * RATE / 100_000;
  while (kept.length < due) kept.push(new Array(12_500).fill(1.5));
  churn = Array.from({ length: 2_000 }, (_, n) => ({ n, text: 'x' + n }));
}, 100);
";

/// Fills a cache with 16 MB a second for six seconds, and drops it.
const SAW: &str = "
let cache = [];
setInterval(() => {
  if (cache.length > 960) cache = [];
  for (let n = 0; n < 16; n++) cache.push(new Array(12_500).fill(1.5));
}, 100);
";

/// Runs a node program as a helper of an agent.
fn node(stage: &mut Stage, options: &str, program: &str) -> ProcessId {
    let script: PathBuf = stage.directory().join("program.js");
    let text = format!("{HEAD}{}", program.replace("RATE", &RATE.to_string()));
    std::fs::write(&script, text).expect("the program");
    stage.agent(&format!("program - [ env node {options} {} ] hold", script.display()));
    stage.reported("node")
}

fn leak_of(look: &watchdog_tests::Look, process: ProcessId) -> Option<Finding> {
    look.findings_of(FindingKind::Leak).into_iter().find(|finding| finding.pid == process.pid).cloned()
}

#[test]
fn a_node_process_that_leaks_50_mb_a_minute_is_found_with_its_slope_and_the_time_to_its_heap_limit() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let process = node(&mut stage, &format!("--max-old-space-size={HEAP_MIB}"), LEAK);

    let leak = daemon.eventually(seconds(120.0), "a leak", |look| leak_of(look, process));

    let slope: f64 = evidence(&leak, "growth_bytes_per_second");
    assert!((slope / RATE - 1.0).abs() <= 0.2, "{slope} bytes per second where {RATE} are kept");
    assert_eq!(leak.evidence["limit"], "v8-heap");
    let heap = std::fs::read_to_string(stage.directory().join("heap")).expect("how full the heap is");
    let used: f64 = heap.parse().expect("a number");
    let truth = (HEAP_MIB as f64 * 1_048_576.0 - used) / RATE;
    let told: f64 = evidence(&leak, "seconds_to_limit");
    assert!((told / truth - 1.0).abs() <= 0.3, "{told} s where {truth} s are left");
    assert_eq!(leak.severity, Severity::Critical, "less than five minutes are left");
    assert!(daemon.metrics().contains("agent_watchdog_leak_bytes_per_second{"));
}

#[test]
fn a_node_process_that_saw_tooths_is_no_leak() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let process = node(&mut stage, "", SAW);

    let began = Instant::now();
    let (mut least, mut most) = (u64::MAX, 0);
    let leak = poll(Duration::from_secs(75), || {
        if began.elapsed() > Duration::from_secs(10) {
            let now = anonymous_bytes(process.pid).expect("it lives");
            (least, most) = (least.min(now), most.max(now));
        }
        std::thread::sleep(Duration::from_millis(250));
        leak_of(&daemon.look(), process)
    });
    assert!(leak.is_none(), "{leak:#?}");
    assert!(most - least > 40_000_000, "memory swayed: from {least} to {most} bytes");
    assert!(daemon.look().process(process).is_some(), "it was watched");
}
