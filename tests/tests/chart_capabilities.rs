//! The capabilities of the Helm chart: they suffice, and none is superfluous.

use watchdog_api::FindingKind;
use watchdog_tests::{
    CHART_CAPABILITIES, Daemon, DaemonOptions, GrantedCapabilities, NOBODY, Stage, is_alive, poll, seconds,
};

fn daemon_with(stage: &Stage, capabilities: GrantedCapabilities) -> Daemon {
    Daemon::with(stage, &DaemonOptions { capabilities, ..DaemonOptions::default() })
}

#[test]
fn chart_capabilities_suffice_to_reap() {
    let mut stage = Stage::new();
    let daemon = daemon_with(&stage, GrantedCapabilities::Chart);
    let status = daemon.status();
    assert!(status.tracking.kernel_events && !status.degraded, "{}", daemon.log());
    assert!(status.capabilities.iter().any(|row| row.name == "privileges" && row.on), "{:?}", status.capabilities);

    let agent = stage.agent(&format!("spawn helper [ all-uids {NOBODY} anon 20 report helper hold ] hold"));
    let helper = stage.reported("helper");
    daemon.eventually(seconds(15.0), "the memory of another user's helper", |snapshot| {
        snapshot.process(helper).filter(|process| process.anon_bytes >= 20 << 20).map(drop)
    });
    stage.kill(agent);
    let finding = daemon.eventually(seconds(2.0), "a finding", |snapshot| {
        snapshot.open(FindingKind::Orphan).first().map(|finding| (*finding).clone())
    });
    let reaped = daemon.ctl(&["reap", "--yes", &finding.session.expect("a session").to_string()]);
    assert_eq!(reaped.code, 0, "{reaped:?}");
    assert!(poll(seconds(5.0), || (!is_alive(helper)).then_some(())).is_some());
}

#[test]
fn dropped_capability_is_named() {
    let stage = Stage::new();
    for dropped in CHART_CAPABILITIES {
        let daemon = daemon_with(&stage, GrantedCapabilities::ChartWithout(dropped));
        let status = daemon.status();
        let row = status.capabilities.iter().find(|row| row.name == "privileges").expect("the row");
        assert_eq!((row.on, row.why.as_str()), (false, format!("not in effect: {dropped}").as_str()));
        let needs_kernel = matches!(dropped, "CAP_BPF" | "CAP_PERFMON");
        assert_eq!(status.degraded, needs_kernel, "without {dropped}: {}", daemon.log());
    }
}
