//! The facts about sessions, besides their leases, that a later run of the daemon must know, because /proc does not show it: sessions whose agent
//! is dead, the place of processes whose parent is dead, adoptions, and processes started through nohup or setsid.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::{Effect, JournalEvent, PersistCommand};
use super::gate::GateRecord;
use super::process::{Launcher, TrackedProcess};
use super::{Engine, Step};
use watchdog_types::{Absence, BootTime, Exit, Lineage, MissedExit, ProcessId, ScannedProcess, SessionId, Uid};

/// A session that an earlier run knew.
#[derive(Clone, Debug)]
struct RememberedSession {
    profile: String,
    uid: Uid,
    id: Option<SessionId>,
    granted: Option<ProcessId>,
}

/// The sessions known to an earlier run.
#[derive(Debug, Default)]
pub(super) struct PersistedSessions {
    sessions: BTreeMap<ProcessId, RememberedSession>,
    /// The place of those whose parents had died.
    places: BTreeMap<ProcessId, Lineage>,
    /// Adopted processes that have not been seen yet.
    adopted: BTreeSet<ProcessId>,
    /// Processes started through nohup or setsid that have not been seen yet: their current program does not show it.
    launched: BTreeMap<ProcessId, Launcher>,
    /// Exits that happened while no daemon ran.
    exits: BTreeMap<ProcessId, MissedExit>,
    /// A scan has been merged with them.
    merged: bool,
}

impl PersistedSessions {
    pub(super) fn session_id(&self, root: ProcessId) -> Option<SessionId> {
        self.sessions.get(&root)?.id
    }

    /// The root of the launch that granted the session of this root, which may have exited.
    pub(super) fn granted(&self, root: ProcessId) -> Option<ProcessId> {
        self.sessions.get(&root)?.granted
    }

    /// Where this one belongs, when its parent had died in an earlier run.
    pub(super) fn place(&self, process: ProcessId) -> Option<Lineage> {
        self.places.get(&process).copied()
    }

    /// Takes what happened while no daemon ran. A record of the gate that says where a process belongs is newer.
    pub(super) fn absent(&mut self, absence: Absence) {
        let Absence { exits, places } = absence;
        for (process, lineage) in places {
            self.places.entry(process).or_insert(lineage);
        }
        self.exits.extend(exits.into_iter().map(|missed| (missed.exit.process, missed)));
    }

    /// How this one exited while no daemon ran.
    pub(super) fn exit(&self, process: ProcessId) -> Option<&Exit> {
        self.exits.get(&process).map(|missed| &missed.exit)
    }

    /// Whether a scan was merged with what is remembered: until then, events that are still in a ring may add to it.
    pub(super) fn is_merged(&self) -> bool {
        self.merged
    }

    /// The exits that matter to what a scan found: of session roots, of processes above a living one, and those by a signal.
    /// Thousands of short-lived children do not. None but at the first scan.
    pub(super) fn exits_that_matter(&self, processes: &[ScannedProcess]) -> Vec<MissedExit> {
        if self.merged || self.exits.is_empty() {
            return Vec::new();
        }
        let roots = self.sessions.keys().copied();
        let killed = self.exits.values().filter(|missed| missed.exit.status.is_some_and(|how| how.signal().is_some()));
        let killed = killed.map(|missed| missed.exit.process);
        let lineages = |found: &ScannedProcess| [found.lineage, self.place(found.process)];
        let parents = processes.iter().flat_map(lineages).filter_map(|lineage| lineage?.parent);
        let mut open: Vec<ProcessId> = roots.chain(killed).chain(parents).collect();
        let mut found = BTreeMap::new();
        while let Some(process) = open.pop() {
            if let Some(missed) = self.exits.get(&process)
                && found.insert(process, missed.clone()).is_none()
            {
                open.extend(missed.lineage.parent);
            }
        }
        found.into_values().collect()
    }

    /// A scan is merged. The exits are looked up until the one after it is. Returns whether it is the one after.
    pub(super) fn merged(&mut self) -> bool {
        let is_later = std::mem::replace(&mut self.merged, true);
        if is_later {
            self.exits = BTreeMap::new();
        }
        is_later
    }

    /// A later record says that this one is a root.
    pub(super) fn forget_place(&mut self, process: ProcessId) {
        self.places.remove(&process);
    }

    /// Takes a record, in the order in which they were written.
    pub(super) fn take(&mut self, record: GateRecord) {
        match record {
            GateRecord::SessionBegan { root, profile, uid, id, granted } => {
                self.sessions.insert(root, RememberedSession { profile, uid, id, granted });
            }
            GateRecord::SessionOver(root) => drop(self.sessions.remove(&root)),
            GateRecord::Parted(process, lineage) => drop(self.places.insert(process, lineage)),
            GateRecord::Adopted(process) => drop(self.adopted.insert(process)),
            GateRecord::Unadopted(process) => drop(self.adopted.remove(&process)),
            GateRecord::Launched(process, launcher) => drop(self.launched.insert(process, launcher)),
            GateRecord::Queued { .. }
            | GateRecord::Head { .. }
            | GateRecord::Left(_)
            | GateRecord::Granted(_)
            | GateRecord::Matched { .. }
            | GateRecord::Ended(_)
            | GateRecord::GrantedOnce
            | GateRecord::Ids(_)
            | GateRecord::FindingOpened(_)
            | GateRecord::FindingClosed(_) => {}
        }
    }
}

