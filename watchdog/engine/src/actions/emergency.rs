//! Terminates one group after another while memory is nearly exhausted.
//!
//! Agents, kept and uncertain processes are exempt. If no group is left, that is reported and nothing is terminated.

use std::time::Duration;

use super::action::{Initiator, Justification, Operation};
use super::progress::{ActionPlan, ActionProgress, ActionStage};
use super::targets::TargetSelection;
use crate::finding::TrackedFinding;
use crate::ownership::Ownership;
use crate::process::TrackedProcess;
use crate::{Engine, Step};
use watchdog_api::evidence::{ActionEvidence, ActionGrounds, BurstGrounds, LeakLimit, MemoryShortage};
use watchdog_api::{ActionKind, ActionState, Evidence, FindingKind, ProcessKind};
use watchdog_types::{ActionId, BootTime, Bytes, ProcessId};

/// Tools of one program that one agent starts within this time form a burst.
const BURST_WINDOW: Duration = Duration::from_secs(60);
/// Per cent of the largest burst. Smaller bursts are skipped, even if newer.
const MIN_BURST_SHARE: u64 = 25;
/// Per cent of total memory. Smaller bursts are skipped.
const MIN_MEMORY_SHARE: u64 = 1;
/// Groups below 1/n of total memory go last: they take as long to terminate as groups that help.
const SMALL_FRACTION: u64 = 1_000;
/// A leak that fills memory within this time is terminated early, once less than [`RUNAWAY_BELOW`] is available.
const RUNAWAY: Duration = Duration::from_secs(20);
/// Per cent of memory.
const RUNAWAY_BELOW: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EmergencyLevel {
    /// Helpers receive SIGTERM.
    Term,
    /// Helpers receive SIGKILL at once.
    Kill,
}

impl Engine {
    pub(crate) fn in_emergency(&self) -> bool {
        self.level().is_some()
    }

    fn level(&self) -> Option<EmergencyLevel> {
        let actions = &self.config.actions;
        let left = self.close_watch.host.left_percent();
        if left < u64::from(actions.emergency_kill) {
            Some(EmergencyLevel::Kill)
        } else {
            (left < u64::from(actions.emergency_term)).then_some(EmergencyLevel::Term)
        }
    }

    /// Open findings of a kind with targets, largest memory first.
    fn largest_findings(&self, kind: FindingKind) -> Vec<(&TrackedFinding, TargetSelection, Justification)> {
        let mut all: Vec<_> = self
            .findings
            .open()
            .filter(|finding| finding.seen.key.kind == kind)
            .map(|finding| {
                let (candidates, justification) = self.candidates(finding);
                (finding, self.select_new_targets(candidates, justification), justification)
            })
            .filter(|(_, selection, _)| !selection.targets.is_empty())
            .collect();
        all.sort_by_key(|(finding, selection, _)| (std::cmp::Reverse(selection.memory()), finding.id));
        all
    }

    /// The newest burst of sufficient size, with all descendants.
    fn youngest_burst(&self) -> Option<(&TrackedProcess, TargetSelection)> {
        let mut tops: Vec<(ProcessId, String, &TrackedProcess)> = self
            .table
            .living()
            .filter(|process| {
                matches!(process.kind, ProcessKind::Tool | ProcessKind::Other | ProcessKind::Browser)
                    && self.ownership(process) == Ownership::Owned
            })
            .filter_map(|process| {
                let parent = self.table.above(process.id).next().filter(|parent| parent.is_agent())?;
                Some((parent.id, process.label(), process))
            })
            .collect();
        tops.sort_by_key(|(agent, label, top)| (*agent, label.clone(), std::cmp::Reverse(top.id.start_time)));
        let mut bursts: Vec<Vec<&TrackedProcess>> = Vec::new();
        let mut of: Option<(ProcessId, String)> = None;
        for (agent, label, top) in tops {
            let youngest = bursts.last().and_then(|burst| burst.first());
            let same = of.as_ref() == Some(&(agent, label.clone()))
                && youngest.is_some_and(|first| {
                    BootTime::from(first.id.start_time).since(BootTime::from(top.id.start_time)) <= BURST_WINDOW
                });
            match bursts.last_mut() {
                Some(burst) if same => burst.push(top),
                _ => bursts.push(vec![top]),
            }
            of = Some((agent, label));
        }
        let mut selection: Vec<(&TrackedProcess, TargetSelection)> = bursts
            .into_iter()
            .filter_map(|burst| {
                let all = self.helpers(burst.iter().map(|top| top.id));
                let selection = self.select_new_targets(all, Justification::Helper);
                Some((*burst.first()?, selection)).filter(|(_, selection)| !selection.targets.is_empty())
            })
            .collect();
        let largest = selection.iter().map(|(_, selection)| selection.memory()).max()?;
        let floor = largest.percent(MIN_BURST_SHARE).max(self.close_watch.host.total.percent(MIN_MEMORY_SHARE));
        selection.retain(|(_, selection)| selection.memory() >= floor);
        selection.into_iter().max_by_key(|(top, _)| (top.id.start_time, top.id.pid))
    }

    /// A leak that would fill memory before policy acts.
    fn runaway(&self) -> Option<(&TrackedFinding, TargetSelection, Justification)> {
        if self.close_watch.host.left_percent() >= RUNAWAY_BELOW {
            return None;
        }
        let soon = |finding: &TrackedFinding| {
            let Evidence::Leak(leak) = &finding.seen.evidence else { return false };
            let host = leak.limit == Some(LeakLimit::Host);
            host && leak.seconds_to_limit.is_some_and(|left| left <= RUNAWAY.as_secs_f64())
        };
        self.largest_findings(FindingKind::Leak).into_iter().find(|(finding, ..)| soon(finding))
    }
}

