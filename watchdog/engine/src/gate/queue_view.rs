//! The gate as the API shows it.

use std::collections::BTreeMap;

use super::gate_state::ActiveLease;
use super::launch::LaunchRefusal;
use super::queue::QueuedLaunch;
use crate::Engine;
use crate::view::DisplayContext;
use watchdog_api as api;
use watchdog_types::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid, Viewer};

/// Holders listed in a refusal.
const MAX_OCCUPANTS: usize = 16;

impl Engine {
    /// `GET /v1/queue`. Positions count all users; their other data is withheld.
    #[must_use]
    pub fn queue(&self, now: BootTime, viewer: Viewer, naming: &DisplayContext<'_>) -> api::Queue {
        let gate = &self.gate;
        let memory = if gate.leases.is_empty() { BTreeMap::new() } else { self.memory_by_session() };
        let waiting = (1..).zip(self.order(now)).filter_map(|(position, number)| {
            let waiter = gate.queue.get(number).filter(|waiter| viewer.sees(waiter.launch.uid))?;
            let launch = &waiter.launch;
            let blocker = waiter.blocker.as_ref();
            Some(api::Waiter {
                position,
                pid: launch.process.pid.0,
                start_time: launch.process.start_time.0,
                user: (naming.user)(launch.uid),
                uid: launch.uid.0,
                profile: waiter.profiles.own.clone(),
                priority: launch.priority,
                queued_at: naming.moment(waiter.queued),
                waited_seconds: now.since(waiter.queued).as_secs_f64(),
                reason: blocker.map_or(api::RefusalReason::Quota, |blocker| blocker.reason),
                detail: self.queue_detail(waiter, now),
                memory_bytes: self.expected(launch, &waiter.profiles).0,
                away: waiter.client_disconnected,
            })
        });
        let leases = gate.leases.values().filter(|held| viewer.sees(held.lease.uid));
        let (since, why) = gate.breaker.open().unzip();
        let room = self.gate_memory(now);
        api::Queue {
            waiting: waiting.collect(),
            leases: leases.map(|held| self.to_api_lease(held, now, &memory, naming)).collect(),
            refused: gate
                .refused
                .iter()
                .rev()
                .filter(|(_, refused)| viewer.sees(refused.uid))
                .map(|(at, refused)| to_api_refusal(*at, refused, naming))
                .collect(),
            breaker: api::Breaker {
                open: since.is_some(),
                since: since.map(|since| naming.moment(since)),
                detail: why.unwrap_or_default().to_owned(),
            },
            room: room.map_or_else(api::Headroom::default, |room| api::Headroom {
                available_bytes: room.available.0,
                swap_bytes: room.swap.0,
                reserve_bytes: room.reserve.0,
                promised_bytes: room.promised.0,
                free_bytes: room.free().0,
                reclaimable_bytes: self.expected_reclaim(now).0,
            }),
            profiles: self.to_api_profiles(),
        }
    }

    /// The holders of a refusal that the viewer may see.
    #[must_use]
    pub fn occupants(&self, holders: &[SessionId], viewer: Viewer, naming: &DisplayContext<'_>) -> Vec<api::Occupant> {
        let memory = if holders.is_empty() { BTreeMap::new() } else { self.memory_by_session() };
        let sessions = holders.iter().filter_map(|holder| self.sessions.get(*holder));
        sessions
            .filter(|session| viewer.sees(session.uid))
            .take(MAX_OCCUPANTS)
            .map(|session| api::Occupant {
                session: session.id.0,
                pid: self.agent_of(session.id).map_or(session.root, |agent| agent.id).pid.0,
                profile: session.profile.clone(),
                user: (naming.user)(session.uid),
                memory_bytes: memory.get(&session.id).map_or(0, |bytes| bytes.0),
            })
            .collect()
    }

    #[must_use]
    pub fn breaker_open(&self) -> bool {
        self.gate.breaker.open().is_some()
    }

    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.gate.queue.len()
    }

    /// The queued launch of this pid, and its user.
    #[must_use]
    pub fn waiting(&self, pid: Pid) -> Option<(ProcessId, Uid)> {
        let waiter = self.gate.queue.iter().find(|(_, waiter)| waiter.launch.process.pid == pid);
        waiter.map(|(_, waiter)| (waiter.launch.process, waiter.launch.uid))
    }

    fn queue_detail(&self, waiter: &QueuedLaunch, now: BootTime) -> String {
        let Some(blocker) = &waiter.blocker else { return "other launches are ahead".to_owned() };
        let head_note = self.head_note(waiter, now).map_or_else(String::new, |head_note| format!("; {head_note}"));
        let short = matches!(blocker.reason, api::RefusalReason::Memory | api::RefusalReason::Breaker);
        let page_out = if short && self.is_paging_out() { "; idle sessions are being paged out" } else { "" };
        format!("{}{head_note}{page_out}", blocker.detail)
    }

    fn memory_by_session(&self) -> BTreeMap<SessionId, Bytes> {
        let mut memory: BTreeMap<SessionId, Bytes> = BTreeMap::new();
        for process in self.table.living() {
            *memory.entry(process.session).or_default() += self.charged(process);
        }
        memory
    }

    fn to_api_lease(
        &self,
        held: &ActiveLease,
        now: BootTime,
        memory: &BTreeMap<SessionId, Bytes>,
        naming: &DisplayContext<'_>,
    ) -> api::Lease {
        let ActiveLease { lease, session, .. } = held;
        api::Lease {
            session: session.map(|session| session.0),
            pid: lease.process.pid.0,
            start_time: lease.process.start_time.0,
            user: (naming.user)(lease.uid),
            uid: lease.uid.0,
            profile: lease.profile.clone(),
            granted_at: naming.moment(lease.granted),
            expected_bytes: lease.expected.0,
            promised_bytes: held.promised(now, self.config.gate.hold).0,
            memory_bytes: session.and_then(|session| memory.get(&session)).map_or(0, |bytes| bytes.0),
        }
    }

    fn to_api_profiles(&self) -> Vec<api::ProfileBounds> {
        let mut running: BTreeMap<String, u64> = BTreeMap::new();
        for slot in self.occupied_slots() {
            for name in slot.profiles.names() {
                *running.entry(name.to_owned()).or_default() += 1;
            }
        }
        let total = self.close_watch.host.total;
        let bounds = |profile: &watchdog_config::Profile| {
            let (expected, learned_from) = self.expected_for_profile(&profile.name);
            api::ProfileBounds {
                name: profile.name.clone(),
                running: running.get(&profile.name).copied().unwrap_or(0),
                max_sessions: profile.limits.max_sessions,
                expected_bytes: expected.0,
                learned_from,
                max_memory_bytes: profile.max_memory.map(|size| size.on_host(total).0).filter(|bytes| *bytes > 0),
            }
        };
        self.config.profiles.iter().map(bounds).collect()
    }
}

fn to_api_refusal(at: BootTime, refused: &LaunchRefusal, naming: &DisplayContext<'_>) -> api::RefusedLaunch {
    api::RefusedLaunch {
        at: naming.moment(at),
        pid: refused.process.pid.0,
        user: (naming.user)(refused.uid),
        uid: refused.uid.0,
        profile: refused.profile.clone(),
        reason: refused.blocker.reason,
        detail: refused.blocker.detail.clone(),
    }
}
