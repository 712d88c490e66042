//! Checks a launch against every limit in turn, and grants what it can.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backfill::{MemoryPool, behind_head};
use super::launch::{Blocker, DEFAULT_RETRY, HOST_RESERVE, Launch, LaunchLease, MEMORY_RETRY};
use super::profiles::LimitingProfiles;
use super::queue::QueuedLaunch;
use super::session_slot::SessionSlot;
use crate::Step;
use crate::session::TrackedSession;
use watchdog_api::RefusalReason;
use watchdog_config::{Profile, Rate};
use watchdog_types::{BootTime, Bytes, SessionId, units};

/// Which launches a blocker applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlockScope {
    /// All launches.
    All,
    /// Launches that need the same memory, while the head blocks them.
    MemoryPool(MemoryPool),
    /// This launch only. Others may pass it.
    Own,
}

impl Step<'_> {
    /// Grants launches in queue order, and records the blocker of each that waits.
    pub(super) fn grant_ready(&mut self) {
        self.engine.gate.all_blocked = false;
        self.expire_heads();
        if self.engine.gate.queue.is_empty() {
            return;
        }
        let mut slots = self.engine.occupied_slots();
        let mut order = self.engine.gate.queue.order(self.now, &slots);
        let mut granted = false;
        let mut shut: Option<Blocker> = None;
        let mut full: BTreeMap<String, Blocker> = BTreeMap::new();
        // Heads that others may pass, with the blocker for the others once they may not.
        let mut passing: BTreeMap<MemoryPool, Blocker> = BTreeMap::new();
        while let Some((user, number)) = order.next() {
            let Some(waiter) = self.engine.gate.queue.get(number) else { return };
            if self.engine.gate.reserved.contains_key(&waiter.launch.process) {
                // The fleet decides.
                order.granted(user);
                continue;
            }
            let in_full = || waiter.launch.cgroups.iter().find_map(|limit| full.get(&limit.path));
            let blocker = match (&shut, in_full()) {
                (Some(blocker), _) => Some((blocker.clone(), BlockScope::All)),
                (None, Some(blocker)) => Some((blocker.clone(), BlockScope::Own)),
                (None, None) => self.local_blocker(waiter, &slots).or_else(|| self.fleet_blocker(waiter)),
            };
            let Some((blocker, reach)) = blocker else {
                order.granted(user);
                slots.push(SessionSlot { session: None, profiles: waiter.profiles.clone(), uid: waiter.launch.uid });
                let process = waiter.launch.process;
                let cgroups: Vec<String> = waiter.launch.cgroups.iter().map(|limit| limit.path.clone()).collect();
                if !self.ask_fleet(number) {
                    let Some(waiter) = self.engine.gate.queue.remove(number) else { return };
                    self.grant(waiter);
                    if let (Some(slot), Some(known)) = (slots.last_mut(), self.engine.table.get(process)) {
                        slot.session = Some(known.session);
                    }
                    granted = true;
                }
                for (pool, ahead) in &passing {
                    let passes = match pool {
                        MemoryPool::Host => true,
                        MemoryPool::Cgroup(path) => cgroups.contains(path),
                    };
                    if passes && let Some(blocks) = self.record_pass(pool, &slots) {
                        let behind = behind_head(ahead, blocks);
                        match pool {
                            MemoryPool::Host => drop(shut.get_or_insert(behind)),
                            MemoryPool::Cgroup(path) => drop(full.insert(path.clone(), behind)),
                        }
                    }
                }
                continue;
            };
            let (process, may_queue) = (waiter.launch.process, waiter.may_queue);
            match reach {
                BlockScope::All => drop(shut.get_or_insert_with(|| blocker.clone())),
                BlockScope::MemoryPool(pool) if may_queue && !passing.contains_key(&pool) => {
                    let blocks = self.register_head(pool.clone(), process);
                    match (blocks, &pool) {
                        (None, _) => {}
                        (Some(left), MemoryPool::Host) => {
                            shut.get_or_insert_with(|| behind_head(&blocker, left));
                        }
                        (Some(left), MemoryPool::Cgroup(path)) => {
                            full.insert(path.clone(), behind_head(&blocker, left));
                        }
                    }
                    passing.insert(pool, blocker.clone());
                }
                BlockScope::MemoryPool(_) | BlockScope::Own => {}
            }
            if let Some(waiter) = self.engine.gate.queue.get_mut(number) {
                waiter.blocker = Some(blocker);
            }
            order.passed_over(user);
        }
        self.engine.gate.all_blocked = shut.is_some();
        if granted {
            self.notify_first_positions();
        }
    }

    /// The blocker of a launch on this host.
    pub(super) fn local_blocker(&self, waiter: &QueuedLaunch, slots: &[SessionSlot]) -> Option<(Blocker, BlockScope)> {
        if waiter.client_disconnected {
            let detail = "waiting for the client ahead to reconnect after a daemon restart";
            return Some((Blocker::new(RefusalReason::Quota, detail, "queue order", DEFAULT_RETRY), BlockScope::All));
        }
        if let Some((since, why)) = self.engine.gate.breaker.open() {
            let lasted = units::span(self.now.since(since));
            let detail = format!("breaker open for {lasted}: {why}");
            return Some((
                Blocker::new(RefusalReason::Breaker, detail, "[gate] breaker_open", MEMORY_RETRY),
                BlockScope::All,
            ));
        }
        self.quota_blocker(waiter, slots)
            .or_else(|| self.rate_blocker(waiter))
            .or_else(|| Some((self.task_blocker(&waiter.launch)?, BlockScope::Own)))
            .or_else(|| self.memory_blocker(waiter, slots))
    }

    fn quota_blocker(&self, waiter: &QueuedLaunch, slots: &[SessionSlot]) -> Option<(Blocker, BlockScope)> {
        let gate = &self.engine.config.gate;
        let QueuedLaunch { profiles, launch, .. } = waiter;
        let full = |max: Option<u32>, holds: &dyn Fn(&SessionSlot) -> bool, whose: String, bound: String| {
            let max = max?;
            let holders: Vec<&SessionSlot> = slots.iter().filter(|slot| holds(slot)).collect();
            let detail = format!("{} of {max} sessions{whose} running", holders.len());
            (holders.len() >= max as usize).then(|| Blocker {
                holders: holders.iter().filter_map(|slot| slot.session).collect(),
                ..Blocker::new(RefusalReason::Quota, detail, &bound, self.pace().unwrap_or(DEFAULT_RETRY))
            })
        };
        let in_all = full(gate.max_sessions, &|_| true, String::new(), "[gate] max_sessions".to_owned());
        if let Some(blocker) = in_all {
            return Some((blocker, BlockScope::All));
        }
        let of_user = |slot: &SessionSlot| slot.uid == launch.uid;
        let user = full(
            gate.max_sessions_per_user,
            &of_user,
            " of this user".to_owned(),
            "[gate] max_sessions_per_user".to_owned(),
        );
        let of_profile = || {
            profiles.of(&self.engine.config).find_map(|Profile { name, limits, .. }| {
                let same = |slot: &SessionSlot| slot.profiles.contains(name);
                full(limits.max_sessions, &same, format!(" of {name}"), format!("[[profile]] {name} max_sessions"))
            })
        };
        user.or_else(of_profile).map(|blocker| (blocker, BlockScope::Own))
    }

    fn rate_blocker(&self, waiter: &QueuedLaunch) -> Option<(Blocker, BlockScope)> {
        let over = |rate: Option<Rate>, profile: Option<&str>, bound: String| {
            let rate = rate?;
            let counts = |(lease, matched): &(&LaunchLease, &Vec<String>)| {
                self.now.since(lease.granted) < rate.period
                    && profile.is_none_or(|profile| {
                        lease.profile == profile || matched.iter().any(|matched| matched == profile)
                    })
            };
            let gate = &self.engine.gate;
            let granted = gate.recent.iter().map(|recent| (&recent.lease, &recent.matched));
            let reserved = gate.reserved.values().map(|reserved| (&reserved.lease, &reserved.matched));
            let recent: Vec<BootTime> =
                granted.chain(reserved).filter(counts).map(|(lease, _)| lease.granted).collect();
            let first = recent.len().checked_sub(rate.count as usize)?;
            let wait = recent[first].plus(rate.period).since(self.now);
            let detail =
                format!("{} of {} launches granted in the last {}", recent.len(), rate.count, units::span(rate.period));
            Some(Blocker::new(RefusalReason::Rate, detail, &bound, wait))
        };
        let in_all = over(self.engine.config.gate.rate, None, "[gate] rate".to_owned());
        if let Some(blocker) = in_all {
            return Some((blocker, BlockScope::All));
        }
        let of_profile = waiter
            .profiles
            .of(&self.engine.config)
            .find_map(|Profile { name, limits, .. }| over(limits.rate, Some(name), format!("[[profile]] {name} rate")));
        of_profile.map(|blocker| (blocker, BlockScope::Own))
    }

    fn memory_blocker(&self, waiter: &QueuedLaunch, slots: &[SessionSlot]) -> Option<(Blocker, BlockScope)> {
        let needed = self.engine.expected(&waiter.launch, &waiter.profiles);
        for limit in &waiter.launch.cgroups {
            let hold = self.engine.config.gate.hold;
            let inside = self.engine.gate.commitments().filter(|held| held.lease.cgroups.contains(&limit.path));
            let promised: Bytes = inside.map(|held| held.promised(self.now, hold)).sum();
            let free = limit.room().0.saturating_sub(promised.0);
            if needed.0 > free {
                let detail = format!(
                    "needs {}; {} free of {} in cgroup {}",
                    units::size(needed.0),
                    units::size(free),
                    units::size(limit.max.0),
                    limit.path
                );
                let found = Blocker::new(RefusalReason::Memory, detail, "memory.max", MEMORY_RETRY);
                return Some((found, BlockScope::MemoryPool(MemoryPool::Cgroup(limit.path.clone()))));
            }
        }
        let Some(memory) = self.engine.gate_memory(self.now) else {
            let detail = "host memory not read yet";
            return Some((
                Blocker::new(RefusalReason::Memory, detail, "[gate] reserve", Duration::from_secs(1)),
                BlockScope::All,
            ));
        };
        if needed <= memory.free() {
            let blocker = self.share_blocker(waiter, needed, memory.free(), slots)?;
            // Even without the commitments to its user it would not fit: it waits for memory like other launches.
            let alone = self.exceeds_share(waiter.launch.uid, needed, memory.free(), slots);
            return Some((blocker, if alone { BlockScope::MemoryPool(MemoryPool::Host) } else { BlockScope::Own }));
        }
        let swap = match memory.swap {
            Bytes(0) => String::new(),
            swap => format!(" incl. {} swap", units::size(swap.0)),
        };
        let most = self.engine.free_without_sessions(&memory);
        let share = match self.exceeds_share(waiter.launch.uid, needed, most, slots) {
            true => "; also exceeds one user's share (90% of grantable memory)",
            false => "",
        };
        let detail = format!(
            "needs {}; {} free ({} available{swap} - {} reserve - {} committed){share}",
            units::size(needed.0),
            units::size(memory.free().0),
            units::size(memory.available.0),
            units::size(memory.reserve.0),
            units::size(memory.promised.0),
        );
        let found = Blocker::new(RefusalReason::Memory, detail, HOST_RESERVE, MEMORY_RETRY);
        Some((found, BlockScope::MemoryPool(MemoryPool::Host)))
    }

    /// Why this launch can never be granted on this host.
    pub(super) fn permanent_blocker(&self, launch: &Launch, profiles: &LimitingProfiles) -> Option<Blocker> {
        self.depth_blocker(launch).or_else(|| self.size_blocker(launch, profiles))
    }

    fn depth_blocker(&self, launch: &Launch) -> Option<Blocker> {
        let engine = &*self.engine;
        let mut outer = engine.table.alive(launch.process).map(|known| known.session);
        // An agent that requests its own launch does not nest in itself.
        if let Some(own) = outer.and_then(|session| engine.sessions.get(session))
            && own.root == launch.process
        {
            outer = own.parent;
        }
        let above: Vec<&TrackedSession> =
            std::iter::successors(outer.and_then(|session| engine.sessions.get(session)), |session| {
                engine.sessions.get(session.parent?)
            })
            .collect();
        let deep = |depth: usize, max: u32, bound: String, holder: SessionId| Blocker {
            reason: RefusalReason::Depth,
            detail: format!("nesting depth would be {depth}, limit {max}"),
            bound,
            holders: vec![holder],
            retry_after: None,
        };
        for (depth, session) in (1..).zip(&above) {
            let own = session.limited_by(&engine.config);
            let own = own.filter_map(|profile| Some((profile.limits.max_depth?, &profile.name))).min();
            if let Some((max, name)) = own.filter(|(max, _)| depth > *max as usize) {
                return Some(deep(depth, max, format!("[[profile]] {name} max_depth"), session.id));
            }
        }
        let max = engine.config.gate.max_depth?;
        let outermost = above.last()?;
        (above.len() > max as usize).then(|| deep(above.len(), max, "[gate] max_depth".to_owned(), outermost.id))
    }

    fn size_blocker(&self, launch: &Launch, profiles: &LimitingProfiles) -> Option<Blocker> {
        let needed = self.engine.expected(launch, profiles);
        let (most, bound) = self.engine.max_for(launch)?;
        let detail =
            format!("needs {}, but this host can grant at most {}", units::size(needed.0), units::size(most.0));
        (needed > most).then(|| Blocker::new(RefusalReason::Memory, detail, bound, None))
    }
}
