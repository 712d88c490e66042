//! Actions that the configuration takes on findings with `[actions] enforce`.

use std::time::Duration;

use super::action::{Initiator, Justification};
use super::progress::{ActionPlan, ActionProgress};
use super::targets::TargetSelection;
use crate::effect::{Effect, JournalEntry, JournalEvent};
use crate::finding::{Proposal, TrackedFinding};
use crate::process::TrackedProcess;
use crate::{Engine, Step};
use watchdog_api::{ActionKind, Evidence, FindingKind};
use watchdog_config::Response;
use watchdog_types::{BootTime, FindingId, ProcessId};

/// The period of `max_kills_per_minute`.
const RATE_WINDOW: Duration = Duration::from_secs(60);

impl Engine {
    pub(super) fn enforces(&self) -> bool {
        self.config.actions.enforce && self.actions.permissions.missing.is_none()
    }

    /// Whether the initiator would still start this action. Disabling policy cancels its actions in progress.
    pub(super) fn is_still_wanted(&self, running: &ActionProgress) -> bool {
        let response = running
            .current_finding
            .and_then(|finding| self.findings.get(finding))
            .map(|finding| self.response(finding));
        match running.action.initiator {
            Initiator::User(_) => true,
            Initiator::Emergency => self.enforces() && self.config.actions.emergency,
            Initiator::Policy => self.enforces() && response != Some(Response::Report),
        }
    }

    /// The configured response to a finding. The session's profile takes precedence.
    pub(super) fn response(&self, finding: &TrackedFinding) -> Response {
        let kind = finding.seen.key.kind;
        // Throttling a session does not fit what one command of it does.
        if matches!(&finding.seen.evidence, Evidence::Fanout(burst) if burst.command.is_some()) {
            return Response::Report;
        }
        let session = finding.seen.session.and_then(|session| self.sessions.get(session));
        let profile = session.and_then(|session| self.config.profile(&session.profile));
        let own = profile.and_then(|profile| profile.actions.to(kind));
        own.or_else(|| self.config.actions.responses.to(kind)).unwrap_or(Response::Report)
    }

    /// Whether the grace has passed since the last of its agents died and since it was last cleared.
    fn is_past_grace(&self, id: ProcessId, now: BootTime) -> bool {
        let agents = self.table.above(id).filter(|above| above.is_agent());
        let died = agents.filter_map(TrackedProcess::died).map(|(at, _)| at);
        let last = died.chain(self.table.get(id).and_then(|process| process.cleared)).max();
        last.is_none_or(|at| now.since(at) >= self.config.orphans.grace)
    }

    /// The processes that a finding names, and the justification for touching them.
    pub(super) fn candidates(&self, finding: &TrackedFinding) -> (Vec<ProcessId>, Justification) {
        let members = || finding.seen.members.iter().copied();
        match finding.seen.key.kind {
            FindingKind::Orphan => (members().collect(), Justification::Orphaned),
            FindingKind::Stale | FindingKind::Leak => (self.helpers(members()), Justification::Helper),
            FindingKind::Overlimit => (self.helpers(self.limited(finding.seen.subject)), Justification::Helper),
            // Findings that are only reported. The agent of a detached helper is running and may have detached it on purpose;
            // a burst is throttled as a session, not by its processes.
            _ => (Vec::new(), Justification::Helper),
        }
    }

    /// The processes of an overlimit finding. For an agent, which is exempt, these are its children.
    fn limited(&self, subject: ProcessId) -> Vec<ProcessId> {
        match self.table.get(subject) {
            Some(agent) if agent.is_agent() => agent.children.clone(),
            _ => vec![subject],
        }
    }

    fn has_action(&self, finding: FindingId) -> bool {
        self.actions.running.values().any(|running| running.current_finding == Some(finding))
    }
}

