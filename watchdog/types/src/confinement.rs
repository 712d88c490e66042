//! What the kernel holds a session to.

use serde::{Deserialize, Serialize};

use super::id::Bytes;

/// What the kernel holds a session to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// What all its processes together may take.
    pub max_memory: Option<Bytes>,
    /// Helpers that may run at once, the agent not counted.
    pub max_helpers: Option<u32>,
    /// How deep agents may start agents.
    pub max_depth: Option<u32>,
    /// It is to get a cgroup of its own where it has a bound that a cgroup can hold.
    pub cgroup: bool,
}

/// What became of a session's cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// Its path below the root of the hierarchy.
    pub cgroup: Option<String>,
    /// Why there is none.
    pub problem: Option<String>,
}
