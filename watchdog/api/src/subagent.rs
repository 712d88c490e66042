//! Subagents inside an agent, as its hooks report them.

use serde::{Deserialize, Serialize};

use super::gate::RefusalReason;

/// The body of `POST /v1/subagent`: an agent's hook reports a subagent inside the agent's own process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SubagentCall {
    /// What happened, or is about to.
    pub event: SubagentEvent,
    /// The agent's own id of the call, if it has one.
    #[serde(default)]
    pub call: Option<String>,
}

/// An event of an agent's hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SubagentEvent {
    /// The agent asks whether it may start a subagent.
    Start,
    /// A started subagent continues in the background, under this id.
    Background,
    /// A subagent has finished.
    Stop,
    /// The agent's turn is over: no subagent that it waited for is running.
    TurnEnd,
    /// The session is over.
    SessionEnd,
}

/// The answer to [`SubagentCall`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SubagentAnswer {
    /// The subagent may start.
    pub allowed: bool,
    /// The reason of a refusal, in one word.
    pub reason: Option<RefusalReason>,
    /// One sentence for the model.
    pub detail: String,
    /// Running subagents of this session, including this one if it is allowed.
    pub running: u64,
    /// The maximum number of subagents.
    pub max_subagents: Option<u32>,
    /// When a retry is useful.
    pub retry_after_seconds: Option<f64>,
    /// The session of the caller, if any.
    pub session: Option<u64>,
}
