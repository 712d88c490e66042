//! agent-watchdog: which processes belong to which AI agent, what they cost, and what was left behind.
//!
//! In the order in which data flows:
//!
//! - [`kernel`]: programs on fork, exec, exit and memory tracepoints mark every descendant of an agent inside the fork,
//!   and send records through ring buffers; here they are loaded, read and decoded into events.
//! - [`host`]: what /proc, cgroups and pressure information give beside that: the first scan, samples, and a look at one
//!   process when a verdict is to be made of it.
//! - [`engine`]: the pure core. Events, scans and samples go in; it keeps the process table and the sessions, lets the
//!   detectors look at what changed, and gives back effects. It does no I/O and reads no clock.
//! - [`daemon`]: the shell around the core: one task owns the engine, carries its effects out, keeps the journal, and
//!   serves the control socket and the metrics.
//! - [`history`]: what outlives the daemon: written by its own thread, read with or without the daemon.
//! - [`recording`]: what the engine was told, in a file, and told again to another engine.
//! - [`api`]: the types of the control API, which both binaries share.
//! - [`ctl`]: `watchdogctl`, which asks over the socket and shows the answers to people and scripts.
//! - [`config`]: what a user can set, and the profiles by which agents are recognised.

pub mod api;
pub mod config;
pub mod ctl;
pub mod daemon;
pub mod engine;
pub mod history;
pub mod host;
pub mod kernel;
mod lock_file;
pub mod recording;
mod signals;
mod trusted_file;
mod units;
