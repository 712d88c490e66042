//! Candidates made into targets: in the order in which they are signalled, those who are spared told apart.

use std::collections::BTreeSet;

use super::{Grounds, SpareReason, Target};
use crate::engine::Engine;
use crate::engine::id::{Bytes, ProcessId};
use crate::engine::process::Process;

/// Who is touched and who is not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// Leaves first: whoever waits for a child does not start it again, being signalled next.
    pub targets: Vec<Target>,
    /// Who was named and is left alone, and why.
    pub spared: Vec<(ProcessId, SpareReason)>,
}

impl Chosen {
    /// What the targets hold.
    pub(super) fn memory(&self) -> Bytes {
        self.targets.iter().map(|target| target.memory).sum()
    }
}

impl Engine {
    /// Sorts candidates. The dead among them are left out without a word.
    pub(super) fn choose(&self, candidates: impl IntoIterator<Item = ProcessId>, grounds: Grounds) -> Chosen {
        let mut order: Vec<(usize, &Process)> = candidates
            .into_iter()
            .collect::<BTreeSet<ProcessId>>()
            .into_iter()
            .filter_map(|id| self.table.alive(id))
            .map(|process| (self.table.above(process.id).count(), process))
            .collect();
        order.sort_by_key(|(above, process)| std::cmp::Reverse((*above, process.id.start_time, process.id.pid)));
        let mut chosen = Chosen::default();
        for (_, process) in order {
            let ending = self.acts.ending(process.id).map(|action| format!("action {action} is ending it"));
            match ending.or_else(|| self.spare(process.id, grounds)) {
                Some(because) => chosen.spared.push((process.id, because.into())),
                None => chosen.targets.push(target(process)),
            }
        }
        chosen
    }

    /// The same, without those whom policy is done with.
    pub(super) fn choose_new(&self, candidates: impl IntoIterator<Item = ProcessId>, grounds: Grounds) -> Chosen {
        self.choose(candidates.into_iter().filter(|process| !self.acts.is_done_with(*process)), grounds)
    }

    /// These as targets, whatever may be done to them.
    pub(super) fn describe(&self, processes: impl IntoIterator<Item = ProcessId>) -> Vec<Target> {
        processes.into_iter().filter_map(|id| self.table.alive(id)).map(target).collect()
    }

    /// These, and everything alive below them.
    pub(super) fn subtree(&self, tops: impl IntoIterator<Item = ProcessId>) -> Vec<ProcessId> {
        let all = tops.into_iter().flat_map(|top| std::iter::once(top).chain(self.table.below(top, |_| true)));
        all.filter(|id| self.table.alive(*id).is_some()).collect()
    }

    /// These helpers, and what is alive below them, but for what another agent runs: that is its own, whatever its starter did.
    pub(super) fn helpers(&self, tops: impl IntoIterator<Item = ProcessId>) -> Vec<ProcessId> {
        let is_helper = |process: &Process| !process.is_agent();
        let tops = tops.into_iter().filter(|top| self.table.get(*top).is_some_and(is_helper));
        let all = tops.flat_map(|top| std::iter::once(top).chain(self.table.below(top, is_helper)));
        all.filter(|id| self.table.alive(*id).is_some()).collect()
    }
}

fn target(process: &Process) -> Target {
    Target {
        process: process.id,
        parent: process.forked_by,
        kind: process.kind,
        name: process.label(),
        uid: process.uid,
        memory: process.cost(),
    }
}
