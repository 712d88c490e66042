//! Code shared by the commands of the workspace and the benchmarks.

pub mod cargo;
pub mod host_info;
pub mod privilege;
