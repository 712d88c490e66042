//! The host: /proc, cgroups, pressure, pidfds. Only the modules of the last item and of [`pins`] change anything.
//!
//! - [`clock`]: CLOCK_BOOTTIME, which kernel records, /proc and the engine share
//! - [`scan`], [`inspect`](mod@inspect): all processes briefly, one process closely
//! - [`memory`](mod@memory), [`meminfo`], [`sampler`], [`statm`], [`shared`]: memory of a process and of the host, and when to sample it
//! - [`limits`]: memory limits of a process (cgroup, V8 heap)
//! - [`oom`]: counters that show which cgroup ran out of memory
//! - [`activity`], [`tmpfs`]: CPU time and I/O of a process; files in memory
//! - [`proc_events`]: events from /proc, for hosts without kernel programs
//! - [`containers`], [`passwd`], [`programs`]: init processes of containers, user names, executables of denied agents
//! - [`capability`]: what this host supports, for `watchdogctl doctor`
//! - [`namespaces`]: the pid and time namespaces of this process
//! - [`pins`]: programs and maps pinned on the BPF file system
//! - [`swap`]: swap of the host, and what compressed pages take
//! - [`pidfd`], [`cgroup`], [`oom_score`], [`mod@page_out`]: signal a process; limit, freeze or kill a session's cgroup; order of
//!   OOM kills; page out idle processes

pub mod activity;
pub mod capability;
mod capability_row;
pub mod cgroup;
mod cgroup_control;
mod cgroup_namespace;
pub mod clock;
pub mod containers;
mod environment;
mod error;
mod executable;
mod fds;
#[cfg(test)]
mod first_thread_tests;
pub mod inspect;
pub mod kill;
pub mod limits;
mod listen;
pub mod meminfo;
pub mod memory;
pub mod namespaces;
pub mod oom;
pub mod oom_score;
pub mod page_out;
pub mod passwd;
pub mod pidfd;
pub mod pins;
mod probe;
pub mod proc_events;
mod process;
mod program_limits;
pub mod programs;
mod reclaim_capability;
pub mod relative_paths;
pub mod sampler;
pub mod scan;
pub mod shared;
mod stat;
pub mod statm;
mod stdin;
pub mod surroundings;
pub mod swap;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tmpfs;
mod unix_diag;

pub use error::HostError;
pub use page_out::page_out;
pub use process::{this_lineage, this_process};