impl Step<'_> {
    /// Starts the actions that are due.
    pub(crate) fn tick_policy(&mut self) {
        let now = self.now;
        let kills = &mut self.engine.actions.recent_kills;
        while kills.front().is_some_and(|at| now.since(*at) >= RATE_WINDOW) {
            kills.pop_front();
        }
        self.engine.actions.backoff_until.retain(|_, until| *until > now);
        let Engine { actions, findings, .. } = &mut *self.engine;
        actions.released_findings.retain(|finding| findings.is_still_open(*finding));
        if !self.engine.enforces() {
            return;
        }
        let due: Vec<FindingId> = self
            .engine
            .findings
            .open()
            .filter(|finding| self.engine.response(finding) != Response::Report)
            .filter(|finding| match finding.seen.key.kind {
                // Its grace is over, and its members have been inspected since.
                FindingKind::Orphan => finding.seen.proposal == Proposal::Terminate,
                _ => now.since(finding.opened) >= self.engine.config.actions.grace,
            })
            .filter(|finding| {
                !self.engine.has_action(finding.id) && !self.engine.actions.released_findings.contains(&finding.id)
            })
            .map(|finding| finding.id)
            .collect();
        if self.engine.actions.suspend.in_resume_holdoff(now) {
            if !due.is_empty()
                && let Some(detail) = self.engine.actions.suspend.take_holdoff_notice()
            {
                self.report_held_back(detail);
            }
            return;
        }
        due.into_iter().for_each(|finding| self.start_policy_action(finding));
    }

    fn start_policy_action(&mut self, id: FindingId) {
        let engine = &*self.engine;
        let Some(finding) = engine.findings.get(id) else { return };
        let response = engine.response(finding);
        let (mut candidates, justification) = engine.candidates(finding);
        if finding.seen.key.kind == FindingKind::Orphan {
            // Termination includes descendants, so their grace counts too.
            let ripe = |id: ProcessId| engine.is_past_grace(id, self.now);
            candidates.retain(|top| ripe(*top) && engine.table.living_below(*top).all(|below| ripe(below.id)));
        }
        if response == Response::Terminate && self.remaining_kills() == 0 {
            self.report_rate_limit(candidates.len());
            return;
        }
        let (kind, selection) = match response {
            Response::Report => return,
            Response::Terminate => (ActionKind::Terminate, engine.select_new_targets(candidates, justification)),
            Response::Freeze => {
                let mut selection = engine.select_new_targets(candidates, justification);
                selection.targets.retain(|target| engine.already_stopped(target.process).is_none());
                (ActionKind::Freeze, selection)
            }
            // The session's cgroup is throttled; the receipt names the subject of the finding.
            Response::Throttle if engine.actions.skips(finding.seen.subject) => return,
            Response::Throttle => {
                let targets = engine.snapshot_targets([finding.seen.subject]);
                (ActionKind::Throttle, TargetSelection { targets, spared: Vec::new() })
            }
        };
        let mut plan = engine.plan_of(finding, kind, selection, justification);
        match kind {
            ActionKind::Throttle if plan.cgroup.is_none() => return,
            ActionKind::Throttle | ActionKind::Freeze => {}
            ActionKind::Terminate => self.apply_rate_limit(&mut plan),
        }
        if !plan.selection.targets.is_empty() {
            self.begin_action(plan, Initiator::Policy, false);
        }
    }

    /// How many processes the rate limit still allows policy to terminate.
    pub(super) fn remaining_kills(&self) -> usize {
        let bound = usize::try_from(self.engine.config.actions.max_kills_per_minute).unwrap_or(usize::MAX);
        // Actions that are still verifying count too.
        let of_policy = |running: &&ActionProgress| !running.by_user();
        let begun = self.engine.actions.running.values().filter(of_policy);
        let begun = begun.filter(|running| running.attempts.is_empty() && running.is_active());
        let begun: usize =
            begun.filter(|running| running.action.kind == ActionKind::Terminate).map(|it| it.living().count()).sum();
        bound.saturating_sub(self.engine.actions.recent_kills.len() + begun)
    }

    /// Truncates the targets to what the rate limit allows, and reports that.
    pub(super) fn apply_rate_limit(&mut self, plan: &mut ActionPlan) {
        let (wanted, room) = (plan.selection.targets.len(), self.remaining_kills());
        if wanted > room {
            self.report_rate_limit(wanted);
            plan.selection.targets.truncate(room);
        }
    }

    /// Reported at most once per period.
    fn report_rate_limit(&mut self, wanted: usize) {
        let before = self.engine.actions.rate_limited_at.replace(self.now);
        if before.is_some_and(|at| self.now.since(at) < RATE_WINDOW) {
            return;
        }
        let bound = self.engine.config.actions.max_kills_per_minute;
        self.report_held_back(format!(
            "rate limit: {wanted} processes are due for termination, at most {bound} per minute"
        ));
    }

    pub(super) fn report_held_back(&mut self, detail: String) {
        let what = JournalEvent::ActionsHeldBack { detail };
        self.effect(Effect::Journal(JournalEntry { at: self.now, process: None, session: None, what }));
    }
}
