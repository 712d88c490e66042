//! What bounds keep-evidence: a process that leaks, passes a limit, or costs more than a kept one may, is in doubt.

use std::collections::{BTreeMap, BTreeSet};

use super::Step;
use super::id::ProcessId;
use crate::api::FindingKind;

/// Processes whose keep-evidence counts no longer, and why.
pub(super) type Excesses = BTreeMap<ProcessId, &'static str>;

impl Step<'_> {
    /// Brings up to date which processes that is so of, and judges those anew of which it changed.
    pub(super) fn tick_excess(&mut self) {
        let engine = &*self.engine;
        let leaks = engine.findings.open().filter(|finding| finding.seen.key.kind == FindingKind::Leak);
        let mut excesses: Excesses =
            leaks.flat_map(|finding| finding.seen.members.iter().map(|member| (*member, "leaks"))).collect();
        excesses.extend(engine.overlimit.processes_over(self.now));
        let before = std::mem::replace(&mut self.engine.excesses, excesses);
        let now = &self.engine.excesses;
        let all: BTreeSet<ProcessId> = before.keys().chain(now.keys()).copied().collect();
        let changed: Vec<ProcessId> =
            all.into_iter().filter(|process| before.get(process) != now.get(process)).collect();
        for process in changed {
            self.judge(process);
            self.may_be_orphan(process);
        }
    }
}
