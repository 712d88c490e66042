//! What clients see of a test's host.

use std::time::Duration;

use super::world::World;
use crate::view::DisplayContext;
use watchdog_api::{self as api, FindingKind};
use watchdog_types::{ProcessId, Viewer};

impl World {
    pub(super) fn tree(&self) -> api::Tree {
        self.engine.tree(Viewer::Root, &naming())
    }

    /// The session whose agent this is.
    pub(super) fn session(&self, root: ProcessId) -> api::Session {
        let tree = self.tree();
        let is = |session: &&api::Session| session.processes.iter().any(|p| p.pid == root.pid.0 && p.depth == 0);
        tree.sessions.iter().find(is).cloned().unwrap_or_else(|| panic!("no session of {root} in {tree:#?}"))
    }

    pub(super) fn row(&self, process: ProcessId) -> api::Process {
        let tree = self.tree();
        let mut rows = tree.sessions.iter().flat_map(|session| &session.processes);
        let row = rows.find(|row| row.pid == process.pid.0).cloned();
        row.unwrap_or_else(|| panic!("no process {process} in {tree:#?}"))
    }

    pub(super) fn open(&self, kind: FindingKind) -> Vec<ShownFinding> {
        let findings = self.engine.findings(Viewer::Root, &naming(), false).findings;
        findings.into_iter().filter(|finding| finding.kind == kind).map(ShownFinding::from).collect()
    }

    pub(super) fn all(&self, kind: FindingKind) -> Vec<ShownFinding> {
        let findings = self.engine.findings(Viewer::Root, &naming(), true).findings;
        findings.into_iter().filter(|finding| finding.kind == kind).map(ShownFinding::from).collect()
    }
}

/// A finding whose evidence is read as clients read it: the names and shapes of its JSON are a contract.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShownFinding {
    finding: api::Finding,
    pub(super) evidence: serde_json::Map<String, serde_json::Value>,
}

impl From<api::Finding> for ShownFinding {
    fn from(finding: api::Finding) -> Self {
        assert!(!matches!(finding.evidence, api::Evidence::Raw(_)), "{finding:#?}");
        let evidence = finding.evidence.to_map();
        let read: api::Evidence = serde_json::from_value(evidence.clone().into()).unwrap();
        assert_eq!(read, finding.evidence, "another shape has these fields too");
        assert_eq!(finding.summary, finding.evidence.to_string());
        Self { finding, evidence }
    }
}

impl std::ops::Deref for ShownFinding {
    type Target = api::Finding;

    fn deref(&self) -> &api::Finding {
        &self.finding
    }
}

/// A number of the finding's evidence.
pub(super) fn number(finding: &ShownFinding, name: &str) -> f64 {
    finding.evidence[name].as_f64().unwrap_or_else(|| panic!("{name} in {finding:#?}"))
}

/// The pids that an orphan finding lists.
pub(super) fn listed(finding: &ShownFinding) -> Vec<u32> {
    let processes = finding.evidence.get("processes").and_then(|processes| processes.as_array());
    let mut pids: Vec<u32> =
        processes.into_iter().flatten().filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok()).collect();
    pids.sort_unstable();
    pids
}

pub(super) fn naming() -> DisplayContext<'static> {
    DisplayContext { boot: Duration::from_secs(1_700_000_000), user: &|uid| uid.0.to_string() }
}
