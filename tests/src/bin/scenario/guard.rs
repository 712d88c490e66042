//! The memory killer of the machine: agent-watchdog, earlyoom or nohang.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use watchdog_tests::{Daemon, Stage, poll, seconds};

use crate::machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScenarioGuard {
    Ours,
    /// earlyoom, with the options of Debian's `/etc/default/earlyoom`.
    Earlyoom,
    /// nohang, with Debian's `/etc/nohang/nohang.conf`.
    Nohang,
}

impl ScenarioGuard {
    /// By its name in tables.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Ours, Self::Earlyoom, Self::Nohang].into_iter().find(|guard| guard.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "agent-watchdog",
            Self::Earlyoom => "earlyoom",
            Self::Nohang => "nohang",
        }
    }

    /// Starts it and waits until it is ready. `config` is for agent-watchdog.
    pub(crate) fn start(self, stage: &Stage, config: &str) -> Guarding {
        self.start_with(stage, config, fs::read_to_string(NOHANG_CONFIG).expect("nohang's configuration"))
    }

    /// The same with PSI monitoring of nohang, which Debian disables.
    pub(crate) fn start_with_pressure(self, stage: &Stage, config: &str) -> Guarding {
        let nohang = fs::read_to_string(NOHANG_CONFIG).expect("nohang's configuration");
        let (off, on) = ("psi_checking_enabled = False", "psi_checking_enabled = True");
        assert!(nohang.contains(off), "nohang's configuration has another format");
        self.start_with(stage, config, nohang.replace(off, on))
    }

    fn start_with(self, stage: &Stage, config: &str, nohang: String) -> Guarding {
        let log = stage.directory().join("guard.log");
        let mut command = match self {
            Self::Ours => {
                let daemon = Daemon::configured(stage, config);
                // As the unit has it.
                machine::set_oom_score_adj(daemon.pid(), -900);
                return Guarding::Ours(Box::new(daemon));
            }
            Self::Earlyoom => {
                let mut command = Command::new("/usr/bin/earlyoom");
                command.args(earlyoom_arguments());
                command
            }
            Self::Nohang => {
                let path = stage.directory().join("nohang.conf");
                fs::write(&path, nohang).expect("nohang's configuration");
                let mut command = Command::new("/usr/sbin/nohang");
                command.args(["--monitor", "--config"]).arg(path);
                command
            }
        };
        let file = fs::File::create(&log).expect("a log");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a log")).stderr(file);
        let process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut peer = PeerProcess { process, log };
        peer.await_ready();
        Guarding::PeerProcess(peer)
    }
}

const NOHANG_CONFIG: &str = "/etc/nohang/nohang.conf";

/// What Debian's unit passes to earlyoom.
fn earlyoom_arguments() -> Vec<String> {
    let defaults = fs::read_to_string("/etc/default/earlyoom").expect("earlyoom's defaults");
    let arguments = defaults.lines().find_map(|line| line.strip_prefix("EARLYOOM_ARGS=")).expect("its arguments");
    arguments.trim_matches('"').split_whitespace().map(str::to_owned).collect()
}

/// A guard that runs.
pub(crate) enum Guarding {
    /// This project's.
    Ours(Box<Daemon>),
    /// Another.
    PeerProcess(PeerProcess),
}

impl Guarding {
    /// Our daemon, if it is that.
    pub(crate) fn ours(&self) -> Option<&Daemon> {
        match self {
            Self::Ours(daemon) => Some(daemon),
            Self::PeerProcess(_) => None,
        }
    }

    /// What it says it did, in its own words.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            Self::Ours(daemon) => {
                let actions = daemon.get("/v1/actions");
                let actions = actions["actions"].as_array().cloned().unwrap_or_default();
                actions.iter().map(|action| format!("{}: {}", text(action, "reason"), text(action, "result"))).collect()
            }
            Self::PeerProcess(peer) => {
                let log = fs::read_to_string(&peer.log).unwrap_or_default();
                let words = ["to process", "kill failed", "] Sending SIG", "The victim"];
                let is_report = |line: &&str| words.iter().any(|word| line.contains(word));
                let reports = log.lines().filter(is_report).map(|line| line.trim().to_owned()).collect::<Vec<_>>();
                let more = reports.len().saturating_sub(WORDS);
                let more = (more > 0).then(|| format!("and {more} lines more of that"));
                reports.into_iter().take(WORDS).chain(more).collect()
            }
        }
    }
}

/// Lines of a peer's log that are repeated.
const WORDS: usize = 4;

fn text<'a>(value: &'a serde_json::Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Another project's daemon.
pub(crate) struct PeerProcess {
    process: Child,
    log: PathBuf,
}

impl PeerProcess {
    fn await_ready(&mut self) {
        let ready = poll(seconds(6.0), || {
            let ended = self.process.try_wait().expect("our child");
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            assert!(ended.is_none(), "the guard ended: {ended:?}\n{log}");
            ["onitoring has started", "mem avail"].iter().any(|word| log.contains(word)).then_some(())
        });
        if ready.is_none() {
            println!(
                "the guard has not reported that it is ready:\n{}",
                fs::read_to_string(&self.log).unwrap_or_default()
            );
        }
        // No guard reports more than that it starts.
        std::thread::sleep(Duration::from_secs(1));
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        println!("the guard's log:\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
