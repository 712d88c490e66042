//! Scans, and what must have happened between them.

use std::process::{Command, Stdio};

use super::super::scan::scan;
use super::super::testing::{TestProcess, eventually, has_executed};
use super::*;
use watchdog_config::Patterns;
use watchdog_types::{Memory, Ticks, Uid};

fn id(pid: u32, start: u64) -> ProcessId {
    ProcessId { pid: Pid(pid), start_time: Ticks(start) }
}

fn process(process: ProcessId, ppid: u32, comm: &str) -> ScannedProcess {
    ScannedProcess {
        process,
        ppid: Pid(ppid),
        uid: Uid(1000),
        comm: comm.to_owned(),
        image: Image::new(format!("/bin/{comm}"), [comm]),
        titled: false,
        zombie: false,
        lineage: None,
        memory: Memory::default(),
    }
}

fn root(process: ProcessId) -> Lineage {
    Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false }
}

/// A poller that has seen an agent (pid 10) and a stranger (pid 20).
fn primed() -> (Poller, Vec<ScannedProcess>) {
    let agent = id(10, 100);
    let processes = vec![process(id(1, 1), 0, "init"), process(agent, 1, "agent"), process(id(20, 90), 1, "stranger")];
    let mut poller = Poller::new(Vec::new());
    assert_eq!(poller.events(&at(1, processes.clone())), []);
    poller.track(agent, root(agent));
    (poller, processes)
}

fn at(second: u64, processes: Vec<ScannedProcess>) -> Scan {
    Scan { began: BootTime(second * 1_000_000_000), processes }
}

/// Each event as one word and a pid.
fn kinds_and_pids(events: &[KernelEvent]) -> Vec<(&'static str, u32)> {
    let word = |event: &KernelEvent| match event {
        KernelEvent::Fork(fork) => ("fork", fork.process.pid.0),
        KernelEvent::Exec(exec) => ("exec", exec.process.pid.0),
        KernelEvent::Exit(exit) => ("exit", exit.process.pid.0),
        other => panic!("{other:?}"),
    };
    events.iter().map(word).collect()
}

#[test]
fn only_tracked_parents_children_inherit() {
    let (mut poller, mut processes) = primed();
    processes.push(process(id(30, 200), 10, "agent"));
    processes.push(process(id(31, 201), 30, "tool"));
    processes.push(process(id(32, 201), 20, "tool"));
    let events = poller.events(&at(2, processes));
    assert_eq!(kinds_and_pids(&events), [("fork", 30), ("fork", 31), ("exec", 31)]);
    let KernelEvent::Fork(fork) = &events[1] else { panic!() };
    assert_eq!((fork.lineage.root, fork.lineage.parent, fork.lineage.depth), (id(10, 100), Some(id(30, 200)), 2));
    assert!(poller.lineage(id(30, 200)).unwrap().forked);
    assert!(!poller.lineage(id(31, 201)).unwrap().forked);
    assert_eq!(poller.lineage(id(32, 201)), None);
}

#[test]
fn child_with_lower_pid_is_tracked() {
    let (mut poller, mut processes) = primed();
    processes.push(process(id(5, 200), 30000, "tool"));
    processes.push(process(id(30000, 200), 10, "tool"));
    assert_eq!(
        kinds_and_pids(&poller.events(&at(2, processes))),
        [("fork", 30000), ("fork", 5), ("exec", 30000)],
        "the inner one shows what its parent runs"
    );
}

#[test]
fn new_agents_new_children_inherit() {
    let (mut poller, mut processes) = primed();
    let late = Patterns { exe: vec!["*/late".to_owned()], ..Patterns::default() };
    poller.set_profiles(vec![Profile::new("late", [late]).unwrap()]);
    processes.push(process(id(40, 200), 20, "late"));
    processes.push(process(id(41, 200), 40, "tool"));
    processes.push(process(id(42, 201), 41, "late"));
    processes.push(process(id(50, 202), 20, "late"));

    let events = poller.events(&at(2, processes.clone()));

    let expected = [("exec", 40), ("fork", 41), ("fork", 42), ("exec", 41), ("exec", 42), ("exec", 50)];
    assert_eq!(kinds_and_pids(&events), expected);
    let lineage = poller.lineage(id(42, 201)).unwrap();
    assert_eq!((lineage.root, lineage.parent, lineage.depth), (id(40, 200), Some(id(41, 200)), 2));
    assert_eq!(poller.events(&at(3, processes)), [], "and no event is reported twice");
}

#[test]
fn changed_image_is_exec() {
    let (mut poller, mut processes) = primed();
    assert_eq!(poller.events(&at(2, processes.clone())), []);
    processes[1].image.argv.push("--more".to_owned());
    processes[2].image.argv.push("--more".to_owned());
    assert_eq!(kinds_and_pids(&poller.events(&at(3, processes))), [("exec", 10)]);
}

