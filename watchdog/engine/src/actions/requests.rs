//! Requests of users: what they may ask for, and the resulting plans.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::action::{Initiator, Justification};
use super::authority::ExemptionReason;
use super::progress::{ActionPlan, ActionProgress};
use super::targets::TargetSelection;
use crate::effect::{ClientReply, Effect, PersistCommand};
use crate::finding::TrackedFinding;
use crate::gate::GateRecord;
use crate::ownership::Ownership;
use crate::process::TrackedProcess;
use crate::{Engine, Step};
use watchdog_api::evidence::{ActionEvidence, ActionGrounds, SessionGrounds};
use watchdog_api::{ActionKind, FindingKind, Subject};
use watchdog_types::{ActionId, FindingId, Pid, ProcessId, SessionId, Uid, UserIds};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRequest {
    pub uid: Uid,
    pub what: RequestedAction,
    /// The processes that the user confirmed. Others are exempt; `None` without confirmation.
    #[serde(default)]
    pub expect: Option<BTreeSet<ProcessId>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestedAction {
    /// Terminate orphans: those of the subjects, or of all open findings if empty.
    Reap(Vec<Subject>),
    End(SessionId),
    /// Terminate a session, or a process with its descendants, kept processes included.
    EndKept(Subject),
    /// Release frozen or throttled processes: the subjects, or all if empty.
    Thaw(Vec<Subject>),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionRequestError {
    #[error("pid {0} is not in any session (see `watchdogctl tree`)")]
    NoProcess(Pid),
    #[error("session {0} has no running process (see `watchdogctl tree`)")]
    NoSession(SessionId),
    #[error(
        "there is no session {0}, but process {0} is in session {1}: `watchdogctl end {1}` ends that session, `watchdogctl \
         end --kept pid:{0}` only the process with its descendants"
    )]
    ProcessNotSession(Pid, SessionId),
    #[error("session {0} has no orphans; `watchdogctl end {0}` ends the whole session")]
    NoOrphans(SessionId),
    #[error("pid {0} is exempt: {1}")]
    Spared(Pid, String),
    #[error("pid {0} is exempt: {1}; `watchdogctl end --kept pid:{0}` ends it with its descendants")]
    SparedFromReap(Pid, String),
    #[error("none of these is frozen or throttled (see `watchdogctl actions`)")]
    NothingHeld,
    #[error("it belongs to another user: only its owner and root may act on it")]
    NotYours,
    #[error("the daemon cannot signal processes: {0}")]
    NoRights(String),
}

/// Limits the cost of a request.
const MAX_USER_ID_READS: usize = 256;
/// Exemption of a process that is not in the confirmed list.
const STARTED_AFTER_REQUEST: &str = "it started after the confirmed list";

impl Engine {
    /// The plans of a request, one per group. Nothing is started.
    ///
    /// # Errors
    /// When the subjects do not exist or are exempt.
    pub fn plan(&self, request: &ActionRequest) -> Result<Vec<ActionPlan>, ActionRequestError> {
        if let Some(missing) = &self.actions.permissions.missing {
            return Err(ActionRequestError::NoRights(missing.clone()));
        }
        let plans = match &request.what {
            RequestedAction::Reap(subjects) if subjects.is_empty() => {
                let own = |finding: &&TrackedFinding| request.uid == Uid::ROOT || finding.seen.uid == request.uid;
                self.orphan_findings().filter(own).map(|finding| self.plan_group(finding, None)).collect()
            }
            RequestedAction::Reap(subjects) => self.plan_named(request.uid, subjects)?,
            RequestedAction::End(session) => {
                vec![self.plan_end(request.uid, *session, Justification::WholeSession(*session))?]
            }
            RequestedAction::EndKept(Subject::Session(session)) => {
                let session = SessionId(*session);
                vec![self.plan_end(request.uid, session, Justification::IncludingKept(session))?]
            }
            RequestedAction::EndKept(Subject::Pid(pid)) => vec![self.plan_end_process(request.uid, Pid(*pid))?],
            RequestedAction::Thaw(_) => Vec::new(),
        };
        let plans: Vec<ActionPlan> = plans.into_iter().map(|plan| self.exempt_other_users(request.uid, plan)).collect();
        let all_of_others = |plan: &ActionPlan| {
            plan.selection.targets.is_empty()
                && plan.selection.spared.iter().any(|(_, because)| *because == ExemptionReason::OtherUser)
        };
        if !plans.is_empty() && plans.iter().all(all_of_others) {
            return Err(ActionRequestError::NotYours);
        }
        let Some(expect) = &request.expect else { return Ok(plans) };
        Ok(plans.into_iter().map(|plan| self.exempt_unseen(expect, plan)).collect())
    }

