//! The daemon: wiring only.
//!
//! One thread (`owner`) has the engine and a loop (`pump`) that takes kernel events first and everything else after them;
//! around the engine stand its journal and counters (`core`, `journal`, `metrics`), those who wait for a launch (`clients`),
//! and what must be known after a restart (`run_file`, `members`, `peaks`, `ids`). Five threads do what may block (`hands`), others
//! write the history (`historian`, `chronicle`), tell others what was done (`notify`) and, where that is wished, record what
//! the engine is told (`recorder`). The main thread serves clients (`control`, `gate_api`, `act_api`, `exposition`), who ask
//! the engine's owner through a queue (`request`); it starts, reloads and ends everything (`lifecycle`).

mod act_api;
mod chronicle;
mod clients;
mod control;
mod core;
mod door;
mod exposition;
mod gate_api;
mod grumble;
mod hands;
mod heartbeat;
mod historian;
mod http;
mod ids;
mod journal;
mod keeper;
mod largest;
mod lifecycle;
mod lines;
mod lock;
mod log;
mod members;
mod metrics;
mod nature;
mod notify;
mod options;
mod owner;
mod past;
mod peaks;
mod pump;
mod readers;
mod recorder;
mod request;
mod rescan;
mod run_file;
mod set_aside;
mod since;
mod visit;

pub use lifecycle::run;
pub use options::{Listen, LogFormat, Options};
