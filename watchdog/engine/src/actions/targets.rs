//! Turns candidates into targets and exemptions.

use std::collections::BTreeSet;

use super::action::{Justification, TargetSnapshot};
use super::authority::ExemptionReason;
use crate::Engine;
use crate::process::TrackedProcess;
use watchdog_types::{Bytes, ProcessId};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetSelection {
    /// Leaves first: a parent that would restart a child is signalled right after it.
    pub targets: Vec<TargetSnapshot>,
    pub spared: Vec<(ProcessId, ExemptionReason)>,
}

impl TargetSelection {
    pub(super) fn memory(&self) -> Bytes {
        self.targets.iter().map(|target| target.memory).sum()
    }
}

impl Engine {
    /// Orders the candidates and checks the exemptions. Dead candidates are dropped.
    pub(super) fn select_targets(
        &self,
        candidates: impl IntoIterator<Item = ProcessId>,
        justification: Justification,
    ) -> TargetSelection {
        let mut order: Vec<(usize, &TrackedProcess)> = candidates
            .into_iter()
            .collect::<BTreeSet<ProcessId>>()
            .into_iter()
            .filter_map(|id| self.table.alive(id))
            .map(|process| (self.table.above(process.id).count(), process))
            .collect();
        order.sort_by_key(|(above, process)| std::cmp::Reverse((*above, process.id.start_time, process.id.pid)));
        let mut selection = TargetSelection::default();
        for (_, process) in order {
            let ending =
                self.actions.terminating(process.id).map(|action| format!("action {action} is terminating it"));
            match ending.or_else(|| self.exemption_reason(process.id, justification)) {
                Some(because) => selection.spared.push((process.id, because.into())),
                None => selection.targets.push(target(process)),
            }
        }
        selection
    }

    /// Like [`select_targets`](Self::select_targets), without processes that policy skips.
    pub(super) fn select_new_targets(
        &self,
        candidates: impl IntoIterator<Item = ProcessId>,
        justification: Justification,
    ) -> TargetSelection {
        self.select_targets(candidates.into_iter().filter(|process| !self.actions.skips(*process)), justification)
    }

    /// Targets without a check of the exemptions.
    pub(super) fn snapshot_targets(&self, processes: impl IntoIterator<Item = ProcessId>) -> Vec<TargetSnapshot> {
        processes.into_iter().filter_map(|id| self.table.alive(id)).map(target).collect()
    }

    /// The processes and their running descendants.
    pub(super) fn subtree(&self, tops: impl IntoIterator<Item = ProcessId>) -> Vec<ProcessId> {
        let all = tops.into_iter().flat_map(|top| std::iter::once(top).chain(self.table.below(top, |_| true)));
        all.filter(|id| self.table.alive(*id).is_some()).collect()
    }

    /// The helpers and their running descendants, except those of nested agents.
    pub(super) fn helpers(&self, tops: impl IntoIterator<Item = ProcessId>) -> Vec<ProcessId> {
        let is_helper = |process: &TrackedProcess| !process.is_agent();
        let tops = tops.into_iter().filter(|top| self.table.get(*top).is_some_and(is_helper));
        let all = tops.flat_map(|top| std::iter::once(top).chain(self.table.below(top, is_helper)));
        all.filter(|id| self.table.alive(*id).is_some()).collect()
    }
}

fn target(process: &TrackedProcess) -> TargetSnapshot {
    TargetSnapshot {
        process: process.id,
        parent: process.forked_by,
        kind: process.kind,
        name: process.label(),
        uid: process.uid,
        memory: process.cost(),
    }
}
