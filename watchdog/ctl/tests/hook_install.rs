//! `hook install` and `hook uninstall` on real files.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rstest::rstest;
use serde_json::Value;

struct HookHome(tempfile::TempDir);

impl HookHome {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_watchdogctl"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).env_clear();
        let output = command.env("HOME", self.0.path()).env("PATH", "/nowhere").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    fn files(&self) -> Vec<String> {
        fn walk(dir: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    walk(&path, root, found)
                } else {
                    found.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(self.0.path(), self.0.path(), &mut found);
        found.retain(|name| !name.starts_with(".local"));
        found.sort();
        found
    }
}

#[rstest]
#[case("claude-code", ".claude/settings.json")]
#[case("codex", ".codex/hooks.json")]
#[case("gemini-cli", ".gemini/settings.json")]
fn missing_settings_are_created_and_removed(#[case] agent: &str, #[case] file: &str) {
    for scope in ["--user", "--project"] {
        let home = HookHome::new();
        let (code, out, err) = home.run(&["hook", "install", agent, scope, "--yes"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("+++ ") && out.contains(&format!("watchdogctl hook {agent}")), "{out}");
        assert_eq!(home.files(), [file]);
        let text = fs::read_to_string(home.path(file)).unwrap();
        assert!(serde_json::from_str::<Value>(&text).unwrap()["hooks"].is_object());
        let (code, out, _) = home.run(&["hook", "install", agent, scope, "--yes"]);
        assert!(code == 0 && out.contains("installed already"), "{out}");
        assert_eq!(fs::read_to_string(home.path(file)).unwrap(), text);
        let (code, _, err) = home.run(&["hook", "uninstall", agent, scope, "--yes"]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(home.files().is_empty() && !home.path(file).parent().unwrap().exists());
        let (code, out, _) = home.run(&["hook", "uninstall", agent, scope, "--yes"]);
        assert!(code == 0 && out.contains("not installed"), "{out}");
    }
}

#[rstest]
#[case("{}")]
#[case("")]
#[case("{\"b\":1,\"a\":{\"hooks\":[]}}")]
#[case("{\"hooks\": {}, \"model\": \"opus\"}\n")]
#[case("{\n  \"hooks\": {\"Stop\": [], \"PreToolUse\": [{\"hooks\": []}]}\n}\n\n")]
fn uninstall_restores_the_file(#[case] before: &str) {
    let home = HookHome::new();
    let file = home.path(".claude/settings.json");
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, before).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(home.run(&["hook", "install", "claude-code", "-y"]).0, 0);
    assert_ne!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(home.run(&["hook", "uninstall", "claude-code", "-y"]).0, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(home.files(), [".claude/settings.json"]);
}

#[test]
fn later_edits_survive_uninstall() {
    let home = HookHome::new();
    let file = home.path(".claude/settings.json");
    home.run(&["hook", "install", "claude-code", "-y"]);
    let mut settings: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    settings["model"] = "opus".into();
    fs::write(&file, settings.to_string()).unwrap();
    assert_eq!(home.run(&["hook", "uninstall", "claude-code", "-y"]).0, 0);
    let left: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(left, serde_json::json!({"model": "opus"}));
}

#[test]
fn symbolic_link_is_kept() {
    let home = HookHome::new();
    fs::create_dir_all(home.path("dotfiles")).unwrap();
    fs::create_dir(home.path(".gemini")).unwrap();
    fs::write(home.path("dotfiles/gemini.json"), "{\n  // mine\n  \"a\": 1\n}\n").unwrap();
    symlink("../dotfiles/gemini.json", home.path(".gemini/settings.json")).unwrap();
    assert_eq!(home.run(&["hook", "install", "gemini-cli", "-y"]).0, 0);
    assert!(home.path(".gemini/settings.json").is_symlink());
    let text = fs::read_to_string(home.path("dotfiles/gemini.json")).unwrap();
    assert!(text.starts_with("{\n  // mine\n  \"a\": 1,\n") && text.contains("BeforeTool"), "{text}");
    assert_eq!(home.files(), [".gemini/settings.json", "dotfiles/gemini.json"]);
}

#[rstest]
#[case("claude-code", ".claude/settings.json")]
#[case("codex", ".codex/hooks.json")]
#[case("gemini-cli", ".gemini/settings.json")]
fn read_only_settings_are_left_alone(#[case] agent: &str, #[case] file: &str) {
    let home = HookHome::new();
    let file = home.path(file);
    let protect = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "{\"a\": 1}\n").unwrap();
    protect(0o444);
    let refused = |action: &str| {
        let before = fs::read_to_string(&file).unwrap();
        let (code, _, err) = home.run(&["hook", action, agent, "-y"]);
        assert!(code == 1 && err.contains("is read-only (mode 0444)") && err.contains("Nothing was changed."), "{err}");
        assert_eq!((fs::read_to_string(&file).unwrap(), home.files().len()), (before, 1));
    };
    refused("install");
    protect(0o644);
    assert_eq!(home.run(&["hook", "install", agent, "-y"]).0, 0);
    protect(0o444);
    refused("uninstall");
}

#[test]
fn broken_settings_are_left_alone() {
    let home = HookHome::new();
    let file = home.path(".codex/hooks.json");
    fs::create_dir(file.parent().unwrap()).unwrap();
    for (broken, place) in [("{\n  \"hooks\": {\n", ":2:"), ("{\"hooks\": []}", ":1:11: hooks: must be an object")] {
        fs::write(&file, broken).unwrap();
        for action in ["install", "uninstall"] {
            let (code, out, err) = home.run(&["hook", action, "codex", "-y"]);
            assert_eq!((code, out.as_str()), (1, ""));
            assert!(err.contains(&format!("hooks.json{place}")) && err.contains("Nothing was changed."), "{err}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), broken);
    }
    fs::write(&file, [0xff, 0xfe]).unwrap();
    let (code, _, err) = home.run(&["hook", "install", "codex", "-y"]);
    assert!(code == 1 && err.contains("cannot read the settings"), "{err}");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let (code, _, err) = home.run(&["hook", "install", "codex", "-y"]);
    assert!(code == 1 && err.contains("not a regular file"), "{err}");
}

#[test]
fn consent_is_required() {
    let home = HookHome::new();
    let (code, out, err) = home.run(&["hook", "install", "claude-code"]);
    assert!(code == 2 && out.contains("+{") && err.contains("--yes"), "{out}{err}");
    let (code, out, err) = home.run(&["hook", "install", "claude-code", "--dry-run"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("SubagentStop"), "{out}");
    assert!(home.files().is_empty());
    let (code, out, _) = home.run(&["--json", "hook", "install", "claude-code", "--yes"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["installed"], &report["changed"]), (0, &true.into(), &true.into()));
    assert!(report["file"].as_str().unwrap().ends_with("/.claude/settings.json"));
}
