//! Scenarios, told to the engine as a kernel and a /proc would tell them.

mod abandoned;
mod absence;
mod act;
pub(super) mod captures;
mod cases;
mod deaths;
mod detached;
mod duplicate;
mod external_memory;
mod fanout;
mod gate;
mod leak;
mod limits;
mod lineage;
mod merge;
mod model;
mod orphan;
mod overlimit;
mod replay;
mod stale;
mod summary;
mod world;