#[test]
fn zombie_exits_once_without_status() {
    let (mut poller, mut processes) = primed();
    processes[1].memory.peak = Bytes(77);
    assert_eq!(poller.events(&at(2, processes.clone())), []);
    processes[1].zombie = true;
    let events = poller.events(&at(3, processes.clone()));
    let exit = Exit { at: BootTime(3_000_000_000), process: id(10, 100), status: None, peak: Some(Bytes(77)) };
    assert_eq!(events, [KernelEvent::Exit(exit)]);
    processes.remove(1);
    assert_eq!(poller.events(&at(4, processes)), []);
    assert!(poller.entries().is_empty());
}

#[test]
fn process_between_scans_exits_once() {
    let (mut poller, processes) = primed();
    let (gone, zombie) = (id(60, 300), id(61, 300));
    poller.track(gone, root(gone));
    poller.track(zombie, root(zombie));
    let mut seen = processes.clone();
    seen.push(ScannedProcess { zombie: true, ..process(zombie, 1, "agent") });
    assert_eq!(kinds_and_pids(&poller.events(&at(2, seen.clone()))), [("exit", 60), ("exit", 61)]);
    assert_eq!(poller.entries().len(), 1);
    assert_eq!(poller.events(&at(3, seen)), []);
    assert_eq!(poller.events(&at(4, processes)), []);
}

#[test]
fn reused_pid_inherits_nothing() {
    let (mut poller, mut processes) = primed();
    processes[1] = process(id(10, 500), 1, "other");
    assert_eq!(kinds_and_pids(&poller.events(&at(2, processes))), [("exit", 10)]);
    assert_eq!(poller.lineage(id(10, 500)), None);
}

#[test]
fn witness_children_are_not_tracked() {
    let (mut poller, mut processes) = primed();
    poller.track(id(20, 90), Lineage { witness: true, ..root(id(10, 100)) });
    processes.push(process(id(40, 300), 20, "tool"));
    assert_eq!(poller.events(&at(2, processes.clone())), []);
    processes.remove(2);
    assert_eq!(kinds_and_pids(&poller.events(&at(3, processes))), [("exit", 20)]);
}

#[test]
fn untrack_ignores_other_start_time() {
    let (mut poller, _) = primed();
    poller.untrack(id(10, 99));
    assert_eq!(poller.entries().len(), 1);
    poller.untrack(id(10, 100));
    assert!(poller.entries().is_empty());
}

#[test]
fn shell_and_child_are_followed() {
    let mut command = Command::new("sh");
    let shell = TestProcess::spawn(
        command.args(["-c", "read line; sleep 60 & echo $!; wait"]).stdin(Stdio::piped()).stdout(Stdio::piped()),
    );
    let mut shell = shell;
    let mut poller = Poller::new(Vec::new());
    poller.track(shell.process, root(shell.process));
    assert_eq!(poller.events(&scan(poller.entries()).unwrap()), []);
    std::io::Write::write_all(shell.child().stdin.as_mut().unwrap(), b"\n").unwrap();
    let child: u32 = shell.line().parse().unwrap();
    let mut events = Vec::new();
    eventually("the child's exec", || {
        let seen = scan(poller.entries()).unwrap();
        events.extend(poller.events(&seen));
        kinds_and_pids(&events).contains(&("exec", child))
    });
    assert_eq!(kinds_and_pids(&events), [("fork", child), ("exec", child)]);
    eventually("the end of the exec", || has_executed(Pid(child)));
    let seen = scan(poller.entries()).unwrap();
    let sleeper = seen.processes.iter().find(|process| process.process.pid.0 == child).unwrap();
    assert_eq!(
        (sleeper.comm.as_str(), sleeper.image.argv.as_slice()),
        ("sleep", &["sleep".to_owned(), "60".to_owned()][..])
    );
    assert_eq!(sleeper.lineage.unwrap().parent, Some(shell.process));
    assert!(sleeper.memory.rss() > Bytes(0));
    let own = seen.processes.iter().find(|process| process.process.pid.0 == std::process::id()).unwrap();
    assert_eq!(own.memory, Memory::default(), "not tracked, so not measured");
    assert!(!own.image.path.ends_with(" (deleted)"));

    let sleeper = i32::try_from(child).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(sleeper).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    shell.child().wait().unwrap();
    let mut ends = poller.events(&scan(poller.entries()).unwrap());
    ends.sort_by_key(|event| kinds_and_pids(std::slice::from_ref(event))[0].1 != child);
    assert_eq!(kinds_and_pids(&ends), [("exit", child), ("exit", shell.process.pid.0)]);
}
