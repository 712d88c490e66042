//! Post-mortems of runs.

use rstest::rstest;

use super::*;
use crate::postmortem::{PostmortemError, PostmortemRequest, reconstruct};
use watchdog_api::End;
use watchdog_types::{Uid, Viewer};

/// Two boots: in the first a run that stopped and one that went down with the host; in the second one that died, and one
/// that may continue.
fn two_boots() -> tempfile::TempDir {
    let stopped = |run, at| record(run, at, None, json!({ "type": "daemon_stopped" }));
    history_of(&[
        started("r1", 0, "boot-0"),
        stopped("r1", 10),
        started("r2", 20, "boot-0"),
        finding("r2", 21, 1, "opened", None),
        finding("r2", 22, 2, "opened", None),
        finding("r2", 30, 2, "closed", Some(30)),
        host("r2", 100, 900, &[(1, 1_000, 50)]),
        oom("r2", 150, Some(1_001), "long before"),
        host("r2", 1_000, 800, &[(1, 1_000, 60), (2, 1_001, 10)]),
        finding("r2", 1_010, 3, "opened", None),
        finding("r2", 1_020, 3, "closed", Some(1_020)),
        host("r2", 1_300, 20, &[(1, 1_000, 55), (2, 1_001, 700)]),
        oom("r2", 1_305, Some(1_000), "victim"),
        host("r2", 1_310, 40, &[(2, 1_001, 710)]),
        oom("r2", 25, None, "heard of at the end"),
        started("r3", 2_000, BOOT),
        host("r3", 2_100, 500, &[]),
        started("r4", 3_000, BOOT),
        host("r4", 3_100, 500, &[]),
    ])
}

fn ask(
    dir: &Path,
    viewer: Viewer,
    boot: Option<i64>,
    running: Option<&str>,
) -> Result<watchdog_api::Postmortem, PostmortemError> {
    let question =
        PostmortemRequest { viewer, boot, running: running.map(ToOwned::to_owned), boot_id: BOOT.to_owned() };
    reconstruct(|| open(dir), &question)
}

#[test]
fn postmortem_lists_growth_findings_kills() {
    let dir = two_boots();
    let postmortem = ask(dir.path(), Viewer::Root, Some(-1), Some("r4")).unwrap();
    assert_eq!(
        (postmortem.run.as_str(), postmortem.boot_id.as_str(), postmortem.end),
        ("r2", "boot-0", End::HostWentDown)
    );
    assert_eq!((postmortem.from, postmortem.to), (time(1_000).to_string(), time(1_310).to_string()));
    let trend = postmortem.host.unwrap();
    assert_eq!(
        (trend.first.memory_available_bytes, trend.last.memory_available_bytes, trend.lowest_available_bytes),
        (800, 40, 20)
    );
    assert_eq!((trend.highest_pressure_some_avg10, trend.highest_pressure_full_avg10), (Some(1.5), None));
    let grew: Vec<_> = postmortem.sessions.iter().map(|growth| (growth.last.session, growth.growth_bytes)).collect();
    assert_eq!(grew, [(2, 700), (1, -5)]);
    assert_eq!(postmortem.processes[0].last.memory_bytes, 710);
    let findings: Vec<_> = postmortem.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(findings, [1, 3], "open since long before, and closed in these minutes");
    assert_eq!(postmortem.killed, [serde_json::to_value(oom("r2", 1_305, Some(1_000), "victim")).unwrap()]);
}

#[test]
fn postmortem_shows_own_records() {
    let dir = two_boots();
    let postmortem = ask(dir.path(), Viewer::User(Uid(1_001)), Some(-1), None).unwrap();
    assert_eq!(postmortem.sessions.iter().map(|growth| growth.last.uid).collect::<Vec<_>>(), [1_001]);
    assert_eq!((postmortem.findings.len(), postmortem.killed.len()), (0, 0));
    assert_eq!(postmortem.host.unwrap().last.memory_available_bytes, 40);
}

#[rstest]
#[case::the_daemon_lives(None, Some("r4"), "r3", End::DaemonDied)]
#[case::no_daemon_lives(None, None, "r4", End::DaemonDied)]
#[case::this_boot(Some(0), Some("r4"), "r3", End::DaemonDied)]
#[case::the_boot_before(Some(-1), None, "r2", End::HostWentDown)]
fn requested_end_is_reconstructed(
    #[case] boot: Option<i64>,
    #[case] running: Option<&str>,
    #[case] run: &str,
    #[case] end: End,
) {
    let postmortem = ask(two_boots().path(), Viewer::Root, boot, running).unwrap();
    assert_eq!((postmortem.run.as_str(), postmortem.end), (run, end));
}

#[test]
fn stop_differs_from_crash() {
    let stopped = record("r", 5, None, json!({ "type": "daemon_stopped" }));
    let dir = history_of(&[started("r", 0, "boot-0"), stopped]);
    assert_eq!(ask(dir.path(), Viewer::Root, None, None).unwrap().end, End::Stopped);
    for (boot, running) in [(Some(-2), None), (Some(0), None), (None, Some("r"))] {
        let refusal = ask(dir.path(), Viewer::Root, boot, running).unwrap_err();
        assert!(matches!(refusal, PostmortemError::NoSuchRun(_)), "{refusal}");
    }
    let empty = scratch();
    assert!(matches!(ask(empty.path(), Viewer::Root, None, None), Err(PostmortemError::Read(_))));
}