impl Step<'_> {
    pub(crate) fn emergency_host_read(&mut self) {
        self.engine.actions.emergency.host_read_at = self.now;
        self.tick_emergency();
    }

    pub(super) fn emergency_over(&mut self, state: ActionState) {
        let (now, settle) = (self.now, self.engine.config.actions.settle);
        let emergency = &mut self.engine.actions.emergency;
        emergency.last_finished = now;
        // Exited targets have returned their memory, so the next read of the host decides. Survivors need more time.
        emergency.settles_at = (state == ActionState::Incomplete).then(|| now.plus(settle));
    }

    /// Starts the next action when memory is short and no other action is in progress.
    pub(super) fn tick_emergency(&mut self) {
        if !self.engine.enforces() || !self.engine.config.actions.emergency {
            return;
        }
        let level = self.engine.level();
        if let Some(under_way) = self.pending_emergency_action() {
            if level == Some(EmergencyLevel::Kill) {
                self.escalate(under_way);
            }
            return;
        }
        let emergency = &self.engine.actions.emergency;
        let settled = emergency.settles_at.is_none_or(|until| self.now >= until)
            && emergency.host_read_at >= emergency.last_finished;
        if !settled && self.engine.actions.emergency.last_finished > BootTime(0) {
            return;
        }
        let Some(level) = level else {
            self.engine.actions.emergency.reported = false;
            self.emergency_ended();
            self.terminate_runaway();
            return;
        };
        if self.reclaim_before_termination(level == EmergencyLevel::Kill) {
            return;
        }
        if !self.terminate_next_group(level == EmergencyLevel::Kill) {
            self.report_no_candidates();
        }
    }

    /// A termination in progress, whose memory is awaited. Actions with a grace of their own are awaited only for `settle`.
    fn pending_emergency_action(&self) -> Option<ActionId> {
        let (now, settle) = (self.now, self.engine.config.actions.settle);
        let ends = |running: &&ActionProgress| {
            let own = matches!(running.action.initiator, Initiator::Emergency);
            let waits = own || now.since(running.action.began) < settle;
            running.is_active() && running.action.kind == ActionKind::Terminate && waits
        };
        self.engine.actions.running.values().find(ends).map(|running| running.action.id)
    }

    /// Skips the rest of the grace after SIGTERM.
    fn escalate(&mut self, id: ActionId) {
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        // Actions requested by users keep their grace.
        if !running.by_user() && matches!(running.stage, ActionStage::Terminating { .. }) {
            self.verify_targets(id, Operation::Kill);
        }
    }

    fn terminate_runaway(&mut self) {
        let engine = &*self.engine;
        let Some((finding, selection, justification)) = engine.runaway() else { return };
        let plan = engine.plan_of(finding, ActionKind::Terminate, selection, justification);
        self.begin_emergency_action(plan, false);
    }

    /// Starts with the first group of: orphans, stale helpers, leaks, the newest burst. Returns `false` when there is none, but
    /// `true` when the rate limit prevents it.
    fn terminate_next_group(&mut self, urgent: bool) -> bool {
        let engine = &*self.engine;
        let kinds = [FindingKind::Orphan, FindingKind::Stale, FindingKind::Leak];
        let floor = engine.close_watch.host.total.0 / SMALL_FRACTION;
        let mut light = None;
        let heavy = kinds.into_iter().find_map(|kind| {
            let largest_findings = engine.largest_findings(kind).into_iter().next()?;
            if largest_findings.1.memory().0 >= floor {
                return Some(largest_findings);
            }
            light.get_or_insert(largest_findings);
            None
        });
        let about = |(finding, selection, justification)| {
            engine.plan_of(finding, ActionKind::Terminate, selection, justification)
        };
        let burst = || engine.youngest_burst().map(|(top, selection)| engine.plan_burst(top, selection));
        let Some(plan) = heavy.map(about).or_else(burst).or_else(|| light.map(about)) else { return false };
        self.begin_emergency_action(plan, urgent);
        true
    }

    fn begin_emergency_action(&mut self, mut plan: ActionPlan, urgent: bool) {
        self.apply_rate_limit(&mut plan);
        let host = self.engine.close_watch.host;
        let why = format!("{}% of memory left: ", host.left_percent());
        plan.reason.insert_str(0, &why);
        plan.evidence.shortage = Some(MemoryShortage {
            available_bytes: host.available,
            left_percent: host.left_percent(),
            swap_free_bytes: host.swap_free,
        });
        if !plan.selection.targets.is_empty() {
            self.begin_action(plan, Initiator::Emergency, urgent);
        }
    }

    fn report_no_candidates(&mut self) {
        if std::mem::replace(&mut self.engine.actions.emergency.reported, true) {
            return;
        }
        let left = self.engine.close_watch.host.left_percent();
        self.report_held_back(format!("{left}% of memory left, but no process in a session may be terminated"));
    }
}

impl Engine {
    fn plan_burst(&self, top: &TrackedProcess, selection: TargetSelection) -> ActionPlan {
        let memory: Bytes = selection.memory();
        let grounds = ActionGrounds::Burst(BurstGrounds {
            count: selection.targets.len(),
            memory_bytes: memory,
            program: top.label(),
        });
        let reason = format!("newest burst of tools, {} (pid {}), {} MiB", top.label(), top.id.pid, memory.mib());
        ActionPlan {
            kind: ActionKind::Terminate,
            justification: Justification::Helper,
            finding: None,
            session: Some(top.session),
            owner: top.uid,
            reason,
            evidence: ActionEvidence { grounds, shortage: None },
            selection,
            cgroup: self.gate.cgroup_of(top.session),
        }
    }
}