impl Step<'_> {
    /// The table is complete: persisted processes that it lacks have exited.
    pub(super) fn forget_remembered(&mut self) {
        self.engine.remembered = PersistedSessions { merged: true, ..PersistedSessions::default() };
    }

    /// The session of a process whose agent died before this run of the daemon began.
    pub(super) fn remembered_session(&mut self, lineage: &Lineage) -> Option<SessionId> {
        let RememberedSession { profile, uid, .. } = self.engine.remembered.sessions.get(&lineage.root)?.clone();
        let session = self.begin_session(lineage.root, &profile, None, uid);
        self.remember_session(session);
        let at = BootTime::from(lineage.root.start_time);
        self.journal_in(at, lineage.root, session, JournalEvent::SessionStarted { profile });
        Some(session)
    }

    pub(super) fn remember_session(&mut self, session: SessionId) {
        if let Some(record) = self.engine.session_record(session) {
            if let GateRecord::SessionBegan { root, .. } = &record {
                self.engine.remembered.sessions.remove(root);
            }
            self.effect(Effect::Persist(PersistCommand::Gate(record)));
        }
    }

    /// A process is dead: /proc no longer shows where its children belong.
    pub(super) fn remember_children(&mut self, dead: ProcessId) {
        let engine = &*self.engine;
        let surviving_children = engine.table.surviving_children(dead, |_| true);
        let parted: Vec<GateRecord> =
            surviving_children.into_iter().filter_map(|heir| engine.place_record(heir)).collect();
        parted.into_iter().for_each(|record| self.effect(Effect::Persist(PersistCommand::Gate(record))));
    }

    /// Whether an earlier run knew that this one was adopted.
    pub(super) fn was_adopted(&mut self, process: ProcessId) -> bool {
        self.engine.remembered.adopted.remove(&process)
    }

    /// The launcher of a process, as an earlier run knew it.
    pub(super) fn was_launched(&mut self, process: ProcessId) -> Option<Launcher> {
        self.engine.remembered.launched.remove(&process)
    }

    /// A process was started through something that says that it is to outlive its session.
    pub(super) fn launched(&mut self, process: ProcessId, launcher: Launcher) {
        if let Some(known) = self.engine.table.get_mut(process)
            && known.launched_by != Some(launcher)
        {
            known.launched_by = Some(launcher);
            self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Launched(process, launcher))));
        }
    }
}

impl Engine {
    /// Increases when the session or parent of a process may have changed.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Where the living processes of sessions belong, for a daemon that begins after this one and finds no kernel map.
    #[must_use]
    pub fn lineages(&self) -> Vec<(ProcessId, Lineage)> {
        let place = |process: &TrackedProcess| {
            let root = self.sessions.get(process.session)?.root;
            let lineage = Lineage {
                root,
                parent: process.forked_by.or(process.parent),
                depth: process.depth,
                provisional: false,
                forked: process.forked,
                witness: false,
            };
            (root != process.id).then_some((process.id, lineage))
        };
        self.table.living().filter_map(place).collect()
    }

    fn session_record(&self, session: SessionId) -> Option<GateRecord> {
        let known = self.sessions.get(session)?;
        let (root, uid, id, granted) = (known.root, known.uid, Some(session), known.granted);
        Some(GateRecord::SessionBegan { root, profile: known.profile.clone(), uid, id, granted })
    }

    /// Where a living process belongs whose parent is dead: below the nearest that lives, which may be a kept one. A session's
    /// root is an agent by what it runs.
    fn place_record(&self, process: ProcessId) -> Option<GateRecord> {
        let known = self.table.alive(process)?;
        let root = self.sessions.get(known.session)?.root;
        let parted = known.parent.is_none_or(|parent| self.table.alive(parent).is_none());
        let place = Lineage {
            root,
            parent: self.table.above(process).find(|above| above.alive()).map(|above| above.id).or(known.forked_by),
            depth: known.depth,
            provisional: false,
            forked: known.forked,
            witness: false,
        };
        (parted && root != process).then_some(GateRecord::Parted(process, place))
    }

    pub(super) fn session_records(&self) -> impl Iterator<Item = GateRecord> {
        let known = self.sessions.iter().filter(|session| session.members > 0);
        let sessions = known.filter_map(|session| self.session_record(session.id));
        // Before the first scan the table is empty, and only persisted state is known.
        let PersistedSessions { sessions: old, places, adopted, launched, exits: _, merged: _ } = &self.remembered;
        let old = old.iter().map(|(root, RememberedSession { profile, uid, id, granted })| {
            let profile = profile.clone();
            GateRecord::SessionBegan { root: *root, profile, uid: *uid, id: *id, granted: *granted }
        });
        let now = self.table.living().filter(|process| process.adopted).map(|process| process.id);
        let adopted = adopted.iter().copied().chain(now).map(GateRecord::Adopted);
        let now = self.table.living().filter_map(|process| Some((process.id, process.launched_by?)));
        let launched = launched.iter().map(|(process, launcher)| (*process, *launcher)).chain(now);
        let launched = launched.map(|(process, launcher)| GateRecord::Launched(process, launcher));
        let places = places.iter().map(|(process, place)| GateRecord::Parted(*process, *place));
        let places = places.chain(self.table.living().filter_map(|process| self.place_record(process.id)));
        old.chain(sessions).chain(places).chain(adopted).chain(launched)
    }
}
