//! The installed daemon in the shipped unit: its sandbox refuses nothing that the daemon needs.
//!
//! Runs only in the guest with systemd, one test at a time: all share the machine's daemon.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use watchdog_api::{ActionState, DecidedBy, FindingKind, Receipt};
use watchdog_tests::installed::{Installed, UNIT, journal, property, refused_calls, run, systemctl};
use watchdog_tests::{MIB, NOBODY, ProcessKey, Stage, is_alive, poll, seconds};

/// The configuration of the installed daemon: a profile for the agents of all stages, and one with a limit of the gate.
const CONFIG: &str = r#"
[tracking]
built_in_profiles = false
close_watch = "always"

[orphans]
grace = "1s"

[actions]
enforce = true
kill_after = "10s"
notify = ["/bin/sh", "-c", "read stat < /proc/self/stat; echo $stat > /tmp/stat; umask > /tmp/umask; cat > /tmp/receipt"]

[[profile]]
name = "bounded"
exe = ["*/watchdog-test-*/agent-*"]
max_memory = "128MiB"
oom_score_adj = 300
"#;

/// A user whose processes only root can signal.
const USER: u32 = 1000;

/// The daemon, once it has this configuration; `None` where it is not installed.
fn configured() -> Option<Installed> {
    if std::env::var_os("WATCHDOG_SYSTEMD").is_none() {
        eprintln!("skipped: only in a guest of its own does systemd run the daemon");
        return None;
    }
    let installed = Installed;
    installed.await_active();
    std::fs::write("/etc/agent-watchdog/config.toml", CONFIG).expect("ConfigurationDirectory= has made it");
    systemctl(&["restart", UNIT]);
    installed.await_active();
    Some(installed)
}

/// Settings of the service besides those of the unit, until it is dropped. They apply from the next start.
struct DropIn;

impl DropIn {
    const DIRECTORY: &str = "/run/systemd/system/watchdogd.service.d";

    fn new(settings: &str) -> Self {
        std::fs::create_dir_all(Self::DIRECTORY).expect("systemd reads drop-ins from there");
        let file = Path::new(Self::DIRECTORY).join("test.conf");
        std::fs::write(file, format!("[Service]\n{settings}")).expect("a drop-in");
        systemctl(&["daemon-reload"]);
        Self
    }
}

impl Drop for DropIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Self::DIRECTORY);
        systemctl(&["daemon-reload"]);
    }
}

/// A line of a process's status.
fn proc_status(pid: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn daemon_works_in_unit_sandbox() {
    let Some(installed) = configured() else { return };
    let status = installed.status();
    assert_eq!(property("MainPID"), status.pid.to_string());

    let (bounding, effective) = (proc_status(status.pid, "CapBnd"), proc_status(status.pid, "CapEff"));
    assert_eq!(bounding, effective, "root has what the unit leaves it");
    // CAP_SYS_ADMIN, with which a sandbox is none.
    let bits = u64::from_str_radix(&bounding, 16).expect("hexadecimal");
    assert_eq!(bits >> 21 & 1, 0, "{bounding}");
    assert_eq!((proc_status(status.pid, "NoNewPrivs"), proc_status(status.pid, "Seccomp")), ("1".into(), "2".into()));
    // From inside: what ProtectSystem=strict leaves writable is what the unit names, and what the kernel serves.
    let mounts = std::fs::read_to_string(format!("/proc/{}/mounts", status.pid)).expect("mounts");
    let writable = |target: &str| {
        let line = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some(target)).map(str::to_owned);
        line.and_then(|line| line.split(' ').nth(3).map(|options| options.split(',').any(|option| option == "rw")))
    };
    for target in ["/", "/sys", "/proc/sys"] {
        assert_eq!(writable(target), Some(false), "{target} in {mounts}");
    }
    for target in ["/run/agent-watchdog", "/var/lib/agent-watchdog", "/sys/fs/cgroup", "/run/agent-watchdog-bpf"] {
        assert_eq!(writable(target), Some(true), "{target} in {mounts}");
    }

    assert!(status.tracking.kernel_events && !status.degraded, "{status:#?}\n{}", installed.log());
    let watched = poll(seconds(2.0), || installed.status().tracking.close_watch.then_some(()));
    assert!(watched.is_some(), "the programs that follow memory load as well\n{}", installed.log());
    // A guest has no swap.
    let off = status.capabilities.iter().filter(|capability| !capability.on && !capability.name.starts_with("swap"));
    let off: Vec<_> = off.collect();
    assert!(off.is_empty(), "{off:#?}");
    installed.was_refused_nothing();
}

