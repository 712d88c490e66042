use watchdog_api::{SubagentCall, SubagentEvent};

/// The meaning of an agent's event for the gate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HookEvent {
    Ignored,
    /// A subagent is about to start.
    Request(SubagentCall),
    /// To be sent in this order.
    Notify(Vec<SubagentCall>),
}

pub(super) fn call(event: SubagentEvent, call: Option<&str>) -> SubagentCall {
    SubagentCall { event, call: call.map(ToOwned::to_owned) }
}
