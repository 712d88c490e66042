//! Which programs are agents, and which only look like one.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use watchdog_types::Image;

fn image(path: &str, argv: &[&str]) -> Image {
    Image::new(path, argv.iter().copied())
}

fn recognised(path: &str, argv: &[&str]) -> Option<String> {
    Profile::find(&Profile::built_in(), &image(path, argv), "").map(|profile| profile.name.clone())
}

#[rstest]
#[case::claude("/h/.local/bin/claude", &["claude"], "claude-code")]
#[case::claude_subagent("/h/.local/bin/claude", &["/h/.local/bin/claude", "--output-format", "stream-json"], "claude-code")]
#[case::claude_version("/h/.local/share/claude/versions/2.1.224", &["claude"], "claude-code")]
#[case::claude_version_itself("/h/.local/share/claude/versions/2.1.224", &["/h/.local/share/claude/versions/2.1.224", "-p"], "claude-code")]
#[case::claude_npm("/x/bin/claude.exe", &["/x/node_modules/.bin/claude"], "claude-code")]
#[case::claude_extension("/h/.vscode-server/extensions/anthropic.claude-code-2.1.142/resources/native-binary/claude", &["/h/.vscode-server/extensions/anthropic.claude-code-2.1.142/resources/native-binary/claude", "--output-format"], "claude-code")]
#[case::claude_found_through_path("claude", &["claude"], "claude-code")]
#[case::claude_daemon("/h/.local/bin/claude", &["claude", "daemon", "run"], "claude-code")]
#[case::claude_script("/usr/bin/node", &["node", "/x/.bin/claude", "-p", "hi"], "claude-code")]
#[case::claude_cli("/usr/bin/node", &["node", "--no-warnings", "/x/@anthropic-ai/claude-code/cli.js"], "claude-code")]
#[case::claude_script_executed("/x/.bin/claude", &["/usr/bin/env", "node", "/x/.bin/claude"], "claude-code")]
#[case::claude_titled("/usr/bin/node", &["claude", ""], "claude-code")]
#[case::codex_launcher("/usr/bin/node", &["node", "/x/.bin/codex", "exec"], "codex")]
#[case::codex("/x/vendor/x86_64-unknown-linux-musl/bin/codex", &["/x/vendor/x86_64-unknown-linux-musl/bin/codex"], "codex")]
#[case::codex_release("/h/bin/codex-x86_64-unknown-linux-musl", &["codex-x86_64-unknown-linux-musl"], "codex")]
#[case::gemini("/usr/bin/node", &["node", "/x/.bin/gemini"], "gemini")]
#[case::gemini_again("/usr/bin/node", &["/usr/bin/node", "--max-old-space-size=1", "/x/.bin/gemini"], "gemini")]
#[case::opencode("/x/opencode.exe", &["/x/.bin/opencode"], "opencode")]
#[case::opencode_serve("/h/.opencode/bin/opencode", &["opencode", "serve"], "opencode")]
#[case::copilot("/x/@github/copilot-linux-x64/copilot", &["/x/@github/copilot-linux-x64/copilot"], "copilot")]
#[case::cline("/x/cline", &["/x/.bin/cline", "--tui"], "cline")]
#[case::aider("/usr/bin/python3.11", &["/v/bin/python3", "/v/bin/aider"], "aider")]
#[case::aider_module("/v/bin/python3", &["python3", "-m", "aider"], "aider")]
#[case::goose("/h/.local/bin/goose", &["goose", "session"], "goose")]
#[case::cursor("/h/.local/share/cursor-agent/versions/2025.1/node", &["/h/.local/bin/agent", "/h/.local/share/cursor-agent/versions/2025.1/index.js"], "cursor-agent")]
#[case::claude_flow("/usr/bin/node", &["node", "/x/@claude-flow/cli/bin/cli.js", "daemon", "start"], "claude-flow")]
#[case::amp("/x/node_modules/@ampcode/cli-linux-x64/amp", &["amp"], "amp")]
#[case::amp_package("/x/node_modules/@ampcode/cli/bin/amp.exe", &["/x/node_modules/.bin/amp", "-x"], "amp")]
#[case::crush("/h/go/bin/crush", &["crush", "run"], "crush")]
#[case::crush_launcher("/usr/bin/node", &["node", "/x/.bin/crush"], "crush")]
#[case::kilo("/x/node_modules/@kilocode/cli-linux-x64/bin/kilo", &["/x/node_modules/@kilocode/cli-linux-x64/bin/kilo"], "kilo")]
#[case::kilo_launcher("/usr/bin/node", &["node", "/x/.bin/kilocode"], "kilo")]
#[case::qwen_entry("/usr/bin/node", &["node", "/x/@qwen-code/qwen-code/cli-entry.js"], "qwen-code")]
#[case::droid("/x/node_modules/droid/bin/droid", &["/x/node_modules/.bin/droid"], "droid")]
#[case::kiro("/h/.local/bin/kiro-cli-chat", &["kiro-cli-chat", "chat"], "kiro")]
#[case::openhands("/v/bin/python3", &["/v/bin/python3", "/v/bin/openhands"], "openhands")]
#[case::plandex("/usr/local/bin/plandex", &["pdx"], "plandex")]
#[case::cagent("/usr/local/bin/cagent", &["cagent", "run", "a.yaml"], "cagent")]
#[case::extension_host("/v/node", &["/v/node", "--dns-result-order=ipv4first", "/v/out/bootstrap-fork", "--type=extensionHost"], "vscode")]
fn agent_is_recognised(#[case] path: &str, #[case] argv: &[&str], #[case] expected: &str) {
    assert_eq!(recognised(path, argv).as_deref(), Some(expected));
}

