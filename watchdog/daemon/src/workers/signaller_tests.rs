use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rstest::rstest;
use tokio::sync::mpsc;

use super::super::WorkerEvent;
use super::*;
use crate::set_aside::StateNotes;
use crate::state_file::StoredFile;
use crate::worker::{command_channel, run};
use watchdog_api::evidence::ActionEvidence;
use watchdog_api::{ActionKind, ProcessKind};
use watchdog_config::Config;
use watchdog_engine::Engine;
use watchdog_engine::actions::{
    Action, ActionLogRecord, Authority, Initiator, Justification, Permissions, TargetSnapshot,
};
use watchdog_engine::effect::{ActionCommand, Effect};
use watchdog_host::inspect::inspect;
use watchdog_host::testing::{TestHierarchy, TestProcess, eventually};
use watchdog_host::this_process;
use watchdog_types::{ActionId, Bytes, Image, Memory, Scan, ScannedProcess, SessionId, Ticks, Uid};

const BOOT: &str = "this boot";
const ACTION: ActionId = ActionId(7);
const OURS: &str = "/user.slice/agent-watchdog-12-345";

fn sleeper() -> TestProcess {
    TestProcess::spawn(Command::new("sleep").arg("1000"))
}

/// A process that ignores SIGTERM.
fn stubborn() -> TestProcess {
    TestProcess::python(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(1000)",
    )
}

fn is_dead(subject: &mut TestProcess) -> bool {
    subject.child().try_wait().unwrap().is_some()
}

fn is_stopped(subject: &TestProcess) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", subject.process.pid)).unwrap();
    stat.contains(") T ")
}

fn action(targets: &[ProcessId]) -> Box<Action> {
    let target = |process: &ProcessId| TargetSnapshot {
        process: *process,
        parent: None,
        kind: ProcessKind::Other,
        name: "sleep".to_owned(),
        uid: Uid(1000),
        memory: Bytes(1),
    };
    Box::new(Action {
        id: ACTION,
        kind: ActionKind::Terminate,
        initiator: Initiator::User(Uid(rustix::process::geteuid().as_raw())),
        justification: Justification::WholeSession(SessionId(1)),
        urgent: false,
        finding: None,
        session: Some(SessionId(1)),
        owner: Uid(1000),
        user: None,
        reason: "a person ends the session".to_owned(),
        evidence: ActionEvidence::default(),
        targets: targets.iter().map(target).collect(),
        cgroup: None,
        began: BootTime(5),
        available: Bytes(6),
    })
}

fn batch(operation: Operation, targets: &[ProcessId], cgroup: Option<&str>) -> Batch {
    Batch {
        action: ACTION,
        operation,
        targets: targets.to_vec(),
        authority: Authority::ROOT,
        cgroup: cgroup.map(str::to_owned),
    }
}

/// The records of a directory's file.
fn written(dir: &Path) -> Vec<ActionLogRecord> {
    StoredFile::open(dir, BOOT, &StateNotes::default()).records().to_vec()
}

/// A record in a word: the attempt or its result, and the target.
fn in_a_word(record: &ActionLogRecord) -> String {
    match record {
        ActionLogRecord::Count(id) => format!("count {id}"),
        ActionLogRecord::Begun(action) => format!("begun {}", action.id),
        ActionLogRecord::Sending { operation, process, .. } => format!("{operation:?} {}?", process.pid),
        ActionLogRecord::Sent { operation, process, outcome, .. } => {
            format!("{operation:?} {}: {outcome:?}", process.pid)
        }
        ActionLogRecord::Finished(id) => format!("over {id}"),
    }
}

fn signaller(dir: &Path) -> Signaller {
    let file = StoredFile::open(dir, BOOT, &StateNotes::default());
    // The events have no receiver.
    Signaller::new(EventSender(mpsc::channel(1).0), ActionLog::new(file))
}

/// A signaller with a started action.
fn begun(dir: &Path, targets: &[ProcessId]) -> Signaller {
    let mut signaller = signaller(dir);
    signaller.log.begin(action(targets));
    signaller
}

