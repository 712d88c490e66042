//! Executes actions: signals processes, freezes and thaws them, throttles sessions. The engine has chosen the targets; this
//! worker makes sure that exactly these processes are hit, that each attempt is recorded first, and that protected processes
//! are never touched.

use std::collections::BTreeSet;

use rustix::process::Signal;

use super::action_log::{ActionLog, Frozen};
use super::event_sender::EventSender;
use crate::log_throttle::ThrottledWarning;
use crate::worker::{ChannelClosed, Worker};
use watchdog_engine::actions::{Authority, Batch, BatchResult, Operation, OperationOutcome};
use watchdog_engine::effect::ActionCommand;
use watchdog_engine::input::Input;
use watchdog_host::cgroup::SessionCgroups;
use watchdog_host::limits::CgroupTree;
use watchdog_host::pidfd::PidFd;
use watchdog_host::{HostError, clock, this_lineage};
use watchdog_types::{BootTime, Pid, ProcessId};

/// The results of a step, by target.
type TargetOutcomes = Vec<(ProcessId, OperationOutcome)>;

pub(super) struct Signaller {
    events: EventSender,
    log: ActionLog,
    cgroups: SessionCgroups,
    /// The daemon and its ancestors at its start.
    protected: BTreeSet<ProcessId>,
    warning: ThrottledWarning,
}

impl Worker for Signaller {
    type Command = ActionCommand;

    fn handle(&mut self, command: ActionCommand) -> Result<(), ChannelClosed> {
        match command {
            ActionCommand::Begin(action) => self.log.begin(action),
            ActionCommand::Execute(batch) => {
                let (result, killed) = self.execute(&batch);
                self.events.send_input(Input::BatchResult(result))?;
                self.release_memory(&killed);
            }
            ActionCommand::Finish(action) => self.log.finish(action),
        }
        Ok(())
    }
}

impl Signaller {
    pub(super) fn new(events: EventSender, log: ActionLog) -> Self {
        let (cgroups, warning) = (SessionCgroups::new(CgroupTree::host().clone()), ThrottledWarning::default());
        // Where this fails, no process is signalled: the ancestors are read again before each step.
        let protected = this_lineage().unwrap_or_default();
        Self { events, log, cgroups, protected, warning }
    }

    /// Returns the results, and the processes that were killed.
    fn execute(&mut self, batch: &Batch) -> (BatchResult, Vec<PidFd>) {
        let (at, mut killed) = (clock::now(), Vec::new());
        let outcomes = match self.log.refusal(batch.action) {
            Some(why) => refused(batch, &why),
            None => self.apply(batch, at, &mut killed),
        };
        (BatchResult { action: batch.action, operation: batch.operation, at, outcomes }, killed)
    }

    fn apply(&mut self, batch: &Batch, at: BootTime, killed: &mut Vec<PidFd>) -> TargetOutcomes {
        if matches!(batch.operation, Operation::Throttle | Operation::Unthrottle) {
            return self.throttle(batch, at);
        }
        // The ancestors may have changed since.
        let protected = match this_lineage() {
            Ok(lineage) => lineage.union(&self.protected).copied().collect(),
            Err(error) => return refused(batch, &format!("cannot read the ancestors of the watchdog: {error}")),
        };
        match batch.operation {
            Operation::Thaw => self.thaw(batch, at, &protected),
            Operation::Kill | Operation::Freeze => match self.apply_to_cgroup(batch, at, &protected, killed) {
                Some(outcomes) => outcomes,
                None => self.signal_each(batch, at, &protected, killed),
            },
            Operation::Term | Operation::Throttle | Operation::Unthrottle => {
                self.signal_each(batch, at, &protected, killed)
            }
        }
    }

    /// Acts on the cgroup, if it holds exactly the targets. `None` when it does not; nothing was done then.
    fn apply_to_cgroup(
        &mut self,
        batch: &Batch,
        at: BootTime,
        protected: &BTreeSet<ProcessId>,
        killed: &mut Vec<PidFd>,
    ) -> Option<TargetOutcomes> {
        let cgroup = batch.cgroup.as_deref()?;
        let open_all = || -> Option<Vec<PidFd>> {
            batch.targets.iter().map(|target| open_target(*target, batch.authority, protected).ok()).collect()
        };
        let held = open_all()?;
        let looked = self.cgroups.holds_exactly(cgroup, &held);
        if !looked.unwrap_or_else(|error| self.warn_false(error)) {
            return None;
        }
        if let Err(why) = self.record_attempts(batch, at) {
            return Some(refused(batch, &why));
        }
        // Recording took time: check again which processes may be signalled.
        let Some(held) = open_all() else { return Some(self.signal_recorded(batch, protected, killed)) };
        let done = match batch.operation {
            Operation::Kill => self.cgroups.kill_exactly(cgroup, &held),
            _ => self.cgroups.freeze_exactly(cgroup, &held),
        };
        if !done.unwrap_or_else(|error| self.warn_false(error)) {
            // The attempts are recorded already.
            return Some(self.signal_recorded(batch, protected, killed));
        }
        if batch.operation == Operation::Kill {
            killed.extend(held);
        }
        Some(self.record_results(batch, &OperationOutcome::SentToCgroup))
    }

