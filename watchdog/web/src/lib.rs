//! `watchdogctl web`: pages of the control API, served to one user's browser on loopback.
//!
//! A connection goes [`slots`] ─► [`request`] ─► [`access`] ─► [`routes`], and its answer back through [`response`].
//! [`routes`] reads [`assets`], a page of [`view`], the stream of [`live`], or calls [`act`]. Threads, not a runtime: one
//! user has a few tabs open, and the client must stay small and start in a millisecond.

mod access;
mod act;
mod act_call;
mod assets;
mod context;
mod history_cache;
mod holders;
mod live;
mod prose;
mod request;
mod response;
mod routes;
mod secret;
mod server;
mod slots;
mod view;

pub use prose::{PlanQuestion, Prose};
pub use server::{WebError, WebOptions, WebServer};

#[cfg(test)]
mod tests;
