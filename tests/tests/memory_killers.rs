//! Deaths by earlyoom and nohang, which kill to free memory. Skipped without these programs, except in CI.
//!
//! A killer runs in the pid namespace of its test, so it sees no other processes. It runs as the user of the victim, so it
//! can signal no other process: all others are root's.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use watchdog_tests::{
    Daemon, InnerRun, Isolation, MIB, NOBODY, ProcessKey, Stage, inside, limit, poll, seconds, skip_without,
};

const EARLYOOM: &str = "/usr/bin/earlyoom";
const NOHANG: &str = "/usr/sbin/nohang";
const NOHANG_CONFIG: &str = "/etc/nohang/nohang.conf";
const HELD_MIB: u64 = 150;

/// What a victim does. A killer chooses it first, though its memory is little.
fn victim() -> String {
    format!("oom-score 900 uid {NOBODY} anon 40 report victim hold")
}

/// Runs a test in namespaces of its own.
///
/// # Panics
/// In CI, if the killer is not installed.
fn with_killer(test: &str, killer: &str, run: impl FnOnce()) {
    if !Path::new(killer).exists() {
        skip_without(killer, "earlyoom nohang");
        return;
    }
    match inside(test) {
        Some(_) => run(),
        None => InnerRun::of(test, Isolation::default()).passes(),
    }
}

/// A killer, killed when it is dropped.
struct Killer {
    process: Child,
    log: PathBuf,
}

