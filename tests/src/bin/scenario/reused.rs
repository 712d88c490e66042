//! A7: the pid of a target is reused between selection and signal.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::{Value, json};
use watchdog_tests::{Daemon, ProcessKey, Stage, descendants, poll, post, seconds};

use crate::guard::ScenarioGuard;
use crate::report::ScenarioReport;

/// So many times a pid has to have become another's in time.
const ROUNDS: usize = 1_000;
/// Victims of one agent.
const GROUP: usize = 25;
/// Rounds that come too early or too late are made up for, up to here.
const ATTEMPTS: usize = 2 * ROUNDS;
/// What is not done by then is not done.
const LONGEST: Duration = Duration::from_secs(1_500);
/// The daemon is stopped at any moment up to this long after it was asked.
const LATEST: Duration = Duration::from_millis(40);
/// Lowered, so that the kernel soon gives a pid again.
const PID_MAX: &str = "/proc/sys/kernel/pid_max";

const CONFIG: &str = "[actions]\nkill_after = \"1s\"\n";

/// How a round went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// The daemon had chosen the victim, and its pid was another's before it was sent anything.
    BeforeTerm,
    /// The same, before the SIGKILL that it had to get next.
    BeforeKill,
    /// The victim exited before the daemon chose.
    TooEarly,
    /// Its pid was not free.
    Taken,
}

/// Stages it.
pub(crate) fn stage() -> ScenarioReport {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, CONFIG);
    let highest = descendants(0).iter().map(|process| process.pid).max().unwrap_or(0);
    std::fs::write(PID_MAX, (highest + 500).max(801).to_string()).expect("root may set pid_max");
    let began = Instant::now();
    let mut rounds: Vec<Round> = Vec::new();
    let mut wrong = 0;
    let counts = |round: &Round| matches!(round, Round::BeforeTerm | Round::BeforeKill);
    let enough = |rounds: &[Round]| rounds.iter().filter(|round| counts(round)).count() >= ROUNDS;
    while !enough(&rounds) && rounds.len() < ATTEMPTS && began.elapsed() < LONGEST {
        let (went, killed) = group(&mut stage, &daemon, rounds.len());
        rounds.extend(went);
        wrong += killed;
        println!("{} rounds after {:.0?}, {wrong} wrong kills", rounds.len(), began.elapsed());
    }

    let of = |wanted: Round| rounds.iter().filter(|round| **round == wanted).count();
    let mut report = ScenarioReport::new("A7", ScenarioGuard::Ours, &[]);
    let reused = of(Round::BeforeTerm) + of(Round::BeforeKill);
    report.died = format!("{wrong} of {reused} with a pid used again");
    report.took = format!("{:.0} s in all", began.elapsed().as_secs_f64());
    report.lives = format!("{} of {reused} live", reused - wrong.min(reused));
    report.win = wrong == 0 && reused >= ROUNDS;
    report.notes.push(format!(
        "{} rounds: the pid was another's before SIGTERM in {}, between SIGTERM and SIGKILL in {}; the victim had exited before \
         the choice in {}, its pid was not free in {}",
        rounds.len(),
        of(Round::BeforeTerm),
        of(Round::BeforeKill),
        of(Round::TooEarly),
        of(Round::Taken)
    ));
    report
}

/// One agent's orphans; how it went for each, and how many processes were killed that only had a pid in common with them.
fn group(stage: &mut Stage, daemon: &Daemon, number: usize) -> (Vec<Round>, usize) {
    let name = format!("victim-{number}");
    let agent = stage.agent(&format!(
        "times {GROUP} [ spawn helper [ count-term terms report {name} hold ] ] report {name}-agent hold"
    ));
    let victims = stage.all_reported(&name, GROUP);
    daemon.eventually(seconds(3.0), "all helpers", |snapshot| {
        victims.iter().all(|victim| snapshot.process(*victim).is_some()).then_some(())
    });
    stage.kill(agent);
    let open = poll(seconds(3.0), || {
        let findings = daemon.get("/v1/findings");
        let findings = findings["findings"].as_array().cloned().unwrap_or_default();
        let listed = findings.iter().filter(|finding| finding["kind"] == "orphan");
        let listed: usize = listed.map(|it| it["evidence"]["processes"].as_array().map_or(0, Vec::len)).sum();
        (listed >= GROUP).then_some(())
    });
    assert!(open.is_some(), "no finding about {GROUP} orphans\n{}", daemon.describe(Some(&daemon.snapshot())));

    let of_all = victims.iter().enumerate();
    let all: Vec<_> = of_all.map(|(at, victim)| exchange(stage, daemon, *victim, number + at)).collect();
    // Until nothing more is done about any of them; and a little longer than SIGKILL would take.
    let receipts = poll(seconds(2.0), || {
        let shown = daemon.get("/v1/actions");
        let shown = shown["actions"].as_array().cloned().unwrap_or_default();
        let about = |receipt: &Value| all.iter().any(|(_, action)| action.as_ref() == Some(&receipt["id"]));
        let shown: Vec<Value> = shown.into_iter().filter(about).collect();
        shown.iter().all(|receipt| receipt["ended_at"].is_string()).then_some(shown)
    });
    let receipts = receipts.unwrap_or_else(|| panic!("actions go on for ever: {}", daemon.get("/v1/actions")));
    std::thread::sleep(Duration::from_millis(1_200));
    let rounds = all.iter().map(|(other, action)| match (other, action) {
        (None, _) => Round::Taken,
        (Some(_), None) => Round::TooEarly,
        (Some(_), Some(action)) if was_told(&receipts, action) => Round::BeforeKill,
        (Some(_), Some(_)) => Round::BeforeTerm,
    });
    let rounds = rounds.collect();
    let mut wrong = 0;
    for other in all.into_iter().filter_map(|(other, _)| other) {
        if waitpid(Some(other), WaitOptions::NOHANG).expect("our child").is_some() {
            wrong += 1;
        } else {
            kill_process(other, Signal::KILL).expect("our child, not waited for");
            waitpid(Some(other), WaitOptions::empty()).expect("our child");
        }
    }
    (rounds, wrong)
}

