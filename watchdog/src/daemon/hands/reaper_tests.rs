use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rstest::rstest;
use serde_json::Map;

use super::*;
use crate::api::{ActionKind, ProcessKind};
use crate::config::Config;
use crate::daemon::run_file::StoredFile;
use crate::daemon::set_aside::StateNotes;
use crate::engine::Engine;
use crate::engine::act::{ActionRecord, Authority, Decided, Grounds, Rights, Target};
use crate::engine::effect::Effect;
use crate::engine::id::{Bytes, SessionId, Ticks, Uid};
use crate::engine::input::{Image, Memory, Scan, ScannedProcess};
use crate::host::inspect::inspect;
use crate::host::testing::{Hierarchy, Subject, eventually};
use crate::host::this_process;

const BOOT: &str = "this boot";
const ACTION: ActionId = ActionId(7);
const OURS: &str = "/user.slice/agent-watchdog-12-345";

fn sleeper() -> Subject {
    Subject::spawn(Command::new("sleep").arg("1000"))
}

/// Somebody who does not end when told to.
fn stubborn() -> Subject {
    Subject::python(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(1000)",
    )
}

fn is_dead(subject: &mut Subject) -> bool {
    subject.child().try_wait().unwrap().is_some()
}

fn is_stopped(subject: &Subject) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", subject.process.pid)).unwrap();
    stat.contains(") T ")
}

fn action(targets: &[ProcessId]) -> Box<Action> {
    let target = |process: &ProcessId| Target {
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
        by: Decided::Person(Uid(rustix::process::geteuid().as_raw())),
        grounds: Grounds::WholeSession(SessionId(1)),
        urgent: false,
        finding: None,
        session: Some(SessionId(1)),
        owner: Uid(1000),
        user: None,
        reason: "a person ends the session".to_owned(),
        evidence: Map::new(),
        targets: targets.iter().map(target).collect(),
        cgroup: None,
        began: BootTime(5),
        available: Bytes(6),
    })
}

fn wave(blow: Blow, targets: &[ProcessId], cgroup: Option<&str>) -> Wave {
    Wave {
        action: ACTION,
        blow,
        targets: targets.to_vec(),
        authority: Authority::ROOT,
        cgroup: cgroup.map(str::to_owned),
    }
}

/// What stands in the file of a directory.
fn written(dir: &Path) -> Vec<ActionRecord> {
    StoredFile::open(dir, BOOT, &StateNotes::default()).records().to_vec()
}

/// A record in a word: what was to be done, or came of it, and to whom.
fn in_a_word(record: &ActionRecord) -> String {
    match record {
        ActionRecord::Count(id) => format!("count {id}"),
        ActionRecord::Begun(action) => format!("begun {}", action.id),
        ActionRecord::Striking { blow, process, .. } => format!("{blow:?} {}?", process.pid),
        ActionRecord::Struck { blow, process, answer, .. } => format!("{blow:?} {}: {answer:?}", process.pid),
        ActionRecord::Over(id) => format!("over {id}"),
    }
}

fn reaper(dir: &Path) -> Reaper {
    let file = StoredFile::open(dir, BOOT, &StateNotes::default());
    Reaper::new(Ledger::new(file))
}

/// One with an action begun.
fn begun(dir: &Path, targets: &[ProcessId]) -> Reaper {
    let mut reaper = reaper(dir);
    reaper.ledger.begin(action(targets));
    reaper
}

fn answers(reaper: &mut Reaper, wave: &Wave) -> Vec<Answer> {
    let (struck, dying) = reaper.strike(wave);
    reaper.release(&dying);
    assert_eq!((struck.action, struck.blow), (ACTION, wave.blow));
    assert_eq!(struck.answers.iter().map(|(process, _)| *process).collect::<Vec<_>>(), wave.targets);
    struck.answers.into_iter().map(|(_, answer)| answer).collect()
}

fn is_unwritten(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(why) if why.starts_with("it could not be written down: "))
}

