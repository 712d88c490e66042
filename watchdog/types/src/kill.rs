//! What is read when a process outside every session kills one of a session.

use serde::{Deserialize, Serialize};

use super::id::ProcessId;

/// What a look at the killer and at its target showed, a moment after the signal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KillSeen {
    /// The killer's program or script, without arguments.
    pub program: Option<String>,
    /// The names of the killer's threads, of the first ones. If the sender's name is not among them, it has executed another
    /// program since. Empty in recordings of earlier versions.
    pub threads: Vec<String>,
    /// The killer's cgroup.
    pub killer_cgroup: Option<String>,
    /// The target's cgroup.
    pub cgroup: Option<String>,
    /// Memory pressure of that cgroup and of those above it, from the inside out.
    pub pressure: Vec<CgroupPressure>,
}

/// The memory pressure of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupPressure {
    /// Its path below the root of the hierarchy.
    pub path: String,
    /// `some avg10` of memory.pressure, in per cent.
    pub some_avg10: f64,
    /// `full avg10` of memory.pressure, in per cent.
    pub full_avg10: f64,
}

/// A killer and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kill {
    /// The sender of the signal.
    pub killer: ProcessId,
    /// The process of a session.
    pub target: ProcessId,
}
