//! Limits and queue with many clients, also when clients and daemons are killed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::{launch, queued};
use rustix::process::Signal;
use watchdog_api::Event;
use watchdog_tests::{Daemon, ProcessKey, Stage, descendants, in_guest, is_alive, limit, poll, seconds};

/// The most agents that ran at once, by the daemon's own events: from the grant to the exit.
fn most_at_once(events: &[Event]) -> (usize, usize) {
    let (mut running, mut most, mut grants) = (BTreeSet::new(), 0, 0);
    for event in events {
        match event.detail.kind() {
            "launch_granted" => {
                running.insert(event.pid);
                grants += 1;
                most = most.max(running.len());
            }
            "exit" => {
                running.remove(&event.pid);
            }
            _ => {}
        }
    }
    (most, grants)
}

#[test]
fn quota_holds_for_hundred_agents() {
    if in_guest() {
        eprintln!("skipped: on emulated processors so many clients take longer to start than a fixture may live");
        return;
    }
    let mut stage = Stage::new();
    let daemon = Daemon::configured(
        &stage,
        "[daemon]\njournal_events = 100000\n[gate]\nmax_sessions = 10\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n",
    );
    let script = "spawn helper [ anon 20 hold ] spawn helper [ anon 40 hold ] spawn helper [ anon 60 hold ] await go \
                  sleep 0.4 report ended exit";
    let launched = launch(&mut stage, &daemon, 100, &[], script);
    queued(&daemon, 90);
    let promised: Vec<u32> = daemon.queue().waiting.iter().map(|waiter| waiter.pid).collect();
    stage.mark("go");

    let ended =
        poll(limit(Duration::from_secs(60)), || stage.reports().remove("ended").filter(|ended| ended.len() == 100));
    let ended = ended.unwrap_or_else(|| panic!("{:#?}\n{}", daemon.queue(), stage.log()));
    assert_eq!(ended.iter().collect::<BTreeSet<_>>(), launched.iter().collect::<BTreeSet<_>>());
    poll(seconds(2.0), || daemon.queue().leases.is_empty().then_some(())).expect("every lease ends");
    let events = daemon.events();
    assert_eq!(most_at_once(&events), (10, 100));
    let granted: Vec<u32> =
        events.iter().filter(|event| event.detail.kind() == "launch_granted").filter_map(|e| e.pid).collect();
    assert_eq!(granted[10..], promised);
}

/// Stops a thread, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a process executes now.
fn executes(process: ProcessKey) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{}/exe", process.pid)).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// Processes that run the stage's agent program, as /proc has them.
fn agents(stage: &Stage) -> BTreeSet<ProcessKey> {
    let name = stage.agent_name();
    let below = descendants(stage.pid());
    below.into_iter().filter(|process| executes(*process).as_deref() == Some(name)).collect()
}

#[test]
fn random_kills_keep_queue_and_limit() {
    if in_guest() {
        eprintln!("skipped: on emulated processors so many clients take longer to start than a fixture may live");
        return;
    }
    let mut stage = Stage::new();
    let mut daemon =
        Daemon::configured(&stage, "[gate]\nmax_sessions = 5\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n");
    let script = "await go sleep 0.5 report ended exit";
    let launched = launch(&mut stage, &daemon, 60, &[], script);
    // A launch that finds no daemon at its start fails at once.
    queued(&daemon, 55);
    stage.mark("go");
    let (most, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut killed = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Those that are in two reads of /proc ran together between the reads; one read may see an agent that ends and
            // the one that takes its place.
            let mut before = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                let now = agents(&stage);
                most.fetch_max(now.intersection(&before).count(), Ordering::Relaxed);
                before = now;
            }
        });
        let _over = Over(&over);
        for round in 0..3 {
            for nth in 0..5 {
                let living: Vec<ProcessKey> = launched.iter().copied().filter(|process| is_alive(*process)).collect();
                // In each case it waits, has just been granted, or runs.
                let victim = living.get((nth * 4 + round) % living.len().max(1));
                if let Some(victim) = victim.filter(|victim| stage.signal_if_there(**victim, Signal::KILL)) {
                    killed.insert(*victim);
                }
                std::thread::sleep(Duration::from_millis(60));
            }
            daemon.send(Signal::KILL);
            daemon.wait(limit(Duration::from_secs(5)));
            std::thread::sleep(limit(Duration::from_millis(100)));
            daemon.restart();
        }
        let all =
            poll(limit(Duration::from_secs(60)), || launched.iter().all(|process| !is_alive(*process)).then_some(()));
        assert!(all.is_some(), "{:#?}\n{}\n{}", daemon.queue(), daemon.log(), stage.log());
    });
    let ended: BTreeSet<ProcessKey> = stage.reports().remove("ended").expect("some end").into_iter().collect();
    let lost: Vec<&ProcessKey> =
        launched.iter().filter(|process| !ended.contains(process) && !killed.contains(process)).collect();
    assert!(lost.is_empty(), "neither ended nor killed: {lost:?}\n{}", stage.log());
    assert!(killed.len() >= 5, "{killed:?}");
    let most = most.load(Ordering::Relaxed);
    assert!((1..=5).contains(&most), "{most} at once");
    poll(seconds(3.0), || (daemon.queue().leases.is_empty() && daemon.queue().waiting.is_empty()).then_some(()))
        .unwrap_or_else(|| panic!("places are held by no process: {:#?}", daemon.queue()));
}
