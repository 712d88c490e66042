//! Limits of keep-evidence: a process that leaks or passes a limit becomes uncertain.

use std::collections::{BTreeMap, BTreeSet};

use super::Step;
use watchdog_api::FindingKind;
use watchdog_types::ProcessId;

/// Processes whose keep-evidence no longer counts, and why.
pub(super) type Excesses = BTreeMap<ProcessId, &'static str>;

impl Step<'_> {
    /// Updates the list, and the verdicts of processes that entered or left it.
    pub(super) fn update_excesses(&mut self) {
        let engine = &*self.engine;
        let leaks = engine.findings.open().filter(|finding| finding.seen.key.kind == FindingKind::Leak);
        let mut excesses: Excesses =
            leaks.flat_map(|finding| finding.seen.members.iter().map(|member| (*member, "leaks"))).collect();
        excesses.extend(engine.detectors.processes_over_limit(self.now));
        let before = std::mem::replace(&mut self.engine.excesses, excesses);
        let now = &self.engine.excesses;
        let all: BTreeSet<ProcessId> = before.keys().chain(now.keys()).copied().collect();
        let changed: Vec<ProcessId> =
            all.into_iter().filter(|process| before.get(process) != now.get(process)).collect();
        for process in changed {
            self.update_verdict(process);
            self.place(process);
        }
    }
}
