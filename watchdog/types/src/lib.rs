//! What every other crate speaks: ids, units, signals, the events of the kernel and the observations of the host.

#![warn(missing_docs)]

mod confinement;
mod event;
mod fleet;
mod id;
mod kill;
mod limits;
mod memory;
mod observation;
mod page_out;
pub mod signals;
mod surroundings;
mod tasks;
mod text;
pub mod units;
mod viewer;

pub use self::confinement::{Bounds, Confinement};
pub use self::event::{
    Absence, Attempt, Denied, Exec, Exit, ExitStatus, Fork, Image, KernelEvent, Lineage, MissedExit, Oom, Reclaim,
    Signal,
};
pub use self::fleet::{
    AskNumber, FleetAnswer, FleetAsk, FleetFence, FleetHostView, FleetName, FleetPoolView, FleetShares, FleetView,
    HostIncarnation, HostRow, HostSummary, InvalidFleetName, PoolName,
};
pub use self::id::{ActionId, BootTime, Bytes, FindingId, LastIds, Pid, ProcessId, SessionId, Ticks, Uid, UserIds};
pub use self::kill::{CgroupPressure, Kill, KillSeen};
pub use self::limits::{CgroupLimit, HeapCeiling, HeapRuntime, Limits, ResourceLimit};
pub use self::memory::{Memory, Sample, Share, SharesSeen};
pub use self::observation::{
    Activity, Container, Directory, Executable, HostMemory, Inspection, OomCgroup, OomSeen, Scan, ScannedProcess,
    SharedSegment, Stdin, Tmpfs, TmpfsFile, TmpfsMount,
};
pub use self::page_out::{
    PageOut, PageOutExclusion, PageOutOutcome, PageOutProcess, PageOutStop, PagedOut, PagedOutProcess, SwapStatus,
};
pub use self::surroundings::{AgentTerminal, Ancestor, Surroundings};
pub use self::tasks::{TaskLimit, TaskLimitScope, TaskReading};
pub use self::text::text;
pub use self::viewer::Viewer;
