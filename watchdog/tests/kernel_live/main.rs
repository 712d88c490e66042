//! The kernel programs against the running kernel. Needs root and BTF.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod closely;
mod deaths;
mod gate;
mod lineage;
mod losses;
mod notices;
mod sampling;
mod scene;
