//! What a person may ask for, and what that comes to.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::choose::Chosen;
use super::running::{Plan, Running};
use super::{Decided, Grounds, SpareReason, UserIds};
use crate::api::{ActionKind, FindingKind, Subject};
use crate::engine::effect::Effect;
use crate::engine::finding::Finding;
use crate::engine::gate::GateRecord;
use crate::engine::id::{ActionId, FindingId, Pid, ProcessId, SessionId, Uid};
use crate::engine::process::Process;
use crate::engine::standing::Standing;
use crate::engine::{Engine, Step};

/// A request to act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Who asks.
    pub uid: Uid,
    /// For what.
    pub what: What,
    /// Whom the asker was shown: nobody else is touched. `None` where nobody was asked.
    #[serde(default)]
    pub expect: Option<BTreeSet<ProcessId>>,
}

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// End orphans: of these, or all of which there is an open finding.
    Reap(Vec<Subject>),
    /// End a whole session.
    End(SessionId),
    /// End a session or a process with what it started, and what of that is meant to stay too.
    EndKept(Subject),
    /// Let go of what is held: of these, or all.
    Thaw(Vec<Subject>),
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No session has such a process.
    #[error("pid {0} belongs to no session: `watchdogctl tree` lists those that do")]
    NoProcess(Pid),
    /// No such session, or nothing of it is alive.
    #[error("session {0} has no living process: `watchdogctl tree` lists those that have")]
    NoSession(SessionId),
    /// Nothing of that session was left behind.
    #[error("nothing of session {0} was left behind: `watchdogctl end {0}` ends it whole")]
    NoOrphans(SessionId),
    /// That process is none that may be reaped.
    #[error("pid {0} is left alone: {1}")]
    Spared(Pid, String),
    /// Nothing is held that was named.
    #[error("nothing of that is frozen or throttled: `watchdogctl actions` tells what was")]
    NothingHeld,
    /// It is somebody else's.
    #[error("that belongs to another user: only its owner and root may do that")]
    NotYours,
    /// The daemon cannot.
    #[error("the daemon may not signal processes: {0}")]
    NoRights(String),
}

/// Most processes of one request whose user ids are read anew.
const READ_ANEW: usize = 256;
/// Said of a process that the asker was not shown.
const NOT_SHOWN: &str = "it came after you were asked";

impl Engine {
    /// What a request comes to, group by group. Nothing is done.
    ///
    /// # Errors
    /// When what was named may not be touched, or is not there.
    pub fn plan(&self, ask: &Ask) -> Result<Vec<Plan>, AskError> {
        if let Some(missing) = &self.acts.rights.missing {
            return Err(AskError::NoRights(missing.clone()));
        }
        let plans = match &ask.what {
            What::Reap(subjects) if subjects.is_empty() => {
                let own = |finding: &&Finding| ask.uid == Uid::ROOT || finding.seen.uid == ask.uid;
                self.orphan_findings().filter(own).map(|finding| self.plan_group(finding, None)).collect()
            }
            What::Reap(subjects) => self.plan_named(ask.uid, subjects)?,
            What::End(session) => vec![self.plan_end(ask.uid, *session, Grounds::WholeSession(*session))?],
            What::EndKept(Subject::Session(session)) => {
                let session = SessionId(*session);
                vec![self.plan_end(ask.uid, session, Grounds::Kept(session))?]
            }
            What::EndKept(Subject::Pid(pid)) => vec![self.plan_end_process(ask.uid, Pid(*pid))?],
            What::Thaw(_) => Vec::new(),
        };
        let plans: Vec<Plan> = plans.into_iter().map(|plan| self.only_of(ask.uid, plan)).collect();
        let all_anothers = |plan: &Plan| {
            plan.chosen.targets.is_empty()
                && plan.chosen.spared.iter().any(|(_, because)| *because == SpareReason::OtherUser)
        };
        if !plans.is_empty() && plans.iter().all(all_anothers) {
            return Err(AskError::NotYours);
        }
        let Some(expect) = &ask.expect else { return Ok(plans) };
        Ok(plans.into_iter().map(|plan| self.only_shown(expect, plan)).collect())
    }

    /// Processes that a request names and that were another user's when they were last seen: they may have changed their user.
    /// Of sessions of other users none is, but for a single process that is named: reading costs time.
    #[must_use]
    pub fn of_other_users(&self, ask: &Ask) -> Vec<ProcessId> {
        let is_own = |session: SessionId| self.sessions.get(session).is_some_and(|known| known.uid == ask.uid);
        let all_of = |session: SessionId| {
            let members = self.table.living().filter(|it| is_own(session) && self.is_part_of(it.session, session));
            members.map(|it| it.id).collect()
        };
        let named: Vec<ProcessId> = match &ask.what {
            _ if ask.uid == Uid::ROOT => Vec::new(),
            What::End(session) => all_of(*session),
            What::EndKept(Subject::Session(session)) => all_of(SessionId(*session)),
            What::Reap(subjects) if subjects.is_empty() => {
                let own = self.orphan_findings().filter(|finding| finding.seen.uid == ask.uid);
                own.flat_map(|finding| finding.seen.members.iter().copied()).collect()
            }
            What::Reap(subjects) => {
                let named = self.table.living().filter(|it| is_own(it.session) && is_among(it, subjects));
                named.map(|it| it.id).collect()
            }
            What::EndKept(Subject::Pid(pid)) => match self.process(Pid(*pid)) {
                Some(process) if self.is_of(process, ask.uid) => self.subtree([process]),
                process => process.into_iter().collect(),
            },
            What::Thaw(_) => Vec::new(),
        };
        named.into_iter().filter(|process| !self.is_of(*process, ask.uid)).take(READ_ANEW).collect()
    }

