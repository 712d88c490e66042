//! agent-watchdog: which processes belong to which AI agent, what they cost, and what was left behind.

pub mod api;
pub mod config;
pub mod engine;
pub mod host;
pub mod kernel;