/// The assertion that nothing was refused is worth something only if it can fail.
#[test]
fn refused_system_call_is_detected() {
    if configured().is_none() {
        return;
    }
    let unit = "[Service]\nType=oneshot\nSystemCallFilter=~uname\nSystemCallErrorNumber=EPERM\nExecStart=-/bin/uname\n";
    std::fs::write("/run/systemd/system/refused.service", unit).expect("systemd reads units from there");
    systemctl(&["daemon-reload"]);
    systemctl(&["start", "refused.service"]);
    let seen = poll(seconds(1.0), || (!refused_calls("uname").is_empty()).then_some(()));
    assert!(seen.is_some(), "{}", journal(&[]));
}

#[test]
fn other_users_session_gets_cgroup() {
    let Some(installed) = configured() else { return };
    let mut stage = Stage::new();
    let agent = launch(&mut stage, "socket-stdin report agent spawn helper [ report helper hold ] hold");
    stage.reported("helper");
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", agent.pid)).expect("a cgroup");
    let directory = Path::new("/sys/fs/cgroup").join(cgroup.trim().trim_start_matches("0::/"));
    let mode = std::fs::metadata(&directory).expect("the cgroup").mode();
    assert_eq!(mode & 0o777, 0o755, "every user may read it");
    let limit = std::fs::read_to_string(directory.join("memory.max")).expect("a limit");
    assert_eq!(limit.trim(), (128 * MIB).to_string(), "{}\n{}", directory.display(), installed.log());
    let file = format!("/proc/{}/oom_score_adj", agent.pid);
    let first_to_go = poll(seconds(2.0), || (std::fs::read_to_string(&file).ok()?.trim() == "300").then_some(()));
    assert!(first_to_go.is_some(), "{file}\n{}", installed.log());

    // The helper is asked about: its file, its descriptors, and where its standard input leads.
    stage.kill(agent);
    let helper = stage.reported("helper");
    installed.eventually(seconds(3.0), "the helper's finding", |snapshot| {
        snapshot.findings_of(FindingKind::Orphan).into_iter().find(|found| found.pid == helper.pid).cloned()
    });
    // By now the daemon may have ended it.
    stage.signal_if_there(helper, Signal::KILL);
    let removed = poll(seconds(5.0), || (!directory.exists()).then_some(()));
    assert!(removed.is_some(), "{} is left behind\n{}", directory.display(), installed.log());
    installed.was_refused_nothing();
}

/// Starts the stage's agent through the gate, as another user.
fn launch(stage: &mut Stage, script: &str) -> ProcessKey {
    let agent = stage.directory().join(stage.agent_name());
    let launch = format!("/usr/bin/watchdogctl launch -- {} {script}", agent.display());
    stage.start("helper", &format!("uid {USER} program - [ {launch} ] wait"));
    stage.reported("agent")
}

#[test]
fn restarted_daemon_knows_forked_helpers() {
    let Some(installed) = configured() else { return };
    let mut stage = Stage::new();
    let script = "report agent spawn helper [ await killed fork [ report late hold ] hold ] hold";
    let agent = stage.start("helper", &format!("uid {USER} exec AGENT [ {script} ]"));
    installed.eventually(seconds(2.0), "the session", |snapshot| snapshot.session(agent).map(drop));

    let killed = installed.kill();
    stage.mark("killed");
    let late = stage.reported("late");
    installed.await_successor_of(killed);
    installed.eventually(seconds(2.0), "the helper that was forked meanwhile", |snapshot| {
        let session = snapshot.session_with(late)?;
        session.processes.iter().any(|process| process.pid == agent.pid).then_some(())
    });
    assert!(installed.status().tracking.kernel_events);
    installed.was_refused_nothing();
}

