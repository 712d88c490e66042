//! The gate, as its users see it.

use std::collections::BTreeMap;

use super::line::Waiter;
use super::{Held, Refused};
use crate::api;
use crate::engine::Engine;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid};
use crate::engine::view::{Naming, Viewer};

/// Holders of places that a refusal lists.
const OCCUPANTS: usize = 16;

impl Engine {
    /// `GET /v1/queue`. Positions count everybody; of others a user sees nothing else.
    #[must_use]
    pub fn queue(&self, now: BootTime, viewer: Viewer, naming: &Naming<'_>) -> api::Queue {
        let gate = &self.gate;
        let memory = self.held_by_session();
        let waiting = (1..).zip(self.order(now)).filter_map(|(position, number)| {
            let waiter = gate.line.get(number).filter(|waiter| viewer.sees(waiter.launch.uid))?;
            let launch = &waiter.launch;
            let obstacle = waiter.obstacle.as_ref();
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
                reason: obstacle.map_or(api::RefusalReason::Quota, |obstacle| obstacle.reason),
                detail: self.waits_for(waiter, now),
                memory_bytes: self.expected(launch, &waiter.profiles).0,
                away: waiter.away,
            })
        });
        let leases = gate.leases.values().filter(|held| viewer.sees(held.lease.uid));
        let (since, why) = gate.breaker.open().unzip();
        let room = self.gate_memory(now);
        api::Queue {
            waiting: waiting.collect(),
            leases: leases.map(|held| self.shown_lease(held, now, &memory, naming)).collect(),
            refused: gate
                .refused
                .iter()
                .rev()
                .filter(|(_, refused)| viewer.sees(refused.uid))
                .map(|(at, refused)| shown_refusal(*at, refused, naming))
                .collect(),
            breaker: api::Breaker {
                open: since.is_some(),
                since: since.map(|since| naming.moment(since)),
                detail: why.unwrap_or_default().to_owned(),
            },
            room: room.map_or_else(api::Room::default, |room| api::Room {
                available_bytes: room.available.0,
                swap_bytes: room.swap.0,
                reserve_bytes: room.reserve.0,
                promised_bytes: room.promised.0,
                free_bytes: room.free().0,
            }),
            profiles: self.shown_profiles(),
        }
    }

    /// What a refusal says of those who hold the places, the first of many. Of other users only their number is told, in its
    /// text.
    #[must_use]
    pub fn occupants(&self, holders: &[SessionId], viewer: Viewer, naming: &Naming<'_>) -> Vec<api::Occupant> {
        let memory = if holders.is_empty() { BTreeMap::new() } else { self.held_by_session() };
        let sessions = holders.iter().filter_map(|holder| self.sessions.get(*holder));
        sessions
            .filter(|session| viewer.sees(session.uid))
            .take(OCCUPANTS)
            .map(|session| api::Occupant {
                session: session.id.0,
                pid: self.agent_of(session.id).map_or(session.root, |agent| agent.id).pid.0,
                profile: session.profile.clone(),
                user: (naming.user)(session.uid),
                memory_bytes: memory.get(&session.id).map_or(0, |bytes| bytes.0),
            })
            .collect()
    }

    /// Whether the breaker is open.
    #[must_use]
    pub fn breaker_open(&self) -> bool {
        self.gate.breaker.open().is_some()
    }

    /// Launches that wait.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.gate.line.len()
    }

    /// The launch of this pid that waits, and its user.
    #[must_use]
    pub fn waiting(&self, pid: Pid) -> Option<(ProcessId, Uid)> {
        let waiter = self.gate.line.iter().find(|(_, waiter)| waiter.launch.process.pid == pid);
        waiter.map(|(_, waiter)| (waiter.launch.process, waiter.launch.uid))
    }

    fn waits_for(&self, waiter: &Waiter, now: BootTime) -> String {
        let Some(obstacle) = &waiter.obstacle else { return "others are ahead".to_owned() };
        match self.held_back(waiter, now) {
            Some(held_back) => format!("{}; {held_back}", obstacle.detail),
            None => obstacle.detail.clone(),
        }
    }

    fn held_by_session(&self) -> BTreeMap<SessionId, Bytes> {
        let mut memory: BTreeMap<SessionId, Bytes> = BTreeMap::new();
        for process in self.table.living() {
            *memory.entry(process.session).or_default() += self.charged(process);
        }
        memory
    }

    fn shown_lease(
        &self,
        held: &Held,
        now: BootTime,
        memory: &BTreeMap<SessionId, Bytes>,
        naming: &Naming<'_>,
    ) -> api::Lease {
        let Held { lease, session, .. } = held;
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

    fn shown_profiles(&self) -> Vec<api::ProfileBounds> {
        let mut running: BTreeMap<String, u64> = BTreeMap::new();
        for place in self.places() {
            for name in place.profiles.names() {
                *running.entry(name.to_owned()).or_default() += 1;
            }
        }
        let total = self.close_watch.host.total;
        let bounds = |profile: &crate::config::Profile| {
            let (expected, learned_from) = self.expected_of(&profile.name);
            api::ProfileBounds {
                name: profile.name.clone(),
                running: running.get(&profile.name).copied().unwrap_or(0),
                max_sessions: profile.bounds.max_sessions,
                expected_bytes: expected.0,
                learned_from,
                max_memory_bytes: profile.max_memory.map(|size| size.on_host(total).0).filter(|bytes| *bytes > 0),
            }
        };
        self.config.profiles.iter().map(bounds).collect()
    }
}

fn shown_refusal(at: BootTime, refused: &Refused, naming: &Naming<'_>) -> api::RefusedLaunch {
    api::RefusedLaunch {
        at: naming.moment(at),
        pid: refused.process.pid.0,
        user: (naming.user)(refused.uid),
        uid: refused.uid.0,
        profile: refused.profile.clone(),
        reason: refused.obstacle.reason,
        detail: refused.obstacle.detail.clone(),
    }
}
