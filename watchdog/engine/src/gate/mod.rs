//! The gate grants launches.
//!
//! A launch is granted when all quotas, rates, the depth, the breaker and the memory allow it. Otherwise it is queued, or
//! refused with its blocker. Queue positions and leases belong to processes, not to connections: a client that reconnects
//! finds its launch again, and a lease ends with the agent's exit.

mod admission;
mod backfill;
mod breaker;
mod cgroup_membership;
mod estimates;
mod fair_share;
mod fleet_admission;
mod fleet_row;
mod fleet_state;

mod gate_record;
mod gate_state;
mod headroom;
mod launch;
mod launch_requests;
mod lease;
mod positions;
mod profiles;
mod queue;
mod queue_view;
mod recent;
mod restore;
mod session_slot;
mod subagents;
mod task_room;
mod ungated;
mod usage;

pub(crate) use self::breaker::used_percent;
pub use self::fleet_admission::AnsweredAsk;
pub(crate) use self::fleet_state::FleetGate;
pub use self::gate_record::{GateRecord, Peaks, RestoredGate};
pub(crate) use self::gate_state::GateState;
pub use self::launch::{
    Blocker, Cancellation, Launch, LaunchGrant, LaunchLease, LaunchRefusal, QueuePosition, SubagentDecision,
    SubagentHook, UNPROFILED,
};
pub use self::usage::{GateUsage, ProfileUsage};