#[test]
fn restarted_unit_takes_over_pins() {
    let Some(installed) = configured() else { return };
    let mut stage = Stage::new();
    let agent = stage.start("helper", &format!("uid {USER} exec AGENT [ report agent hold ]"));
    installed.eventually(seconds(2.0), "the session", |snapshot| snapshot.session(agent).map(drop));
    let before = installed.log().matches("took over").count();
    systemctl(&["restart", UNIT]);
    installed.await_active();

    let log = installed.log();
    assert_eq!(log.matches("took over").count(), before + 1, "{log}");
    assert!(!log.contains("importing their maps"), "{log}");
    installed.was_refused_nothing();
}

/// An earlier unit had a writable /sys/fs/bpf, and no second mount.
#[test]
fn next_unit_takes_over_pins() {
    let Some(installed) = configured() else { return };
    let earlier = DropIn::new("ProtectKernelTunables=no\nBindPaths=\n");
    systemctl(&["restart", UNIT]);
    installed.await_active();
    let mut stage = Stage::new();
    let script = "report agent spawn helper [ await stopped fork [ report late hold ] hold ] hold";
    let agent = stage.start("helper", &format!("uid {USER} exec AGENT [ {script} ]"));
    installed.eventually(seconds(2.0), "the session", |snapshot| snapshot.session(agent).map(drop));

    let before = installed.log().matches("took over").count();
    systemctl(&["stop", UNIT]);
    stage.mark("stopped");
    let late = stage.reported("late");
    drop(earlier);
    systemctl(&["start", UNIT]);
    installed.await_active();
    installed.eventually(seconds(2.0), "the helper that was forked meanwhile", |snapshot| {
        let session = snapshot.session_with(late)?;
        session.processes.iter().any(|process| process.pid == agent.pid).then_some(())
    });
    let log = installed.log();
    assert_eq!(log.matches("took over").count(), before + 1, "{log}");
    assert!(!log.contains("importing their maps"), "{log}");
    installed.was_refused_nothing();
}

#[test]
fn stopped_daemon_is_restarted_by_watchdog() {
    let Some(installed) = configured() else { return };
    assert_eq!(property("WatchdogUSec"), "30s");
    let drop_in = DropIn::new("WatchdogSec=10s\n");
    systemctl(&["restart", UNIT]);
    installed.await_active();

    // It lives for longer than the limit, so it beats.
    let pid = installed.status().pid;
    std::thread::sleep(Duration::from_secs(15));
    assert_eq!((installed.status().pid, property("NRestarts")), (pid, "0".to_owned()), "{}", installed.log());
    run("busybox", &["kill", "-STOP", &pid.to_string()]);
    let again =
        poll(seconds(10.0), || (![0, pid].map(|old| old.to_string()).contains(&property("MainPID"))).then_some(()));
    drop(drop_in);
    assert!(again.is_some(), "{}\n{}", systemctl(&["status", UNIT]), installed.log());
    assert_eq!(property("NRestarts"), "1");
    assert!(installed.log().contains("Watchdog timeout"), "{}", installed.log());
    installed.await_active();
}

/// Two helpers of another user, whose agent is about to die: one ends when it is asked to, the other has to be killed.
struct LeftBehind {
    agent: ProcessKey,
    gentle: ProcessKey,
    stubborn: ProcessKey,
}

impl LeftBehind {
    fn on(stage: &mut Stage, installed: &Installed) -> Self {
        let helpers =
            "spawn helper [ report gentle hold ] spawn helper [ count-term terms anon 16 report stubborn hold ]";
        let script = format!("uid {USER} exec AGENT [ socket-stdin {helpers} hold ]");
        let agent = stage.start("helper", &script);
        let (gentle, stubborn) = (stage.reported("gentle"), stage.reported("stubborn"));
        installed.eventually(seconds(2.0), "the session", |snapshot| snapshot.session_with(stubborn).map(drop));
        Self { agent, gentle, stubborn }
    }

    /// How often the stubborn one was asked to end.
    fn asked(&self, stage: &Stage) -> u64 {
        let file = stage.directory().join(format!("terms-{}", self.stubborn.pid));
        std::fs::metadata(file).expect("the file of signals").len()
    }

