//! Codex's hooks: <https://developers.openai.com/codex/hooks>. Observed with version 0.171.0.
//!
//! A subagent is a call of the tool `spawn_agent`; multi-agent v2 puts the name of its namespace before it, as in
//! `collaborationspawn_agent`. The call returns at once, and the subagent runs on in the background under an `agent_id` of
//! its own. `SubagentStart` reports that id, before or after the end of the call, and `SubagentStop` its end. No hook of
//! `SubagentStart` can refuse, so the gate is asked at `PreToolUse`. `Stop`, the end of the agent's turn, ends calls that
//! another hook denied; subagents in the background continue. There is no event for the end of a session.

use serde_json::{Value, json};

use super::hook_event::{HookEvent, call};
use watchdog_api::SubagentEvent::{Background, Start, Stop, TurnEnd};

const TOOL: &str = "spawn_agent";

pub(super) fn interpret(event: &Value) -> HookEvent {
    let text = |key: &str| event[key].as_str();
    let is_subagent = text("tool_name").is_some_and(|tool| tool.ends_with(TOOL));
    match (text("hook_event_name"), text("agent_id")) {
        (Some("PreToolUse"), _) if is_subagent => HookEvent::Request(call(Start, text("tool_use_id"))),
        (Some("PostToolUse"), _) if is_subagent => HookEvent::Notify(vec![call(Stop, text("tool_use_id"))]),
        (Some("SubagentStart"), Some(agent)) => HookEvent::Notify(vec![call(Background, Some(agent))]),
        (Some("SubagentStop"), Some(agent)) => HookEvent::Notify(vec![call(Stop, Some(agent))]),
        (Some("Stop"), None) => HookEvent::Notify(vec![call(TurnEnd, None)]),
        _ => HookEvent::Ignored,
    }
}

/// Codex takes the answer of Claude Code's hooks.
pub(super) use super::claude_code::denial;

pub(super) fn settings(command: &str) -> Value {
    let run = json!([{ "type": "command", "command": command, "timeout": 5 }]);
    let of_tool = json!([{ "matcher": format!("{TOOL}$"), "hooks": run }]);
    let of_all = json!([{ "hooks": run }]);
    json!({
        "hooks": {
            "PreToolUse": of_tool,
            "PostToolUse": of_tool,
            "SubagentStart": of_all,
            "SubagentStop": of_all,
            "Stop": of_all,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("spawn_agent")]
    #[case("collaborationspawn_agent")]
    fn spawn_requests_and_stops(#[case] tool: &str) {
        let event = |name: &str| json!({"hook_event_name": name, "tool_name": tool, "tool_use_id": "call_1"});
        assert_eq!(interpret(&event("PreToolUse")), HookEvent::Request(call(Start, Some("call_1"))));
        assert_eq!(interpret(&event("PostToolUse")), HookEvent::Notify(vec![call(Stop, Some("call_1"))]));
    }

    #[rstest]
    #[case(json!({"hook_event_name": "SubagentStart", "agent_id": "a"}), call(Background, Some("a")))]
    #[case(json!({"hook_event_name": "SubagentStop", "agent_id": "a"}), call(Stop, Some("a")))]
    #[case(json!({"hook_event_name": "Stop"}), call(TurnEnd, None))]
    fn background_subagent_is_reported(#[case] event: Value, #[case] sent: watchdog_api::SubagentCall) {
        assert_eq!(interpret(&event), HookEvent::Notify(vec![sent]));
    }

    #[rstest]
    #[case(json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "call_1"}))]
    #[case(json!({"hook_event_name": "SubagentStart"}))]
    #[case(json!({"hook_event_name": "Stop", "agent_id": "a"}))]
    #[case(json!(null))]
    fn unrelated_events_are_ignored(#[case] event: Value) {
        assert_eq!(interpret(&event), HookEvent::Ignored);
    }
}