    fn signal_each(
        &mut self,
        batch: &Batch,
        at: BootTime,
        protected: &BTreeSet<ProcessId>,
        killed: &mut Vec<PidFd>,
    ) -> TargetOutcomes {
        let (mut outcomes, mut unwritten) = (Vec::new(), None);
        for target in &batch.targets {
            if unwritten.is_none() {
                unwritten = self.log.record_attempt(batch.action, batch.operation, *target, at).err();
            }
            // Stop at the first attempt that cannot be recorded: a later target may be the supervisor that restarts that process.
            let outcome = match &unwritten {
                None => self.signal_target(batch, *target, protected, killed),
                Some(why) => OperationOutcome::Refused(why.clone()),
            };
            outcomes.push((*target, outcome));
        }
        outcomes
    }

    /// Signals targets whose attempts are recorded already.
    fn signal_recorded(
        &mut self,
        batch: &Batch,
        protected: &BTreeSet<ProcessId>,
        killed: &mut Vec<PidFd>,
    ) -> TargetOutcomes {
        batch.targets.iter().map(|target| (*target, self.signal_target(batch, *target, protected, killed))).collect()
    }

    fn signal_target(
        &mut self,
        batch: &Batch,
        target: ProcessId,
        protected: &BTreeSet<ProcessId>,
        killed: &mut Vec<PidFd>,
    ) -> OperationOutcome {
        let outcome = match open_target(target, batch.authority, protected) {
            Ok(pinned) => {
                let outcome = signal(&pinned, batch.operation);
                if batch.operation == Operation::Kill && outcome == OperationOutcome::Sent {
                    killed.push(pinned);
                }
                outcome
            }
            Err(outcome) => outcome,
        };
        self.log.record_result(batch.action, batch.operation, target, outcome.clone());
        outcome
    }

    /// Thaws processes in the way in which they were frozen, whether or not that can be recorded: thawing twice is harmless, not
    /// thawing leaves them frozen.
    fn thaw(&mut self, batch: &Batch, at: BootTime, protected: &BTreeSet<ProcessId>) -> TargetOutcomes {
        let mut outcomes = Vec::new();
        for target in &batch.targets {
            let _ = self.log.record_attempt(batch.action, batch.operation, *target, at);
            let alone = || {
                open_target(*target, batch.authority, protected)
                    .map_or_else(|outcome| outcome, |pinned| signal(&pinned, batch.operation))
            };
            let with_cgroup =
                |signaller: &Self| match batch.cgroup.as_deref().map(|cgroup| signaller.cgroups.thaw(cgroup)) {
                    Some(Ok(true)) => OperationOutcome::SentToCgroup,
                    Some(Ok(false)) | None => OperationOutcome::AlreadyExited,
                    Some(Err(error)) => OperationOutcome::Refused(error.to_string()),
                };
            let outcome = match self.log.frozen(batch.action, *target) {
                Frozen::Alone => alone(),
                Frozen::WithCgroup => with_cgroup(self),
                Frozen::Unknown => match with_cgroup(self) {
                    refused @ (OperationOutcome::Refused(_) | OperationOutcome::NotPermitted(_)) => refused,
                    OperationOutcome::Sent | OperationOutcome::SentToCgroup | OperationOutcome::AlreadyExited => {
                        alone()
                    }
                },
                Frozen::Not => OperationOutcome::Refused("it was not frozen".to_owned()),
            };
            self.log.record_result(batch.action, batch.operation, *target, outcome.clone());
            outcomes.push((*target, outcome));
        }
        outcomes
    }

    /// Throttles the session, or removes the throttle; the latter whether or not it can be recorded.
    fn throttle(&mut self, batch: &Batch, at: BootTime) -> TargetOutcomes {
        let Some(cgroup) = batch.cgroup.as_deref() else {
            return refused(batch, "the session has no cgroup of its own");
        };
        if batch.operation == Operation::Throttle
            && let Err(outcome) = self.all_within_reach(cgroup, batch.authority)
        {
            return each_with(batch, &outcome);
        }
        let written = self.record_attempts(batch, at);
        let done = match (batch.operation, written) {
            (Operation::Unthrottle, _) => self.cgroups.unthrottle(cgroup),
            // Recording took time: check the members again.
            (_, Ok(())) => match self.all_within_reach(cgroup, batch.authority) {
                Ok(()) => self.cgroups.throttle(cgroup).map(|throttle| throttle.is_some()),
                Err(outcome) => return self.record_results(batch, &outcome),
            },
            (_, Err(why)) => return refused(batch, &why),
        };
        let outcome = match done {
            Ok(true) => OperationOutcome::SentToCgroup,
            Ok(false) => {
                OperationOutcome::Refused(format!("the cgroup {cgroup} has no memory.high, or is not a session's"))
            }
            Err(error) => OperationOutcome::Refused(error.to_string()),
        };
        self.record_results(batch, &outcome)
    }