    /// The actions that a request to let go is about.
    ///
    /// # Errors
    /// When there are none of those that were named.
    pub fn held(&self, uid: Uid, subjects: &[Subject]) -> Result<Vec<ActionId>, AskError> {
        let named = |running: &&Running| {
            subjects.is_empty()
                || subjects.iter().any(|subject| match *subject {
                    Subject::Session(session) => running.action.session == Some(SessionId(session)),
                    Subject::Pid(pid) => running.targets().any(|target| target.process.pid == Pid(pid)),
                })
        };
        let held: Vec<_> = self.acts.running.values().filter(|running| running.is_held()).filter(named).collect();
        if held.is_empty() && !subjects.is_empty() {
            return Err(AskError::NothingHeld);
        }
        if !held.iter().all(|running| uid == Uid::ROOT || running.action.owner == uid) {
            return Err(AskError::NotYours);
        }
        Ok(held.into_iter().map(|running| running.action.id).collect())
    }

    fn orphan_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.open().filter(|finding| finding.seen.key.kind == FindingKind::Orphan)
    }

    /// Those of a group that may be ended; only some of them, where they are named.
    fn plan_group(&self, finding: &Finding, only: Option<&BTreeSet<ProcessId>>) -> Plan {
        let members = finding.seen.members.iter().copied();
        let named = members.filter(|member| only.is_none_or(|only| only.contains(member)));
        let chosen = self.choose(named, Grounds::LeftBehind);
        self.plan_of(finding, ActionKind::Terminate, chosen, Grounds::LeftBehind)
    }

    /// A plan about a finding.
    pub(super) fn plan_of(&self, finding: &Finding, kind: ActionKind, chosen: Chosen, grounds: Grounds) -> Plan {
        let mut evidence = finding.seen.evidence.clone();
        // The targets are in the receipt themselves.
        evidence.remove("processes");
        evidence.remove("kept");
        Plan {
            kind,
            grounds,
            finding: Some((finding.id, finding.seen.key.kind)),
            session: finding.seen.session,
            owner: finding.seen.uid,
            reason: finding.seen.summary.clone(),
            evidence,
            chosen,
            cgroup: finding.seen.session.and_then(|session| self.gate.cgroup_of(session)),
        }
    }

    fn plan_named(&self, uid: Uid, subjects: &[Subject]) -> Result<Vec<Plan>, AskError> {
        let mut named: BTreeMap<FindingId, Option<BTreeSet<ProcessId>>> = BTreeMap::new();
        // Each once, however often it is named: the engine waits for nobody who names one a hundred thousand times.
        for subject in subjects.iter().collect::<BTreeSet<&Subject>>() {
            match *subject {
                Subject::Session(session) => {
                    let session = SessionId(session);
                    let known = self.sessions.get(session).filter(|known| known.members > 0);
                    let owner = known.ok_or(AskError::NoSession(session))?.uid;
                    if uid != Uid::ROOT && uid != owner {
                        return Err(AskError::NotYours);
                    }
                    let of = self.orphan_findings().filter(|finding| finding.seen.session == Some(session));
                    let found: Vec<FindingId> = of.map(|finding| finding.id).collect();
                    if found.is_empty() {
                        return Err(AskError::NoOrphans(session));
                    }
                    named.extend(found.into_iter().map(|finding| (finding, None)));
                }
                Subject::Pid(pid) => {
                    let pid = Pid(pid);
                    let process = self.process(pid).ok_or_else(|| self.no_process(pid))?;
                    if !self.is_of(process, uid) {
                        return Err(AskError::NotYours);
                    }
                    if let Some(because) = self.spare(process, Grounds::LeftBehind) {
                        return Err(AskError::Spared(pid, because));
                    }
                    let finding = self.orphan_findings().find(|finding| finding.seen.members.contains(&process));
                    let finding = finding.ok_or_else(|| {
                        AskError::Spared(pid, "its agent died a moment ago: try again in a second".into())
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

    /// Nobody has this pid, or a dead one that its parent does not wait for.
    fn no_process(&self, pid: Pid) -> AskError {
        let zombie = self.table.iter().find(|process| process.zombie() && process.id.pid == pid);
        let because = zombie.and_then(|zombie| self.spare(zombie.id, Grounds::LeftBehind));
        because.map_or(AskError::NoProcess(pid), |because| AskError::Spared(pid, because))
    }

    fn plan_end_process(&self, uid: Uid, pid: Pid) -> Result<Plan, AskError> {
        let id = self.process(pid).ok_or_else(|| self.no_process(pid))?;
        let process = self.table.get(id).filter(|_| self.is_of(id, uid)).ok_or(AskError::NotYours)?;
        let grounds = Grounds::Kept(process.session);
        Ok(Plan {
            kind: ActionKind::Terminate,
            grounds,
            finding: None,
            session: Some(process.session),
            owner: process.uid,
            reason: format!("a person ends {} (pid {pid}) and what it started", process.label()),
            evidence: Map::new(),
            chosen: self.choose(self.subtree([id]), grounds),
            cgroup: None,
        })
    }

    fn plan_end(&self, uid: Uid, session: SessionId, grounds: Grounds) -> Result<Plan, AskError> {
        let known = self.sessions.get(session).ok_or(AskError::NoSession(session))?;
        if uid != Uid::ROOT && uid != known.uid {
            return Err(AskError::NotYours);
        }
        let members: Vec<ProcessId> = self
            .table
            .living()
            .filter(|process| self.is_part_of(process.session, session))
            .map(|process| process.id)
            .collect();
        if members.is_empty() {
            return Err(AskError::NoSession(session));
        }
        let standing = |id: &ProcessId| self.table.get(*id).map(|process| self.standing(process));
        let left = members.iter().filter(|id| matches!(standing(id), Some(Standing::Orphan { .. }))).count();
        let mut evidence = Map::new();
        evidence.insert("profile".into(), json!(known.profile));
        evidence.insert("agent_pid".into(), json!(known.root.pid));
        evidence.insert("count".into(), json!(members.len()));
        evidence.insert("left_behind".into(), json!(left));
        Ok(Plan {
            kind: ActionKind::Terminate,
            grounds,
            finding: None,
            session: Some(session),
            owner: known.uid,
            reason: format!("the session of {} (pid {}) is to end", known.profile, known.root.pid),
            evidence,
            chosen: self.choose(members, grounds),
            cgroup: self.gate.cgroup_of(session),
        })
    }

    /// Leaves alone what the asker may not decide about.
    fn only_of(&self, uid: Uid, mut plan: Plan) -> Plan {
        let (own, anothers): (Vec<_>, Vec<_>) =
            std::mem::take(&mut plan.chosen.targets).into_iter().partition(|target| self.is_of(target.process, uid));
        plan.chosen.targets = own;
        plan.chosen.spared.extend(anothers.into_iter().map(|target| (target.process, SpareReason::OtherUser)));
        plan
    }

    /// Leaves alone whom the asker was not shown, and what those who were shown have forked since.
    fn only_shown(&self, expect: &BTreeSet<ProcessId>, mut plan: Plan) -> Plan {
        let (shown, mut others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut plan.chosen.targets).into_iter().partition(|target| expect.contains(&target.process));
        let below = self.subtree(shown.iter().map(|target| target.process)).into_iter();
        let known: BTreeSet<ProcessId> = plan.chosen.spared.iter().map(|(process, _)| *process).collect();
        let here = |id: &ProcessId| shown.iter().chain(&others).any(|target| target.process == *id);
        let new: Vec<ProcessId> = below.filter(|id| !known.contains(id) && !here(id)).collect();
        others.extend(self.choose(new, plan.grounds).targets);
        plan.chosen.spared.extend(others.into_iter().map(|target| (target.process, NOT_SHOWN.into())));
        plan.chosen.targets = shown;
        plan
    }
}

fn is_among(process: &Process, subjects: &[Subject]) -> bool {
    subjects.iter().any(|subject| match *subject {
        Subject::Session(session) => process.session == SessionId(session),
        Subject::Pid(pid) => process.id.pid == Pid(pid),
    })
}

impl Step<'_> {
    /// User ids were read.
    pub(in crate::engine) fn user_ids(&mut self, read: Vec<(ProcessId, UserIds)>) {
        for (process, ids) in read {
            if let Some(known) = self.engine.table.get_mut(process) {
                known.user_ids = Some(ids);
            }
        }
    }

    /// Does what a person asks for, as far as it may be done, and answers with what was begun.
    pub(in crate::engine) fn ask(&mut self, ask: &Ask) {
        let mut begun = Vec::new();
        if let What::Thaw(subjects) = &ask.what {
            for held in self.engine.held(ask.uid, subjects).unwrap_or_default() {
                self.let_go(held, "a person let go of it");
                let finding = self.engine.acts.get(held).and_then(|running| running.about);
                self.engine.acts.freed.extend(finding);
                begun.push(held);
            }
        }
        for plan in self.engine.plan(ask).unwrap_or_default() {
            if !plan.chosen.targets.is_empty() {
                begun.push(self.begin_action(plan, Decided::Person(ask.uid), false));
            }
        }
        self.effect(Effect::Asked(begun));
    }

    /// A person takes back that a process is meant to stay.
    pub(in crate::engine) fn unadopt(&mut self, process: ProcessId) {
        if let Some(known) = self.engine.table.get_mut(process) {
            known.adopted = false;
            self.effect(Effect::Remember(GateRecord::Unadopted(process)));
            self.judge(process);
            self.may_be_orphan(process);
            self.tick();
        }
    }
}
