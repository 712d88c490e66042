//! Requests of users: adopt, reap, end, thaw, reclaim.

use super::DaemonState;
use crate::request::AdoptError;
use watchdog_api::{Adopted, Planned, Receipt, ReclaimRun, Spared, Subject};
use watchdog_engine::actions::{ActionRequest, ActionRequestError, RequestedAction};
use watchdog_engine::effect::Effect;
use watchdog_engine::input::Input;
use watchdog_engine::reclaim::{ReclaimDemand, ReclaimRequestError};
use watchdog_host::pidfd::PidFd;
use watchdog_types::{BootTime, Pid, ProcessId, SessionId, Viewer};

impl DaemonState {
    /// Plans a request; without `dry_run` it is started.
    pub(super) fn act(
        &mut self,
        now: BootTime,
        ask: ActionRequest,
        dry_run: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Planned, ActionRequestError> {
        let read = self.engine.last_seen_as_other_users(&ask).into_iter().filter_map(|process| {
            let (_, identity) = PidFd::with_identity(process).ok()??;
            Some((process, identity.users))
        });
        let read: Vec<_> = read.collect();
        if !read.is_empty() {
            self.feed(now, Input::UserIds(read), effects);
        }
        let plans = self.engine.plan(&ask)?;
        if let RequestedAction::Thaw(subjects) = &ask.what {
            self.engine.held(ask.uid, subjects)?;
        }
        let planned: Vec<Receipt> = self.with_naming(|engine, naming| {
            plans.iter().map(|plan| engine.to_api_plan(now, plan, ask.uid, naming)).collect()
        });
        let spared: Vec<Spared> = planned.iter().flat_map(|receipt| receipt.spared.clone()).collect();
        let actions: Vec<Receipt> = if dry_run {
            planned.into_iter().filter(|receipt| !receipt.targets.is_empty()).collect()
        } else {
            self.begun.clear();
            self.feed(now, Input::RequestAction(ask), effects);
            let begun = std::mem::take(&mut self.begun);
            self.with_naming(|engine, naming| {
                begun.iter().filter_map(|id| Some(engine.receipt(*id, naming)?.1)).collect()
            })
        };
        Ok(Planned {
            dry_run,
            memory_bytes: actions.iter().map(|receipt| receipt.memory_bytes).sum(),
            actions,
            spared,
            kill_after_seconds: self.engine.kill_after().as_secs_f64(),
        })
    }

    /// Starts to page out sessions; with `dry_run` it is only planned.
    pub(super) fn reclaim(
        &mut self,
        now: BootTime,
        demand: ReclaimDemand,
        dry_run: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<ReclaimRun, ReclaimRequestError> {
        self.engine.check_reclaim(demand)?;
        let planned = self.with_naming(|engine, naming| engine.plan_reclaim(now, demand, naming));
        if dry_run {
            return Ok(planned);
        }
        self.feed(now, Input::RequestReclaim(demand), effects);
        let begun = self.with_naming(|engine, naming| engine.reclaim_run(engine.last_reclaim(), now, naming));
        Ok(begun.map_or(planned, |(_, run)| run))
    }

    /// Marks processes as kept, or removes that mark.
    pub(super) fn adopt(
        &mut self,
        now: BootTime,
        viewer: Viewer,
        subject: Subject,
        undo: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Adopted, AdoptError> {
        let processes = match subject {
            Subject::Pid(pid) => vec![self.engine.process(Pid(pid)).ok_or(AdoptError::NoProcess(pid))?],
            Subject::Session(session) => self.engine.members(SessionId(session)),
        };
        if let (Subject::Session(session), []) = (subject, processes.as_slice()) {
            return Err(AdoptError::NoSession(session));
        }
        if !processes.iter().all(|process| self.may_act(viewer, *process)) {
            return Err(AdoptError::OtherUser);
        }
        for process in &processes {
            let input = if undo { Input::Unadopt(*process) } else { Input::Adopt(*process) };
            self.feed(now, input, effects);
        }
        let pids: Vec<u32> = processes.iter().map(|process| process.pid.0).collect();
        let owner = processes.first().and_then(|process| self.engine.owner(*process));
        let moment = self.with_naming(|_, naming| naming.moment(now));
        let what = if undo { "unadopt" } else { "adopt" };
        self.history.adopted(what, viewer, subject, &pids, owner, moment);
        Ok(Adopted { pids })
    }

    fn may_act(&self, viewer: Viewer, process: ProcessId) -> bool {
        match viewer {
            Viewer::Root => true,
            Viewer::User(uid) => self.engine.owner(process) == Some(uid),
        }
    }
}
