//! The daemon: it connects the engine with the kernel, the host and clients, and contains no policy.
//!
//! One thread (`engine_thread`) owns the engine (`state`) and runs its `event_loop`, which handles kernel events before
//! everything else. Other threads run the loop of `worker`: those that do what may block (`workers`), and those that write
//! the history (`history_filter`, `history_writer`), the state directory (`state_writer`) and recordings (`recorder`).
//! `notify` sends notifications.
//! The main thread (`lifecycle`) starts, reloads and stops everything, and serves clients: connections (`control`,
//! `metrics_server`, `connection_limit`, `http`), then `routes`, whose handlers (`query_api`, `gate_api`, `actions_api`,
//! `history_api`) send requests to the engine's thread (`request`).
//!
//! `state_file`, `member_file`, `learned_store` and `id_store` hold the state for the next daemon.

mod actions_api;
mod api_event;
mod config_state;
mod connection_io;
mod connection_limit;
mod control;
mod engine_thread;
mod event_loop;
mod fleet_api;
mod gate_api;
mod heartbeat;
mod history_api;
mod history_filter;
mod history_writer;
mod http;
mod id_store;
mod journal;
mod largest_holders;
mod launch_waiters;
mod learned_store;
mod lifecycle;
mod log;
mod log_throttle;
mod member_file;
mod metrics;
mod metrics_server;
mod ndjson_body;
mod notify;
mod openapi;
mod options;
mod process_setup;
mod query_api;
mod read_limit;
mod reclaim_api;
mod recorder;
mod request;
mod rescan;
mod routes;
mod runtime_dir;
mod set_aside;
mod state;
mod state_file;
mod state_writer;
mod time_arg;
mod wall_clock;
mod worker;
mod workers;

pub use lifecycle::run;
pub use options::{Listen, LogFormat, WatchdogdOptions};
