//! The kernel programs against the running kernel. Needs root and BTF.

mod closely;
mod deaths;
mod lineage;
mod losses;
mod sampling;
mod scene;
