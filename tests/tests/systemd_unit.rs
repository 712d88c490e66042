//! Given the daemon as it is installed, started by systemd from the shipped unit and in its sandbox, when it does its work,
//! then nothing of it is refused.
//!
//! Only in the guest whose PID 1 is systemd, one test after the other: they share the machine's one daemon.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use watchdog::api::{ActionState, Actions, DecidedBy, FindingKind, Findings, Receipt, Status, Tree};
use watchdog_tests::{Look, MIB, NOBODY, ProcessId, Stage, get, is_alive, poll, seconds};

/// What the machine's daemon is told. Every stage's agent is one, and the gate knows a profile with a bound.
const CONFIG: &str = r#"
[tracking]
built_in_profiles = false
close_watch = "always"

[orphans]
grace = "1s"

[actions]
enforce = true
kill_after = "3s"
notify = ["/bin/sh", "-c", "read stat < /proc/self/stat; echo $stat > /tmp/stat; umask > /tmp/umask; cat > /tmp/told"]

[[profile]]
name = "bounded"
exe = ["*/watchdog-test-*/agent-*"]
max_memory = "128MiB"
oom_score_adj = 300
"#;

const SOCKET: &str = "/run/agent-watchdog/control.sock";
const UNIT: &str = "watchdogd.service";

/// A user whom root's rights are needed for.
const USER: u32 = 1000;

/// The daemon that systemd runs.
struct Installed;

impl Installed {
    /// It, once it has this configuration; `None` where it is not installed.
    fn configured() -> Option<Self> {
        if std::env::var_os("WATCHDOG_SYSTEMD").is_none() {
            eprintln!("skipped: only in a guest of its own does systemd run the daemon");
            return None;
        }
        let installed = Self;
        installed.await_active();
        std::fs::write("/etc/agent-watchdog/config.toml", CONFIG).expect("ConfigurationDirectory= has made it");
        systemctl(&["restart", UNIT]);
        installed.await_active();
        Some(installed)
    }

    fn await_active(&self) {
        let active = poll(seconds(10.0), || (property("ActiveState") == "active").then_some(()));
        assert!(active.is_some(), "{}\n{}", systemctl(&["status", UNIT]), self.log());
    }

    /// Kills it: its pid.
    fn kill(&self) -> u32 {
        let pid = self.status().pid;
        run("busybox", &["kill", "-KILL", &pid.to_string()]);
        pid
    }

    /// Waits until systemd has started another.
    fn await_successor_of(&self, pid: u32) {
        let again = poll(seconds(10.0), || {
            // For a moment after its end the unit is active and has no process, which is 0.
            let new = ![0, pid].map(|old| old.to_string()).contains(&property("MainPID"));
            (new && property("ActiveState") == "active").then_some(())
        });
        assert!(again.is_some(), "{}\n{}", systemctl(&["status", UNIT]), self.log());
    }

    fn get(&self, path: &str) -> Value {
        let answer = get(Path::new(SOCKET), path).unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.log()));
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.body);
        answer.json()
    }

    fn status(&self) -> Status {
        serde_json::from_value(self.get("/v1/status")).expect("a status")
    }

    fn look(&self) -> Look {
        let tree: Tree = serde_json::from_value(self.get("/v1/tree")).expect("a tree");
        let findings: Findings = serde_json::from_value(self.get("/v1/findings?all=true")).expect("findings");
        Look { tree, findings: findings.findings }
    }

    /// The receipts of what was done to this process.
    fn receipts_of(&self, process: ProcessId) -> Vec<Receipt> {
        let Actions { mut actions } = serde_json::from_value(self.get("/v1/actions")).expect("actions");
        actions.retain(|receipt| receipt.targets.iter().any(|target| target.pid == process.pid));
        actions
    }

    /// Waits for the one receipt of what was done to these, and that it is over.
    fn receipt_of(&self, processes: &[ProcessId]) -> Receipt {
        let over = poll(seconds(3.0), || {
            let mut receipts: Vec<_> = processes.iter().flat_map(|process| self.receipts_of(*process)).collect();
            receipts.dedup();
            let [receipt] = receipts.try_into().ok()?;
            Some(receipt).filter(|receipt: &Receipt| receipt.state.is_over())
        });
        over.unwrap_or_else(|| panic!("{}\n{}", self.get("/v1/actions"), self.log()))
    }

    fn eventually<T>(&self, within: Duration, what: &str, mut seen: impl FnMut(&Look) -> Option<T>) -> T {
        poll(within, || seen(&self.look()))
            .unwrap_or_else(|| panic!("not within {within:?}: {what}\n{:#?}\n{}", self.look(), self.log()))
    }

    /// What the daemon has said, in all its runs.
    fn log(&self) -> String {
        journal(&["--unit", UNIT])
    }

    /// Asserts that neither the kernel nor the sandbox has refused the daemon anything.
    fn was_refused_nothing(&self) {
        let refused = refused_calls("watchdogd");
        assert!(refused.is_empty(), "system calls that the unit refuses: {refused:#?}\n{}", self.log());
        let log = self.log();
        // Nothing here is worth a warning, and a refused address family is in no audit log.
        let complaint = log.lines().find(|line| line.contains(" WARN ") || line.contains(" ERROR "));
        assert_eq!(complaint, None, "{log}");
    }
}

