//! Persists the gate's state, and restores it.

use std::collections::HashSet;

use super::backfill::{Backfill, MemoryPool};
use super::gate_record::{GateRecord, RestoredGate};
use super::gate_state::ActiveLease;
use super::launch::{Cancellation, Launch, LaunchLease};
use super::profiles::add_profile;
use super::queue::QueuedLaunch;
use super::recent::RecentGrant;
use crate::{Engine, Step};
use watchdog_types::{BootTime, Bytes, ProcessId};

/// Requests are answered after this many scans.
const SCANS_TO_READY: u8 = 2;

impl Step<'_> {
    pub(crate) fn restore(&mut self, restored: RestoredGate) {
        let RestoredGate { records, peaks, yields, ids } = restored;
        self.engine.gate.peaks = peaks;
        self.engine.reclaim.restore(yields);
        for record in records {
            self.raise_ids(record.ids());
            let gate = &mut self.engine.gate;
            match record {
                GateRecord::Queued { at, launch } => self.restore_waiter(at, *launch),
                GateRecord::Left(process) => {
                    gate.queue.of(process).map(|number| gate.queue.remove(number));
                }
                GateRecord::Head { head, since, passed, round, passed_in_round, cgroup } => {
                    let pool = cgroup.map_or(MemoryPool::Host, MemoryPool::Cgroup);
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
                    gate.queue.of(lease.process).map(|number| gate.queue.remove(number));
                    gate.queue.served(lease.uid, lease.granted);
                    gate.granted_once = true;
                    gate.recent.push_back(RecentGrant { lease: lease.clone(), matched: Vec::new() });
                    // A granted process leaves the session that it requested the launch in.
                    self.engine.remembered.forget_place(lease.process);
                    let held = ActiveLease { session: None, matched: Vec::new(), shown: Bytes(0), lease };
                    gate.leases.insert(held.lease.process, held);
                }
                GateRecord::Ended(process) => {
                    gate.leases.remove(&process);
                }
                GateRecord::GrantedOnce => gate.granted_once = true,
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
        self.engine.gate.fleet.changed = true;
        self.expire_recent_grants();
        self.ids_begin_after(ids);
    }

    fn restore_waiter(&mut self, queued: BootTime, launch: Launch) {
        let profiles = self.profiles_of(&launch);
        let deadline = queued.plus(launch.timeout.unwrap_or(self.engine.config.gate.timeout));
        let waiter = QueuedLaunch {
            launch,
            profiles,
            queued,
            deadline,
            client_disconnected: true,
            may_queue: true,
            announced: true,
            blocker: None,
            last_notified: None,
        };
        self.engine.gate.queue.push(waiter);
    }

    /// Drops leases and queued launches whose process is not in the first scan.
    pub(crate) fn gate_after_scan(&mut self, began: BootTime, there: &HashSet<ProcessId>) {
        let dead = |waiter: &QueuedLaunch| waiter.client_disconnected && !there.contains(&waiter.launch.process);
        let left: Vec<ProcessId> = self
            .engine
            .gate
            .queue
            .iter()
            .filter(|(_, waiter)| dead(waiter))
            .map(|(_, waiter)| waiter.launch.process)
            .collect();
        left.into_iter().for_each(|process| self.cancel_launch(process, Cancellation::ClientGone));
        let missing = |held: &&ActiveLease| {
            held.lease.granted < began
                && self.engine.table.alive(held.lease.process).is_none()
                && held.session.is_none()
        };
        let gone: Vec<ProcessId> =
            self.engine.gate.leases.values().filter(missing).map(|held| held.lease.process).collect();
        for process in gone {
            self.end_lease(process);
        }
        // Clients can reconnect only after two scans, so their timeout starts then.
        let gate = &mut self.engine.gate;
        if gate.scans < SCANS_TO_READY {
            gate.scans += 1;
            gate.restored = gate.restored.map(|_| self.now);
        } else {
            self.forget_remembered();
        }
    }

    /// Drops grants older than the longest rate period.
    pub(super) fn expire_recent_grants(&mut self) {
        let Engine { gate, config, .. } = &mut *self.engine;
        let rates = config.profiles.iter().filter_map(|profile| profile.limits.rate).chain(config.gate.rate);
        let longest = rates.map(|rate| rate.period).max().unwrap_or_default();
        let now = self.now;
        while gate.recent.front().is_some_and(|recent| now.since(recent.lease.granted) >= longest) {
            gate.recent.pop_front();
        }
    }
}

impl Engine {
    /// The current state as records, for a log that has grown too long.
    #[must_use]
    pub fn gate_records(&self) -> Vec<GateRecord> {
        let gate = &self.gate;
        // Ended leases still count for rates.
        let ended = gate.recent.iter().filter(|recent| !gate.leases.contains_key(&recent.lease.process));
        let ended = ended.flat_map(|RecentGrant { lease, matched }| {
            granted(lease, matched).chain([GateRecord::Ended(lease.process)])
        });
        let mut held: Vec<&ActiveLease> = gate.leases.values().collect();
        held.sort_by_key(|held| (held.lease.granted, held.lease.process));
        let held = held.into_iter().flat_map(|held| granted(&held.lease, &held.matched));
        let heads = gate.heads.iter().map(|(pool, known)| known.record(pool));
        let waiting = gate
            .queue
            .iter()
            .map(|(_, waiter)| GateRecord::Queued { at: waiter.queued, launch: Box::new(waiter.launch.clone()) });
        let ids = std::iter::once(GateRecord::Ids(self.last_ids()));
        let findings = self.findings.stored().map(GateRecord::FindingOpened);
        let granted_once = gate.granted_once.then_some(GateRecord::GrantedOnce);
        ids.chain(granted_once)
            .chain(ended)
            .chain(held)
            .chain(waiting)
            .chain(heads)
            .chain(self.session_records())
            .chain(findings)
            .collect()
    }
}

fn granted(lease: &LaunchLease, matched: &[String]) -> impl Iterator<Item = GateRecord> {
    let root = lease.process;
    let matched = matched.iter().map(move |profile| GateRecord::Matched { root, profile: profile.clone() });
    std::iter::once(GateRecord::Granted(lease.clone())).chain(matched)
}
