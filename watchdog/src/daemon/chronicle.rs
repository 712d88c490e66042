//! What of all that happens goes into the history.

use std::cell::Cell;
use std::time::Duration;

use serde_json::Value;

use super::historian::Historian;
use crate::api::{
    ActionRecord, FindingRecord, HistoryState, Host, HostRecord, OomRecord, Past, Receipt, SetAside, Subject,
};
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::deaths::Death;
use crate::engine::effect::{Happening, JournalEntry};
use crate::engine::id::{BootTime, ProcessId, SessionId, Uid};
use crate::engine::input::HostMemory;
use crate::engine::view::{Naming, Viewer};
use crate::history::Limits;
use crate::host::clock;

/// The time between two records of the host's memory.
const HOST_INTERVAL: Duration = Duration::from_secs(10);
/// Sessions and processes that such a record names at most.
const LARGEST_SESSIONS: usize = 8;
const LARGEST_PROCESSES: usize = 6;

/// Chooses what is written into the history, and puts it into its form.
#[derive(Debug)]
pub(super) struct Chronicle {
    history: Historian,
    next_host: Cell<BootTime>,
}

impl Chronicle {
    /// One that writes there.
    pub(super) fn new(history: Historian) -> Self {
        Self { history, next_host: Cell::default() }
    }

    /// How the writing goes.
    pub(super) fn state(&self) -> HistoryState {
        self.history.state()
    }

    /// Files of the daemon that could not be believed.
    pub(super) fn set_aside(&self) -> Vec<SetAside> {
        self.history.origin().notes.all()
    }

    /// Takes a new configuration.
    pub(super) fn reconfigure(&self, config: &Config) {
        self.history.limit(limits(config));
    }

    /// Writes down what happened, if it is worth remembering.
    pub(super) fn journal(&self, entry: &JournalEntry, owner: Option<Uid>, engine: &Engine, naming: &Naming<'_>) {
        let told = match &entry.what {
            Happening::SessionStarted { .. } => entry
                .session
                .and_then(|session| engine.session_start(session, naming))
                .map(|(uid, start)| (Some(uid), Past::SessionStarted(start))),
            Happening::SessionEnded => entry
                .session
                .and_then(|session| engine.session_summary(session, naming))
                .map(|(uid, summary)| (Some(uid), Past::SessionEnded(summary))),
            Happening::Finding { finding, change, .. } => engine
                .finding(*finding, naming)
                .map(|(uid, finding)| (Some(uid), Past::Finding(FindingRecord { change: change.clone(), finding }))),
            Happening::Oom { comm } => {
                let oom = OomRecord {
                    pid: entry.process.map(|process| process.pid.0),
                    start_time: entry.process.map(|process| process.start_time.0),
                    session: entry.session.map(|session| session.0),
                    comm: comm.clone(),
                };
                Some((owner, Past::Oom(oom)))
            }
            Happening::Fork { .. }
            | Happening::Exec { .. }
            | Happening::Exit { .. }
            | Happening::Signal { .. }
            // Its death is told by itself, with all that is known of it.
            | Happening::Died { .. }
            // Its receipt is told by itself.
            | Happening::Action { .. }
            | Happening::ActionsHeldBack { .. }
            | Happening::LaunchGranted { .. }
            | Happening::Breaker { .. }
            | Happening::Reconciled { .. }
            | Happening::Reclaim { .. }
            | Happening::Denied { .. }
            | Happening::MemoryStep { .. } => None,
        };
        // An agent may be found long after it began, which its record tells beside this.
        let at = if matches!(told, Some((_, Past::SessionStarted(_)))) { clock::now() } else { entry.at };
        if let Some((uid, past)) = told {
            self.history.write(naming.moment(at), uid.map(|uid| uid.0), past);
        }
    }

    /// Writes down why a process died.
    pub(super) fn death(&self, death: &Death, naming: &Naming<'_>) {
        // Strings, numbers and maps with string keys: nothing here can fail to be JSON.
        if let Ok(Value::Object(told)) = serde_json::to_value(naming.death(death)) {
            self.history.write(naming.moment(death.at), death.facts.uid, Past::Death(told));
        }
    }

    /// Writes down the host's memory, when it is time again.
    pub(super) fn host(&self, now: BootTime, host: &HostMemory, engine: &Engine, naming: &Naming<'_>) {
        if now < self.next_host.get() {
            return;
        }
        self.next_host.set(now.plus(HOST_INTERVAL));
        let (sessions, processes) = engine.largest(LARGEST_SESSIONS, LARGEST_PROCESSES);
        let record = HostRecord { memory: shown_host(host), sessions, processes };
        self.history.write(naming.moment(now), None, Past::Host(record));
    }

    /// Writes down that processes were adopted, or are no more.
    pub(super) fn adopted(
        &self,
        what: &str,
        viewer: Viewer,
        subject: Subject,
        pids: &[u32],
        owner: Option<Uid>,
        moment: String,
    ) {
        let asked_by_uid = match viewer {
            Viewer::Root => Uid::ROOT.0,
            Viewer::User(uid) => uid.0,
        };
        let session = match subject {
            Subject::Session(session) => Some(session),
            Subject::Pid(_) => None,
        };
        let action = ActionRecord {
            action: what.to_owned(),
            pids: pids.to_vec(),
            session,
            asked_by_uid: Some(asked_by_uid),
            receipt: None,
        };
        self.history.write(moment, owner.map(|uid| uid.0), Past::Action(action));
    }

    /// Writes down how far an action is.
    pub(super) fn action(&self, receipt: Receipt, owner: Uid, moment: String) {
        let action = ActionRecord {
            action: receipt.action.name().to_owned(),
            pids: receipt.targets.iter().map(|target| target.pid).collect(),
            session: receipt.session,
            asked_by_uid: receipt.asked_by_uid,
            receipt: Some(Box::new(receipt)),
        };
        self.history.write(moment, Some(owner.0), Past::Action(action));
    }

    /// Writes down that an agent is ended because it was started past the gate.
    pub(super) fn ended_ungated(
        &self,
        process: ProcessId,
        session: Option<SessionId>,
        owner: Option<Uid>,
        moment: String,
    ) {
        let (action, pids) = ("end_ungated".to_owned(), vec![process.pid.0]);
        let action =
            ActionRecord { action, pids, session: session.map(|session| session.0), asked_by_uid: None, receipt: None };
        self.history.write(moment, owner.map(|uid| uid.0), Past::Action(action));
    }
}

/// What the configuration says about how long and how much is kept.
pub(super) fn limits(config: &Config) -> Limits {
    Limits { retention: config.history.retention, max_bytes: config.history.max_size.0 }
}

/// The host's memory as it is shown.
pub(super) fn shown_host(host: &HostMemory) -> Host {
    Host {
        memory_total_bytes: host.total.0,
        memory_available_bytes: host.available.0,
        swap_total_bytes: host.swap_total.0,
        swap_free_bytes: host.swap_free.0,
        shmem_bytes: host.shmem.0,
        pressure_some_avg10: host.pressure_some_avg10,
        pressure_full_avg10: host.pressure_full_avg10,
    }
}
