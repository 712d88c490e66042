//! What a later run of the daemon has to know of sessions beside their leases, since nothing in /proc tells: whose a session is
//! whose agent has died, where somebody belongs whose parent has, who was adopted, and who was started to stay.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::{Effect, Happening};
use super::gate::GateRecord;
use super::id::{BootTime, ProcessId, SessionId, Uid};
use super::input::{Absence, Exit, Lineage, MissedExit, ScannedProcess};
use super::process::{Launcher, Process};
use super::{Engine, Step};

/// A session that an earlier run knew.
#[derive(Clone, Debug)]
struct RememberedSession {
    profile: String,
    uid: Uid,
    id: Option<SessionId>,
    granted: Option<ProcessId>,
}

/// What an earlier run knew.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Sessions, by root.
    sessions: BTreeMap<ProcessId, RememberedSession>,
    /// The place of those whose parents had died.
    places: BTreeMap<ProcessId, Lineage>,
    /// Who was adopted, and has not been seen yet.
    adopted: BTreeSet<ProcessId>,
    /// Who was started through nohup or setsid, and has not been seen yet: the program that runs now does not tell.
    launched: BTreeMap<ProcessId, Launcher>,
    /// Exits that happened while no daemon ran.
    exits: BTreeMap<ProcessId, MissedExit>,
    /// A scan has been merged with them.
    merged: bool,
}

impl Remembered {
    /// The id of the session of this root.
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

    /// Whether a scan was merged with what is remembered: until then, events that a ring still holds may tell more.
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

    /// A scan is merged. The exits are looked up until the one after it is.
    pub(super) fn merged(&mut self) {
        if std::mem::replace(&mut self.merged, true) {
            self.exits = BTreeMap::new();
        }
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
            | GateRecord::HeldBack { .. }
            | GateRecord::Left(_)
            | GateRecord::Granted(_)
            | GateRecord::Matched { .. }
            | GateRecord::Ended(_)
            | GateRecord::Ids(_)
            | GateRecord::FindingOpened(_)
            | GateRecord::FindingClosed(_) => {}
        }
    }
}

impl Step<'_> {
    /// The table is right: whoever was remembered and is not there is gone.
    pub(super) fn forget_remembered(&mut self) {
        self.engine.remembered = Remembered { merged: true, ..Remembered::default() };
    }

    /// The session of a process whose agent died before this run of the daemon began.
    pub(super) fn remembered_session(&mut self, lineage: &Lineage) -> Option<SessionId> {
        let RememberedSession { profile, uid, .. } = self.engine.remembered.sessions.get(&lineage.root)?.clone();
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

    /// A process is dead: where its children belong nobody can read from /proc any more.
    pub(super) fn remember_children(&mut self, dead: ProcessId) {
        let engine = &*self.engine;
        let heirs = engine.table.heirs(dead, |_| true);
        let parted: Vec<GateRecord> = heirs.into_iter().filter_map(|heir| engine.place_record(heir)).collect();
        parted.into_iter().for_each(|record| self.effect(Effect::Remember(record)));
    }

    /// Whether an earlier run knew that this one was adopted.
    pub(super) fn was_adopted(&mut self, process: ProcessId) -> bool {
        self.engine.remembered.adopted.remove(&process)
    }

    /// What an earlier run knew that this one was started through.
    pub(super) fn was_launched(&mut self, process: ProcessId) -> Option<Launcher> {
        self.engine.remembered.launched.remove(&process)
    }

    /// A process was started through something that says that it is to outlive its session.
    pub(super) fn launched(&mut self, process: ProcessId, launcher: Launcher) {
        if let Some(known) = self.engine.table.get_mut(process)
            && known.launched_by != Some(launcher)
        {
            known.launched_by = Some(launcher);
            self.effect(Effect::Remember(GateRecord::Launched(process, launcher)));
        }
    }
}

impl Engine {
    /// Counts what may change the places of processes.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.table.moves()
    }

    /// Where the living processes of sessions belong, for a daemon that begins after this one and finds no kernel map.
    #[must_use]
    pub fn lineages(&self) -> Vec<(ProcessId, Lineage)> {
        let place = |process: &Process| {
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

    /// Where a living process belongs whose parent is dead: below the nearest that lives, which may be meant to stay. A session's
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

    /// The records that say who is there now.
    pub(super) fn session_records(&self) -> impl Iterator<Item = GateRecord> {
        let known = self.sessions.iter().filter(|session| session.members > 0);
        let sessions = known.filter_map(|session| self.session_record(session.id));
        // Before the first scan nobody is there, and all that is known is what was remembered.
        let Remembered { sessions: old, places, adopted, launched, exits: _, merged: _ } = &self.remembered;
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
