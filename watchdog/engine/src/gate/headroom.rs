//! Memory that is available for launches.

use super::gate_state::GateState;
use super::launch::Launch;
use super::profiles::LimitingProfiles;
use crate::Engine;
use std::time::Duration;
use watchdog_types::{BootTime, Bytes};

#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchMemory {
    /// MemAvailable plus the configured share of free swap.
    pub(super) available: Bytes,
    /// That share of swap.
    pub(super) swap: Bytes,
    pub(super) reserve: Bytes,
    pub(super) promised: Bytes,
}

impl LaunchMemory {
    pub(super) fn free(&self) -> Bytes {
        Bytes(self.available.0.saturating_sub(self.reserve.0).saturating_sub(self.promised.0))
    }
}

impl GateState {
    /// Expected memory of recent grants that is not in use yet.
    pub(super) fn promised(&self, now: BootTime, hold: Duration) -> Bytes {
        self.commitments().map(|held| held.promised(now, hold)).sum()
    }
}

impl Engine {
    /// `None` before the host's memory has been read.
    pub(super) fn gate_memory(&self, now: BootTime) -> Option<LaunchMemory> {
        let (host, gate) = (&self.close_watch.host, &self.config.gate);
        (host.total > Bytes(0)).then(|| LaunchMemory {
            available: host.available + host.swap_free.percent(gate.swap_share.into()),
            swap: host.swap_free.percent(gate.swap_share.into()),
            reserve: gate.reserve.on_host(host.total),
            promised: self.gate.promised(now, gate.hold),
        })
    }

    /// Free memory if all sessions ended.
    pub(super) fn free_without_sessions(&self, memory: &LaunchMemory) -> Bytes {
        Bytes((memory.available + self.gate.session_memory).0.saturating_sub(memory.reserve.0))
    }

    /// Expected memory: as stated by the client, else from past sessions, else as configured.
    pub(super) fn expected(&self, launch: &Launch, profiles: &LimitingProfiles) -> Bytes {
        if let Some(stated) = launch.memory {
            return stated;
        }
        let of_one = |profile: &str| match self.expected_for_profile(profile) {
            (configured, 0) => configured,
            // One runaway session must not exclude all later ones.
            (learned, _) => self.max_for(launch).map_or(learned, |(most, _)| learned.min(Bytes(most.0 / 2))),
        };
        profiles.names().map(of_one).max().unwrap_or_default()
    }

    /// The most memory that a launch can ever get, and the limit; `None` before the host's memory has been read.
    pub(super) fn max_for(&self, launch: &Launch) -> Option<(Bytes, &'static str)> {
        let (host, gate) = (&self.close_watch.host, &self.config.gate);
        if host.total == Bytes(0) {
            return None;
        }
        let swap = host.swap_total.percent(gate.swap_share.into());
        let most = Bytes((host.total + swap).0.saturating_sub(gate.reserve.on_host(host.total).0));
        let tightest = launch.cgroups.iter().map(|limit| limit.max).min().filter(|max| *max < most);
        Some(tightest.map_or((most, "[gate] reserve"), |max| (max, "memory.max")))
    }

    /// Expected memory of a profile, and the number of past sessions behind it (0: configured).
    pub(super) fn expected_for_profile(&self, profile: &str) -> (Bytes, u64) {
        if let Some(learned) = super::estimates::expected(&self.gate.peaks, profile) {
            return learned;
        }
        let size = self
            .config
            .profile(profile)
            .and_then(|known| known.limits.expected_memory)
            .unwrap_or(self.config.gate.expected_memory);
        (size.on_host(self.close_watch.host.total), 0)
    }
}
