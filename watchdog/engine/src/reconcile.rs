//! A scan of /proc merged into the table: at the start, and to repair what lost events left wrong.
//!
//! Nothing that the table learned after the scan began is denied by it; everything older is.

use std::collections::HashSet;
use std::sync::Arc;

use super::Step;
use super::detect::TableEvent;
use super::effect::{BpfCommand, Effect, JournalEntry, JournalEvent};
use super::membership::Newcomer;
use super::process::TrackedProcess;
use watchdog_api::ProcessKind;
use watchdog_types::{BootTime, Exit, Image, Lineage, MissedExit, Pid, ProcessId, Scan, ScannedProcess};

/// Losses that no scan has repaired yet.
#[derive(Debug, Default)]
pub(super) struct Reconciler {
    lost: u64,
    pub(super) reconciles: u64,
}

/// A process that a scan found, or one that it could not find any more.
enum ScanDifference {
    Alive(ScannedProcess),
    Dead(MissedExit),
}

impl ScanDifference {
    fn process(&self) -> ProcessId {
        match self {
            Self::Alive(scanned) => scanned.process,
            Self::Dead(missed) => missed.exit.process,
        }
    }
}

impl Step<'_> {
    pub(super) fn lost(&mut self, records: u64) {
        self.engine.reconciler.lost += records;
        self.effect(Effect::ScanProcesses);
    }

    pub(super) fn reconcile(&mut self, scan: Scan) {
        let there: HashSet<ProcessId> =
            scan.processes.iter().filter(|scanned| !scanned.zombie).map(|scanned| scanned.process).collect();
        let missing = |process: &&TrackedProcess| process.seen < scan.began && !there.contains(&process.id);
        let gone: Vec<ProcessId> = self.engine.table.living().filter(missing).map(|process| process.id).collect();
        let (mut added, removed) = (0, gone.len() as u64);

        let exits = self.engine.remembered.exits_that_matter(&scan.processes).into_iter().map(ScanDifference::Dead);
        let scanned = scan.processes.into_iter().filter(|scanned| !scanned.zombie).map(ScanDifference::Alive);
        let mut found: Vec<ScanDifference> = scanned.chain(exits).collect();
        // Processes that were forked earlier come first: a parent is in the table before its children are read.
        found.sort_by_key(|found| {
            let process = found.process();
            (process.start_time, process.pid)
        });
        for found in found {
            let known = self.engine.table.get(found.process());
            match (found, known) {
                (ScanDifference::Alive(scanned), Some(known)) if known.alive() => self.refresh(scan.began, &scanned),
                (ScanDifference::Alive(scanned), None) => added += u64::from(self.discover(scanned)),
                (ScanDifference::Dead(missed), None) => self.discover_dead(missed),
                // The exit is newer than the scan.
                (_, Some(_)) => {}
            }
        }
        // The dead go last, so that children of theirs which only the scan knows find their lineage.
        let is_complete = self.engine.reconciler.lost == 0;
        for process in gone {
            if is_complete && self.engine.remembered.exit(process).is_none() {
                // Its exit, with the status, may still be in the ring.
                self.missed(process);
            } else {
                self.gone(process, scan.began, None);
            }
        }

        let is_later = self.engine.remembered.merged();
        self.gate_after_scan(scan.began, &there);

        self.engine.detectors.changed();
        self.engine.table.bump_generation();
        // New lineage may show orphans from long ago.
        let living: Vec<ProcessId> = self.engine.table.living().map(|process| process.id).collect();
        living.into_iter().for_each(|process| self.place(process));

        // At the first scan, agents that died unread still count as alive.
        if is_later {
            self.resume_after_scan(&there);
        }

        let lost = std::mem::take(&mut self.engine.reconciler.lost);
        if lost > 0 {
            self.engine.reconciler.reconciles += 1;
            // What was still in the ring when the scan began is read after it, and may be of a process whose exit is among
            // the lost: once more, when that has been read.
            self.effect(Effect::ScanProcesses);
            let what = JournalEvent::Reconciled { lost, added, removed };
            self.effect(Effect::Journal(JournalEntry { at: self.now, process: None, session: None, what }));
        }
    }

    /// Brings a process that the table has up to what /proc says now.
    fn refresh(&mut self, began: BootTime, scanned: &ScannedProcess) {
        let noted_exec = scanned.lineage.is_some_and(|lineage| !lineage.forked);
        let Some(known) = self.engine.table.get_mut(scanned.process) else { return };
        known.ppid = scanned.ppid;
        known.comm.clone_from(&scanned.comm);
        known.uid = scanned.uid;
        // Either its record was lost, or the kernel skipped the program and the map does not show the exec either.
        let missed_exec =
            (known.forked && noted_exec) || (known.executed < began && executed_since(&known.image, scanned));
        if missed_exec {
            self.replace_image(began, scanned.process, &Arc::new(scanned.image.clone()));
            self.detect(TableEvent::Executed(scanned.process, began));
            self.track(scanned.process);
        }
        if let Some(known) = self.engine.table.get_mut(scanned.process) {
            known.remember(scanned.memory);
        }
        self.engine.table.bump_generation();
        self.update_verdict(scanned.process);
        if let Some(parent) = scanned.lineage.and_then(|lineage| lineage.parent) {
            self.learn_parent(scanned.process, parent);
        }
        if scanned.lineage.is_none_or(|lineage| lineage.provisional || lineage.witness) {
            self.track(scanned.process);
        }
    }

    /// Takes in a process that the table does not have; `false` when it is in no session.
    fn discover(&mut self, scanned: ScannedProcess) -> bool {
        let ScannedProcess { process, ppid, uid, comm, image, lineage, memory, .. } = scanned;
        let lineage = self.known_lineage(process, lineage);
        let image = Arc::new(image);
        let taken = match lineage.filter(|lineage| !lineage.witness) {
            Some(lineage) => self.admit(process, &lineage, uid, ppid, &comm, &image),
            None => self.adopt_from_scan(process, ppid, uid, &comm, &image),
        };
        if taken {
            if let Some(known) = self.engine.table.get_mut(process) {
                known.remember(memory);
            }
            self.update_verdict(process);
            self.track(process);
            self.detect(TableEvent::Started(process, BootTime::from(process.start_time)));
        } else if lineage.is_some_and(|lineage| !lineage.witness) && self.engine.remembered.is_merged() {
            // Before, the ring may hold the exec of an agent above it that began while no daemon ran.
            self.effect(Effect::Bpf(BpfCommand::Untrack(process)));
        }
        taken
    }

    /// Where a process belongs. The kernel names the parent that forked it. Of one that exited long ago the table has nothing; the
    /// place that was recorded at that exit is then below the nearest process that lived.
    fn known_lineage(&self, process: ProcessId, kernel: Option<Lineage>) -> Option<Lineage> {
        let place = self.engine.remembered.place(process);
        let Some(lineage) = kernel else { return place };
        let known = |parent| self.engine.table.get(parent).is_some();
        let place = place.filter(|place| place.root == lineage.root && !lineage.parent.is_some_and(known));
        Some(place.map_or(lineage, |place| Lineage { parent: place.parent, ..lineage }))
    }

    /// Takes in a process that died while no daemon ran, as it was before. It is dead as soon as an event or the next scan says
    /// so, and by then what it left is in the table.
    fn discover_dead(&mut self, missed: MissedExit) {
        let MissedExit { exit: Exit { process, .. }, lineage, uid, comm } = missed;
        let known = self.session_of(&lineage).or_else(|| self.remembered_session(&lineage));
        let Some(session) = known.filter(|_| !lineage.witness) else { return };
        let newcomer = Newcomer {
            process,
            forked_by: lineage.parent,
            ppid: lineage.parent.map_or(Pid(0), |parent| parent.pid),
            uid,
            comm,
            image: Arc::default(),
            forked: lineage.forked,
        };
        let kind = if lineage.root == process { ProcessKind::Agent } else { ProcessKind::Other };
        self.enter(newcomer, session, &lineage, kind);
    }

    /// A process that the kernel does not track: below one of ours, as far as today's parents show, or an agent.
    fn adopt_from_scan(
        &mut self,
        process: ProcessId,
        ppid: Pid,
        uid: watchdog_types::Uid,
        comm: &str,
        image: &Arc<Image>,
    ) -> bool {
        let parent = self.engine.table.by_pid(ppid).map(|parent| (parent.id, parent.session, parent.depth));
        let profile = self.root_profile(process, image, comm);
        let newcomer = Newcomer {
            process,
            forked_by: parent.map(|(parent, ..)| parent),
            ppid,
            uid,
            comm: comm.to_owned(),
            image: Arc::clone(image),
            forked: false,
        };
        match (parent, profile) {
            (Some((parent, session, depth)), profile) => {
                let lineage = Lineage {
                    root: parent,
                    parent: Some(parent),
                    depth: depth + 1,
                    provisional: false,
                    forked: false,
                    witness: false,
                };
                self.enter(newcomer, session, &lineage, ProcessKind::Other);
                match profile.filter(|_| self.engine.gate.lease(process).is_some()) {
                    Some(granted) => self.split_session(process, &granted, Some(session)),
                    None => self.reclassify(process),
                }
                true
            }
            (None, Some(profile)) => {
                self.begin(newcomer, &profile, None);
                true
            }
            (None, None) => false,
        }
    }
}

/// Whether a process shows the arguments of another program than this one. A title over the arguments is no other program, nor
/// is a new comm: any program may set both.
fn executed_since(known: &Image, scanned: &ScannedProcess) -> bool {
    let ScannedProcess { image, titled, .. } = scanned;
    if *titled || image.argv.is_empty() {
        return false;
    }
    let [before, now] = [known, image].map(|image| {
        let mut argv = image.argv.as_slice();
        // The last argument may be cut.
        if image.truncated {
            argv = argv.split_last().map_or(argv, |(_, whole)| whole);
        }
        // A scan drops empty arguments at the end.
        while let Some(("", whole)) = argv.split_last().map(|(last, whole)| (last.as_str(), whole)) {
            argv = whole;
        }
        argv
    });
    if known.truncated || image.truncated {
        before.iter().zip(now).any(|(before, now)| before != now)
    } else {
        before != now
    }
}