#[tokio::test]
async fn whoever_does_not_end_when_told_to_is_killed_and_all_of_it_is_written_down_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (mut docile, mut stubborn) = (sleeper(), stubborn());
    let both = [docile.process, stubborn.process];
    let (acts, orders) = orders::channel();
    let (reports, mut inbox) = mpsc::channel(16);
    let file = StoredFile::open(dir.path(), BOOT, &StateNotes::default());
    let at_work = std::thread::spawn(move || run(&orders, reports, Ledger::new(file)));

    acts.send(Act::Begin(action(&both))).unwrap();
    acts.send(Act::Strike(Box::new(wave(Blow::Term, &both, None)))).unwrap();
    let Some(Report::Input(Input::Struck(struck))) = inbox.recv().await else { panic!("nothing was told") };
    assert_eq!((struck.action, struck.blow), (ACTION, Blow::Term));
    assert_eq!(struck.answers, both.map(|process| (process, Answer::Sent)));
    docile.child().wait().unwrap();
    assert!(!is_dead(&mut stubborn));

    acts.send(Act::Strike(Box::new(wave(Blow::Kill, &both, None)))).unwrap();
    let Some(Report::Input(Input::Struck(struck))) = inbox.recv().await else { panic!("nothing was told") };
    assert_eq!(struck.answers, [(docile.process, Answer::Gone), (stubborn.process, Answer::Sent)]);
    stubborn.child().wait().unwrap();

    acts.send(Act::End(ACTION)).unwrap();
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
        format!("Kill {docile}: Gone"),
        format!("Kill {stubborn}?"),
        format!("Kill {stubborn}: Sent"),
        "over 7".to_owned(),
    ];
    assert_eq!(words, expected);
}

#[rstest]
#[case(Blow::Term)]
#[case(Blow::Kill)]
#[case(Blow::Freeze)]
fn a_successor_of_the_same_pid_is_not_touched(#[case] blow: Blow) {
    let dir = tempfile::tempdir().unwrap();
    let mut spared = sleeper();
    let meant = ProcessId { start_time: Ticks(spared.process.start_time.0 - 1), ..spared.process };
    let mut reaper = begun(dir.path(), &[meant]);
    assert_eq!(answers(&mut reaper, &wave(blow, &[meant], None)), [Answer::Gone]);
    assert!(!is_dead(&mut spared) && !is_stopped(&spared));
}

#[test]
fn we_and_who_stands_above_us_are_never_held_on_to_whatever_is_asked() {
    let (own, lineage) = (this_process().unwrap(), this_lineage().unwrap());
    let renamed = ProcessId { start_time: Ticks(own.start_time.0 + 1), ..own };
    let first = [Pid(0), Pid(1)].map(|pid| ProcessId { pid, start_time: Ticks(0) });
    for target in lineage.iter().copied().chain(first).chain([renamed]) {
        let held = hold(target, Authority::ROOT, &lineage);
        assert!(matches!(&held, Err(Answer::Refused(why)) if why.contains("watchdog")), "{target}: {held:?}");
    }
    // Who stands above a reaper is asked anew for each wave.
    let dir = tempfile::tempdir().unwrap();
    assert!(reaper(dir.path()).guarded.contains(&own));
    let threads = (2..200).map(Pid).filter_map(|pid| Pinned::open(pid).ok()??.identity().ok()?);
    for thread in threads.filter(|found| found.kernel) {
        let held = hold(thread.process, Authority::ROOT, &BTreeSet::new());
        assert!(matches!(&held, Err(Answer::Refused(why)) if why.contains("kernel")), "{thread:?}: {held:?}");
    }
}

#[test]
fn of_an_action_that_could_not_be_written_down_nothing_is_ever_done() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    let mut subject = sleeper();
    let mut reaper = begun(&below, &[subject.process]);
    let authority = Authority::Person(Uid(rustix::process::geteuid().as_raw()));
    let kill = Wave { authority, ..wave(Blow::Kill, &[subject.process], None) };
    assert!(answers(&mut reaper, &kill).iter().all(is_unwritten));
    std::fs::create_dir(&below).unwrap();
    let told = answers(&mut reaper, &kill);
    assert!(told.iter().all(is_unwritten), "it can be by now, and the action is what it was: {told:?}");
    assert!(!is_dead(&mut subject));
    reaper.ledger.over(ACTION);

    reaper.ledger.begin(action(&[subject.process]));
    assert_eq!(answers(&mut reaper, &kill), [Answer::Sent]);
    eventually("it is dead", || is_dead(&mut subject));
    let words: Vec<String> = written(&below).iter().map(in_a_word).collect();
    let pid = subject.process.pid;
    assert_eq!(words, ["count 7".to_owned(), "begun 7".into(), format!("Kill {pid}?"), format!("Kill {pid}: Sent")]);
}

#[rstest]
#[case::one_by_one(None)]
#[case::through_the_cgroup(Some(OURS))]
fn nothing_is_sent_that_cannot_be_written_down_and_what_is_frozen_is_let_go_all_the_same(#[case] cgroup: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let (mut frozen, mut spared) = (sleeper(), sleeper());
    let mut reaper = begun(&below, &[frozen.process, spared.process]);
    let hierarchy = Hierarchy::new("");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n{}", frozen.process.pid, spared.process.pid));
    hierarchy.file(&format!("{OURS}/cgroup.kill"), "");
    reaper.cgroups = hierarchy.cgroups();
    assert_eq!(answers(&mut reaper, &wave(Blow::Freeze, &[frozen.process], None)), [Answer::Sent]);
    eventually("it is stopped", || is_stopped(&frozen));

    reaper.ledger.fill_up();
    std::fs::remove_dir_all(&below).unwrap();
    let told = answers(&mut reaper, &wave(Blow::Kill, &[frozen.process, spared.process], cgroup));
    assert!(told.iter().all(is_unwritten), "{told:?}");
    assert!(!is_dead(&mut spared) && !is_dead(&mut frozen));
    assert_eq!(hierarchy.text(&format!("{OURS}/cgroup.kill")), "");
    assert_eq!(answers(&mut reaper, &wave(Blow::Thaw, &[frozen.process], cgroup)), [Answer::Sent]);
    eventually("it goes on", || !is_stopped(&frozen));
}

