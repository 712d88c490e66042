//! Memory of helpers, of every kind: shown quickly, with shared pages counted once.

use std::time::{Duration, Instant};

use watchdog_api::EventDetail;
use watchdog_tests::{
    Daemon, DaemonOptions, MIB, NOBODY, ProcessKey, Stage, anonymous_bytes, in_guest, poll, proportional_bytes, seconds,
};

/// Whether `shown` is within this part of `truth`.
fn within(shown: u64, truth: u64, part: f64) -> bool {
    (shown as f64 - truth as f64).abs() <= truth as f64 * part
}

/// Waits until the helper's anonymous memory is shown within 5 %, by its own page tables.
fn shown_within_5_percent(daemon: &Daemon, helper: ProcessKey) {
    daemon.eventually(seconds(2.0), "the helper's memory within 5 %", |snapshot| {
        let truth = anonymous_bytes(helper.pid)?;
        assert!(truth >= 100 * MIB, "the fixture holds the requested memory: {truth}");
        within(snapshot.process(helper)?.anon_bytes, truth, 0.05).then_some(())
    });
}

fn size() -> u64 {
    if in_guest() { 100 } else { 200 }
}

#[test]
fn helper_memory_is_shown() {
    let (mut stage, daemon) = Daemon::on_stage();

    stage.agent(&format!("spawn helper [ sleep 1 anon {} report full hold ] hold", size()));

    let helper = stage.reported("full");
    shown_within_5_percent(&daemon, helper);
    let snapshot = daemon.snapshot();
    let session = snapshot.session_with(helper).expect("its session");
    assert!(session.memory_bytes >= size() * MIB * 95 / 100, "{}", session.memory_bytes);
}

#[test]
fn double_forked_helper_memory_is_shown() {
    let (mut stage, daemon) = Daemon::on_stage();

    stage
        .agent(&format!("fork [ setsid fork [ exec helper [ sleep 1 anon {} report full hold ] ] ] wait hold", size()));

    shown_within_5_percent(&daemon, stage.reported("full"));
}

#[test]
fn exit_event_has_peak() {
    let (mut stage, daemon) = Daemon::on_stage();
    let mib = size() * 2;

    // Too short for any sample: only the kernel's own mark shows it.
    stage.agent(&format!("spawn helper [ report burst anon {mib} exit ] wait report over hold"));
    let burst = stage.reported("burst");
    stage.reported("over");

    daemon.eventually(seconds(1.0), "an exit with a peak of the burst", |_| {
        let events = daemon.events();
        let peak = events.iter().filter(|event| event.pid == Some(burst.pid)).find_map(|event| match event.detail {
            EventDetail::Exit { peak_bytes, .. } => Some(peak_bytes),
            _ => None,
        })?;
        assert!(within(peak, mib * MIB, 0.05), "a peak of {peak} bytes where {mib} MiB were taken");
        Some(())
    });
}

#[test]
fn tree_shows_burst_and_peak() {
    let (mut stage, daemon) = Daemon::on_stage();
    let mib = size() * 2;

    stage.agent(&format!("spawn helper [ sleep 1 anon {mib} report full await seen release report freed hold ] hold"));
    let helper = stage.reported("full");
    daemon.eventually(seconds(2.0), "the peak while it lasts", |snapshot| {
        (snapshot.process(helper)?.peak_bytes >= mib * MIB * 95 / 100).then_some(())
    });
    stage.mark("seen");
    stage.reported("freed");

    daemon.eventually(seconds(2.0), "little memory, and the peak that was", |snapshot| {
        let process = snapshot.process(helper)?;
        (process.anon_bytes < 20 * MIB && process.peak_bytes >= mib * MIB * 95 / 100).then_some(())
    });
}

#[test]
fn shared_memory_counted_once() {
    let (mut stage, daemon) = Daemon::on_stage();
    let (memfd, private) = if in_guest() { (128, 64) } else { (512, 128) };

    // Eight children map the memfd and share the rest of the parent's memory copy-on-write.
    let agent = stage.agent(&format!(
        "spawn helper [ memfd {memfd} anon {private} times 8 [ fork [ read report sharer hold ] ] report parent hold ] hold"
    ));
    stage.all_reported("sharer", 8);
    stage.reported("parent");

    let truth = (memfd + private) * MIB;
    let sum: u64 = watchdog_tests::descendants(stage.pid()).iter().filter_map(|p| proportional_bytes(p.pid)).sum();
    assert!(within(sum, truth, 0.1), "the kernel's own sum is {sum}, what was taken {truth}");
    // Measuring what is shared is dear, and has a budget: nine processes of this size take their time.
    daemon.eventually(seconds(20.0), "a session's memory within 10 % of what was taken", |snapshot| {
        within(snapshot.session(agent)?.memory_bytes, truth, 0.1).then_some(())
    });
}