    /// Requested processes that belonged to another user when last seen, and may have changed their user ids since. Sessions of
    /// other users are excluded, except for a single process that is named: reading costs time.
    #[must_use]
    pub fn last_seen_as_other_users(&self, request: &ActionRequest) -> Vec<ProcessId> {
        let is_own = |session: SessionId| self.sessions.get(session).is_some_and(|known| known.uid == request.uid);
        let all_of = |session: SessionId| {
            let members = self.table.living().filter(|it| is_own(session) && self.is_within(it.session, session));
            members.map(|it| it.id).collect()
        };
        let named: Vec<ProcessId> = match &request.what {
            _ if request.uid == Uid::ROOT => Vec::new(),
            RequestedAction::End(session) => all_of(*session),
            RequestedAction::EndKept(Subject::Session(session)) => all_of(SessionId(*session)),
            RequestedAction::Reap(subjects) if subjects.is_empty() => {
                let own = self.orphan_findings().filter(|finding| finding.seen.uid == request.uid);
                own.flat_map(|finding| finding.seen.members.iter().copied()).collect()
            }
            RequestedAction::Reap(subjects) => {
                let named = self.table.living().filter(|it| is_own(it.session) && is_among(it, subjects));
                named.map(|it| it.id).collect()
            }
            RequestedAction::EndKept(Subject::Pid(pid)) => match self.process(Pid(*pid)) {
                Some(process) if self.may_signal(process, request.uid) => self.subtree([process]),
                process => process.into_iter().collect(),
            },
            RequestedAction::Thaw(_) => Vec::new(),
        };
        named.into_iter().filter(|process| !self.may_signal(*process, request.uid)).take(MAX_USER_ID_READS).collect()
    }

    /// The held actions that a release concerns.
    ///
    /// # Errors
    /// When the subjects are not held, or belong to another user.
    pub fn held(&self, uid: Uid, subjects: &[Subject]) -> Result<Vec<ActionId>, ActionRequestError> {
        let named = |running: &&ActionProgress| {
            subjects.is_empty()
                || subjects.iter().any(|subject| match *subject {
                    Subject::Session(session) => running.action.session == Some(SessionId(session)),
                    Subject::Pid(pid) => running.targets().any(|target| target.process.pid == Pid(pid)),
                })
        };
        let held: Vec<_> = self.actions.running.values().filter(|running| running.is_held()).filter(named).collect();
        if held.is_empty() && !subjects.is_empty() {
            return Err(ActionRequestError::NothingHeld);
        }
        if !held.iter().all(|running| uid == Uid::ROOT || running.action.owner == uid) {
            return Err(ActionRequestError::NotYours);
        }
        Ok(held.into_iter().map(|running| running.action.id).collect())
    }

    fn orphan_findings(&self) -> impl Iterator<Item = &TrackedFinding> {
        self.findings.open().filter(|finding| finding.seen.key.kind == FindingKind::Orphan)
    }

    /// Plans the termination of an orphan group, or of some of its members.
    fn plan_group(&self, finding: &TrackedFinding, only: Option<&BTreeSet<ProcessId>>) -> ActionPlan {
        let members = finding.seen.members.iter().copied();
        let named = members.filter(|member| only.is_none_or(|only| only.contains(member)));
        let selection = self.select_targets(named, Justification::Orphaned);
        self.plan_of(finding, ActionKind::Terminate, selection, Justification::Orphaned)
    }

    pub(super) fn plan_of(
        &self,
        finding: &TrackedFinding,
        kind: ActionKind,
        selection: TargetSelection,
        justification: Justification,
    ) -> ActionPlan {
        ActionPlan {
            kind,
            justification,
            finding: Some((finding.id, finding.seen.key.kind)),
            session: finding.seen.session,
            owner: finding.seen.uid,
            reason: finding.seen.summary.clone(),
            evidence: finding.seen.evidence.clone().into(),
            selection,
            cgroup: finding.seen.session.and_then(|session| self.gate.cgroup_of(session)),
        }
    }

