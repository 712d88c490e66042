//! The daemon: wiring only.
//!
//! One thread (`owner`) has the engine and a loop (`pump`) that takes kernel events first and everything else after them;
//! around the engine stand its journal and counters (`core`, `journal`, `metrics`). Three threads do what may block
//! (`hands`); a fourth writes what the engine is told into a file, where that is wished (`recorder`). The main thread
//! serves clients (`control`, `exposition`), who ask the engine's owner through a queue (`request`); it starts, reloads
//! and ends everything (`lifecycle`).

mod control;
mod core;
mod door;
mod exposition;
mod grumble;
mod hands;
mod http;
mod journal;
mod lifecycle;
mod lines;
mod lock;
mod log;
mod metrics;
mod nature;
mod options;
mod owner;
mod pump;
mod recorder;
mod request;
mod rescan;
mod since;

pub use lifecycle::run;
pub use options::{Listen, LogFormat, Options};
