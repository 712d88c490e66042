//! Launch requests: queueing, cancellation and refusal.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::gate_record::GateRecord;
use super::launch::{Blocker, Cancellation, DEFAULT_RETRY, Launch, LaunchRefusal};
use super::queue::QueuedLaunch;
use super::recent::push_bounded;
use crate::effect::{ClientReply, Effect, JournalEvent, PersistCommand, ScanRequest};
use crate::{Engine, Step};
use watchdog_api::RefusalReason;
use watchdog_types::{BootTime, Bytes, CgroupLimit, ProcessId, units};

/// Clients reconnect after a restart of the daemon. After this time their launch is dropped.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REFUSALS: usize = 100;
const REFRESHES_PER_TICK: usize = 8;

impl Step<'_> {
    /// A client requests a launch, or reconnects.
    pub(crate) fn launch(&mut self, launch: Launch) {
        if let Some(waiter) = self.engine.gate.queue.of_mut(launch.process) {
            (waiter.client_disconnected, waiter.last_notified) = (false, None);
            waiter.launch.cgroups = launch.cgroups;
            waiter.launch.tasks = launch.tasks;
            self.grant_ready();
            self.notify_position_of(launch.process);
            return;
        }
        // Granted by an earlier run, but the answer was lost.
        if let Some(held) = self.engine.gate.leases.get(&launch.process) {
            let (lease, session) = (held.lease.clone(), held.session);
            if let Some(session) = session {
                self.send_grant(lease, session, Duration::ZERO);
                return;
            }
            self.end_lease(launch.process);
        }
        self.release_reused_pid(launch.process);
        let profiles = self.profiles_of(&launch);
        if let Some(blocker) = self.permanent_blocker(&launch, &profiles) {
            self.refuse(&launch, profiles.own, blocker);
            return;
        }
        if let Some(blocker) = self.queue_is_full(&launch) {
            self.refuse(&launch, profiles.own, blocker);
            return;
        }
        let gate = &self.engine.config.gate;
        let timeout = launch.timeout.unwrap_or(gate.timeout);
        let (process, waits) = (launch.process, launch.waits);
        let full = self.queue_full_for(launch.uid);
        let waiter = QueuedLaunch {
            launch,
            profiles,
            queued: self.now,
            deadline: self.now.plus(timeout),
            client_disconnected: false,
            may_queue: waits && !full,
            announced: false,
            blocker: None,
            last_notified: None,
        };
        let number = self.engine.gate.queue.push(waiter);
        self.grant_ready();
        // Otherwise the answer of the fleet is awaited.
        if !self.engine.gate.reserved.contains_key(&process) {
            self.announce(number);
        }
    }

    /// Persists a launch that was not granted at once, and notifies its client; refuses it if it must not wait.
    pub(super) fn announce(&mut self, number: u64) {
        let Some(waiter) = self.engine.gate.queue.get_mut(number) else { return };
        let process = waiter.launch.process;
        if waiter.may_queue {
            if !std::mem::replace(&mut waiter.announced, true) {
                let launch = Box::new(waiter.launch.clone());
                self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Queued { at: self.now, launch })));
            }
            self.notify_position_of(process);
        } else if let Some(waiter) = self.engine.gate.queue.remove(number) {
            let launch = &waiter.launch;
            let blocker = if launch.waits { Some(self.queue_full_blocker(launch.uid)) } else { waiter.blocker };
            let blocker = blocker.unwrap_or_else(|| self.queue_order_blocker());
            self.refuse(launch, waiter.profiles.own, blocker);
        }
    }

    /// Other launches share these cgroups.
    pub(crate) fn cgroup_limits(&mut self, process: ProcessId, limits: Vec<CgroupLimit>) {
        for waiter in self.engine.gate.queue.iter_mut() {
            for known in &mut waiter.launch.cgroups {
                if let Some(limit) = limits.iter().find(|limit| limit.path == known.path) {
                    known.clone_from(limit);
                }
            }
        }
        if let Some(waiter) = self.engine.gate.queue.of_mut(process) {
            waiter.launch.cgroups = limits;
        }
        self.grant_ready();
    }

    pub(crate) fn cancel_launch(&mut self, process: ProcessId, why: Cancellation) {
        let number = self.engine.gate.queue.of(process);
        let Some(waiter) = number.and_then(|number| self.dequeue(number)) else { return };
        if why == Cancellation::Cancelled {
            let blocker =
                Blocker::new(RefusalReason::Cancelled, "cancelled while queued", "watchdogctl queue --cancel", None);
            self.refuse(&waiter.launch, waiter.profiles.own, blocker);
        }
        self.grant_ready();
    }

    pub(crate) fn tick_gate(&mut self) {
        let now = self.now;
        self.tick_fleet();
        let late = |waiter: &QueuedLaunch| now >= waiter.deadline;
        let lost = |waiter: &QueuedLaunch, restored: Option<BootTime>| {
            waiter.client_disconnected && restored.is_none_or(|restored| now.since(restored) >= RECONNECT_TIMEOUT)
        };
        let restored = self.engine.gate.restored;
        let over: Vec<u64> = self
            .engine
            .gate
            .queue
            .iter()
            .filter(|(_, waiter)| late(waiter) || lost(waiter, restored))
            .map(|(number, _)| number)
            .collect();
        for number in over {
            let Some(waiter) = self.dequeue(number) else { continue };
            if !waiter.client_disconnected {
                let blocker = timed_out(&waiter, now);
                self.refuse(&waiter.launch, waiter.profiles.own, blocker);
            }
        }
        self.refuse_impossible();
        self.expire_recent_grants();
        self.engine.gate.queue.expire_last_served(now);
        self.refresh_cgroup_limits();
        self.refresh_task_limits();
        self.expire_heads();
        if !self.engine.gate.queue.is_empty() {
            self.grant_ready();
            self.notify_positions(u64::MAX);
        }
        self.check_cgroups();
    }

    /// The host or the configuration may have changed since the launch was queued.
    fn refuse_impossible(&mut self) {
        let line = self.engine.gate.queue.iter().filter(|(_, waiter)| !waiter.client_disconnected);
        let vain: Vec<(u64, Blocker)> = line
            .filter_map(|(number, waiter)| Some((number, self.permanent_blocker(&waiter.launch, &waiter.profiles)?)))
            .collect();
        for (number, blocker) in vain {
            if let Some(waiter) = self.dequeue(number) {
                self.refuse(&waiter.launch, waiter.profiles.own, blocker);
            }
        }
    }

    /// Removes a launch from the queue, and persists that.
    fn dequeue(&mut self, number: u64) -> Option<QueuedLaunch> {
        let waiter = self.engine.gate.queue.remove(number)?;
        self.engine.gate.reserved.remove(&waiter.launch.process);
        self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Left(waiter.launch.process))));
        Some(waiter)
    }

    /// Rereads cgroup limits, which change without an event: one read per innermost cgroup, in rotation.
    fn refresh_cgroup_limits(&mut self) {
        let mut cgroups: BTreeMap<&str, ProcessId> = BTreeMap::new();
        for (_, waiter) in self.engine.gate.queue.iter().filter(|(_, waiter)| !waiter.client_disconnected) {
            if let Some(innermost) = waiter.launch.cgroups.first() {
                cgroups.entry(&innermost.path).or_insert(waiter.launch.process);
            }
        }
        let looked = self.engine.gate.last_refreshed.as_deref().unwrap_or_default();
        let after = cgroups.range::<str, _>((Bound::Excluded(looked), Bound::Unbounded));
        let before = cgroups.range::<str, _>((Bound::Unbounded, Bound::Included(looked)));
        let turn: Vec<(String, ProcessId)> = after
            .chain(before)
            .take(REFRESHES_PER_TICK)
            .map(|(path, process)| ((*path).to_owned(), *process))
            .collect();
        for (path, process) in turn {
            self.engine.gate.last_refreshed = Some(path);
            self.effect(Effect::Scan(ScanRequest::CgroupLimits(process)));
        }
    }

    /// Memory in use is no longer committed in addition.
    pub(crate) fn gate_host_read(&mut self) {
        let Engine { gate, table, sessions, config, close_watch, .. } = &mut *self.engine;
        if !gate.leases.is_empty() || !gate.queue.is_empty() {
            // Nested sessions count for the lease that covers them.
            let mut sums: BTreeMap<ProcessId, Bytes> = BTreeMap::new();
            gate.session_memory = Bytes(0);
            for process in table.living() {
                gate.session_memory += process.cost();
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
            let what = JournalEvent::Breaker {
                open: open.is_some(),
                detail: open.map_or_else(|| "memory is available again".to_owned(), |(_, why)| why.to_owned()),
            };
            self.journal(self.now, None, what);
        }
        if !self.engine.gate.queue.is_empty() {
            self.grant_ready();
        }
    }

    pub(super) fn refuse(&mut self, launch: &Launch, profile: String, blocker: Blocker) {
        let refused = LaunchRefusal { process: launch.process, uid: launch.uid, profile, blocker };
        push_bounded(&mut self.engine.gate.refused, (self.now, refused.clone()), MAX_REFUSALS);
        self.effect(Effect::Reply(ClientReply::Refused(Box::new(refused))));
    }
}

fn timed_out(waiter: &QueuedLaunch, now: BootTime) -> Blocker {
    let waited = units::span(now.since(waiter.queued));
    let (bound, cause, retry_after) = match &waiter.blocker {
        Some(blocker) => (blocker.bound.clone(), blocker.detail.clone(), blocker.retry_after),
        None => ("--timeout".to_owned(), "other launches were ahead".to_owned(), None),
    };
    Blocker {
        reason: RefusalReason::Timeout,
        detail: format!("not granted within {waited}: {cause}"),
        bound,
        holders: waiter.blocker.iter().flat_map(|blocker| blocker.holders.clone()).collect(),
        retry_after: retry_after.or(Some(DEFAULT_RETRY)),
    }
}