#[rstest]
#[case::editor("/usr/bin/vim", &["vim", "claude.md"])]
#[case::grep("/usr/bin/grep", &["grep", "-r", "claude", "/x/.bin/claude"])]
#[case::git("/usr/bin/git", &["git", "clone", "https://x/claude"])]
#[case::shell("/bin/bash", &["bash", "-c", "claude -p hi"])]
#[case::shell_snapshot("/bin/bash", &["/bin/bash", "-c", "source /h/.claude/shell-snapshots/s.sh && eval 'x'"])]
#[case::pytest("/v/bin/python", &["python", "-m", "pytest", "/tmp/claude-1000/tests"])]
#[case::other_repository("/usr/bin/node", &["node", "/x/claude-watch/index.js"])]
#[case::directory("/home/claude/bin/server", &["/home/claude/bin/server"])]
#[case::script_in_directory("/usr/bin/node", &["node", "/x/claude/index.js"])]
#[case::required_module("/usr/bin/node", &["node", "--require", "/x/.bin/claude", "/y/server.js"])]
#[case::code("/usr/bin/node", &["node", "-e", "/x/.bin/claude"])]
#[case::native_host("/h/.local/bin/claude", &["/h/.local/bin/claude", "--chrome-native-host"])]
#[case::its_own_grep("/h/.local/share/claude/versions/2.1.224", &["ugrep", "-r", "x"])]
#[case::its_file_search("/h/.local/bin/claude", &["rg", "--files"])]
#[case::below_a_version("/h/.local/share/claude/versions/2.1.224/vendor/rg-14.1.0", &["rg"])]
#[case::version_elsewhere("/h/.nvm/versions/2.1.224", &["2.1.224"])]
#[case::mcp_server("/usr/bin/python3", &["python", "mcp-server.py"])]
#[case::claude_flow_server("/usr/bin/node", &["node", "/x/.bin/claude-flow", "mcp", "start"])]
#[case::status_line("/usr/bin/node", &["node", "/x/.bin/ruflo", "hooks", "statusline"])]
#[case::desktop_renderer("/opt/Claude/claude", &["/opt/Claude/claude", "--type=renderer"])]
#[case::sandbox("/x/bin/codex", &["codex-linux-sandbox", "--", "ls"])]
#[case::patch("/x/bin/codex", &["codex", "--codex-run-as-apply-patch", "p"])]
#[case::migration("/h/go/bin/goose", &["goose", "postgres", "up"])]
#[case::deployment("/usr/local/bin/copilot", &["copilot", "svc", "deploy"])]
#[case::kilo_editor("/usr/local/bin/kilo", &["kilo", "notes.txt"])]
#[case::amp_editor("/usr/bin/amp", &["amp", "main.rs"])]
#[case::router("/usr/bin/node", &["node", "/x/.bin/ccr", "start"])]
#[case::kiro_editor_renderer("/opt/kiro/kiro", &["/opt/kiro/kiro", "--type=renderer"])]
#[case::pty_host("/v/node", &["/v/node", "/v/out/bootstrap-fork", "--type=ptyHost"])]
#[case::editor_server("/v/node", &["/v/node", "/v/out/server-main.js"])]
#[case::npx("/usr/bin/node", &["node", "/usr/bin/npx", "claude"])]
#[case::sample("/usr/bin/sample", &["sample"])]
#[case::agent("/usr/bin/agent", &["agent"])]
#[case::ssh_agent("/usr/bin/ssh-agent", &["ssh-agent"])]
#[case::nothing("", &[])]
fn lookalike_is_not_recognised(#[case] path: &str, #[case] argv: &[&str]) {
    assert_eq!(recognised(path, argv), None);
}