fn outcomes(signaller: &mut Signaller, batch: &Batch) -> Vec<OperationOutcome> {
    let (result, dying) = signaller.execute(batch);
    signaller.release_memory(&dying);
    assert_eq!((result.action, result.operation), (ACTION, batch.operation));
    assert_eq!(result.outcomes.iter().map(|(process, _)| *process).collect::<Vec<_>>(), batch.targets);
    result.outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn is_unwritten(outcome: &OperationOutcome) -> bool {
    matches!(outcome, OperationOutcome::Refused(why) if why.starts_with("it could not be recorded: "))
}

#[tokio::test]
async fn stubborn_process_killed_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (mut docile, mut stubborn) = (sleeper(), stubborn());
    let both = [docile.process, stubborn.process];
    let (acts, commands) = command_channel();
    let (events, mut inbox) = mpsc::channel(16);
    let file = StoredFile::open(dir.path(), BOOT, &StateNotes::default());
    let at_work = std::thread::spawn(move || run(Signaller::new(EventSender(events), ActionLog::new(file)), &commands));

    acts.send(ActionCommand::Begin(action(&both))).unwrap();
    acts.send(ActionCommand::Execute(Box::new(batch(Operation::Term, &both, None)))).unwrap();
    let Some(WorkerEvent::Input(Input::BatchResult(result))) = inbox.recv().await else { panic!("no event") };
    assert_eq!((result.action, result.operation), (ACTION, Operation::Term));
    assert_eq!(result.outcomes, both.map(|process| (process, OperationOutcome::Sent)));
    docile.child().wait().unwrap();
    assert!(!is_dead(&mut stubborn));

    acts.send(ActionCommand::Execute(Box::new(batch(Operation::Kill, &both, None)))).unwrap();
    let Some(WorkerEvent::Input(Input::BatchResult(result))) = inbox.recv().await else { panic!("no event") };
    assert_eq!(
        result.outcomes,
        [(docile.process, OperationOutcome::AlreadyExited), (stubborn.process, OperationOutcome::Sent)]
    );
    stubborn.child().wait().unwrap();

    acts.send(ActionCommand::Finish(ACTION)).unwrap();
    drop(acts);
    at_work.join().unwrap();
    let (docile, stubborn) = (docile.process.pid, stubborn.process.pid);
    let words: Vec<String> = written(dir.path()).iter().map(in_a_word).collect();
    let expected = [
        "count 0".to_owned(),
        "begun 7".to_owned(),
        format!("Term {docile}?"),
        format!("Term {docile}: Sent"),
        format!("Term {stubborn}?"),
        format!("Term {stubborn}: Sent"),
        format!("Kill {docile}?"),
        format!("Kill {docile}: AlreadyExited"),
        format!("Kill {stubborn}?"),
        format!("Kill {stubborn}: Sent"),
        "over 7".to_owned(),
    ];
    assert_eq!(words, expected);
}

#[rstest]
#[case(Operation::Term)]
#[case(Operation::Kill)]
#[case(Operation::Freeze)]
fn reused_pid_is_not_signalled(#[case] operation: Operation) {
    let dir = tempfile::tempdir().unwrap();
    let mut spared = sleeper();
    let meant = ProcessId { start_time: Ticks(spared.process.start_time.0 - 1), ..spared.process };
    let mut signaller = begun(dir.path(), &[meant]);
    assert_eq!(outcomes(&mut signaller, &batch(operation, &[meant], None)), [OperationOutcome::AlreadyExited]);
    assert!(!is_dead(&mut spared) && !is_stopped(&spared));
}

