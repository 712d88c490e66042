//! What the gate has to know after the daemon was gone.

use std::collections::HashSet;

use super::backfill::{Backfill, Pool};
use super::line::Waiter;
use super::profiles::add_profile;
use super::{GateRecord, Held, Launch, Lease, Recent, Restored, Withdrawal};
use crate::engine::id::{BootTime, Bytes, ProcessId};
use crate::engine::{Engine, Step};

/// After so many scans requests are answered.
const SCANS_TO_READY: u8 = 2;

impl Step<'_> {
    /// What an earlier run of the daemon knew, in the order in which it was written.
    pub(in crate::engine) fn restore(&mut self, restored: Restored) {
        let Restored { records, peaks, ids } = restored;
        self.engine.gate.peaks = peaks;
        for record in records {
            self.raise_ids(record.ids());
            let gate = &mut self.engine.gate;
            match record {
                GateRecord::Queued { at, launch } => self.restore_waiter(at, *launch),
                GateRecord::Left(process) => {
                    gate.line.of(process).map(|number| gate.line.remove(number));
                }
                GateRecord::HeldBack { head, since, passed, round, passed_in_round, cgroup } => {
                    let pool = cgroup.map_or(Pool::Host, Pool::Cgroup);
                    gate.heads.insert(pool, Backfill { head, since, passed, round, passed_in_round, left: None });
                }
                GateRecord::Matched { root, profile } => {
                    let recent = gate.recent.iter_mut().rev().find(|recent| recent.lease.process == root);
                    if let Some(recent) = recent {
                        add_profile(&mut recent.matched, profile.clone());
                    }
                    if let Some(held) = gate.leases.get_mut(&root) {
                        add_profile(&mut held.matched, profile);
                    }
                }
                GateRecord::Granted(lease) => {
                    gate.line.of(lease.process).map(|number| gate.line.remove(number));
                    gate.line.served(lease.uid, lease.granted);
                    gate.recent.push_back(Recent { lease: lease.clone(), matched: Vec::new() });
                    // Who is granted a session is no longer a member of the one it asked in.
                    self.engine.remembered.forget_place(lease.process);
                    let held = Held { session: None, matched: Vec::new(), shown: Bytes(0), lease };
                    gate.leases.insert(held.lease.process, held);
                }
                GateRecord::Ended(process) => {
                    gate.leases.remove(&process);
                }
                GateRecord::Ids(_) => {}
                GateRecord::FindingOpened(stored) => self.engine.findings.restore(self.now, stored),
                GateRecord::FindingClosed(finding) => self.engine.findings.forget(finding),
                of_sessions @ (GateRecord::SessionBegan { .. }
                | GateRecord::SessionOver(_)
                | GateRecord::Parted(..)
                | GateRecord::Adopted(_)
                | GateRecord::Unadopted(_)
                | GateRecord::Launched(..)) => self.engine.remembered.take(of_sessions),
            }
        }
        self.engine.gate.restored = Some(self.now);
        self.forget_old_grants();
        self.ids_begin_after(ids);
    }

    fn restore_waiter(&mut self, queued: BootTime, launch: Launch) {
        let profiles = self.profiles_of(&launch);
        let deadline = queued.plus(launch.timeout.unwrap_or(self.engine.config.gate.timeout));
        let waiter = Waiter { launch, profiles, queued, deadline, away: true, stays: true, obstacle: None, told: None };
        self.engine.gate.line.push(waiter);
    }

    /// A scan is in the table: whose agent is not there has no lease any more, and who died in the queue no place.
    pub(in crate::engine) fn gate_after_scan(&mut self, began: BootTime, there: &HashSet<ProcessId>) {
        let dead = |waiter: &Waiter| waiter.away && !there.contains(&waiter.launch.process);
        let left: Vec<ProcessId> = self
            .engine
            .gate
            .line
            .iter()
            .filter(|(_, waiter)| dead(waiter))
            .map(|(_, waiter)| waiter.launch.process)
            .collect();
        left.into_iter().for_each(|process| self.withdraw(process, Withdrawal::Gone));
        let missing = |held: &&Held| {
            held.lease.granted < began
                && self.engine.table.alive(held.lease.process).is_none()
                && held.session.is_none()
        };
        let gone: Vec<ProcessId> =
            self.engine.gate.leases.values().filter(missing).map(|held| held.lease.process).collect();
        for process in gone {
            self.end_lease(process);
        }
        // Nobody is answered before the table is right, which takes two scans: only then can a client be late.
        let gate = &mut self.engine.gate;
        if gate.scans < SCANS_TO_READY {
            gate.scans += 1;
            gate.restored = gate.restored.map(|_| self.now);
        } else {
            self.forget_remembered();
        }
    }

    /// Grants that no rate is made of any more.
    pub(super) fn forget_old_grants(&mut self) {
        let Engine { gate, config, .. } = &mut *self.engine;
        let rates = config.profiles.iter().filter_map(|profile| profile.bounds.rate).chain(config.gate.rate);
        let longest = rates.map(|rate| rate.period).max().unwrap_or_default();
        let now = self.now;
        while gate.recent.front().is_some_and(|recent| now.since(recent.lease.granted) >= longest) {
            gate.recent.pop_front();
        }
    }
}

impl Engine {
    /// The records that say what the gate knows now, for a file that has grown long.
    #[must_use]
    pub fn gate_records(&self) -> Vec<GateRecord> {
        let gate = &self.gate;
        // Those that have ended still count for rates.
        let ended = gate.recent.iter().filter(|recent| !gate.leases.contains_key(&recent.lease.process));
        let ended = ended
            .flat_map(|Recent { lease, matched }| granted(lease, matched).chain([GateRecord::Ended(lease.process)]));
        let mut held: Vec<&Held> = gate.leases.values().collect();
        held.sort_by_key(|held| (held.lease.granted, held.lease.process));
        let held = held.into_iter().flat_map(|held| granted(&held.lease, &held.matched));
        let heads = gate.heads.iter().map(|(pool, known)| known.record(pool));
        let waiting = gate
            .line
            .iter()
            .map(|(_, waiter)| GateRecord::Queued { at: waiter.queued, launch: Box::new(waiter.launch.clone()) });
        let ids = std::iter::once(GateRecord::Ids(self.last_ids()));
        let findings = self.findings.stored().map(GateRecord::FindingOpened);
        ids.chain(ended).chain(held).chain(waiting).chain(heads).chain(self.session_records()).chain(findings).collect()
    }
}

fn granted(lease: &Lease, matched: &[String]) -> impl Iterator<Item = GateRecord> {
    let root = lease.process;
    let matched = matched.iter().map(move |profile| GateRecord::Matched { root, profile: profile.clone() });
    std::iter::once(GateRecord::Granted(lease.clone())).chain(matched)
}
