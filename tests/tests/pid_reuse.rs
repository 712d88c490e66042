//! A reused pid is another process.

use std::collections::BTreeSet;

use watchdog_api::ProcessState;
use watchdog_tests::{Daemon, ProcessKey, descendants, is_alive, seconds};

#[test]
fn reused_pid_is_other_process() {
    let (mut stage, daemon) = Daemon::on_stage();

    // A start time is counted in ticks of 10 ms, and two starts in one tick are one.
    let agent = stage.agent(
        "spawn helper [ report first exit ] wait sleep 0.05 fork-as first [ report last hold ] report over hold",
    );
    stage.reported("over");
    let (first, last) = (stage.reported("first"), stage.reported("last"));
    assert_eq!(first.pid, last.pid);

    let members = daemon.eventually(seconds(2.0), "a table as /proc", |snapshot| {
        let processes = &snapshot.session(agent)?.processes;
        let living = processes.iter().filter(|process| process.state != ProcessState::Zombie);
        let members: BTreeSet<_> =
            living.map(|process| ProcessKey { pid: process.pid, start_time: process.start_time }).collect();
        (members == descendants(stage.pid())).then_some(members)
    });
    assert_eq!(members, BTreeSet::from([agent, last]));
    assert!(!is_alive(first));
    let events = daemon.events();
    let of = |kind: &str| -> Vec<Option<u64>> {
        let of_pid = events.iter().filter(|event| event.detail.kind() == kind && event.pid == Some(last.pid));
        of_pid.map(|event| event.start_time).collect()
    };
    assert_eq!(of("fork"), [Some(first.start_time), Some(last.start_time)]);
    assert_eq!(of("exit"), [Some(first.start_time)]);
}
