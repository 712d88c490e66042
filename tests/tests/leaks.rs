//! Leaks of node programs: 50 MB a minute is found with its slope and the time to the heap limit; garbage collection alone
//! is not.
//!
//! Needs node. Takes 100 s: V8 collects every 20 s, and several collections are needed to detect a rising floor.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use watchdog_api::{Finding, FindingKind, Severity};
use watchdog_tests::{Daemon, ProcessKey, Stage, anonymous_bytes, evidence, poll, seconds};

const MB: f64 = 1e6;
/// Bytes per second: 50 MB a minute.
const RATE: f64 = 50.0 * MB / 60.0;
const HEAP_MIB: u64 = 200;

/// Reports itself to the test, and writes the use of its heap into the file `heap`.
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
fn node(stage: &mut Stage, options: &str, program: &str) -> ProcessKey {
    let script: PathBuf = stage.directory().join("program.js");
    let text = format!("{HEAD}{}", program.replace("RATE", &RATE.to_string()));
    std::fs::write(&script, text).expect("the program");
    stage.agent(&format!("program - [ env node {options} {} ] hold", script.display()));
    stage.reported("node")
}

fn leak_of(snapshot: &watchdog_tests::Snapshot, process: ProcessKey) -> Option<Finding> {
    snapshot.findings_of(FindingKind::Leak).into_iter().find(|finding| finding.pid == process.pid).cloned()
}

#[test]
fn node_leak_has_slope_and_time() {
    let (mut stage, daemon) = Daemon::on_stage();
    let process = node(&mut stage, &format!("--max-old-space-size={HEAP_MIB}"), LEAK);

    let is_busy = || seconds(1.0) > Duration::from_secs(1);
    let was_busy = is_busy();
    let leak = daemon.eventually(seconds(120.0), "a leak", |snapshot| leak_of(snapshot, process));

    let slope: f64 = evidence(&leak, "growth_bytes_per_second");
    // On a busy machine V8 collects late, and garbage grows with what is kept.
    let garbage = if was_busy || is_busy() { 1.0 } else { 0.2 };
    assert!((-0.2..=garbage).contains(&(slope / RATE - 1.0)), "{slope} bytes per second where {RATE} are kept");
    assert_eq!(leak.evidence.to_map()["limit"], "v8-heap");
    let heap = stage.directory().join("heap");
    // The file is empty for a moment each time node writes it.
    let used = poll(seconds(5.0), || std::fs::read_to_string(&heap).ok()?.parse::<f64>().ok());
    let used = used.expect("how full the heap is");
    let truth = (HEAP_MIB as f64 * 1_048_576.0 - used) / slope;
    let reported: f64 = evidence(&leak, "seconds_to_limit");
    assert!((reported / truth - 1.0).abs() <= 0.3, "{reported} s where {truth} s are left");
    assert_eq!(leak.severity, Severity::Critical, "less than five minutes are left");
    assert!(daemon.metrics().contains("agent_watchdog_leak_bytes_per_second{"));
}

#[test]
fn node_sawtooth_is_no_leak() {
    let (mut stage, daemon) = Daemon::on_stage();
    let process = node(&mut stage, "", SAW);

    let began = Instant::now();
    let (mut least, mut most) = (u64::MAX, 0);
    while began.elapsed() < Duration::from_secs(75) {
        if began.elapsed() > Duration::from_secs(10) {
            let now = anonymous_bytes(process.pid).expect("it lives");
            (least, most) = (least.min(now), most.max(now));
        }
        std::thread::sleep(Duration::from_millis(250));
        let leak = leak_of(&daemon.snapshot(), process);
        assert!(leak.is_none(), "{leak:#?}");
    }
    assert!(most - least > 40_000_000, "memory swayed: from {least} to {most} bytes");
    assert!(daemon.snapshot().process(process).is_some(), "it was watched");
}
