//! The kernel's side of the story: programs go in, events and samples come out.
//!
//! In the order in which it happens: [`btf`] reads the types of the running kernel, [`layout`] finds in them what the
//! programs must know, [`load`] puts the programs in and attaches them, [`tracer`] is the handle on what runs then and
//! [`gate`] the part of it that holds sessions to their bounds, `takeover` finds what an earlier daemon left there, [`stream`] takes records off the rings, and [`decode`] makes events of their bytes.

mod alarm;
pub mod btf;
pub mod decode;
pub mod error;
pub mod gate;
pub mod layout;
mod left_ring;
pub mod load;
mod logs;
mod programs;
mod repair;
mod stats;
pub mod stream;
mod takeover;
pub mod tracer;
mod users;

pub(crate) use decode::text;
pub use decode::{DecodeError, decode};
pub use error::KernelError;
pub use load::LoadOptions;
pub use stats::ProgramStats;
pub use stream::{EventRing, EventStream};
pub use takeover::Inherited;
pub use tracer::{Entry, Feature, Features, Lost, Placed, Streams, Tracer};