    fn plan_named(&self, uid: Uid, subjects: &[Subject]) -> Result<Vec<ActionPlan>, ActionRequestError> {
        let mut named: BTreeMap<FindingId, Option<BTreeSet<ProcessId>>> = BTreeMap::new();
        // Deduplicated: a request may repeat a subject many thousand times.
        for subject in subjects.iter().collect::<BTreeSet<&Subject>>() {
            match *subject {
                Subject::Session(session) => {
                    let session = SessionId(session);
                    let known = self.sessions.get(session).filter(|known| known.members > 0);
                    let owner = known.ok_or(ActionRequestError::NoSession(session))?.uid;
                    if uid != Uid::ROOT && uid != owner {
                        return Err(ActionRequestError::NotYours);
                    }
                    let of = self.orphan_findings().filter(|finding| finding.seen.session == Some(session));
                    let found: Vec<FindingId> = of.map(|finding| finding.id).collect();
                    if found.is_empty() {
                        return Err(ActionRequestError::NoOrphans(session));
                    }
                    named.extend(found.into_iter().map(|finding| (finding, None)));
                }
                Subject::Pid(pid) => {
                    let pid = Pid(pid);
                    let process = self.process(pid).ok_or_else(|| self.no_process(pid))?;
                    if !self.may_signal(process, uid) {
                        return Err(ActionRequestError::NotYours);
                    }
                    if let Some(because) = self.exemption_reason(process, Justification::Orphaned) {
                        return Err(self.spared_from_reap(process, because));
                    }
                    let finding = self.orphan_findings().find(|finding| finding.seen.members.contains(&process));
                    let finding = finding.ok_or_else(|| {
                        ActionRequestError::Spared(pid, "its agent has just exited; try again in a second".into())
                    })?;
                    if let Some(only) = named.entry(finding.id).or_insert_with(|| Some(BTreeSet::new())) {
                        only.extend(self.subtree([process]));
                    }
                }
            }
        }
        let found = named.iter().filter_map(|(id, only)| Some((self.findings.get(*id)?, only)));
        Ok(found.map(|(finding, only)| self.plan_group(finding, only.as_ref())).collect())
    }

    /// Names the command that works, where there is one.
    fn spared_from_reap(&self, process: ProcessId, because: String) -> ActionRequestError {
        let ends = |known: &TrackedProcess| {
            self.exemption_reason(process, Justification::IncludingKept(known.session)).is_none()
        };
        if self.table.get(process).is_some_and(ends) {
            ActionRequestError::SparedFromReap(process.pid, because)
        } else {
            ActionRequestError::Spared(process.pid, because)
        }
    }

    /// No process has this pid, or only a zombie.
    fn no_process(&self, pid: Pid) -> ActionRequestError {
        let zombie = self.table.iter().find(|process| process.zombie() && process.id.pid == pid);
        let because = zombie.and_then(|zombie| self.exemption_reason(zombie.id, Justification::Orphaned));
        because.map_or(ActionRequestError::NoProcess(pid), |because| ActionRequestError::Spared(pid, because))
    }

    /// Sessions and pids are numbers both.
    fn no_session(&self, uid: Uid, session: SessionId) -> ActionRequestError {
        let process = u32::try_from(session.0).ok().and_then(|pid| self.table.by_pid(Pid(pid)));
        match process.filter(|process| uid == Uid::ROOT || uid == process.uid) {
            Some(process) => ActionRequestError::ProcessNotSession(process.id.pid, process.session),
            None => ActionRequestError::NoSession(session),
        }
    }

    fn plan_end_process(&self, uid: Uid, pid: Pid) -> Result<ActionPlan, ActionRequestError> {
        let id = self.process(pid).ok_or_else(|| self.no_process(pid))?;
        let process = self.table.get(id).filter(|_| self.may_signal(id, uid)).ok_or(ActionRequestError::NotYours)?;
        let justification = Justification::IncludingKept(process.session);
        Ok(ActionPlan {
            kind: ActionKind::Terminate,
            justification,
            finding: None,
            session: Some(process.session),
            owner: process.uid,
            reason: format!("requested: end {} (pid {pid}) and its descendants", process.label()),
            evidence: ActionEvidence::default(),
            selection: self.select_targets(self.subtree([id]), justification),
            cgroup: None,
        })
    }

