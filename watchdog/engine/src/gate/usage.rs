//! The limits of the gate beside what is used of them, for the metrics.

use std::collections::BTreeMap;

use crate::Engine;
use watchdog_types::{BootTime, Bytes, Uid};

/// `None` stands for no limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateUsage {
    /// Sessions that count against `[gate] max_sessions`.
    pub sessions: u64,
    pub max_sessions: Option<u32>,
    /// Sessions that count against `[gate] max_sessions_per_user`. A user without sessions is absent.
    pub users: BTreeMap<Uid, u64>,
    pub max_sessions_per_user: Option<u32>,
    /// Every configured profile.
    pub profiles: BTreeMap<String, ProfileUsage>,
    pub max_queue: u64,
    /// Per cent of memory in use at which the breaker opens and closes.
    pub breaker_open: u8,
    pub breaker_close: u8,
    /// Zero before the host's memory has been read, like the next two.
    pub reserve: Bytes,
    /// Expected memory of recent grants that is not in use yet.
    pub promised: Bytes,
    /// Memory that the next launches can get.
    pub free: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileUsage {
    pub sessions: u64,
    pub max_sessions: Option<u32>,
    /// Per session.
    pub max_memory: Option<Bytes>,
    /// For all sessions of the profile together.
    pub max_total_memory: Option<Bytes>,
}

impl Engine {
    pub(crate) fn gate_usage(&self, now: BootTime) -> GateUsage {
        let (gate, total) = (&self.config.gate, self.close_watch.host.total);
        let on_host = |size: watchdog_config::Size| Some(size.on_host(total)).filter(|bytes| *bytes > Bytes(0));
        let profiles = self.config.profiles.iter().map(|profile| {
            let usage = ProfileUsage {
                sessions: 0,
                max_sessions: profile.limits.max_sessions,
                max_memory: profile.max_memory.and_then(on_host),
                max_total_memory: profile.max_total_memory.and_then(on_host),
            };
            (profile.name.clone(), usage)
        });
        let memory = self.gate_memory(now);
        let mut usage = GateUsage {
            max_sessions: gate.max_sessions,
            max_sessions_per_user: gate.max_sessions_per_user,
            profiles: profiles.collect(),
            max_queue: gate.max_queue as u64,
            breaker_open: gate.breaker_open,
            breaker_close: gate.breaker_close,
            reserve: memory.map_or(Bytes(0), |memory| memory.reserve),
            promised: memory.map_or(Bytes(0), |memory| memory.promised),
            free: memory.map_or(Bytes(0), |memory| memory.free()),
            ..GateUsage::default()
        };
        for slot in self.occupied_slots() {
            usage.sessions += 1;
            *usage.users.entry(slot.uid).or_default() += 1;
            for name in slot.profiles.names() {
                if let Some(profile) = usage.profiles.get_mut(name) {
                    profile.sessions += 1;
                }
            }
        }
        usage
    }
}
