//! What a daemon shows at one moment.

use serde::de::DeserializeOwned;
use watchdog::api::{Finding, FindingKind, Process, Session, Tree};

use crate::proc::ProcessId;

/// What a daemon shows at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// All sessions.
    pub tree: Tree,
    /// All findings, the closed ones too.
    pub findings: Vec<Finding>,
}

impl Look {
    /// The session whose agent is this process.
    #[must_use]
    pub fn session(&self, agent: ProcessId) -> Option<&Session> {
        self.tree.sessions.iter().find(|session| session.processes.iter().any(|p| p.depth == 0 && identity(p) == agent))
    }

    /// The process, in whatever session.
    #[must_use]
    pub fn process(&self, process: ProcessId) -> Option<&Process> {
        self.tree.sessions.iter().flat_map(|session| &session.processes).find(|p| identity(p) == process)
    }

    /// The session that this process is in.
    #[must_use]
    pub fn session_with(&self, process: ProcessId) -> Option<&Session> {
        self.tree.sessions.iter().find(|session| session.processes.iter().any(|p| identity(p) == process))
    }

    /// The findings of one kind, in the order in which they opened.
    #[must_use]
    pub fn findings_of(&self, kind: FindingKind) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.kind == kind).collect()
    }

    /// The open findings of one kind.
    #[must_use]
    pub fn open(&self, kind: FindingKind) -> Vec<&Finding> {
        self.findings_of(kind).into_iter().filter(|finding| finding.closed_at.is_none()).collect()
    }
}

/// The identity of a process that is shown.
fn identity(process: &Process) -> ProcessId {
    ProcessId { pid: process.pid, start_time: process.start_time }
}

/// A value of the finding's evidence.
///
/// # Panics
/// When it is not there, or is of another type.
#[must_use]
pub fn evidence<T: DeserializeOwned>(finding: &Finding, name: &str) -> T {
    let value = finding.evidence.get(name).unwrap_or_else(|| panic!("no {name} in {finding:#?}"));
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {error} in {finding:#?}"))
}
