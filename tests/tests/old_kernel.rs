//! The daemon on a kernel that is too old for kernel events: it says so, and reports what /proc shows.
//!
//! Runs only in the guest with Linux 5.10.
#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, seconds};

/// The oldest kernel with kernel events.
const FLOOR: (u32, u32) = (5, 12);

fn is_below_floor() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let below = (numbers.next().unwrap(), numbers.next().unwrap()) < FLOOR;
    if !below {
        eprintln!("skipped: {} has kernel events", release.trim());
    }
    below
}

#[test]
fn old_kernel_degrades_and_says_so() {
    if !is_below_floor() {
        return;
    }
    let (mut stage, daemon) = Daemon::on_stage();
    let status = daemon.status();
    assert!(status.degraded && !status.tracking.kernel_events, "{status:#?}\n{}", daemon.log());
    let shown = daemon.ctl_text(&["status"]);
    assert!(shown.stdout.contains("degraded, polling /proc"), "{}", shown.stdout);

    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(5.0), "the session", |snapshot| snapshot.session_with(helper).map(drop));
    stage.kill(agent);
    daemon.eventually(seconds(10.0), "the orphan", |snapshot| {
        snapshot.findings_of(FindingKind::Orphan).into_iter().find(|finding| finding.pid == helper.pid).cloned()
    });
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}