    /// Checks that this authority covers every process in the cgroup and below it.
    fn all_within_reach(&self, cgroup: &str, authority: Authority) -> Result<(), OperationOutcome> {
        let warning = |error: HostError| OperationOutcome::Refused(error.to_string());
        let members = self.cgroups.members(cgroup).map_err(warning)?.unwrap_or_default();
        for pid in members {
            let identity = PidFd::open(pid).and_then(|pinned| pinned.map_or(Ok(None), |pinned| pinned.identity()));
            if let Some(identity) = identity.map_err(warning)?
                && let Some(why) = authority.refusal(pid, identity.users)
            {
                return Err(OperationOutcome::NotPermitted(why));
            }
        }
        Ok(())
    }

    fn record_attempts(&mut self, batch: &Batch, at: BootTime) -> Result<(), String> {
        for (written, target) in batch.targets.iter().enumerate() {
            if let Err(why) = self.log.record_attempt(batch.action, batch.operation, *target, at) {
                for target in &batch.targets[..written] {
                    self.log.record_result(
                        batch.action,
                        batch.operation,
                        *target,
                        OperationOutcome::Refused(why.clone()),
                    );
                }
                return Err(why);
            }
        }
        Ok(())
    }

    fn record_results(&mut self, batch: &Batch, outcome: &OperationOutcome) -> TargetOutcomes {
        for target in &batch.targets {
            self.log.record_result(batch.action, batch.operation, *target, outcome.clone());
        }
        each_with(batch, outcome)
    }

    /// Reaps the memory of killed processes. All targets are killed first, so that none has time to restart another.
    fn release_memory(&mut self, killed: &[PidFd]) {
        for pinned in killed {
            if let Err(error) = pinned.release() {
                self.warning.warn(error);
            }
        }
    }

    /// A failed check of a cgroup counts as negative: its processes are then signalled one by one.
    fn warn_false(&mut self, error: HostError) -> bool {
        self.warning.warn(error);
        false
    }
}

/// Opens a target that exists and may be signalled: the pidfd first, then start time and user ids are read.
fn open_target(
    target: ProcessId,
    authority: Authority,
    protected: &BTreeSet<ProcessId>,
) -> Result<PidFd, OperationOutcome> {
    if target.pid <= Pid(1) || target.pid == Pid(std::process::id()) || protected.contains(&target) {
        return Err(OperationOutcome::Refused("it is the watchdog or one of its ancestors".to_owned()));
    }
    match PidFd::with_identity(target) {
        Ok(Some((_, identity))) if identity.kernel => {
            Err(OperationOutcome::Refused("it is a kernel thread".to_owned()))
        }
        Ok(Some((pinned, identity))) => match authority.refusal(target.pid, identity.users) {
            Some(why) => Err(OperationOutcome::NotPermitted(why)),
            None => Ok(pinned),
        },
        Ok(None) => Err(OperationOutcome::AlreadyExited),
        Err(error) => Err(OperationOutcome::Refused(error.to_string())),
    }
}

fn signal(pinned: &PidFd, operation: Operation) -> OperationOutcome {
    let signal = match operation {
        Operation::Term => Signal::TERM,
        Operation::Kill => Signal::KILL,
        Operation::Freeze => Signal::STOP,
        Operation::Thaw => Signal::CONT,
        Operation::Throttle | Operation::Unthrottle => {
            return OperationOutcome::Refused("this applies to cgroups only".to_owned());
        }
    };
    match pinned.signal(signal) {
        Ok(true) => OperationOutcome::Sent,
        Ok(false) => OperationOutcome::AlreadyExited,
        Err(error) => OperationOutcome::Refused(error.to_string()),
    }
}

fn refused(batch: &Batch, why: &str) -> TargetOutcomes {
    each_with(batch, &OperationOutcome::Refused(why.to_owned()))
}

fn each_with(batch: &Batch, outcome: &OperationOutcome) -> TargetOutcomes {
    batch.targets.iter().map(|target| (*target, outcome.clone())).collect()
}

#[cfg(test)]
#[path = "signaller_tests.rs"]
mod tests;
