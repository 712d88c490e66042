//! One file a command. Each sends its request, and prints the response.

pub(crate) mod actions;
pub(crate) mod adopt;
pub(crate) mod config;
mod confirm;
pub(crate) mod doctor;
pub(crate) mod end;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod findings;
mod first_steps;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod hook;
pub(crate) mod plan;
pub(crate) mod postmortem;
pub(crate) mod queue;
pub(crate) mod reap;
pub(crate) mod reclaim;
pub(crate) mod replay;
pub(crate) mod status;
pub(crate) mod statusline;
pub(crate) mod thaw;
pub(crate) mod top;
pub(crate) mod tree;
pub(crate) mod web;
mod zombie_rows;

#[cfg(test)]
pub(crate) use watchdog_render::testing;