    fn plan_end(
        &self,
        uid: Uid,
        session: SessionId,
        justification: Justification,
    ) -> Result<ActionPlan, ActionRequestError> {
        let known = self.sessions.get(session).ok_or_else(|| self.no_session(uid, session))?;
        if uid != Uid::ROOT && uid != known.uid {
            return Err(ActionRequestError::NotYours);
        }
        let members: Vec<ProcessId> = self
            .table
            .living()
            .filter(|process| self.is_within(process.session, session))
            .map(|process| process.id)
            .collect();
        if members.is_empty() {
            return Err(ActionRequestError::NoSession(session));
        }
        let ownership = |id: &ProcessId| self.table.get(*id).map(|process| self.ownership(process));
        let left = members.iter().filter(|id| matches!(ownership(id), Some(Ownership::Orphan { .. }))).count();
        let grounds = ActionGrounds::Session(SessionGrounds {
            agent_pid: known.root.pid,
            count: members.len(),
            left_behind: left,
            profile: known.profile.clone(),
        });
        Ok(ActionPlan {
            kind: ActionKind::Terminate,
            justification,
            finding: None,
            session: Some(session),
            owner: known.uid,
            reason: format!("requested: end the session of {} (pid {})", known.profile, known.root.pid),
            evidence: ActionEvidence { grounds, shortage: None },
            selection: self.select_targets(members, justification),
            cgroup: self.gate.cgroup_of(session),
        })
    }

    /// Exempts processes that the user may not signal.
    fn exempt_other_users(&self, uid: Uid, mut plan: ActionPlan) -> ActionPlan {
        let (own, of_other): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.selection.targets)
            .into_iter()
            .partition(|target| self.may_signal(target.process, uid));
        plan.selection.targets = own;
        plan.selection.spared.extend(of_other.into_iter().map(|target| (target.process, ExemptionReason::OtherUser)));
        plan
    }

    /// Exempts processes that were not confirmed, and what the confirmed ones have forked since.
    fn exempt_unseen(&self, expect: &BTreeSet<ProcessId>, mut plan: ActionPlan) -> ActionPlan {
        let (shown, mut others): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.selection.targets)
            .into_iter()
            .partition(|target| expect.contains(&target.process));
        let below = self.subtree(shown.iter().map(|target| target.process)).into_iter();
        let known: BTreeSet<ProcessId> = plan.selection.spared.iter().map(|(process, _)| *process).collect();
        let here = |id: &ProcessId| shown.iter().chain(&others).any(|target| target.process == *id);
        let new: Vec<ProcessId> = below.filter(|id| !known.contains(id) && !here(id)).collect();
        others.extend(self.select_targets(new, plan.justification).targets);
        plan.selection.spared.extend(others.into_iter().map(|target| (target.process, STARTED_AFTER_REQUEST.into())));
        plan.selection.targets = shown;
        plan
    }
}

fn is_among(process: &TrackedProcess, subjects: &[Subject]) -> bool {
    subjects.iter().any(|subject| match *subject {
        Subject::Session(session) => process.session == SessionId(session),
        Subject::Pid(pid) => process.id.pid == Pid(pid),
    })
}

impl Step<'_> {
    pub(crate) fn user_ids(&mut self, read: Vec<(ProcessId, UserIds)>) {
        for (process, ids) in read {
            if let Some(known) = self.engine.table.get_mut(process) {
                known.user_ids = Some(ids);
            }
        }
    }

    /// Starts what a user requests, and answers with the started actions.
    pub(crate) fn request_action(&mut self, request: &ActionRequest) {
        let mut begun = Vec::new();
        if let RequestedAction::Thaw(subjects) = &request.what {
            for held in self.engine.held(request.uid, subjects).unwrap_or_default() {
                self.release(held, "requested by a user");
                let finding = self.engine.actions.get(held).and_then(|running| running.current_finding);
                self.engine.actions.released_findings.extend(finding);
                begun.push(held);
            }
        }
        for plan in self.engine.plan(request).unwrap_or_default() {
            if !plan.selection.targets.is_empty() {
                begun.push(self.begin_action(plan, Initiator::User(request.uid), false));
            }
        }
        self.effect(Effect::Reply(ClientReply::ActionsStarted(begun)));
    }

    pub(crate) fn unadopt(&mut self, process: ProcessId) {
        if let Some(known) = self.engine.table.get_mut(process) {
            known.adopted = false;
            self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Unadopted(process))));
            self.update_verdict(process);
            self.place(process);
            self.tick();
        }
    }
}
