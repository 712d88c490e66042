//! Claude Code's hooks: <https://code.claude.com/docs/en/hooks>.
//!
//! A subagent is a call of the tool `Agent`, named `Task` up to version 2.1.62. The call ends with `PostToolUse` or
//! `PostToolUseFailure`. A background subagent only begins there and ends with `SubagentStop`, which carries its `agent_id`
//! instead of the call's id. So the hook reports the end of the call and a background subagent under its `agent_id`. The
//! `SubagentStop` of a foreground subagent names an id unknown to the daemon, so nothing is counted twice.
//!
//! After this hook allows a call, others can still deny it. `PermissionDenied` (since 2.1.89) reports denials by the
//! classifier of the automatic mode; it is not in the printed settings, because older versions reject it. The
//! documentation names no event for denials by users, rules and other hooks. `Stop`, the end of the agent's turn, ends
//! all subagents that the turn waited for.

use serde_json::{Value, json};

use super::hook_event::{HookEvent, call};
use watchdog_api::SubagentEvent::{Background, SessionEnd, Start, Stop, TurnEnd};

const TOOLS: [&str; 2] = ["Task", "Agent"];
/// After these the agent's process and its servers continue.
const CONTINUING_REASONS: [&str; 2] = ["clear", "resume"];

pub(super) fn interpret(event: &Value) -> HookEvent {
    let text = |key: &str| event[key].as_str();
    let is_subagent = text("tool_name").is_some_and(|tool| TOOLS.contains(&tool));
    let id = text("tool_use_id");
    match text("hook_event_name") {
        Some("PreToolUse") if is_subagent => HookEvent::Request(call(Start, id)),
        Some("PostToolUse") if is_subagent => match background(&event["tool_response"]) {
            Some(agent) => HookEvent::Notify(vec![call(Stop, id), call(Background, Some(agent))]),
            None => HookEvent::Notify(vec![call(Stop, id)]),
        },
        Some("PostToolUseFailure" | "PermissionDenied") if is_subagent => HookEvent::Notify(vec![call(Stop, id)]),
        // Versions without `agent_id` have no background subagents.
        Some("SubagentStop") => match text("agent_id") {
            Some(agent) => HookEvent::Notify(vec![call(Stop, Some(agent))]),
            None => HookEvent::Ignored,
        },
        // `SubagentStop` reports the turn of a subagent.
        Some("Stop") if text("agent_id").is_none() => HookEvent::Notify(vec![call(TurnEnd, None)]),
        Some("SessionEnd") if !text("reason").is_some_and(|reason| CONTINUING_REASONS.contains(&reason)) => {
            HookEvent::Notify(vec![call(SessionEnd, None)])
        }
        _ => HookEvent::Ignored,
    }
}

/// The id of the background subagent that a call started.
fn background(response: &Value) -> Option<&str> {
    response["agentId"].as_str().filter(|_| response["status"] == "async_launched")
}

/// There is no "allow": it would bypass the user's own rules.
pub(super) fn denial(reason: &str) -> Value {
    json!({
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }
    })
}

pub(super) fn settings(command: &str) -> Value {
    let run = json!([{ "type": "command", "command": command, "timeout": 5 }]);
    let of_tools = json!([{ "matcher": TOOLS.join("|"), "hooks": run }]);
    let of_all = json!([{ "hooks": run }]);
    json!({
        "hooks": {
            "PreToolUse": of_tools,
            "PostToolUse": of_tools,
            "PostToolUseFailure": of_tools,
            "SubagentStop": of_all,
            "Stop": of_all,
            "SessionEnd": of_all,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("Task")]
    #[case("Agent")]
    fn subagent_call_requests_and_stops(#[case] tool: &str) {
        let event = |name: &str| json!({"hook_event_name": name, "tool_name": tool, "tool_use_id": "toolu_1"});
        assert_eq!(interpret(&event("PreToolUse")), HookEvent::Request(call(Start, Some("toolu_1"))));
        for ended in ["PostToolUse", "PostToolUseFailure", "PermissionDenied"] {
            assert_eq!(interpret(&event(ended)), HookEvent::Notify(vec![call(Stop, Some("toolu_1"))]));
        }
    }

    #[test]
    fn background_subagent_stops_by_id() {
        let launched = json!({
            "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": "toolu_1",
            "tool_response": {"status": "async_launched", "agentId": "a7"},
        });
        let renamed = vec![call(Stop, Some("toolu_1")), call(Background, Some("a7"))];
        assert_eq!(interpret(&launched), HookEvent::Notify(renamed));
        let ended = json!({"hook_event_name": "SubagentStop", "agent_id": "a7"});
        assert_eq!(interpret(&ended), HookEvent::Notify(vec![call(Stop, Some("a7"))]));
        let in_the_foreground = json!({
            "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": "toolu_1",
            "tool_response": {"status": "completed", "agentId": "a7"},
        });
        assert_eq!(interpret(&in_the_foreground), HookEvent::Notify(vec![call(Stop, Some("toolu_1"))]));
    }

    #[rstest]
    #[case(json!({"hook_event_name": "PreToolUse", "tool_name": "Bash"}))]
    #[case(json!({"hook_event_name": "PermissionDenied", "tool_name": "Bash", "tool_use_id": "toolu_1"}))]
    #[case(json!({"hook_event_name": "SubagentStop"}))]
    #[case(json!({"hook_event_name": "Stop", "agent_id": "a7"}))]
    #[case(json!({"hook_event_name": "SessionEnd", "reason": "clear"}))]
    #[case(json!({"hook_event_name": 7, "tool_name": []}))]
    #[case(json!([]))]
    #[case(json!(null))]
    fn other_events_are_ignored(#[case] event: Value) {
        assert_eq!(interpret(&event), HookEvent::Ignored);
    }

    #[test]
    fn end_of_turn_is_reported() {
        assert_eq!(interpret(&json!({"hook_event_name": "Stop"})), HookEvent::Notify(vec![call(TurnEnd, None)]));
    }

    #[test]
    fn session_end_is_reported_unless_continuing() {
        let ended = json!({"hook_event_name": "SessionEnd", "reason": "prompt_input_exit"});
        assert_eq!(interpret(&ended), HookEvent::Notify(vec![call(SessionEnd, None)]));
    }
}