#[test]
fn a_cgroup_that_holds_exactly_the_targets_is_killed_at_once_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (sleeper(), sleeper());
    let both = [one.process, other.process];
    let mut reaper = begun(dir.path(), &both);
    let hierarchy = Hierarchy::new("");
    let kill = format!("{OURS}/cgroup.kill");
    hierarchy.file(&kill, "");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n{}\n", one.process.pid, other.process.pid));
    reaper.cgroups = hierarchy.cgroups();

    assert_eq!(answers(&mut reaper, &wave(Blow::Kill, &both[..1], Some(OURS))), [Answer::Sent], "one more is in there");
    eventually("it is dead", || is_dead(&mut one));
    assert_eq!(hierarchy.text(&kill), "");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n", other.process.pid));
    let told = answers(&mut reaper, &wave(Blow::Kill, &both[1..], Some(OURS)));
    assert_eq!((told, hierarchy.text(&kill).as_str()), (vec![Answer::SentToCgroup], "1"));
    assert!(!is_dead(&mut other), "this cgroup is a directory: no signal was sent besides");
    let last = written(dir.path()).pop().unwrap();
    assert_eq!(in_a_word(&last), format!("Kill {}: SentToCgroup", other.process.pid));
}

#[test]
fn what_was_frozen_with_its_cgroup_goes_on_with_it_after_a_restart_and_whoever_is_in_there() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let hierarchy = Hierarchy::new("");
    let freezer = format!("{OURS}/cgroup.freeze");
    hierarchy.file(&freezer, "0");
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &subject.process.pid.to_string());
    let mut first = begun(dir.path(), &[subject.process]);
    first.cgroups = hierarchy.cgroups();
    let of = |blow| wave(blow, &[subject.process], Some(OURS));
    assert_eq!(answers(&mut first, &of(Blow::Freeze)), [Answer::SentToCgroup]);
    assert_eq!(hierarchy.text(&freezer), "1");
    assert!(!is_stopped(&subject));
    drop(first);

    hierarchy.file(&format!("{OURS}/cgroup.procs"), &format!("{}\n99999999\n", subject.process.pid));
    let mut second = reaper(dir.path());
    second.cgroups = hierarchy.cgroups();
    assert_eq!(answers(&mut second, &of(Blow::Thaw)), [Answer::SentToCgroup]);
    assert_eq!(hierarchy.text(&freezer), "0");
}

#[test]
fn nobody_is_thawed_whom_this_action_has_not_frozen() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut reaper = begun(dir.path(), &[subject.process]);
    Pinned::of(subject.process).unwrap().unwrap().signal(Signal::STOP).unwrap();
    eventually("it is stopped", || is_stopped(&subject));
    let told = answers(&mut reaper, &wave(Blow::Thaw, &[subject.process], None));
    assert_eq!(told, [Answer::Refused("it was not frozen".to_owned())]);
    assert!(is_stopped(&subject), "whoever stopped it lets it go");
}

#[test]
fn a_session_is_throttled_and_loosened_through_its_cgroup_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut reaper = begun(dir.path(), &[subject.process]);
    let hierarchy = Hierarchy::new("memory");
    for (file, text) in [("memory.max", "max"), ("memory.high", "max"), ("memory.current", "500000000")] {
        hierarchy.file(&format!("{OURS}/{file}"), text);
    }
    reaper.cgroups = hierarchy.cgroups();
    let mut told = |blow, cgroup| answers(&mut reaper, &wave(blow, &[subject.process], cgroup)).remove(0);
    assert_eq!(told(Blow::Throttle, None), Answer::Refused("the session has no cgroup of its own".to_owned()));
    assert!(matches!(told(Blow::Throttle, Some("/user.slice")), Answer::Refused(_)));
    assert_eq!(told(Blow::Throttle, Some(OURS)), Answer::SentToCgroup);
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), "500000000");
    // The kernel's file is written anew each time; this one keeps what is longer.
    hierarchy.file(&format!("{OURS}/memory.high"), "500");
    assert_eq!(told(Blow::Loosen, Some(OURS)), Answer::SentToCgroup);
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), "max");
}