#[test]
fn comm_alone_proves_nothing() {
    let built_in = Profile::built_in();
    let pretender = image("/usr/bin/node", &["node", "/x/y.js"]);
    for comm in ["claude", "codex", "2.1.224", "MainThread", "opencode"] {
        assert!(Profile::find(&built_in, &pretender, comm).is_none(), "{comm}");
    }
}

#[test]
fn every_given_key_must_match() {
    let patterns = Patterns { exe: vec!["*/a".into()], comm: vec!["b".into(), "c*".into()], ..Patterns::default() };
    let profile = Profile::new("p", [patterns]).unwrap();
    assert!(profile.matches(&image("/x/a", &["a"]), "cat"));
    assert!(!profile.matches(&image("/x/a", &["a"]), "a"));
    assert!(!profile.matches(&image("/x/b", &["a"]), "b"));
}

#[test]
fn only_launchers_relaunch() {
    let relaunching: Vec<_> =
        Profile::built_in().into_iter().filter(|profile| profile.is_launcher).map(|p| p.name).collect();
    assert_eq!(relaunching, ["codex", "gemini", "qwen-code", "opencode", "copilot", "crush", "kilo"]);
}

/// Globs of the forms that people write, over few letters, so that they meet the paths below.
fn glob() -> impl Strategy<Value = String> {
    let component =
        prop_oneof![Just("a"), Just("b"), Just("*"), Just("a*"), Just("?"), Just("[ab]"), Just("{a,b}"), Just("[0-9]")];
    proptest::collection::vec(component, 1..4).prop_map(|components| components.join("/"))
}

fn globs() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(glob(), 0..3)
}

fn path() -> impl Strategy<Value = String> {
    let component = prop_oneof![
        Just("a"),
        Just("b"),
        Just("ab"),
        Just("1"),
        Just("node"),
        Just("python3"),
        Just("sh"),
        Just("fifteen-letters-long")
    ];
    (proptest::bool::ANY, proptest::collection::vec(component, 1..4))
        .prop_map(|(absolute, components)| format!("{}{}", if absolute { "/" } else { "" }, components.join("/")))
}

proptest! {
    /// At exec the kernel sees the path and comm, its last component: every program that a profile recognises by them must
    /// be a candidate. A script that is executed itself comes with its own path.
    #[test]
    fn candidates_cover_every_recognised_program(
        exe in globs(), argv0 in globs(), script in globs(), comm in globs(),
        path in path(), argv in proptest::collection::vec(path(), 1..4), executed in proptest::bool::ANY,
    ) {
        let Ok(profile) = Profile::new("p", [Patterns { exe, argv0, script, comm, ..Patterns::default() }]) else { return Ok(()) };
        let argv: Vec<&str> = match executed {
            true => vec!["/usr/bin/node", &path, "x"],
            // argv[0] as a shell or execvp writes it: a path before a shell's script only when the kernel put it there.
            false => std::iter::once(path.rsplit('/').next().unwrap_or_default()).chain(argv.iter().map(String::as_str)).collect(),
        };
        let comm: String = path.rsplit('/').next().unwrap_or_default().chars().take(15).collect();
        if profile.matches(&image(&path, &argv), &comm) {
            prop_assert!(Candidates::of(&[profile]).covers(&path));
        }
    }
}