#[test]
fn daemon_and_ancestors_are_protected() {
    let (own, lineage) = (this_process().unwrap(), this_lineage().unwrap());
    let renamed = ProcessId { start_time: Ticks(own.start_time.0 + 1), ..own };
    let first = [Pid(0), Pid(1)].map(|pid| ProcessId { pid, start_time: Ticks(0) });
    for target in lineage.iter().copied().chain(first).chain([renamed]) {
        let held = open_target(target, Authority::ROOT, &lineage);
        assert!(matches!(&held, Err(OperationOutcome::Refused(why)) if why.contains("watchdog")), "{target}: {held:?}");
    }
    // The ancestors are read again for each step.
    let dir = tempfile::tempdir().unwrap();
    assert!(signaller(dir.path()).protected.contains(&own));
    let threads = (2..200).map(Pid).filter_map(|pid| PidFd::open(pid).ok()??.identity().ok()?);
    for thread in threads.filter(|found| found.kernel) {
        let held = open_target(thread.process, Authority::ROOT, &BTreeSet::new());
        assert!(matches!(&held, Err(OperationOutcome::Refused(why)) if why.contains("kernel")), "{thread:?}: {held:?}");
    }
}

#[test]
fn unrecorded_action_is_not_executed() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    let mut subject = sleeper();
    let mut signaller = begun(&below, &[subject.process]);
    let authority = Authority::User(Uid(rustix::process::geteuid().as_raw()));
    let kill = Batch { authority, ..batch(Operation::Kill, &[subject.process], None) };
    assert!(outcomes(&mut signaller, &kill).iter().all(is_unwritten));
    std::fs::create_dir(&below).unwrap();
    let results = outcomes(&mut signaller, &kill);
    assert!(results.iter().all(is_unwritten), "still refused when writing works again: {results:?}");
    assert!(!is_dead(&mut subject));
    signaller.log.finish(ACTION);

    signaller.log.begin(action(&[subject.process]));
    assert_eq!(outcomes(&mut signaller, &kill), [OperationOutcome::Sent]);
    eventually("it is dead", || is_dead(&mut subject));
    let words: Vec<String> = written(&below).iter().map(in_a_word).collect();
    let pid = subject.process.pid;
    assert_eq!(words, ["count 7".to_owned(), "begun 7".into(), format!("Kill {pid}?"), format!("Kill {pid}: Sent")]);
}

#[rstest]
#[case::one_by_one(None)]
#[case::through_the_cgroup(Some(OURS))]
fn unrecorded_attempt_only_thaws(#[case] cgroup: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let (mut frozen, mut spared) = (sleeper(), sleeper());
    let mut signaller = begun(&below, &[frozen.process, spared.process]);
    let hierarchy = TestHierarchy::new("");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n{}", frozen.process.pid, spared.process.pid));
    hierarchy.file(&format!("{OURS}/cgroup.kill"), "");
    signaller.cgroups = hierarchy.cgroups();
    assert_eq!(outcomes(&mut signaller, &batch(Operation::Freeze, &[frozen.process], None)), [OperationOutcome::Sent]);
    eventually("it is stopped", || is_stopped(&frozen));

    signaller.log.break_writes();
    std::fs::remove_dir_all(&below).unwrap();
    let results = outcomes(&mut signaller, &batch(Operation::Kill, &[frozen.process, spared.process], cgroup));
    assert!(results.iter().all(is_unwritten), "{results:?}");
    assert!(!is_dead(&mut spared) && !is_dead(&mut frozen));
    assert_eq!(hierarchy.text(&format!("{OURS}/cgroup.kill")), "");
    assert_eq!(outcomes(&mut signaller, &batch(Operation::Thaw, &[frozen.process], cgroup)), [OperationOutcome::Sent]);
    eventually("it is resumed", || !is_stopped(&frozen));
}

