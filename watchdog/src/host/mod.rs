//! What the host tells of itself: /proc, cgroups and pressure. Every module here reads; those that act too are named last.
//!
//! - [`clock`]: the time that everything is told in
//! - [`scan`], [`inspect`](mod@inspect): all processes briefly, one process closely
//! - [`memory`](mod@memory), [`meminfo`], [`sampler`], [`statm`], [`shared`]: what a process costs, what the host has, and how often to ask
//! - [`limits`]: where a process's memory ends
//! - [`oom`]: what the OOM killer leaves behind
//! - [`activity`], [`tmpfs`]: what a process has done, and which files are memory
//! - [`poll`]: a substitute for kernel events, where there are none
//! - [`containers`], [`users`], [`capability`]: names for what was found, and what this host gives
//! - [`pins`]: what stays in the kernel when the daemon ends
//! - [`pinned`], [`cgroup`], [`oom_score`]: a process held for certain, and signalled; a cgroup for a session, which is frozen,
//!   throttled or killed as one; who goes first

pub mod activity;
pub mod capability;
pub mod cgroup;
mod cgroup_act;
pub mod clock;
pub mod containers;
mod descriptors;
mod error;
mod executable;
mod facts;
#[cfg(test)]
mod first_thread_tests;
pub mod inspect;
pub mod limits;
mod listen;
pub mod meminfo;
pub mod memory;
pub mod oom;
pub mod oom_score;
pub mod pinned;
pub mod pins;
pub mod poll;
mod process;
pub mod programs;
pub mod sampler;
pub mod scan;
pub mod shared;
mod stat;
pub mod statm;
mod stdin;
#[cfg(test)]
pub(crate) mod testing;
pub mod tmpfs;
mod unix_diag;
pub mod users;

pub use error::HostError;
pub use process::{this_lineage, this_process};
