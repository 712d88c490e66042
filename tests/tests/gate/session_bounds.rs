//! The bounds of a session: the kernel holds it to its processes and memory.

use std::path::Path;

use crate::{launch, lsm};
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, Stage, in_guest, is_alive, poll, seconds};

/// A configuration whose agent profile, the stage's own, is held to these bounds.
fn bounded(stage: &Stage, bounds: &str) -> String {
    format!("[[profile]]\nname = \"bounded\"\nexe = [\"*/{}\"]\n{bounds}\n", stage.agent_name())
}

#[test]
fn fork_beyond_limit_fails() {
    let mut stage = Stage::new();
    let config = bounded(&stage, "max_helpers = 5");
    let daemon = Daemon::configured(&stage, &config);
    let held = lsm(&daemon);
    if !held && !cgroup_v2() {
        eprintln!("skipped: neither BPF LSM nor cgroup v2 with its controllers is here");
        return;
    }
    launch(&mut stage, &daemon, 1, &["--profile", "bounded"], "fork-until-refused refused [ hold ] report full hold");
    let agent = stage.reported("full");
    let refused = std::fs::read_to_string(stage.directory().join("refused")).expect("what was refused");
    let (children, error) = refused.trim().split_once(' ').expect("two numbers");
    assert_eq!(error, libc::EAGAIN.to_string());
    // Without BPF LSM, pids.max counts threads, of which it allows 32 for each process.
    let expected = if held { 5 } else { 32 * 6 - 1 };
    assert_eq!(children, expected.to_string());
    // The neighbour is not held.
    let other = stage.agent("times 10 [ fork [ report other hold ] ] hold");
    stage.all_reported("other", 10);
    assert!(is_alive(agent) && is_alive(other));
}

fn cgroup_v2() -> bool {
    let given = std::fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").unwrap_or_default();
    let there = given.contains("memory") && given.contains("pids");
    assert!(there || !in_guest(), "a guest has the hierarchy with its controllers: {given:?}");
    there
}

/// A daemon whose profile `bounded` has a limit of 128 MiB.
fn with_memory_limit() -> Option<(Stage, Daemon)> {
    if !cgroup_v2() {
        eprintln!("skipped: no cgroup v2 with its controllers here");
        return None;
    }
    let stage = Stage::new();
    let daemon = Daemon::configured(&stage, &bounded(&stage, "max_memory = \"128MiB\""));
    Some((stage, daemon))
}

#[test]
fn oom_kills_whole_session_only() {
    let Some((mut stage, daemon)) = with_memory_limit() else { return };
    let options = ["--profile", "bounded"];
    let neighbour = launch(&mut stage, &daemon, 1, &options, "anon 60 report neighbour hold")[0];
    let script =
        "spawn helper [ report small hold ] spawn helper [ report large await go anon 200 hold ] report agent hold";
    let agent = launch(&mut stage, &daemon, 1, &options, script)[0];
    let members = [stage.reported("agent"), stage.reported("small"), stage.reported("large")];
    stage.reported("neighbour");
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", agent.pid)).expect("a cgroup");
    let directory = Path::new("/sys/fs/cgroup").join(cgroup.trim().trim_start_matches("0::/"));
    let limit_of = |file: &str| std::fs::read_to_string(directory.join(file)).expect("a limit").trim().to_owned();
    assert_eq!(limit_of("memory.max"), (128u64 << 20).to_string());
    assert_eq!(limit_of("memory.oom.group"), "1");

    stage.mark("go");
    let exited = poll(seconds(20.0), || members.iter().all(|member| !is_alive(*member)).then_some(()));
    assert!(exited.is_some(), "{members:?}\n{}", daemon.log());
    assert!(is_alive(neighbour));
    let removed = poll(seconds(5.0), || (!directory.exists()).then_some(()));
    assert!(removed.is_some(), "{} is left behind", directory.display());
}

#[test]
fn process_leaving_cgroup_is_reported() {
    let Some((mut stage, daemon)) = with_memory_limit() else { return };
    launch(&mut stage, &daemon, 1, &["--profile", "bounded"], "spawn helper [ report leaves hold ] report agent hold");
    let leaves = stage.reported("leaves");
    std::fs::write("/sys/fs/cgroup/cgroup.procs", leaves.pid.to_string()).expect("root may move it");
    let finding = daemon.eventually(seconds(15.0), "a finding", |snapshot| {
        snapshot.open(FindingKind::Ungated).into_iter().find(|finding| finding.pid == leaves.pid).cloned()
    });
    assert!(finding.summary.ends_with("its memory limit of 128 MiB no longer applies"), "{finding:?}");
    assert_eq!(daemon.snapshot().session_with(leaves).map(|session| session.gated), Some(true));
}
