use rstest::rstest;
use serde_json::json;

use super::super::hook_agent::HookAgent;
use super::*;

fn claude() -> (SettingsFormat, Value) {
    let format = SettingsFormat { comments: true, ..HookAgent::ClaudeCode.format() };
    (format, HookAgent::ClaudeCode.settings("watchdogctl"))
}

const RICH: &str = r#"{
  // mine
  "zeta": 1,
  "model": "opus", /* best */
  "hooks": {
    "PreToolUse": [
      { "matcher": "Bash", "hooks": [{ "type": "command", "command": "lint" }] }
    ],
    "Stop": [
      {"hooks": [{"type": "command", "command": "notify-send done"}]}
    ]
  },
  "alpha": [1, 2.50, 1e3]
}
"#;

#[rstest]
#[case::rich(RICH)]
#[case::tabs("{\n\t\"b\": true,\n\t\"a\": null\n}\n")]
#[case::windows(
    "{\r\n  \"b\": true,\r\n  \"hooks\": {\r\n    \"Stop\": [\r\n      {\"hooks\": []}\r\n    ]\r\n  }\r\n}\r\n"
)]
#[case::no_last_newline("{\n    \"b\": 1\n}")]
#[case::comment_at_the_end("{\n  \"b\": 1 // last\n}\n// end\n")]
fn uninstall_restores_every_byte(#[case] text: &str) {
    for agent in HookAgent::ALL {
        let format = SettingsFormat { comments: true, ..agent.format() };
        let installed = format.with_hooks(text, &agent.settings("watchdogctl")).unwrap();
        assert_ne!(installed, text);
        assert!(format.has_hooks(&installed).unwrap() && !format.has_hooks(text).unwrap());
        assert_eq!(format.without_hooks(&installed).unwrap(), text, "{installed}");
        assert_eq!(format.with_hooks(&installed, &agent.settings("watchdogctl")).unwrap(), installed);
    }
}

#[test]
fn order_and_comments_are_kept() {
    let (format, wanted) = claude();
    let installed = format.with_hooks(RICH, &wanted).unwrap();
    let mut rest = installed.as_str();
    for part in
        ["// mine", "\"zeta\": 1,", "/* best */", "\"lint\"", "\"notify-send done\"", "\"alpha\": [1, 2.50, 1e3]"]
    {
        rest = rest.split_once(part).unwrap().1;
    }
    let plain: Value = serde_json::from_str(&installed.replace("// mine", "").replace("/* best */", "")).unwrap();
    for (event, groups) in wanted["hooks"].as_object().unwrap() {
        let own = plain["hooks"][event].as_array().unwrap();
        assert!(groups.as_array().unwrap().iter().all(|group| own.contains(group)), "{event}");
    }
    assert_eq!(plain["hooks"]["PreToolUse"].as_array().unwrap().len(), 2);
}

#[test]
fn missing_settings_become_an_object() {
    let (format, wanted) = claude();
    for text in ["", " \n"] {
        let installed = format.with_hooks(text, &wanted).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&installed).unwrap(), wanted);
        assert_eq!(format.without_hooks(text).unwrap(), text);
    }
}

#[test]
fn changed_hooks_of_ours_are_recognised() {
    let (format, wanted) = claude();
    let own = r#"{"hooks": {"Stop": [{"hooks": [
        {"type": "command", "command": "'/opt/my tools/watchdogctl' hook claude-code", "timeout": 60},
        {"type": "command", "command": "watchdogctl hook codex"},
        {"type": "command", "command": "other-watchdogctl hook claude-code"}]}]}}"#;
    let installed = format.with_hooks(own, &wanted).unwrap();
    assert_eq!(installed.matches("\"Stop\"").count(), 1);
    let plain: Value = serde_json::from_str(&installed).unwrap();
    assert_eq!(plain["hooks"]["Stop"].as_array().unwrap().len(), 1, "the user's timeout stays");
    let removed: Value = serde_json::from_str(&format.without_hooks(&installed).unwrap()).unwrap();
    let left = json!({"hooks": {"Stop": [{"hooks": [
        {"type": "command", "command": "watchdogctl hook codex"},
        {"type": "command", "command": "other-watchdogctl hook claude-code"}]}]}});
    assert_eq!(removed, left);
}

#[rstest]
#[case("{", 1, 1, "invalid JSON")]
#[case("{\n  \"a\": 1,\n  \"b\" 2\n}", 3, 7, "invalid JSON")]
#[case("{\n  \"a\": [1,],\n}", 2, 10, "invalid JSON")]
#[case("[]", 1, 1, "must be an object")]
#[case("{\"hooks\": 5}", 1, 11, "hooks: must be an object")]
#[case("{\n \"hooks\": {\"Stop\": {}}}", 2, 20, "hooks.Stop: must be an array")]
#[case("{\"hooks\": {},\n\"hooks\": {}}", 2, 1, "hooks: the key appears twice")]
fn broken_settings_are_refused(#[case] text: &str, #[case] line: usize, #[case] column: usize, #[case] message: &str) {
    let (format, wanted) = claude();
    for problem in [format.with_hooks(text, &wanted).unwrap_err(), format.without_hooks(text).unwrap_err()] {
        assert_eq!((problem.line, problem.column), (line, column), "{problem}");
        assert!(problem.message.contains(message), "{problem}");
    }
}

#[test]
fn comments_are_refused_in_strict_settings() {
    for agent in HookAgent::ALL {
        let edited = agent.format().with_hooks("{} // x", &agent.settings("watchdogctl"));
        assert_eq!(edited.is_ok(), agent == HookAgent::GeminiCli);
    }
}