    fn all_dead(&self) -> Option<()> {
        [self.gentle, self.stubborn].iter().all(|process| !is_alive(*process)).then_some(())
    }
}

/// What was sent to a target of a receipt, and what it answered.
fn sent(receipt: &Receipt, to: ProcessKey) -> Vec<(String, String)> {
    let target = receipt.targets.iter().find(|target| target.pid == to.pid).expect("it is a target");
    target.sent.iter().map(|sent| (sent.what.clone(), sent.answer.clone())).collect()
}

#[test]
fn receipt_lists_other_users_orphans() {
    let Some(installed) = configured() else { return };
    let (mut stage, mut next_door) = (Stage::new(), Stage::new());
    let neighbour = LeftBehind::on(&mut next_door, &installed);
    let left = LeftBehind::on(&mut stage, &installed);

    stage.kill(left.agent);
    let dead = poll(seconds(10.0), || left.all_dead());
    assert!(dead.is_some(), "{:#?}\n{}", installed.snapshot(), installed.log());
    assert_eq!(left.asked(&stage), 1);
    let receipt = installed.receipt_of(&[left.gentle, left.stubborn]);
    assert_eq!((receipt.state, receipt.by), (ActionState::Done, DecidedBy::Policy), "{receipt:#?}");
    let word = |what: &str| (what.to_owned(), "sent".to_owned());
    assert_eq!(sent(&receipt, left.gentle), [word("TERM")], "{receipt:#?}");
    assert_eq!(sent(&receipt, left.stubborn), [word("TERM"), word("KILL")], "{receipt:#?}");
    assert!(receipt.targets.iter().all(|target| target.died_at.is_some() && target.uid == USER), "{receipt:#?}");

    // The notify command runs in the sandbox too, with a /tmp of the unit's own, and not as root.
    let receipt_file = format!("/proc/{}/root/tmp/receipt", installed.status().pid);
    let receipt = poll(seconds(2.0), || {
        let receipt: Receipt = serde_json::from_str(&std::fs::read_to_string(&receipt_file).ok()?).ok()?;
        receipt.targets.iter().any(|target| target.pid == left.gentle.pid).then_some(())
    });
    assert!(receipt.is_some(), "{:?}\n{}", std::fs::read_to_string(&receipt_file), installed.log());
    assert_eq!(std::fs::metadata(&receipt_file).expect("it was just read").uid(), NOBODY);
    // The daemon runs before other processes; what it starts does not.
    let niceness = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(16).map(str::to_owned));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", installed.status().pid)).expect("it runs");
    assert_eq!(niceness(&stat).as_deref(), Some("-10"), "{stat}");
    let stat = std::fs::read_to_string(receipt_file.replace("/receipt", "/stat")).expect("written before");
    assert_eq!(niceness(&stat).as_deref(), Some("0"), "{stat}");
    let umask = std::fs::read_to_string(receipt_file.replace("/receipt", "/umask")).expect("written before");
    assert_eq!(umask.trim(), "0022");

    assert!([neighbour.agent, neighbour.gentle, neighbour.stubborn].iter().all(|process| is_alive(*process)));
    installed.was_refused_nothing();
}

#[test]
fn killed_daemon_sends_second_signal() {
    let Some(installed) = configured() else { return };
    let mut stage = Stage::new();
    let left = LeftBehind::on(&mut stage, &installed);
    stage.kill(left.agent);
    let asked = poll(seconds(10.0), || (left.asked(&stage) == 1).then_some(()));
    assert!(asked.is_some(), "{}", installed.log());
    assert!(is_alive(left.stubborn), "the daemon is killed too late for this test");
    installed.await_successor_of(installed.kill());

    let dead = poll(seconds(5.0), || left.all_dead());
    assert!(dead.is_some(), "{:#}\n{}", installed.get("/v1/actions"), installed.log());
    assert_eq!(left.asked(&stage), 1, "no process receives SIGTERM twice\n{}", installed.log());
    let receipt = installed.receipt_of(&[left.stubborn]);
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    installed.was_refused_nothing();
}
