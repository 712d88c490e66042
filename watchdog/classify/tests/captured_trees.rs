//! Walks trees that were captured from real agents and MCP servers (see `fixtures/agent-trees/README.md`), and compares
//! each process with the role that it had.

use std::collections::BTreeMap;

use watchdog_api::ProcessKind::{self, Agent, LanguageServer, McpServer, Subagent, Tool};
use watchdog_classify::{Parent, agent_daemon, helper_kind, serves};
use watchdog_config::{Candidates, Profile};
use watchdog_fixtures::captures::{Capture, Captured, captures, profiles};

/// The profile of the agent that a capture is named after.
fn profile_of(capture: &str) -> &'static str {
    let prefixes = [
        ("claude-flow", "claude-flow"),
        ("daemon--claude-flow", "claude-flow"),
        ("claude", "claude-code"),
        ("codex", "codex"),
        ("gemini", "gemini"),
        ("copilot", "copilot"),
        ("cline", "cline"),
        ("opencode", "opencode"),
        ("aider", "aider"),
        ("amp", "amp"),
        ("droid", "droid"),
        ("qwen-code", "qwen-code"),
    ];
    let name = capture.trim_start_matches("short--");
    let found = prefixes.into_iter().find(|(prefix, _)| name.starts_with(prefix));
    found
        .or_else(|| prefixes.into_iter().find(|(prefix, _)| name.contains(prefix)))
        .map_or("none", |(_, profile)| profile)
}

/// The kind, as the engine finds it: a profile's, or a helper's below its parent.
fn kind_in_tree(process: &Captured, tree: &BTreeMap<u32, &Captured>, profiles: &[Profile]) -> ProcessKind {
    let image = process.image();
    let parent = tree.get(&process.ppid).filter(|parent| parent.pid != process.pid);
    if Profile::find(profiles, &image, &process.comm).is_some() {
        return if parent.is_some() { Subagent } else { Agent };
    }
    let parent_image = parent.map(|parent| parent.image()).unwrap_or_default();
    let parent = parent.map(|parent| Parent { kind: kind_in_tree(parent, tree, profiles), image: &parent_image });
    helper_kind(&image, &process.comm, parent)
}

/// What is wrong with what we say about this process; nothing, if it is right.
fn complaint(
    capture: &Capture,
    process: &Captured,
    tree: &BTreeMap<u32, &Captured>,
    profiles: &[Profile],
) -> Option<String> {
    let image = process.image();
    let profile = Profile::find(profiles, &image, &process.comm).map_or("none", |profile| profile.name.as_str());
    let kind = kind_in_tree(process, tree, profiles);
    let helper = |expected: ProcessKind| (kind == expected && profile == "none", format!("{expected:?}"));
    let agent = |expected: &str| (profile == expected, format!("profile {expected}"));
    let below_language_server = || {
        let parent = tree.get(&process.ppid);
        parent.is_some_and(|parent| kind_in_tree(parent, tree, profiles) == LanguageServer)
    };
    let (right, expected) = match process.expected_role.as_str() {
        "stand-in-agent" => agent("stand-in"),
        "agent-root" | "agent-launcher" => agent(profile_of(&capture.name)),
        "agent-as-server" => {
            (profile == profile_of(&capture.name) && serves(&image), "an agent that serves".to_owned())
        }
        "agent-daemon" => {
            (profile == profile_of(&capture.name) && agent_daemon(&image), "an agent's daemon".to_owned())
        }
        "mcp-server" | "mcp-shell-wrapper" | "npx-wrapper" | "uvx-wrapper" | "mcp-sidecar" => helper(McpServer),
        "lsp-server" | "lsp-child" | "npm-install" => helper(LanguageServer),
        "shell-wrapper" if below_language_server() => helper(LanguageServer),
        "tool-child" | "tool-shell" | "npm-script-wrapper" | "dev-server" | "shell-wrapper" => helper(Tool),
        // The program that started the capture.
        "harness-prelude" => (profile == "none", "no agent".to_owned()),
        // Between an exec and its command line: its kind is unknown.
        "exec-transition" => (process.argv.is_empty(), "nothing".to_owned()),
        other => (false, format!("a role that this test knows, not {other}")),
    };
    let difference = format!(
        "{}: {} {:?}: expected {expected}, found {kind:?}, profile {profile}",
        capture.name, process.comm, process.argv
    );
    (!right).then_some(difference)
}

fn tree_of(capture: &Capture) -> BTreeMap<u32, &Captured> {
    // A process that was seen twice is kept as it was last: its children came after that.
    capture.procs.iter().map(|process| (process.pid, process)).collect()
}

#[test]
fn captured_processes_keep_their_kind() {
    let profiles = profiles();
    let captures = captures();
    let mut looked_at = BTreeMap::<&str, usize>::new();
    let mut complaints = Vec::new();
    for capture in &captures {
        let tree = tree_of(capture);
        for process in &capture.procs {
            *looked_at.entry(&process.expected_role).or_default() += 1;
            complaints.extend(complaint(capture, process, &tree, &profiles));
        }
    }
    complaints.sort();
    complaints.dedup();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    assert_eq!(captures.len(), 257);
    insta::assert_debug_snapshot!(looked_at);
}

/// After the agent's death the same processes are seen again, some with a title written over their arguments; what they
/// were below is known from before.
#[test]
fn survivors_are_still_what_they_were() {
    let profiles = profiles();
    let mut looked_at = 0;
    let mut complaints = Vec::new();
    for capture in &captures() {
        let tree = tree_of(capture);
        for process in capture.survivors.iter().chain(&capture.left_behind) {
            let ppid = tree.get(&process.pid).map_or(process.ppid, |before| before.ppid);
            let seen = Captured { ppid, ..process.clone() };
            looked_at += 1;
            complaints.extend(complaint(capture, &seen, &tree, &profiles));
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    assert_eq!(looked_at, 167);
}

#[test]
fn kernel_candidates_cover_captured_agents() {
    let profiles = profiles();
    let candidates = Candidates::of(&profiles);
    let mut agents = 0;
    for process in captures().iter().flat_map(|capture| &capture.procs) {
        if Profile::find(&profiles, &process.image(), &process.comm).is_some() {
            agents += 1;
            assert!(candidates.covers(&process.exe_path), "{}", process.exe_path);
        }
    }
    assert!(agents > 300, "only {agents} agents");
}
