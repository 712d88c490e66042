//! Agents that start on a machine with little memory, with and without the gate. Runs alone in its guest, since it uses all
//! memory.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::time::Duration;

use watchdog_tests::{Daemon, Stage, in_guest, limit, poll};

/// How often the kernel has killed for want of memory.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").expect("vmstat");
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}

const LARGE: &str = "anon 300 write sleep 4 report ended exit";

/// Only in a guest: another machine's memory is not the test's to fill.
#[test]
fn gate_prevents_oom_on_small_machine() {
    if !in_guest() {
        eprintln!("skipped: only a guest's memory is the test's own");
        return;
    }
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[gate]\nexpected_memory = \"300MiB\"\nreserve = \"200MiB\"\n");
    let before = oom_kills();
    for _ in 0..10 {
        stage.execute(daemon.launch(&stage, &[], LARGE));
    }
    let ended =
        poll(limit(Duration::from_secs(60)), || stage.reports().get("ended").filter(|all| all.len() == 10).map(drop));
    assert!(ended.is_some(), "{:#?}\n{}", daemon.queue(), stage.log());
    assert_eq!(oom_kills(), before, "through the gate no process is killed");

    for _ in 0..10 {
        stage.agent(LARGE);
    }
    let killed = poll(limit(Duration::from_secs(30)), || (oom_kills() > before).then_some(()));
    assert!(killed.is_some(), "ten times 300 MiB fit into this machine: the test shows nothing");
}
