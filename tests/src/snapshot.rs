//! Tree and findings of a daemon at one time.

use serde::de::DeserializeOwned;
use watchdog_api::{Finding, FindingKind, Process, Session, Tree};

use crate::proc::ProcessKey;

#[derive(Clone, Debug)]
pub struct Snapshot {
    pub tree: Tree,
    /// Including closed ones.
    pub findings: Vec<Finding>,
}

impl Snapshot {
    pub fn session(&self, agent: ProcessKey) -> Option<&Session> {
        self.tree.sessions.iter().find(|session| session.processes.iter().any(|p| p.depth == 0 && identity(p) == agent))
    }

    /// In any session.
    pub fn process(&self, process: ProcessKey) -> Option<&Process> {
        self.tree.sessions.iter().flat_map(|session| &session.processes).find(|p| identity(p) == process)
    }

    pub fn session_with(&self, process: ProcessKey) -> Option<&Session> {
        self.tree.sessions.iter().find(|session| session.processes.iter().any(|p| identity(p) == process))
    }

    /// In the order in which they opened.
    pub fn findings_of(&self, kind: FindingKind) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.kind == kind).collect()
    }

    pub fn open(&self, kind: FindingKind) -> Vec<&Finding> {
        self.findings_of(kind).into_iter().filter(|finding| finding.closed_at.is_none()).collect()
    }
}

fn identity(process: &Process) -> ProcessKey {
    ProcessKey { pid: process.pid, start_time: process.start_time }
}

/// A field of the finding's evidence.
///
/// # Panics
/// When it is missing or of another type.
#[must_use]
pub fn evidence<T: DeserializeOwned>(finding: &Finding, name: &str) -> T {
    let value = finding.evidence.to_map().remove(name).unwrap_or_else(|| panic!("no {name} in {finding:#?}"));
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{name}: {error} in {finding:#?}"))
}
