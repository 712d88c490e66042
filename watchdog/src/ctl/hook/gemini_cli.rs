//! Gemini CLI's hooks: <https://geminicli.com/docs/hooks/reference>.
//!
//! Its subagents are tools of the subagents' names, so that no name tells a subagent from another tool: the matcher in
//! the settings does. A call has no number.

use serde_json::{Value, json};

use super::{Meaning, call};
use crate::api::SubagentEvent::{SessionEnd, Start, Stop};

/// Those that are built in.
const SUBAGENTS: [&str; 4] = ["codebase_investigator", "cli_help", "generalist", "browser_agent"];

pub(super) fn meaning(event: &Value) -> Meaning {
    match event["hook_event_name"].as_str() {
        Some("BeforeTool") => Meaning::Asks(call(Start, None)),
        Some("AfterTool") => Meaning::Tells(vec![call(Stop, None)]),
        // The agent's process goes on after "clear".
        Some("SessionEnd") if event["reason"] != "clear" => Meaning::Tells(vec![call(SessionEnd, None)]),
        _ => Meaning::Nothing,
    }
}

pub(super) fn denial(reason: &str) -> Value {
    json!({ "decision": "deny", "reason": reason })
}

pub(super) fn settings(command: &str) -> Value {
    let run = json!([{ "type": "command", "command": command, "name": "agent-watchdog", "timeout": 5_000 }]);
    let of_subagents = json!([{ "matcher": format!("^({})$", SUBAGENTS.join("|")), "hooks": run }]);
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
    fn what_the_matcher_lets_through_is_a_subagent() {
        let event = |name: &str| json!({"hook_event_name": name, "tool_name": "reviewer", "reason": "exit"});
        assert_eq!(meaning(&event("BeforeTool")), Meaning::Asks(call(Start, None)));
        assert_eq!(meaning(&event("AfterTool")), Meaning::Tells(vec![call(Stop, None)]));
        assert_eq!(meaning(&event("SessionEnd")), Meaning::Tells(vec![call(SessionEnd, None)]));
        assert_eq!(meaning(&event("BeforeModel")), Meaning::Nothing);
        let cleared = json!({"hook_event_name": "SessionEnd", "reason": "clear"});
        assert_eq!(meaning(&cleared), Meaning::Nothing);
    }
}