#[test]
fn pages_of_a_file_cost_nothing() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent(&format!("spawn helper [ file data {} report mapped hold ] hold", size()));
    let helper = stage.reported("mapped");

    daemon.eventually(seconds(3.0), "the file's pages are resident", |snapshot| {
        (snapshot.process(helper)?.rss_bytes >= size() * MIB * 95 / 100).then_some(())
    });
    // Every file of a guest lies in memory, and its pages cost as much as any.
    if in_guest() {
        daemon.eventually(seconds(3.0), "the pages of a file on tmpfs", |snapshot| {
            (snapshot.process(helper)?.shmem_bytes >= size() * MIB * 95 / 100).then_some(())
        });
    } else {
        daemon.never(Duration::from_millis(500), "memory that is only a file's", |snapshot| {
            (snapshot.session(agent)?.memory_bytes > 30 * MIB).then_some(())
        });
    }
}

#[test]
fn shared_memory_is_shown_as_such() {
    let (mut stage, daemon) = Daemon::on_stage();

    stage.agent("spawn helper [ shared 64 report shared hold ] hold");
    let helper = stage.reported("shared");

    daemon.eventually(seconds(2.0), "64 MiB of shared memory", |snapshot| {
        let process = snapshot.process(helper)?;
        (within(process.shmem_bytes, 64 * MIB, 0.05) && process.anon_bytes < 20 * MIB).then_some(())
    });
}

#[test]
fn growing_helper_is_sampled_often() {
    let (mut stage, daemon) = Daemon::on_stage();

    // An emulated processor does not touch 40 MiB in a second.
    let grown = if in_guest() { 30 } else { 150 };
    stage.agent("spawn helper [ report grows leak 40 4 hold ] hold");
    let helper = stage.reported("grows");

    // At every moment what is shown is at most two seconds old.
    let mut behind = 0;
    let (two_seconds, mut truths) = (seconds(2.0), Vec::<(Instant, u64)>::new());
    let followed = poll(seconds(12.0), || {
        let truth = anonymous_bytes(helper.pid)?;
        truths.push((Instant::now(), truth));
        let shown = daemon.snapshot().process(helper).map_or(0, |process| process.anon_bytes);
        let old = truths.iter().rev().find(|(at, _)| at.elapsed() > two_seconds).map_or(0, |(_, truth)| *truth);
        behind = behind.max(old.saturating_sub(shown));
        (truth >= grown * MIB).then_some(())
    });
    assert!(followed.is_some(), "the fixture grew");
    // Where the fixture is slow, nothing could be that far behind: what it grew by has to be shown too.
    daemon.eventually(seconds(2.0), "what the helper grew by", |snapshot| {
        (snapshot.process(helper)?.anon_bytes >= grown * MIB).then_some(())
    });
    assert!(behind <= 10 * MIB, "{} MiB behind what it was two seconds ago", behind / MIB);
}

/// A helper whose first thread has exited, and whose second one takes memory.
const FIRST_THREAD_EXITS: &str = "spawn helper [ exit-first-thread [ sleep 1 anon 100 report full leak 10 60 ] ] hold";

fn holds_100_mib(daemon: &Daemon, helper: ProcessKey) {
    daemon.eventually(seconds(5.0), "the memory of its second thread", |snapshot| {
        (snapshot.process(helper)?.anon_bytes >= 100 * MIB).then_some(())
    });
}

#[test]
fn second_thread_leaks_after_first_exits() {
    let (mut stage, daemon) = Daemon::on_stage();
    stage.agent(FIRST_THREAD_EXITS);
    let helper = stage.reported("full");

    holds_100_mib(&daemon, helper);
    daemon.eventually(seconds(60.0), "a leak", |snapshot| {
        let leak = snapshot.open(watchdog_api::FindingKind::Leak).into_iter().find(|leak| leak.pid == helper.pid)?;
        leak.evidence.to_map()["growth_bytes_per_second"].as_f64().filter(|rate| *rate > 1e6)
    });
}

#[test]
fn degraded_daemon_sees_second_thread() {
    let mut stage = Stage::new();
    let daemon = Daemon::with(&stage, &DaemonOptions { uid: Some(NOBODY), ..DaemonOptions::default() });
    stage.start("helper", &format!("uid 65534 exec AGENT [ {FIRST_THREAD_EXITS} ]"));
    holds_100_mib(&daemon, stage.reported("full"));
}
