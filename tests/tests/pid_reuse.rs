//! Given a machine that uses its pids again and again, a pid with another start is another process.
//!
//! Needs a machine of its own, where nothing else runs meanwhile: hardly any pid is left to others.

use std::collections::BTreeSet;

use watchdog::api::ProcessState;
use watchdog_tests::{Daemon, ProcessId, Stage, descendants, in_guest, is_alive, seconds};

const PID_MAX: &str = "/proc/sys/kernel/pid_max";

/// The pid at which the kernel begins again (RESERVED_PIDS of kernel/pid.c).
const RESERVED: u32 = 300;

/// Lets the kernel count a little higher than the highest pid there is, so that it has to begin again soon.
struct FewPids {
    before: String,
    /// So many forks use up every pid there is, and the first again.
    round: u32,
}

impl FewPids {
    fn new() -> std::io::Result<Self> {
        let before = std::fs::read_to_string(PID_MAX)?;
        let highest = descendants(0).iter().map(|process| process.pid).max().unwrap_or(0);
        let limit = (highest + 100).max(RESERVED + 101);
        std::fs::write(PID_MAX, limit.to_string())?;
        Ok(Self { before, round: limit - RESERVED + 50 })
    }
}

impl Drop for FewPids {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(PID_MAX, &self.before) {
            eprintln!("{PID_MAX} stays low: {error}");
        }
    }
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    if !in_guest() {
        eprintln!("only in a guest: it sets kernel.pid_max");
        return;
    }
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let few = FewPids::new().expect("root may set pid_max");

    let round = few.round;
    let agent = stage.agent(&format!(
        "spawn helper [ report first exit ] wait times {round} [ fork [ exit ] wait ] fork [ report last hold ] report over hold",
    ));
    let first = stage.reported("first");
    stage.reported("over");
    let last = stage.reported("last");

    let members = daemon.eventually(seconds(2.0), "a table as /proc", |look| {
        let processes = &look.session(agent)?.processes;
        let living = processes.iter().filter(|process| process.state != ProcessState::Zombie);
        let members: BTreeSet<_> =
            living.map(|process| ProcessId { pid: process.pid, start_time: process.start_time }).collect();
        (members == descendants(stage.pid())).then_some(members)
    });
    drop(few);
    assert_eq!(members, BTreeSet::from([agent, last]));
    assert!(!is_alive(first));
    let forks = daemon.events().into_iter().filter(|event| event.kind == "fork");
    let born: BTreeSet<_> = forks.filter_map(|event| Some((event.pid?, event.start_time?))).collect();
    let pids: BTreeSet<_> = born.iter().map(|(pid, _)| *pid).collect();
    assert!(pids.len() < born.len(), "{} processes had {} pids: none was used again", born.len(), pids.len());
}
