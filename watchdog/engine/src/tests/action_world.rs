//! Operations on processes of a test's host, and the rules that every batch must keep.

use std::collections::HashSet;

use super::world::{SHELL, World};
use crate::actions::{Batch, BatchResult, Initiator, Justification, Operation, OperationOutcome};
use crate::input::Input;
use crate::ownership::Ownership;
use crate::process::Verdict;
use watchdog_types::{Pid, ProcessId, Uid};

impl World {
    /// Executes a batch, and returns its result.
    pub(super) fn execute(&mut self, batch: &Batch) -> Input {
        let mut outcomes = Vec::new();
        if let Some(why) = &self.refusal {
            let outcomes = batch.targets.iter().map(|process| (*process, why.clone())).collect();
            return Input::BatchResult(BatchResult {
                action: batch.action,
                operation: batch.operation,
                at: self.now,
                outcomes,
            });
        }
        for process in &batch.targets {
            self.operations.push((self.now, batch.operation, *process));
            let there = self.living.contains_key(process);
            outcomes.push((*process, if there { OperationOutcome::Sent } else { OperationOutcome::AlreadyExited }));
            let dies = match batch.operation {
                Operation::Kill => true,
                Operation::Term => !self.stubborn.contains(process),
                Operation::Freeze | Operation::Thaw | Operation::Throttle | Operation::Unthrottle => false,
            };
            if self.mortal && there && dies {
                self.kill(*process);
            }
        }
        Input::BatchResult(BatchResult { action: batch.action, operation: batch.operation, at: self.now, outcomes })
    }

    /// The rule, stated a second time and independently: a process that policy signals is alive, is an orphan or a helper, and
    /// is not kept.
    pub(super) fn check(&self, batch: &Batch) {
        if !matches!(batch.operation, Operation::Term | Operation::Kill | Operation::Freeze) {
            return;
        }
        let action = self.engine.actions.action(batch.action).expect("an action is known before anything is done");
        for target in &batch.targets {
            let known = self.engine.table.alive(*target).unwrap_or_else(|| panic!("{target} is not alive"));
            let may_be_kept = matches!(action.justification, Justification::IncludingKept(_));
            assert!(may_be_kept || !known.verdict.is_kept(), "{target} is kept: {:?}", known.verdict);
            assert!(target.pid > Pid(1) && *target != SHELL, "{target}");
            if matches!(action.initiator, Initiator::User(_)) {
                continue;
            }
            assert!(!matches!(known.verdict, Verdict::Unknown(_)), "{target} is in doubt: {:?}", known.verdict);
            let session = self.engine.sessions.get(known.session).expect("a member's session is known");
            assert!([known.uid, Uid::ROOT].contains(&session.uid), "{target} is of {:?}", known.uid);
            let orphan = matches!(self.engine.ownership(known), Ownership::Orphan { .. });
            assert!(orphan || !known.is_agent(), "{target} is an agent and no orphan");
            let above = self.engine.table.above(*target).take_while(|above| above.alive());
            let agent = above.into_iter().find(|above| above.is_agent()).filter(|_| orphan);
            let doubtful = agent.filter(|agent| matches!(agent.verdict, Verdict::Unknown(_)));
            assert!(doubtful.is_none(), "{target} is run by {:?}, in doubt", doubtful.map(|agent| agent.id));
            for below in self.engine.table.below(*target, |_| true) {
                let Some(below) = self.engine.table.alive(below) else { continue };
                assert!(orphan || !below.is_agent(), "below {target} runs the agent {}", below.id);
                assert!(!matches!(below.verdict, Verdict::Unknown(_)), "below {target} is {}, in doubt", below.id);
            }
        }
    }

    /// The processes that received SIGTERM, each once, in order.
    pub(super) fn terminated(&self) -> Vec<ProcessId> {
        let signalled = self
            .operations
            .iter()
            .filter(|(_, operation, _)| *operation == Operation::Term)
            .map(|(_, _, process)| *process);
        let mut seen = HashSet::new();
        signalled.filter(|process| seen.insert(*process)).collect()
    }
}