#[test]
fn throttle_spares_cgroup_with_foreign_member() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut reaper = begun(dir.path(), &[subject.process]);
    let hierarchy = Hierarchy::new("memory");
    for (file, text) in [("memory.max", "max"), ("memory.high", "max"), ("memory.current", "500000000")] {
        hierarchy.file(&format!("{OURS}/{file}"), text);
    }
    hierarchy.file(&format!("{OURS}/cgroup.procs"), &subject.process.pid.to_string());
    reaper.cgroups = hierarchy.cgroups();
    let authority = Authority::Session(Uid(4_000));
    let throttle = Wave { authority, ..wave(Blow::Throttle, &[subject.process], Some(OURS)) };

    assert!(matches!(answers(&mut reaper, &throttle).remove(0), Answer::NotPermitted(_)));
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), "max");
}

/// An engine that an earlier run's records were told, and a scan in which the target lives below its agent; what it asks for in
/// the next seconds.
fn resumed(records: Vec<ActionRecord>, at: BootTime, target: ProcessId) -> BTreeMap<u64, Vec<Wave>> {
    let mut engine = Engine::new(Arc::new(Config::default()));
    let scanned = |process: ProcessId, ppid: Pid, argv: &[&str]| ScannedProcess {
        process,
        ppid,
        uid: Uid(1000),
        comm: "comm".to_owned(),
        image: Image {
            path: argv[0].to_owned(),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            truncated: false,
        },
        titled: false,
        zombie: false,
        lineage: None,
        memory: Memory::default(),
    };
    let agent = ProcessId { pid: Pid(50), start_time: Ticks(1) };
    let agent_seen = scanned(agent, Pid(40), &["/home/u/.local/bin/claude"]);
    let processes = vec![agent_seen, scanned(target, agent.pid, &["/bin/sleep", "1000"])];
    let mut waves: BTreeMap<u64, Vec<Wave>> = BTreeMap::new();
    let mut tell = |second: u64, input: Input| {
        let now = at.plus(std::time::Duration::from_secs(second));
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            engine.step(now, input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Strike(wave) => waves.entry(second).or_default().push(*wave),
                    Effect::Inspect(process) if process == target => {
                        inputs.push_back(Input::Inspected(process, inspect(process, &[]).unwrap()));
                    }
                    _ => {}
                }
            }
        }
    };
    tell(0, Input::Rights(Rights::default()));
    tell(0, Input::Resume(records));
    tell(0, Input::Scan(Scan { began: at, processes }));
    (1..=12).for_each(|second| tell(second, Input::Tick));
    waves
}

#[test]
fn what_a_reaper_was_about_to_do_when_it_was_killed_counts_as_done() {
    let dir = tempfile::tempdir().unwrap();
    let subject = stubborn();
    let mut reaper = begun(dir.path(), &[subject.process]);
    assert_eq!(answers(&mut reaper, &wave(Blow::Term, &[subject.process], None)), [Answer::Sent]);
    let mut records = written(dir.path());
    let Some(ActionRecord::Struck { .. }) = records.pop() else { panic!("the answer comes last") };
    let Some(ActionRecord::Striking { at, .. }) = records.last() else { panic!("before it what was to be done") };
    let at = *at;

    let waves = resumed(records, at, subject.process);
    let authority = Authority::Person(Uid(rustix::process::geteuid().as_raw()));
    let kill = Wave { authority, ..wave(Blow::Kill, &[subject.process], None) };
    assert_eq!(waves, BTreeMap::from([(10, vec![kill])]), "no second SIGTERM, and SIGKILL when its time is over");
}

#[test]
fn a_file_that_is_begun_again_tells_of_what_is_not_over_and_of_no_number_twice() {
    let dir = tempfile::tempdir().unwrap();
    let subject = sleeper();
    let mut first = begun(dir.path(), &[subject.process]);
    answers(&mut first, &wave(Blow::Freeze, &[subject.process], None));
    first.ledger.begin(Box::new(Action { id: ActionId(8), ..*action(&[]) }));
    first.ledger.over(ActionId(8));
    let before = written(dir.path());
    drop(first);

    let mut second = reaper(dir.path());
    second.ledger.begin(Box::new(Action { id: ActionId(9), ..*action(&[]) }));
    let words: Vec<String> = written(dir.path()).iter().map(in_a_word).collect();
    let kept: Vec<String> = before[1..4].iter().map(in_a_word).collect();
    assert_eq!(words, [&["count 8".to_owned()][..], &kept, &["begun 9".to_owned()]].concat());
    let pid = subject.process.pid;
    assert_eq!(kept, ["begun 7".to_owned(), format!("Freeze {pid}?"), format!("Freeze {pid}: Sent")]);
}
