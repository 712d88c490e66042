//! What stands above agents, outside every session.

use serde::{Deserialize, Serialize};

use super::id::ProcessId;

/// What one agent depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The agent.
    pub agent: ProcessId,
    /// The processes above it, the nearest first, without the host's first process.
    pub ancestors: Vec<Ancestor>,
    /// Whether its terminal is attached.
    pub terminal: AgentTerminal,
}

/// A process above an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// The process.
    pub process: ProcessId,
    /// Its program or script.
    pub name: String,
    /// Its oom_score_adj.
    pub oom_score_adj: Option<i32>,
}

/// The terminal of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentTerminal {
    /// It has none.
    #[default]
    Absent,
    /// A terminal of its own, or one of a multiplexer that shows it at another terminal.
    Attached,
    /// One of a multiplexer that is attached to no terminal.
    Detached,
    /// The terminal of a multiplexer that does not report its clients.
    Unknown,
}
