//! Gemini CLI's hooks: <https://geminicli.com/docs/hooks/reference>.
//!
//! A subagent is a call of the tool `invoke_agent` (observed with version 0.61.0), in older versions a tool with the
//! subagent's name. Only the matcher in the settings distinguishes it from other tools. A call has no id.

use serde_json::{Value, json};

use super::hook_event::{HookEvent, call};
use watchdog_api::SubagentEvent::{SessionEnd, Start, Stop};

/// The tool for every subagent, and the built-in subagents of older versions.
const SUBAGENT_TOOLS: [&str; 5] = ["invoke_agent", "codebase_investigator", "cli_help", "generalist", "browser_agent"];

pub(super) fn interpret(event: &Value) -> HookEvent {
    match event["hook_event_name"].as_str() {
        Some("BeforeTool") => HookEvent::Request(call(Start, None)),
        Some("AfterTool") => HookEvent::Notify(vec![call(Stop, None)]),
        // After "clear" the agent's process continues.
        Some("SessionEnd") if event["reason"] != "clear" => HookEvent::Notify(vec![call(SessionEnd, None)]),
        _ => HookEvent::Ignored,
    }
}

pub(super) fn denial(reason: &str) -> Value {
    json!({ "decision": "deny", "reason": reason })
}

pub(super) fn settings(command: &str) -> Value {
    let run = json!([{ "type": "command", "command": command, "name": "agent-watchdog", "timeout": 5_000 }]);
    let of_subagents = json!([{ "matcher": format!("^({})$", SUBAGENT_TOOLS.join("|")), "hooks": run }]);
    json!({
        "hooks": {
            "BeforeTool": of_subagents,
            "AfterTool": of_subagents,
            "SessionEnd": [{ "hooks": run }],
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matched_tool_is_a_subagent() {
        let event = |name: &str| json!({"hook_event_name": name, "tool_name": "reviewer", "reason": "exit"});
        assert_eq!(interpret(&event("BeforeTool")), HookEvent::Request(call(Start, None)));
        assert_eq!(interpret(&event("AfterTool")), HookEvent::Notify(vec![call(Stop, None)]));
        assert_eq!(interpret(&event("SessionEnd")), HookEvent::Notify(vec![call(SessionEnd, None)]));
        assert_eq!(interpret(&event("BeforeModel")), HookEvent::Ignored);
        let cleared = json!({"hook_event_name": "SessionEnd", "reason": "clear"});
        assert_eq!(interpret(&cleared), HookEvent::Ignored);
    }
}