/// `clone3`, in the words of the audit log. RestrictNamespaces= cannot look at its arguments and says that there is no such
/// call, upon which every C library takes `clone`.
const NO_CLONE3: &str = "arch=c000003e syscall=435 ";

/// What the kernel's audit log tells of system calls of this program that a sandbox refused.
fn refused_calls(comm: &str) -> Vec<String> {
    // 1326 is a call that seccomp refused.
    let log = journal(&["_AUDIT_TYPE=1326"]);
    let of_program = |line: &&str| line.contains(&format!("comm=\"{comm}\"")) && !line.contains(NO_CLONE3);
    log.lines().filter(of_program).map(str::to_owned).collect()
}

fn journal(matches: &[&str]) -> String {
    run("journalctl", &["--sync"]);
    run("journalctl", &[&["--no-pager", "--output=cat", "--all"], matches].concat())
}

fn systemctl(arguments: &[&str]) -> String {
    run("systemctl", arguments)
}

/// What systemd says of the unit.
fn property(name: &str) -> String {
    systemctl(&["show", "--value", "--property", name, UNIT]).trim().to_owned()
}

/// What a program says: an exit status is only one more thing that it says.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the guest has it");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// A line of a process's status.
fn proc_status(pid: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn the_daemon_runs_in_the_sandbox_of_its_unit_with_all_that_it_relies_on() {
    let Some(installed) = Installed::configured() else { return };
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
    assert_eq!(writable("/"), Some(false), "{mounts}");
    for target in ["/run/agent-watchdog", "/var/lib/agent-watchdog", "/sys/fs/cgroup", "/sys/fs/bpf"] {
        assert_eq!(writable(target), Some(true), "{target} in {mounts}");
    }

    assert!(status.tracking.kernel_events && !status.degraded, "{status:#?}\n{}", installed.log());
    let watched = poll(seconds(2.0), || installed.status().tracking.close_watch.then_some(()));
    assert!(watched.is_some(), "the programs that follow memory load as well\n{}", installed.log());
    // A guest has no swap.
    let off = status.capabilities.iter().filter(|capability| !capability.on && capability.name != "swap");
    let off: Vec<_> = off.collect();
    assert!(off.is_empty(), "{off:#?}");
    installed.was_refused_nothing();
}

/// The assertion that nothing was refused is worth something only if it can fail.
#[test]
fn a_call_that_a_sandbox_refuses_is_seen() {
    if Installed::configured().is_none() {
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
fn a_session_of_another_user_gets_its_cgroup_with_its_limits() {
    let Some(installed) = Installed::configured() else { return };
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
    installed.eventually(seconds(3.0), "the helper's finding", |look| {
        look.findings_of(FindingKind::Orphan).into_iter().find(|found| found.pid == helper.pid).cloned()
    });
    stage.kill(helper);
    let removed = poll(seconds(5.0), || (!directory.exists()).then_some(()));
    assert!(removed.is_some(), "{} is left behind\n{}", directory.display(), installed.log());
    installed.was_refused_nothing();
}

/// Starts the stage's agent through the gate, as another user.
fn launch(stage: &mut Stage, script: &str) -> ProcessId {
    let agent = stage.directory().join(stage.agent_name());
    let launch = format!("/usr/bin/watchdogctl launch -- {} {script}", agent.display());
    stage.start("helper", &format!("uid {USER} program - [ {launch} ] wait"));
    stage.reported("agent")
}

#[test]
fn a_daemon_that_is_killed_is_started_again_and_knows_whose_helpers_were_forked_meanwhile() {
    let Some(installed) = Installed::configured() else { return };
    let mut stage = Stage::new();
    let script = "report agent spawn helper [ await killed fork [ report late hold ] hold ] hold";
    let agent = stage.start("helper", &format!("uid {USER} exec AGENT [ {script} ]"));
    installed.eventually(seconds(2.0), "the session", |look| look.session(agent).map(drop));

    let killed = installed.kill();
    stage.mark("killed");
    let late = stage.reported("late");
    installed.await_successor_of(killed);
    installed.eventually(seconds(2.0), "the helper that was forked meanwhile", |look| {
        let session = look.session_with(late)?;
        session.processes.iter().any(|process| process.pid == agent.pid).then_some(())
    });
    assert!(installed.status().tracking.kernel_events);
    installed.was_refused_nothing();
}

#[test]
fn restarted_unit_takes_over_pins() {
    let Some(installed) = Installed::configured() else { return };
    let mut stage = Stage::new();
    let agent = stage.start("helper", &format!("uid {USER} exec AGENT [ report agent hold ]"));
    installed.eventually(seconds(2.0), "the session", |look| look.session(agent).map(drop));
    let before = installed.log().matches("took over").count();
    systemctl(&["restart", UNIT]);
    installed.await_active();

    let log = installed.log();
    assert_eq!(log.matches("took over").count(), before + 1, "{log}");
    assert!(!log.contains("only imported"), "{log}");
    installed.was_refused_nothing();
}

#[test]
fn stopped_daemon_is_restarted_by_watchdog() {
    let Some(installed) = Installed::configured() else { return };
    assert_eq!(property("WatchdogUSec"), "30s");
    let drop_in = Path::new("/run/systemd/system/watchdogd.service.d");
    std::fs::create_dir_all(drop_in).expect("systemd reads drop-ins from there");
    std::fs::write(drop_in.join("watchdog.conf"), "[Service]\nWatchdogSec=10s\n").expect("a drop-in");
    systemctl(&["daemon-reload"]);
    systemctl(&["restart", UNIT]);
    installed.await_active();

    // It lives for longer than the limit, so it beats.
    let pid = installed.status().pid;
    std::thread::sleep(Duration::from_secs(15));
    assert_eq!((installed.status().pid, property("NRestarts")), (pid, "0".to_owned()), "{}", installed.log());
    run("busybox", &["kill", "-STOP", &pid.to_string()]);
    let again =
        poll(seconds(10.0), || (![0, pid].map(|old| old.to_string()).contains(&property("MainPID"))).then_some(()));
    std::fs::remove_dir_all(drop_in).expect("it was just made");
    systemctl(&["daemon-reload"]);
    assert!(again.is_some(), "{}\n{}", systemctl(&["status", UNIT]), installed.log());
    assert_eq!(property("NRestarts"), "1");
    assert!(installed.log().contains("Watchdog timeout"), "{}", installed.log());
    installed.await_active();
}

/// Two helpers of another user, whose agent is about to die: one ends when it is asked to, the other has to be killed.
struct LeftBehind {
    agent: ProcessId,
    gentle: ProcessId,
    stubborn: ProcessId,
}

impl LeftBehind {
    fn on(stage: &mut Stage, installed: &Installed) -> Self {
        let helpers =
            "spawn helper [ report gentle hold ] spawn helper [ count-term terms anon 16 report stubborn hold ]";
        let script = format!("uid {USER} exec AGENT [ socket-stdin {helpers} hold ]");
        let agent = stage.start("helper", &script);
        let (gentle, stubborn) = (stage.reported("gentle"), stage.reported("stubborn"));
        installed.eventually(seconds(2.0), "the session", |look| look.session_with(stubborn).map(drop));
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
fn sent(receipt: &Receipt, to: ProcessId) -> Vec<(String, String)> {
    let target = receipt.targets.iter().find(|target| target.pid == to.pid).expect("it is a target");
    target.sent.iter().map(|sent| (sent.what.clone(), sent.answer.clone())).collect()
}

#[test]
fn orphans_of_another_user_are_ended_and_the_receipt_tells_how() {
    let Some(installed) = Installed::configured() else { return };
    let (mut stage, mut next_door) = (Stage::new(), Stage::new());
    let neighbour = LeftBehind::on(&mut next_door, &installed);
    let left = LeftBehind::on(&mut stage, &installed);

    stage.kill(left.agent);
    let dead = poll(seconds(10.0), || left.all_dead());
    assert!(dead.is_some(), "{:#?}\n{}", installed.look(), installed.log());
    assert_eq!(left.asked(&stage), 1);
    let receipt = installed.receipt_of(&[left.gentle, left.stubborn]);
    assert_eq!((receipt.state, receipt.by), (ActionState::Done, DecidedBy::Policy), "{receipt:#?}");
    let word = |what: &str| (what.to_owned(), "sent".to_owned());
    assert_eq!(sent(&receipt, left.gentle), [word("TERM")], "{receipt:#?}");
    assert_eq!(sent(&receipt, left.stubborn), [word("TERM"), word("KILL")], "{receipt:#?}");
    assert!(receipt.targets.iter().all(|target| target.died_at.is_some() && target.uid == USER), "{receipt:#?}");

    // The command that is told runs in the sandbox too, where it has a /tmp of the unit's own, and not as root.
    let told = format!("/proc/{}/root/tmp/told", installed.status().pid);
    let told_of_it = poll(seconds(2.0), || {
        let receipt: Receipt = serde_json::from_str(&std::fs::read_to_string(&told).ok()?).ok()?;
        receipt.targets.iter().any(|target| target.pid == left.gentle.pid).then_some(())
    });
    assert!(told_of_it.is_some(), "{:?}\n{}", std::fs::read_to_string(&told), installed.log());
    assert_eq!(std::fs::metadata(&told).expect("it was just read").uid(), NOBODY);
    // The daemon runs before other processes; what it starts does not.
    let niceness = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(16).map(str::to_owned));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", installed.status().pid)).expect("it runs");
    assert_eq!(niceness(&stat).as_deref(), Some("-10"), "{stat}");
    let stat = std::fs::read_to_string(told.replace("/told", "/stat")).expect("written before");
    assert_eq!(niceness(&stat).as_deref(), Some("0"), "{stat}");
    let umask = std::fs::read_to_string(told.replace("/told", "/umask")).expect("written before");
    assert_eq!(umask.trim(), "0022");

    assert!([neighbour.agent, neighbour.gentle, neighbour.stubborn].iter().all(|process| is_alive(*process)));
    installed.was_refused_nothing();
}

#[test]
fn a_daemon_that_is_killed_between_two_signals_goes_on_with_the_second() {
    let Some(installed) = Installed::configured() else { return };
    let mut stage = Stage::new();
    let left = LeftBehind::on(&mut stage, &installed);
    stage.kill(left.agent);
    let asked = poll(seconds(10.0), || (left.asked(&stage) == 1).then_some(()));
    assert!(asked.is_some(), "{}", installed.log());
    assert!(is_alive(left.stubborn), "the daemon is killed too late for this test");
    installed.await_successor_of(installed.kill());

    let dead = poll(seconds(5.0), || left.all_dead());
    assert!(dead.is_some(), "{:#}\n{}", installed.get("/v1/actions"), installed.log());
    assert_eq!(left.asked(&stage), 1, "nobody is asked twice\n{}", installed.log());
    let receipt = installed.receipt_of(&[left.stubborn]);
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    installed.was_refused_nothing();
}
