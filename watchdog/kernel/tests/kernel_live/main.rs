//! The kernel programs against the running kernel. Needs root and BTF.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod close_watch;
mod deaths;
mod denied_script;
mod gate;
mod gate_exec;
mod lineage;
mod losses;
mod notices;
mod sampling;
mod scene;