#[test]
fn exact_cgroup_killed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (sleeper(), sleeper());
    let both = [one.process, other.process];
    let mut signaller = begun(dir.path(), &both);
    let hierarchy = TestHierarchy::new("");
    let kill = format!("{OURS}/cgroup.kill");
    hierarchy.file(&kill, "");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n{}\n", one.process.pid, other.process.pid));
    signaller.cgroups = hierarchy.cgroups();

    assert_eq!(
        outcomes(&mut signaller, &batch(Operation::Kill, &both[..1], Some(OURS))),
        [OperationOutcome::Sent],
        "one more is in there"
    );
    eventually("it is dead", || is_dead(&mut one));
    assert_eq!(hierarchy.text(&kill), "");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n", other.process.pid));
    let results = outcomes(&mut signaller, &batch(Operation::Kill, &both[1..], Some(OURS)));
    assert_eq!((results, hierarchy.text(&kill).as_str()), (vec![OperationOutcome::SentToCgroup], "1"));
    assert!(!is_dead(&mut other), "this cgroup is a directory, and no signal was sent");
    let last = written(dir.path()).pop().unwrap();
    assert_eq!(in_a_word(&last), format!("Kill {}: SentToCgroup", other.process.pid));
}

#[test]
fn cgroup_thawed_after_restart() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let hierarchy = TestHierarchy::new("");
    let freezer = format!("{OURS}/cgroup.freeze");
    hierarchy.file(&freezer, "0");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &subject.process.pid.to_string());
    let mut first = begun(dir.path(), &[subject.process]);
    first.cgroups = hierarchy.cgroups();
    let of = |operation| batch(operation, &[subject.process], Some(OURS));
    assert_eq!(outcomes(&mut first, &of(Operation::Freeze)), [OperationOutcome::SentToCgroup]);
    assert_eq!(hierarchy.text(&freezer), "1");
    assert!(!is_stopped(&subject));
    drop(first);

    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n99999999\n", subject.process.pid));
    let mut second = signaller(dir.path());
    second.cgroups = hierarchy.cgroups();
    assert_eq!(outcomes(&mut second, &of(Operation::Thaw)), [OperationOutcome::SentToCgroup]);
    assert_eq!(hierarchy.text(&freezer), "0");
}

#[test]
fn unfrozen_process_is_not_thawed() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut signaller = begun(dir.path(), &[subject.process]);
    PidFd::of(subject.process).unwrap().unwrap().signal(Signal::STOP).unwrap();
    eventually("it is stopped", || is_stopped(&subject));
    let results = outcomes(&mut signaller, &batch(Operation::Thaw, &[subject.process], None));
    assert_eq!(results, [OperationOutcome::Refused("it was not frozen".to_owned())]);
    assert!(is_stopped(&subject), "another process has stopped it");
}

#[test]
fn throttle_requires_a_cgroup() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut signaller = begun(dir.path(), &[subject.process]);
    let hierarchy = TestHierarchy::new("memory");
    for (file, text) in [("memory.max", "max"), ("memory.high", "max"), ("memory.current", "500000000")] {
        hierarchy.file(&format!("{OURS}/{file}"), text);
    }
    signaller.cgroups = hierarchy.cgroups();
    let mut results =
        |operation, cgroup| outcomes(&mut signaller, &batch(operation, &[subject.process], cgroup)).remove(0);
    assert_eq!(
        results(Operation::Throttle, None),
        OperationOutcome::Refused("the session has no cgroup of its own".to_owned())
    );
    assert!(matches!(results(Operation::Throttle, Some("/user.slice")), OperationOutcome::Refused(_)));
    assert_eq!(results(Operation::Throttle, Some(OURS)), OperationOutcome::SentToCgroup);
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), "500000000");
    // The kernel replaces the value at each write; this file keeps the rest of a longer one.
    hierarchy.file(&format!("{OURS}/memory.high"), "500");
    assert_eq!(results(Operation::Unthrottle, Some(OURS)), OperationOutcome::SentToCgroup);
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), "max");
}

#[test]
fn throttle_spares_cgroup_with_foreign_member() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut signaller = begun(dir.path(), &[subject.process]);
    let hierarchy = TestHierarchy::new("memory");
    for (file, text) in [("memory.max", "max"), ("memory.high", "max"), ("memory.current", "500000000")] {
        hierarchy.file(&format!("{OURS}/{file}"), text);
    }
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &subject.process.pid.to_string());
    signaller.cgroups = hierarchy.cgroups();
    let authority = Authority::Session(Uid(4_000));
    let throttle = Batch { authority, ..batch(Operation::Throttle, &[subject.process], Some(OURS)) };

    assert!(matches!(outcomes(&mut signaller, &throttle).remove(0), OperationOutcome::NotPermitted(_)));
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), "max");
}

