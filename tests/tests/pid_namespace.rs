//! A daemon in a pid namespace, as in a container or a WSL 2 distribution, sees its processes exactly, and no others.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use watchdog_api::{FindingKind, Process, ProcessState};
use watchdog_tests::{Daemon, InnerRun, Isolation, ProcessKey, Stage, binaries, copy, inside, is_alive, poll, seconds};

/// A tree with short-lived processes, a double fork and a process in a namespace below; kills its agent.
fn track_from_fork_to_reap() {
    let (mut stage, daemon) = Daemon::on_stage();
    let status = daemon.status();
    let namespace = std::fs::read_link("/proc/self/ns/pid").expect("our namespace").display().to_string();
    assert!(status.tracking.kernel_events && !status.degraded, "{}", daemon.log());
    assert_eq!(status.pid_namespace.as_deref(), Some(namespace.as_str()));

    let agent = stage.agent(
        "times 20 [ spawn helper [ exit ] ] wait
         spawn helper [ report first fork [ report forked setsid fork [ exec helper [ report second hold ] ] ] hold ] hold",
    );
    let survivors = ["first", "second"].map(|name| stage.reported(name));
    daemon.eventually(seconds(2.0), "the whole tree", |snapshot| {
        let session = snapshot.session_with(agent)?;
        let all = survivors.iter().all(|process| session.processes.iter().any(|found| found.pid == process.pid));
        all.then_some(())
    });
    daemon.eventually(seconds(15.0), "a sample of each", |snapshot| {
        let sampled = |process: &Process| process.anon_bytes > 0 || process.state == ProcessState::Zombie;
        snapshot.session_with(agent)?.processes.iter().all(sampled).then_some(())
    });
    let parent = daemon.snapshot().process(survivors[0]).expect("it is running").parent_pid;
    assert_eq!(parent, agent.pid, "pids of this namespace");
    // A zombie is shown until the sample after its parent has reaped it.
    daemon.eventually(seconds(5.0), "start times that agree with /proc", |snapshot| {
        let agrees =
            |process: &Process| ProcessKey::now(process.pid).is_some_and(|now| now.start_time == process.start_time);
        snapshot.session_with(agent)?.processes.iter().all(agrees).then_some(())
    });

    stage.kill(agent);
    let finding = daemon.eventually(seconds(2.0), "a finding", |snapshot| {
        snapshot.open(FindingKind::Orphan).first().map(|finding| (*finding).clone())
    });
    daemon.eventually(seconds(10.0), "a proposal", |snapshot| {
        snapshot.findings.iter().find(|found| found.id == finding.id && found.proposed_action == "terminate").map(drop)
    });
    let reaped = daemon.ctl(&["reap", "--yes", &finding.session.expect("a session").to_string()]);
    assert_eq!(reaped.code, 0, "{reaped:?}");
    assert!(poll(seconds(5.0), || (!survivors.iter().any(|process| is_alive(*process))).then_some(())).is_some());
    // On Linux 7 the kernel may skip a program for processes of the whole host.
    let status = daemon.status();
    assert_eq!(status.lost_events, status.tracking.missed_runs, "processes outside are not counted as lost");
}

#[test]
fn tracking_is_exact_in_namespace() {
    const NAME: &str = "tracking_is_exact_in_namespace";
    match inside(NAME) {
        Some(_) => track_from_fork_to_reap(),
        None => InnerRun::of(NAME, Isolation::default()).passes(),
    }
}

#[test]
fn start_times_agree_in_time_namespace() {
    const NAME: &str = "start_times_agree_in_time_namespace";
    match inside(NAME) {
        Some(_) => {
            let offsets = std::fs::read_to_string("/proc/self/timens_offsets").expect("the offsets");
            assert!(offsets.contains("864000"), "{offsets}");
            track_from_fork_to_reap();
        }
        // Linux 5.6, CONFIG_TIME_NS.
        None if !Path::new("/proc/self/ns/time").exists() => eprintln!("this kernel has no time namespaces"),
        None => InnerRun::of(NAME, Isolation { boottime_seconds: Some(864_000) }).passes(),
    }
}

#[test]
fn outside_is_unseen_but_signals() {
    const NAME: &str = "outside_is_unseen_but_signals";
    let Some(shared) = inside(NAME) else {
        let run = InnerRun::of(NAME, Isolation::default());
        return kill_from_outside(run);
    };
    let mut stage = Stage::new();
    let profile = "[[profile]]\nname = \"outside\"\nexe = [\"*/watchdog-shared-*/outsider\"]\n";
    let daemon = Daemon::configured(&stage, profile);
    stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(2.0), "the helper", |snapshot| snapshot.process(helper).map(drop));

    let pid = helper.pid.to_string();
    std::fs::write(shared.join("new"), &pid).expect("a file");
    std::fs::rename(shared.join("new"), shared.join("victim")).expect("a file");

    let death = daemon.death(helper.pid, seconds(20.0));
    assert_eq!((&death["sender"]["relation"], &death["sender"]["pid"]), (&"stranger".into(), &0.into()), "{death:#}");
    let summary = death["summary"].as_str().expect("a summary");
    assert!(summary.contains("outside the pid namespace of the watchdog"), "{summary}");
    // An agent outside ran before the signal: neither it nor its children are anything to this daemon.
    let sessions = daemon.snapshot().tree.sessions;
    assert_eq!(sessions.iter().map(|session| session.profile.as_str()).collect::<Vec<_>>(), ["test"]);
    let events = format!("{:?}", daemon.events());
    assert!(!events.contains("outsider"), "{events}");
    let status = daemon.status();
    assert_eq!(status.lost_events, status.tracking.missed_runs);
}

/// Runs an agent outside the namespace, then kills the process whose inner pid is in the file `victim`.
fn kill_from_outside(run: InnerRun) {
    let victim = run.shared().join("victim");
    let pid = poll(seconds(60.0), || std::fs::read_to_string(&victim).ok()).expect("the second run names its victim");
    let outsider = run.shared().join("outsider");
    copy(&binaries().fixture, &outsider);
    let ran = std::process::Command::new(&outsider)
        .args(["times", "3", "[", "fork", "[", "exit", "]", "]", "wait"])
        .status()
        .expect("the fixture runs");
    assert!(ran.success());
    std::thread::sleep(Duration::from_millis(200));

    let process = run.outer(pid.parse().expect("a pid")).expect("the victim runs");
    let handle = pidfd_open(Pid::from_raw(process.pid.cast_signed()).expect("a pid"), PidfdFlags::empty());
    pidfd_send_signal(handle.expect("it runs"), Signal::TERM).expect("it runs");
    run.passes();
}
