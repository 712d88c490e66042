//! Scenarios, told to the engine as a kernel and a /proc would tell them.

mod abandoned;
mod cases;
mod detached;
mod lineage;
mod merge;
mod model;
mod orphan;
mod replay;
mod summary;
mod world;
