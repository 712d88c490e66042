//! Loads and attaches the kernel programs, and turns their records into events.
//!
//! - Layout: `btf` reads the types of the running kernel, `layout` finds the offsets and tracepoint forms in them.
//! - Loading: `load`, `features`, `lsm` and `attach`; `load_pinned`, `takeover`, `left_ring` and `pin_paths` for pins.
//! - At run time: [`Tracer`], with a file for each group of its methods: `entries`, `session_limits`, `exec_denial`, `repair`.
//! - Maps: `maps`, `gated_sessions`, `denied_programs`, `user_shares`; counters: `losses`, `stats`.
//! - Events: [`EventStream`] reads the rings, [`decode()`] turns bytes into events.

mod alarm;
mod attach;
mod btf;
pub mod decode;
mod denied_programs;
mod entries;
mod error;
mod exec_denial;
mod features;
mod gated_sessions;
mod layout;
mod left_ring;
mod liveness;
mod load;
mod load_pinned;
mod logs;
mod losses;
mod lsm;
mod maps;
mod pin_paths;
mod programs;
mod repair;
mod session_limits;
mod stats;
mod stream;
mod takeover;
mod tracer;
mod user_shares;

pub use btf::BtfError;
pub use decode::{DecodeError, decode};
pub use entries::{TrackOutcome, TrackedEntry};
pub use error::KernelError;
pub use features::{Feature, Features};
pub use gated_sessions::SessionCount;
pub use load::LoadOptions;
pub use losses::Lost;
pub use stats::ProgramStats;
pub use stream::{EventRing, EventStream};
pub use takeover::Inherited;
pub use tracer::{Streams, Tracer};