/// An engine restored from an earlier run's records, and a scan in which the target is below its agent; returns the effects
/// of the next seconds.
fn resumed(records: Vec<ActionLogRecord>, at: BootTime, target: ProcessId) -> BTreeMap<u64, Vec<Batch>> {
    let mut engine = Engine::new(Arc::new(Config::default()));
    let scanned = |process: ProcessId, ppid: Pid, argv: &[&str]| ScannedProcess {
        process,
        ppid,
        uid: Uid(1000),
        comm: "comm".to_owned(),
        image: Image::new(argv[0], argv.iter().copied()),
        titled: false,
        zombie: false,
        lineage: None,
        memory: Memory::default(),
    };
    let agent = ProcessId { pid: Pid(50), start_time: Ticks(1) };
    let agent_seen = scanned(agent, Pid(40), &["/home/u/.local/bin/claude"]);
    let processes = vec![agent_seen, scanned(target, agent.pid, &["/bin/sleep", "1000"])];
    let mut waves: BTreeMap<u64, Vec<Batch>> = BTreeMap::new();
    let mut feed = |second: u64, input: Input| {
        let now = at.plus(std::time::Duration::from_secs(second));
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            engine.step(now, input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Act(ActionCommand::Execute(batch)) => waves.entry(second).or_default().push(*batch),
                    Effect::Inspect(process) if process == target => {
                        inputs.push_back(Input::Inspected(process, inspect(process, &[]).unwrap()));
                    }
                    _ => {}
                }
            }
        }
    };
    feed(0, Input::Permissions(Permissions::default()));
    feed(0, Input::ResumeActions(records));
    // The second scan completes the table.
    (0..2).for_each(|_| feed(0, Input::Scan(Scan { began: at, processes: processes.clone() })));
    (1..=12).for_each(|second| feed(second, Input::Tick));
    waves
}

#[test]
fn interrupted_attempt_counts_as_done() {
    let dir = tempfile::tempdir().unwrap();
    let subject = stubborn();
    let mut signaller = begun(dir.path(), &[subject.process]);
    assert_eq!(outcomes(&mut signaller, &batch(Operation::Term, &[subject.process], None)), [OperationOutcome::Sent]);
    let mut records = written(dir.path());
    let Some(ActionLogRecord::Sent { .. }) = records.pop() else { panic!("the outcome comes last") };
    let Some(ActionLogRecord::Sending { at, .. }) = records.last() else { panic!("the attempt precedes it") };
    let at = *at;

    let waves = resumed(records, at, subject.process);
    let authority = Authority::User(Uid(rustix::process::geteuid().as_raw()));
    let kill = Batch { authority, ..batch(Operation::Kill, &[subject.process], None) };
    assert_eq!(waves, BTreeMap::from([(10, vec![kill])]), "no second SIGTERM, and SIGKILL after the timeout");
}

#[test]
fn rewritten_log_keeps_open_actions() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut first = begun(dir.path(), &[subject.process]);
    outcomes(&mut first, &batch(Operation::Freeze, &[subject.process], None));
    first.log.begin(Box::new(Action { id: ActionId(8), ..*action(&[]) }));
    first.log.finish(ActionId(8));
    let before = written(dir.path());
    drop(first);

    let mut second = signaller(dir.path());
    second.log.begin(Box::new(Action { id: ActionId(9), ..*action(&[]) }));
    let words: Vec<String> = written(dir.path()).iter().map(in_a_word).collect();
    let kept: Vec<String> = before[1..4].iter().map(in_a_word).collect();
    assert_eq!(words, [&["count 8".to_owned()][..], &kept, &["begun 9".to_owned()]].concat());
    let pid = subject.process.pid;
    assert_eq!(kept, ["begun 7".to_owned(), format!("Freeze {pid}?"), format!("Freeze {pid}: Sent")]);
}
