//! Claude Code's hooks: <https://code.claude.com/docs/en/hooks>.
//!
//! A subagent is a call of the tool `Agent`, which was named `Task` up to version 2.1.62. The call ends with
//! `PostToolUse` or `PostToolUseFailure`; but a subagent in the background only begins there, and ends with
//! `SubagentStop`, which knows its `agent_id` and not the call. So the call is told to have ended and the agent to go on in
//! the background, under the name by which its end will be told. `SubagentStop` of one in the foreground names nobody whom the
//! daemon knows, and so nothing is counted twice.
//!
//! A call that is allowed here may still be denied by others: `PermissionDenied` (version 2.1.89) tells that where the
//! classifier of the automatic mode did it, and is not among the settings that are printed, since older versions do not
//! know it. For a person's no, for rules and for other hooks the documentation names none: `Stop`, the end of the agent's
//! turn, ends all that it waited for.

use serde_json::{Value, json};

use super::{Meaning, call};
use crate::api::SubagentEvent::{Background, SessionEnd, Start, Stop, TurnEnd};

const TOOLS: [&str; 2] = ["Task", "Agent"];
/// The agent's process goes on after these, and with it the servers that it started.
const NO_END: [&str; 2] = ["clear", "resume"];

pub(super) fn meaning(event: &Value) -> Meaning {
    let text = |key: &str| event[key].as_str();
    let is_subagent = text("tool_name").is_some_and(|tool| TOOLS.contains(&tool));
    let id = text("tool_use_id");
    match text("hook_event_name") {
        Some("PreToolUse") if is_subagent => Meaning::Asks(call(Start, id)),
        Some("PostToolUse") if is_subagent => match background(&event["tool_response"]) {
            Some(agent) => Meaning::Tells(vec![call(Stop, id), call(Background, Some(agent))]),
            None => Meaning::Tells(vec![call(Stop, id)]),
        },
        Some("PostToolUseFailure" | "PermissionDenied") if is_subagent => Meaning::Tells(vec![call(Stop, id)]),
        // Before it had an `agent_id` there were no subagents in the background.
        Some("SubagentStop") => match text("agent_id") {
            Some(agent) => Meaning::Tells(vec![call(Stop, Some(agent))]),
            None => Meaning::Nothing,
        },
        // Of a subagent's own turn `SubagentStop` tells.
        Some("Stop") if text("agent_id").is_none() => Meaning::Tells(vec![call(TurnEnd, None)]),
        Some("SessionEnd") if !text("reason").is_some_and(|reason| NO_END.contains(&reason)) => {
            Meaning::Tells(vec![call(SessionEnd, None)])
        }
        _ => Meaning::Nothing,
    }
}

/// The name of the subagent that a call left in the background.
fn background(response: &Value) -> Option<&str> {
    response["agentId"].as_str().filter(|_| response["status"] == "async_launched")
}

/// Never "allow": that would skip the user's own rules.
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
    fn a_subagent_is_asked_for_and_told_to_have_ended(#[case] tool: &str) {
        let event = |name: &str| json!({"hook_event_name": name, "tool_name": tool, "tool_use_id": "toolu_1"});
        assert_eq!(meaning(&event("PreToolUse")), Meaning::Asks(call(Start, Some("toolu_1"))));
        for ended in ["PostToolUse", "PostToolUseFailure", "PermissionDenied"] {
            assert_eq!(meaning(&event(ended)), Meaning::Tells(vec![call(Stop, Some("toolu_1"))]));
        }
    }

    #[test]
    fn one_in_the_background_ends_under_its_own_name() {
        let launched = json!({
            "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": "toolu_1",
            "tool_response": {"status": "async_launched", "agentId": "a7"},
        });
        let renamed = vec![call(Stop, Some("toolu_1")), call(Background, Some("a7"))];
        assert_eq!(meaning(&launched), Meaning::Tells(renamed));
        let ended = json!({"hook_event_name": "SubagentStop", "agent_id": "a7"});
        assert_eq!(meaning(&ended), Meaning::Tells(vec![call(Stop, Some("a7"))]));
        let in_the_foreground = json!({
            "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": "toolu_1",
            "tool_response": {"status": "completed", "agentId": "a7"},
        });
        assert_eq!(meaning(&in_the_foreground), Meaning::Tells(vec![call(Stop, Some("toolu_1"))]));
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
    fn other_events_mean_nothing(#[case] event: Value) {
        assert_eq!(meaning(&event), Meaning::Nothing);
    }

    #[test]
    fn the_end_of_a_turn_ends_what_it_waited_for() {
        assert_eq!(meaning(&json!({"hook_event_name": "Stop"})), Meaning::Tells(vec![call(TurnEnd, None)]));
    }

    #[test]
    fn a_session_ends_unless_the_agent_goes_on() {
        let ended = json!({"hook_event_name": "SessionEnd", "reason": "prompt_input_exit"});
        assert_eq!(meaning(&ended), Meaning::Tells(vec![call(SessionEnd, None)]));
    }
}
