//! The state of the detector, and what its parts share.

use std::collections::BTreeMap;

use super::crowd::Crowds;
use super::demand::Demand;
use super::group::{Groups, Watched};
use super::known_ceilings::CgroupSums;
use super::shared_memory::SharedHolders;
use crate::detect::Facts;
use crate::finding::Key;
use watchdog_api::FindingKind;
use watchdog_config::Sensitivity;
use watchdog_types::{BootTime, ProcessId, SessionId};

/// All series, and what was found of them.
#[derive(Debug, Default)]
pub(crate) struct Leaks {
    pub(super) processes: BTreeMap<ProcessId, Watched>,
    pub(super) groups: Groups,
    pub(super) cgroups: CgroupSums,
    pub(super) crowds: Crowds,
    pub(super) shared: SharedHolders,
    pub(super) refreshed: BootTime,
    pub(super) ticked: BootTime,
    /// Since when ticks have come without a gap.
    pub(super) awake: BootTime,
}

impl Leaks {
    /// What the memory of a process did lately; `None` of one that is not watched, or too young.
    pub(crate) fn trend(&self, process: ProcessId, now: BootTime) -> Option<String> {
        Some(self.processes.get(&process)?.watch.series().trend(now)?.text(now))
    }

    /// Growth of the open findings in bytes per second, by session.
    pub(crate) fn rates(&self) -> impl Iterator<Item = (SessionId, f64)> {
        let of_process = |watched: &Watched| Some((watched.session, watched.watch.found()?.growth.rate));
        self.processes.values().filter_map(of_process).chain(self.groups.rates())
    }
}

pub(super) fn usual_demand(facts: &Facts<'_>) -> Demand {
    let factor = match facts.config.leaks.sensitivity {
        Sensitivity::Low => 2.0,
        Sensitivity::Normal => 1.0,
        Sensitivity::High => 0.6,
    };
    Demand { factor, ..Demand::default() }
}

/// A leak's finding is about a process; of a role or a session, about its oldest.
pub(super) fn leak_key(about: ProcessId) -> Key {
    Key { kind: FindingKind::Leak, about }
}
