//! A throttled session has memory.high at its usage until the finding closes. Needs cgroup v2.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::path::{Path, PathBuf};

use watchdog_api::{ActionKind, ActionState, FindingKind, Receipt};
use watchdog_tests::{Daemon, ProcessKey, Stage, in_guest, is_alive, poll, seconds};

const MIB: u64 = 1 << 20;

/// The directory of a process's own cgroup, where there is the hierarchy with its controllers.
fn cgroup(process: ProcessKey) -> PathBuf {
    let path = std::fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).expect("a cgroup");
    Path::new("/sys/fs/cgroup").join(path.trim().trim_start_matches("0::/"))
}

fn memory_high(cgroup: &Path) -> u64 {
    let text = std::fs::read_to_string(cgroup.join("memory.high")).expect("memory.high");
    text.trim().parse().expect("a number: the session has a limit")
}

/// Waits for the receipt of an action in this state.
fn receipt(daemon: &Daemon, state: ActionState, within: f64) -> Receipt {
    let find = || daemon.receipts().into_iter().find(|receipt| receipt.state == state);
    poll(seconds(within), find).unwrap_or_else(|| panic!("{:#?}\n{}", daemon.receipts(), daemon.log()))
}

#[test]
fn session_throttled_while_over_limit() {
    let given = std::fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").unwrap_or_default();
    if !given.contains("memory") {
        assert!(!in_guest(), "a guest has the hierarchy with its controllers: {given:?}");
        eprintln!("skipped: no cgroup v2 with its memory controller here");
        return;
    }
    let mut stage = Stage::new();
    let config = format!(
        "[actions]\nenforce = true\ngrace = \"0s\"\noverlimit = \"throttle\"\n\
         [[profile]]\nname = \"bounded\"\nexe = [\"*/{}\"]\nmax_memory = \"512MiB\"\nmax_process_memory = \"64MiB\"\n",
        stage.agent_name()
    );
    let daemon = Daemon::configured(&stage, &config);
    let script = "spawn helper [ report large anon 100 hold ] report agent hold";
    let agent = stage.execute(daemon.launch(&stage, &["--profile", "bounded"], script));
    let large = stage.reported("large");
    stage.reported("agent");
    let cgroup = cgroup(agent);
    let before = memory_high(&cgroup);
    assert!(before > 400 * MIB, "{before}");

    let begun = receipt(&daemon, ActionState::Holding, 40.0);
    assert_eq!((begun.action, begun.finding_kind), (ActionKind::Throttle, Some(FindingKind::Overlimit)));
    assert_eq!(begun.targets[0].sent[0].what, "memory.high", "{begun:#?}");
    let held = memory_high(&cgroup);
    assert!((64 * MIB..200 * MIB).contains(&held), "{held}");
    assert!(is_alive(large) && is_alive(agent));

    // The process above its limit has exited, and with it the reason.
    stage.kill(large);
    let after = poll(seconds(20.0), || Some(memory_high(&cgroup)).filter(|high| *high == before));
    assert!(after.is_some(), "{} is left\n{}", memory_high(&cgroup), daemon.log());
    let over = receipt(&daemon, ActionState::Done, 5.0);
    assert_eq!(over.id, begun.id);
}
