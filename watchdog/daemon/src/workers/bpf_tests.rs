use std::collections::BTreeMap;
use std::process::Command;

use tokio::sync::{mpsc, oneshot};

use super::super::bpf_loading::{Loading, load};
use super::*;
use crate::launch_waiters::LaunchWaiters;
use crate::worker::{command_channel, run};
use watchdog_engine::gate::{LaunchGrant, LaunchLease};
use watchdog_host::pins::PinError;
use watchdog_host::testing::TestProcess;
use watchdog_types::{BootTime, Bytes, SessionId, Uid};

fn granted(process: ProcessId, cgroup: bool) -> LaunchGrant {
    let (profile, uid) = ("claude-code".to_owned(), Uid(1000));
    LaunchGrant {
        lease: LaunchLease { process, profile, uid, granted: BootTime(1), expected: Bytes(2), cgroups: Vec::new() },
        session: SessionId(3),
        waited: Duration::ZERO,
        environment: BTreeMap::new(),
        oom_score_adj: 300,
        limits: Bounds { cgroup, ..Bounds::default() },
    }
}

#[test]
fn full_kernel_map_refuses_launch() {
    let mut config = Config::default();
    config.tracking.max_processes = 1;
    // The kernel programs would add agents that other tests start, and the one entry would be taken.
    config.profiles.clear();
    let (commands, inbox) = command_channel();
    let (scanner, _requests) = command_channel();
    let (confinement, confine_commands) = command_channel();
    let (events, mut events_rx) = mpsc::channel(64);
    let (loaded, when_loaded) = oneshot::channel();
    let channels = BpfChannels { scanner, confinement, events: EventSender(events) };
    std::thread::spawn(move || {
        let Loading::Loaded(worker) = load(&config, Err(PinError::Absent), channels, loaded) else { return };
        run(*worker, &inbox);
    });
    let Ok(Ok(_streams)) = when_loaded.blocking_recv() else { panic!("this test needs root and a kernel with BTF") };
    let mut waiters = LaunchWaiters::default();
    let [fits, does_not] = [(), ()].map(|()| TestProcess::spawn(Command::new("sleep").arg("1000")));
    let mut asked = [(&fits, false), (&fits, true), (&does_not, false)].map(|(subject, cgroup)| {
        let process = subject.process;
        let root = Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false };
        commands.send(BpfTask::Engine(BpfCommand::Track(process, root))).unwrap();
        let updates = waiters.join(process).updates;
        let pending = PendingGrant { granted: granted(process, cgroup), client: waiters.take_sender(process) };
        commands.send(BpfTask::Grant(Box::new(pending))).unwrap();
        updates
    });

    let command = confine_commands.next_command();
    assert!(matches!(command, ConfineTask::Grant(pending) if pending.granted.limits.cgroup));
    loop {
        match events_rx.blocking_recv().unwrap() {
            WorkerEvent::Input(Input::Inspected(process, None)) => break assert_eq!(process, does_not.process),
            WorkerEvent::Input(_) | WorkerEvent::CloseWatch(_) | WorkerEvent::Untracked(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let rescan = std::iter::from_fn(|| events_rx.blocking_recv());
    assert!(rescan.take(10).any(|event| matches!(event, WorkerEvent::Lost { lifecycle: 1, memory: 0, .. })));
    let Some(LaunchUpdate::Granted(grant)) = asked[0].borrow_and_update().clone() else { panic!("not granted") };
    assert_eq!(grant.limits.cgroup_problem, None);
    assert!(asked[1].borrow_and_update().is_none(), "confinement answers where a cgroup is required");
    let Some(LaunchUpdate::Refused(refused)) = asked[2].borrow_and_update().clone() else { panic!("not refused") };
    assert_eq!(refused.reason, RefusalReason::Quota);
    assert!(refused.detail.contains("max_processes"), "{}", refused.detail);
    assert!(confine_commands.try_command().is_none());

    // The untracked process is tried again, and its exit found.
    let never = does_not.process;
    drop(does_not);
    let gone = |event| matches!(event, WorkerEvent::Input(Input::Inspected(process, None)) if process == never);
    assert!(std::iter::from_fn(|| events_rx.blocking_recv()).take(100).any(gone));
}