/// Whether the receipt of this action says that SIGTERM was sent.
fn was_told(receipts: &[Value], action: &Value) -> bool {
    let of = receipts.iter().filter(|receipt| receipt["id"] == *action);
    let targets = of.flat_map(|receipt| receipt["targets"].as_array().into_iter().flatten());
    let sent = targets.flat_map(|target| target["sent"].as_array().into_iter().flatten());
    sent.into_iter().any(|sent| sent["what"] == "TERM" && sent["answer"] == "sent")
}

/// Has the daemon reap one orphan; stops it somewhere on the way, and puts another process in the orphan's place meanwhile. That
/// process, and the number of the action.
fn exchange(stage: &Stage, daemon: &Daemon, victim: ProcessKey, number: usize) -> (Option<Pid>, Option<Value>) {
    let socket = daemon.socket();
    let asked = std::thread::spawn(move || reap(&socket, victim));
    // Each moment once in a while, in an order that is the same every time.
    let step = u32::try_from(number * 7_919 % 101).unwrap();
    std::thread::sleep(LATEST * step / 100);
    daemon.send(Signal::STOP);
    await_stopped(daemon.pid());
    stage.kill(victim);
    let other = in_place_of(victim);
    daemon.send(Signal::CONT);
    (other, asked.join().expect("an answer"))
}

/// Asks for the end of an orphan. The number of the action, if the daemon chose that very process.
fn reap(socket: &Path, victim: ProcessKey) -> Option<Value> {
    let answer = post(socket, "/v1/reap", &json!({ "subjects": [{ "pid": victim.pid }] })).expect("an answer");
    if answer.status != 200 {
        return None;
    }
    let answer = answer.json();
    let action = answer["actions"].as_array()?.first()?.clone();
    let chosen = action["targets"]
        .as_array()?
        .iter()
        .any(|target| target["pid"] == victim.pid && target["start_time"] == victim.start_time);
    chosen.then(|| action["id"].clone())
}

/// Waits until every thread of the daemon stands still.
fn await_stopped(pid: u32) {
    let stopped = poll(seconds(1.0), || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon");
        let mut states = threads.flatten().filter_map(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        });
        states.all(|state| state == 'T').then_some(())
    });
    assert!(stopped.is_some(), "SIGSTOP does not stop the daemon");
}

/// Another process with the pid of one that was killed: a child of this one, which ends by any signal.
fn in_place_of(victim: ProcessKey) -> Option<Pid> {
    // It takes its time to die, and to be buried.
    poll(Duration::from_secs(2), || {
        let wanted = [libc::pid_t::try_from(victim.pid).unwrap()];
        // SAFETY: numbers and addresses, of which zero is none.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.exit_signal = libc::SIGCHLD as u64;
        arguments.set_tid = wanted.as_ptr() as u64;
        arguments.set_tid_size = 1;
        // SAFETY: without CLONE_VM it forks; the arguments live until it returns. The child is a copy of a process with several
        // threads, so that it must not take a lock: it only waits for signals.
        let child =
            unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, std::mem::size_of::<libc::clone_args>()) };
        if child == 0 {
            loop {
                // SAFETY: no memory is involved.
                unsafe { libc::pause() };
            }
        }
        // Below zero it is refused: the pid is not free yet.
        Pid::from_raw(i32::try_from(child).ok().filter(|child| *child > 0)?)
    })
}
