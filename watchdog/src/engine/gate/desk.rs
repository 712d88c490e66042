//! Where launches are asked for, taken back, and refused.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::line::Waiter;
use super::{GateRecord, Launch, Obstacle, Refused, SOME_TIME, Withdrawal, push_bounded};
use crate::api::RefusalReason;
use crate::engine::effect::{Effect, Happening};
use crate::engine::id::{BootTime, Bytes, ProcessId};
use crate::engine::input::CgroupLimit;
use crate::engine::{Engine, Step};
use crate::units;

/// Clients come back by themselves after the daemon was gone; who lives and has not within this time has lost its place.
const COME_BACK: Duration = Duration::from_secs(30);
/// Refusals that are remembered.
const REMEMBER_REFUSED: usize = 100;
/// Cgroups whose room is looked at again in a tick.
const LOOKS: usize = 8;

impl Step<'_> {
    /// Somebody asks for a launch, or comes back to its place.
    pub(in crate::engine) fn launch(&mut self, launch: Launch) {
        if let Some(waiter) = self.engine.gate.line.of_mut(launch.process) {
            (waiter.away, waiter.told) = (false, None);
            waiter.launch.cgroups = launch.cgroups;
            self.decide();
            self.tell_place_of(launch.process);
            return;
        }
        // The answer was lost with an earlier run of the daemon.
        if let Some(held) = self.engine.gate.leases.get(&launch.process) {
            let (lease, session) = (held.lease.clone(), held.session);
            if let Some(session) = session {
                self.tell_grant(lease, session, Duration::ZERO);
                return;
            }
            self.end_lease(launch.process);
        }
        self.had_pid_before(launch.process);
        let profiles = self.profiles_of(&launch);
        if let Some(obstacle) = self.never(&launch, &profiles) {
            self.refuse(&launch, profiles.own, obstacle);
            return;
        }
        if let Some(obstacle) = self.queue_is_full(&launch) {
            self.refuse(&launch, profiles.own, obstacle);
            return;
        }
        let gate = &self.engine.config.gate;
        let timeout = launch.timeout.unwrap_or(gate.timeout);
        let (process, waits) = (launch.process, launch.waits);
        let full = self.no_room_for(launch.uid);
        let waiter = Waiter {
            launch,
            profiles,
            queued: self.now,
            deadline: self.now.plus(timeout),
            away: false,
            stays: waits && !full,
            obstacle: None,
            told: None,
        };
        let number = self.engine.gate.line.push(waiter);
        self.decide();
        let Some(waiter) = self.engine.gate.line.get(number) else { return };
        if waits && !full {
            let launch = Box::new(waiter.launch.clone());
            self.effect(Effect::Remember(GateRecord::Queued { at: self.now, launch }));
            self.tell_place_of(process);
        } else if let Some(waiter) = self.engine.gate.line.remove(number) {
            let obstacle = if waits { Some(self.full(waiter.launch.uid)) } else { waiter.obstacle };
            let obstacle = obstacle.unwrap_or_else(|| self.behind_others());
            self.refuse(&waiter.launch, waiter.profiles.own, obstacle);
        }
    }

    /// The limits of the cgroups of a waiting launch, which are those of others too.
    pub(in crate::engine) fn room(&mut self, process: ProcessId, limits: Vec<CgroupLimit>) {
        for waiter in self.engine.gate.line.iter_mut() {
            for known in &mut waiter.launch.cgroups {
                if let Some(limit) = limits.iter().find(|limit| limit.path == known.path) {
                    known.clone_from(limit);
                }
            }
        }
        if let Some(waiter) = self.engine.gate.line.of_mut(process) {
            waiter.launch.cgroups = limits;
        }
        self.decide();
    }

    /// A waiting launch is no more.
    pub(in crate::engine) fn withdraw(&mut self, process: ProcessId, why: Withdrawal) {
        let number = self.engine.gate.line.of(process);
        let Some(waiter) = number.and_then(|number| self.take_out(number)) else { return };
        if why == Withdrawal::Cancelled {
            let obstacle = Obstacle {
                reason: RefusalReason::Cancelled,
                detail: "it was taken out of the queue".to_owned(),
                bound: "watchdogctl queue --cancel".to_owned(),
                holders: Vec::new(),
                retry_after: None,
            };
            self.refuse(&waiter.launch, waiter.profiles.own, obstacle);
        }
        self.decide();
    }

    /// What the gate does from time to time.
    pub(in crate::engine) fn tick_gate(&mut self) {
        let now = self.now;
        let late = |waiter: &Waiter| now >= waiter.deadline;
        let lost = |waiter: &Waiter, restored: Option<BootTime>| {
            waiter.away && restored.is_none_or(|restored| now.since(restored) >= COME_BACK)
        };
        let restored = self.engine.gate.restored;
        let over: Vec<u64> = self
            .engine
            .gate
            .line
            .iter()
            .filter(|(_, waiter)| late(waiter) || lost(waiter, restored))
            .map(|(number, _)| number)
            .collect();
        for number in over {
            let Some(waiter) = self.take_out(number) else { continue };
            if !waiter.away {
                let obstacle = timed_out(&waiter, now);
                self.refuse(&waiter.launch, waiter.profiles.own, obstacle);
            }
        }
        self.refuse_what_can_never_be();
        self.forget_old_grants();
        self.engine.gate.line.forget_turns(now);
        self.look_at_rooms();
        self.forget_heads();
        if !self.engine.gate.line.is_empty() {
            self.decide();
            self.tell_places(u64::MAX);
        }
        self.tick_confined();
    }

    /// A host or a configuration may have changed so that a launch that waits would wait in vain, and hold up others.
    fn refuse_what_can_never_be(&mut self) {
        let line = self.engine.gate.line.iter().filter(|(_, waiter)| !waiter.away);
        let vain: Vec<(u64, Obstacle)> =
            line.filter_map(|(number, waiter)| Some((number, self.never(&waiter.launch, &waiter.profiles)?))).collect();
        for (number, obstacle) in vain {
            if let Some(waiter) = self.take_out(number) {
                self.refuse(&waiter.launch, waiter.profiles.own, obstacle);
            }
        }
    }

    /// One waits no longer, and that is written down.
    fn take_out(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.engine.gate.line.remove(number)?;
        self.effect(Effect::Remember(GateRecord::Left(waiter.launch.process)));
        Some(waiter)
    }

    /// What limits those who wait for room in a cgroup moves without a word. One look is for all in the same cgroup; where there
    /// are many cgroups, they take turns.
    fn look_at_rooms(&mut self) {
        let mut cgroups: BTreeMap<&str, ProcessId> = BTreeMap::new();
        for (_, waiter) in self.engine.gate.line.iter().filter(|(_, waiter)| !waiter.away) {
            if let Some(innermost) = waiter.launch.cgroups.first() {
                cgroups.entry(&innermost.path).or_insert(waiter.launch.process);
            }
        }
        let looked = self.engine.gate.looked.as_deref().unwrap_or_default();
        let after = cgroups.range::<str, _>((Bound::Excluded(looked), Bound::Unbounded));
        let before = cgroups.range::<str, _>((Bound::Unbounded, Bound::Included(looked)));
        let turn: Vec<(String, ProcessId)> =
            after.chain(before).take(LOOKS).map(|(path, process)| ((*path).to_owned(), *process)).collect();
        for (path, process) in turn {
            self.engine.gate.looked = Some(path);
            self.effect(Effect::FindRoom(process));
        }
    }

    /// The host's memory was read: what sessions hold by now is no promise any more.
    pub(in crate::engine) fn gate_host(&mut self) {
        let Engine { gate, table, sessions, config, close_watch, .. } = &mut *self.engine;
        if !gate.leases.is_empty() || !gate.line.is_empty() {
            // What agents hold that were started inside of it is the lease's too.
            let mut sums: BTreeMap<ProcessId, Bytes> = BTreeMap::new();
            gate.held = Bytes(0);
            for process in table.living() {
                gate.held += process.cost();
                if let Some(root) = sessions.get(process.session).and_then(|session| session.granted) {
                    *sums.entry(root).or_default() += process.cost();
                }
            }
            for (root, held) in &mut gate.leases {
                held.shown = held.shown.max(sums.get(root).copied().unwrap_or_default());
            }
        }
        if gate.breaker.host(self.now, &close_watch.host, &config.gate) {
            let open = gate.breaker.open();
            let what = Happening::Breaker {
                open: open.is_some(),
                detail: open.map_or_else(|| "the host has memory again".to_owned(), |(_, why)| why.to_owned()),
            };
            self.journal(self.now, None, what);
        }
        if !self.engine.gate.line.is_empty() {
            self.decide();
        }
    }

    pub(super) fn refuse(&mut self, launch: &Launch, profile: String, obstacle: Obstacle) {
        let refused = Refused { process: launch.process, uid: launch.uid, profile, obstacle };
        push_bounded(&mut self.engine.gate.refused, (self.now, refused.clone()), REMEMBER_REFUSED);
        self.effect(Effect::Refused(Box::new(refused)));
    }
}

fn timed_out(waiter: &Waiter, now: BootTime) -> Obstacle {
    let waited = units::span(now.since(waiter.queued));
    let (bound, cause, retry_after) = match &waiter.obstacle {
        Some(obstacle) => (obstacle.bound.clone(), obstacle.detail.clone(), obstacle.retry_after),
        None => ("--timeout".to_owned(), "others were ahead".to_owned(), None),
    };
    Obstacle {
        reason: RefusalReason::Timeout,
        detail: format!("not granted within {waited}: {cause}"),
        bound,
        holders: waiter.obstacle.iter().flat_map(|obstacle| obstacle.holders.clone()).collect(),
        retry_after: retry_after.or(Some(SOME_TIME)),
    }
}
