//! What a later run of the daemon has to know of sessions beside their leases: whose a session is whose agent has died, since then
//! nobody in /proc tells, and who was adopted.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::{Effect, Happening};
use super::gate::GateRecord;
use super::id::{BootTime, ProcessId, SessionId, Uid};
use super::input::Lineage;
use super::{Engine, Step};

/// What an earlier run knew.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// The profile and user of sessions, by root.
    sessions: BTreeMap<ProcessId, (String, Uid)>,
    /// Who was adopted, and has not been seen yet.
    adopted: BTreeSet<ProcessId>,
}

impl Remembered {
    /// Takes a record, in the order in which they were written.
    pub(super) fn take(&mut self, record: GateRecord) {
        match record {
            GateRecord::SessionBegan { root, profile, uid } => drop(self.sessions.insert(root, (profile, uid))),
            GateRecord::SessionOver(root) => drop(self.sessions.remove(&root)),
            GateRecord::Adopted(process) => drop(self.adopted.insert(process)),
            GateRecord::Unadopted(process) => drop(self.adopted.remove(&process)),
            GateRecord::Queued { .. } | GateRecord::Left(_) | GateRecord::Granted(_) | GateRecord::Ended(_) => {}
        }
    }
}

impl Step<'_> {
    /// The table is right: whoever was remembered and is not there is gone.
    pub(super) fn forget_remembered(&mut self) {
        self.engine.remembered = Remembered::default();
    }

    /// The session of a process whose agent died before this run of the daemon began.
    pub(super) fn remembered_session(&mut self, lineage: &Lineage) -> Option<SessionId> {
        let (profile, uid) = self.engine.remembered.sessions.remove(&lineage.root)?;
        let session = self.begin_session(lineage.root, &profile, None, uid);
        self.remember_session(session);
        let at = BootTime::from(lineage.root.start_time);
        self.journal_in(at, lineage.root, session, Happening::SessionStarted { profile });
        Some(session)
    }

    /// Has a session remembered.
    pub(super) fn remember_session(&mut self, session: SessionId) {
        if let Some(record) = self.engine.session_record(session) {
            if let GateRecord::SessionBegan { root, .. } = &record {
                self.engine.remembered.sessions.remove(root);
            }
            self.effect(Effect::Remember(record));
        }
    }

    /// Whether an earlier run knew that this one was adopted.
    pub(super) fn was_adopted(&mut self, process: ProcessId) -> bool {
        self.engine.remembered.adopted.remove(&process)
    }
}

impl Engine {
    fn session_record(&self, session: SessionId) -> Option<GateRecord> {
        let known = self.sessions.get(session)?;
        Some(GateRecord::SessionBegan { root: known.root, profile: known.profile.clone(), uid: known.uid })
    }

    /// The records that say who is there now.
    pub(super) fn session_records(&self) -> impl Iterator<Item = GateRecord> {
        let known = self.sessions.iter().filter(|session| session.members > 0);
        let sessions = known.filter_map(|session| self.session_record(session.id));
        // Before the first scan nobody is there, and all that is known is what was remembered.
        let Remembered { sessions: old, adopted } = &self.remembered;
        let old = old.iter().map(|(root, (profile, uid))| GateRecord::SessionBegan {
            root: *root,
            profile: profile.clone(),
            uid: *uid,
        });
        let now = self.table.living().filter(|process| process.adopted).map(|process| process.id);
        let adopted = adopted.iter().copied().chain(now).map(GateRecord::Adopted);
        old.chain(sessions).chain(adopted)
    }
}
