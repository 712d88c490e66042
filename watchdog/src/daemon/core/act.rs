//! What people ask to be done to processes: adopted, ended, let go.

use super::Core;
use crate::api::{Adopted, Planned, Receipt, Spared, Subject};
use crate::daemon::request::AdoptError;
use crate::engine::act::{Ask, AskError, What};
use crate::engine::effect::Effect;
use crate::engine::id::{BootTime, Pid, ProcessId, SessionId};
use crate::engine::input::Input;
use crate::engine::view::Viewer;
use crate::host::pinned::Pinned;

impl Core {
    /// Says what a request comes to; unless that is all that is asked for, it is begun.
    pub(super) fn act(
        &mut self,
        now: BootTime,
        ask: Ask,
        dry_run: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Planned, AskError> {
        let read = self.engine.of_other_users(&ask).into_iter().filter_map(|process| {
            let (_, identity) = Pinned::with_identity(process).ok()??;
            Some((process, identity.users))
        });
        let read: Vec<_> = read.collect();
        if !read.is_empty() {
            self.tell(now, Input::UserIds(read), effects);
        }
        let plans = self.engine.plan(&ask)?;
        if let What::Thaw(subjects) = &ask.what {
            self.engine.held(ask.uid, subjects)?;
        }
        let planned: Vec<Receipt> = self.with_naming(|engine, naming| {
            plans.iter().map(|plan| engine.shown_plan(now, plan, ask.uid, naming)).collect()
        });
        let spared: Vec<Spared> = planned.iter().flat_map(|receipt| receipt.spared.clone()).collect();
        let actions: Vec<Receipt> = if dry_run {
            planned.into_iter().filter(|receipt| !receipt.targets.is_empty()).collect()
        } else {
            self.begun.clear();
            self.tell(now, Input::Ask(ask), effects);
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

    /// Marks processes as meant to stay, or takes that back.
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
            return Err(AdoptError::NotYours);
        }
        for process in &processes {
            let input = if undo { Input::Unadopt(*process) } else { Input::Adopt(*process) };
            self.tell(now, input, effects);
        }
        let pids: Vec<u32> = processes.iter().map(|process| process.pid.0).collect();
        let owner = processes.first().and_then(|process| self.engine.owner(*process));
        let moment = self.with_naming(|_, naming| naming.moment(now));
        let what = if undo { "unadopt" } else { "adopt" };
        self.chronicle.adopted(what, viewer, subject, &pids, owner, moment);
        Ok(Adopted { pids })
    }

    fn may_act(&self, viewer: Viewer, process: ProcessId) -> bool {
        match viewer {
            Viewer::Root => true,
            Viewer::User(uid) => self.engine.owner(process) == Some(uid),
        }
    }
}