impl Killer {
    fn start(stage: &Stage, mut command: Command) -> Self {
        let log = stage.directory().join("killer.log");
        let file = fs::File::create(&log).expect("a log");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a log")).stderr(file);
        Self { process: command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")), log }
    }

    /// Kills at once: it wants more memory to be available than there is. Below `kill_percent` it sends SIGKILL.
    fn earlyoom(stage: &Stage, kill_percent: &str) -> Self {
        let mut command = Command::new(EARLYOOM);
        command.args(["-m", &format!("99,{kill_percent}"), "-s", "100,100", "-r", "0"]).uid(NOBODY);
        Self::start(stage, command)
    }

    /// The same. It accepts no threshold above half of the memory, so it reads a meminfo with little available memory.
    fn nohang(stage: &Stage) -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").expect("every host has one");
        let scarce = meminfo.lines().map(|line| match line.split(':').next() {
            Some("MemAvailable") => "MemAvailable:      65536 kB\n".to_owned(),
            Some("SwapFree") => "SwapFree:              0 kB\n".to_owned(),
            _ => format!("{line}\n"),
        });
        fs::write(stage.directory().join("meminfo"), scarce.collect::<String>()).expect("a file");
        let config = fs::read_to_string(NOHANG_CONFIG).expect("the package brings it");
        let (hard, never) = ("hard_threshold_min_mem = 2 %", "hard_threshold_min_mem = 0 %");
        assert!(config.contains(hard), "nohang's configuration has another format");
        fs::write(stage.directory().join("nohang.conf"), config.replace(hard, never)).expect("a file");
        let user = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
        let script =
            format!("mount --bind meminfo /proc/meminfo && exec {user} {NOHANG} --monitor --config nohang.conf");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).current_dir(stage.directory());
        Self::start(stage, command)
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until the daemon has seen the memory of these processes.
fn await_samples(daemon: &Daemon, processes: &[(ProcessKey, u64)]) {
    daemon.eventually(seconds(10.0), "samples", |snapshot| {
        let sampled = |(process, mib): &(ProcessKey, u64)| {
            snapshot.process(*process).is_some_and(|process| process.anon_bytes >= mib * MIB)
        };
        processes.iter().all(sampled).then_some(())
    });
}

/// The death of a process, once the inspection of its killer is part of it.
fn explained(daemon: &Daemon, killer: &Killer, process: ProcessKey) -> (Value, String) {
    let within = limit(Duration::from_secs(30));
    let role = || Some(daemon.death(process.pid, within)).filter(|death| death["sender"]["role"].is_string());
    let death = poll(within, role).unwrap_or_else(|| panic!("no role: {:#}", daemon.death(process.pid, within)));
    let text = daemon.ctl_text(&["explain", &process.pid.to_string()]).stdout;
    println!("{text}\n{}", killer.log());
    (death, text)
}

/// An agent with little memory dies for that of another one.
fn agent_dies_for_holder(name: &str, start: impl FnOnce(&Stage) -> Killer) {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let holder = stage.agent(&format!("anon {HELD_MIB} report holder hold"));
    let victim = stage.agent(&victim());
    stage.reported("holder");
    stage.reported("victim");
    await_samples(&daemon, &[(holder, HELD_MIB), (victim, 40)]);
    daemon.eventually(seconds(10.0), "the victim's oom_score_adj", |snapshot| {
        (snapshot.process(victim)?.oom_score_adj == Some(900)).then_some(())
    });
    let session = daemon.snapshot().session(holder).expect("it runs").id;

    let killer = start(&stage);

    let (death, text) = explained(&daemon, &killer, victim);
    assert_eq!((&death["cause"], &death["signal"]), (&"killed".into(), &15.into()), "{death:#}\n{}", killer.log());
    let sender = &death["sender"];
    assert_eq!((&sender["relation"], &sender["role"]), (&"stranger".into(), &"oom_killer".into()), "{death:#}");
    assert_eq!(sender["pid"], killer.process.id(), "{death:#}");
    let largest = &death["memory_holders"]["holders"][0];
    assert_eq!(largest["session"], session, "{death:#}");
    assert!(largest["memory_bytes"].as_u64().is_some_and(|bytes| bytes >= HELD_MIB * MIB), "{death:#}");
    let says = [
        format!("was killed by SIGTERM from {name} (pid {}, uid {NOBODY}", killer.process.id()),
        "a userspace OOM killer by its name".to_owned(),
        format!("Sessions held {}", largest_sum(&death)),
        format!("session {session} (test)"),
        "The victim was not the largest".to_owned(),
        "oom_score_adj 900".to_owned(),
    ];
    for says in says {
        assert!(text.replace("\n", " ").contains(&says), "{says:?} is not in {text}");
    }
    assert!(daemon.snapshot().process(holder).is_some(), "the holder lives\n{}", killer.log());
}

fn largest_sum(death: &Value) -> String {
    let bytes = death["memory_holders"]["sessions_bytes"].as_u64().expect("a sum");
    watchdog_types::units::size(bytes)
}

#[test]
fn earlyoom_kill_names_holders() {
    with_killer("earlyoom_kill_names_holders", EARLYOOM, || {
        agent_dies_for_holder("earlyoom", |stage| Killer::earlyoom(stage, "1"));
    });
}

#[test]
fn nohang_kill_names_holders() {
    with_killer("nohang_kill_names_holders", NOHANG, || agent_dies_for_holder("nohang", Killer::nohang));
}

#[test]
fn failure_follows_from_earlyoom_kill() {
    with_killer("failure_follows_from_earlyoom_kill", EARLYOOM, || {
        let mut stage = Stage::new();
        stage.install("rust-analyzer");
        let daemon = Daemon::watching(&stage);
        let agent = stage.agent(&format!("spawn rust-analyzer [ {} ] wait sleep 0.5 fail", victim()));
        let victim = stage.reported("victim");
        await_samples(&daemon, &[(victim, 40)]);

        let killer = Killer::earlyoom(&stage, "98");

        let (death, _) = explained(&daemon, &killer, victim);
        assert_eq!((&death["cause"], &death["signal"]), (&"killed".into(), &9.into()), "{death:#}\n{}", killer.log());
        let death = daemon.death(agent.pid, seconds(10.0));
        assert_eq!((&death["cause"], &death["exit_code"]), (&"failed".into(), &1.into()), "{death:#}");
        let summary = death["summary"].as_str().expect("a text");
        let first = format!("rust-analyzer (pid {}) was killed by SIGKILL from earlyoom (pid ", victim.pid);
        assert!(summary.contains(&first) && summary.contains("This exit may follow from it."), "{summary}");
    });
}
