//! `GET /v1/overview`: what a live display shows, in one response.

use serde::{Deserialize, Serialize};

use super::{Findings, Queue, Status, Tree};

/// State of the daemon, its sessions and its gate, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Overview {
    /// As in `GET /v1/status`, but `users` is empty and `reclaim` is null, because each costs a walk over all processes.
    pub status: Status,
    /// As in `GET /v1/tree`.
    pub tree: Tree,
    /// As in `GET /v1/findings`, if requested.
    #[serde(default)]
    pub findings: Option<Findings>,
    /// As in `GET /v1/queue`, if requested.
    #[serde(default)]
    pub queue: Option<Queue>,
}
