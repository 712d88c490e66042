//! The daemon as systemd runs it, in a guest of its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use watchdog_api::{Actions, Findings, Receipt, Status, Tree};

use crate::http::{asked_again, get};
use crate::proc::ProcessKey;
use crate::snapshot::Snapshot;
use crate::{poll, seconds};

const SOCKET: &str = "/run/agent-watchdog/control.sock";
pub const UNIT: &str = "watchdogd.service";

/// The daemon that systemd runs.
pub struct Installed;

impl Installed {
    pub fn await_active(&self) {
        let active = poll(seconds(10.0), || (property("ActiveState") == "active").then_some(()));
        assert!(active.is_some(), "{}\n{}", systemctl(&["status", UNIT]), self.log());
    }

    /// Kills it: its pid.
    pub fn kill(&self) -> u32 {
        let pid = self.status().pid;
        run("busybox", &["kill", "-KILL", &pid.to_string()]);
        pid
    }

    /// Waits until systemd has started another.
    pub fn await_successor_of(&self, pid: u32) {
        let again = poll(seconds(10.0), || {
            // For a moment after its end the unit is active and has no process, which is 0.
            let new = ![0, pid].map(|old| old.to_string()).contains(&property("MainPID"));
            (new && property("ActiveState") == "active").then_some(())
        });
        assert!(again.is_some(), "{}\n{}", systemctl(&["status", UNIT]), self.log());
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = asked_again(|| {
            get(Path::new(SOCKET), path).unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.log()))
        });
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.body);
        answer.json()
    }

    pub fn status(&self) -> Status {
        serde_json::from_value(self.get("/v1/status")).expect("a status")
    }

    pub fn snapshot(&self) -> Snapshot {
        let tree: Tree = serde_json::from_value(self.get("/v1/tree")).expect("a tree");
        let findings: Findings = serde_json::from_value(self.get("/v1/findings?all=true")).expect("findings");
        Snapshot { tree, findings: findings.findings }
    }

    /// The receipts of what was done to this process.
    pub fn receipts_of(&self, process: ProcessKey) -> Vec<Receipt> {
        let Actions { mut actions } = serde_json::from_value(self.get("/v1/actions")).expect("actions");
        actions.retain(|receipt| receipt.targets.iter().any(|target| target.pid == process.pid));
        actions
    }

    /// Waits for the one receipt of what was done to these, and that it is over.
    pub fn receipt_of(&self, processes: &[ProcessKey]) -> Receipt {
        let over = poll(seconds(3.0), || {
            let mut receipts: Vec<_> = processes.iter().flat_map(|process| self.receipts_of(*process)).collect();
            receipts.dedup();
            let [receipt] = receipts.try_into().ok()?;
            Some(receipt).filter(|receipt: &Receipt| receipt.state.is_over())
        });
        over.unwrap_or_else(|| panic!("{}\n{}", self.get("/v1/actions"), self.log()))
    }

    pub fn eventually<T>(&self, within: Duration, what: &str, mut seen: impl FnMut(&Snapshot) -> Option<T>) -> T {
        poll(within, || seen(&self.snapshot()))
            .unwrap_or_else(|| panic!("not within {within:?}: {what}\n{:#?}\n{}", self.snapshot(), self.log()))
    }

    /// What the daemon has said, in all its runs.
    pub fn log(&self) -> String {
        journal(&["--unit", UNIT])
    }

    /// Asserts that neither the kernel nor the sandbox has refused the daemon anything.
    pub fn was_refused_nothing(&self) {
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

/// The kernel's audit log about system calls of this program that a sandbox refused.
pub fn refused_calls(comm: &str) -> Vec<String> {
    // 1326 is a call that seccomp refused.
    let log = journal(&["_AUDIT_TYPE=1326"]);
    let of_program = |line: &&str| line.contains(&format!("comm=\"{comm}\"")) && !line.contains(NO_CLONE3);
    log.lines().filter(of_program).map(str::to_owned).collect()
}

pub fn journal(matches: &[&str]) -> String {
    run("journalctl", &["--sync"]);
    run("journalctl", &[&["--no-pager", "--output=cat", "--all"], matches].concat())
}

pub fn systemctl(arguments: &[&str]) -> String {
    run("systemctl", arguments)
}

/// What systemd says of the unit.
pub fn property(name: &str) -> String {
    systemctl(&["show", "--value", "--property", name, UNIT]).trim().to_owned()
}

/// What a program says: an exit status is only one more thing that it says.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the guest has it");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
