//! Agent programs, their options, servers and daemons.

/// Agent programs by their own name or package, with the leading words that make them a server of another program.
pub const AGENT_SERVERS: &[(&[&str], &[&[&str]])] = &[
    (&["claude", "claude.exe", "@anthropic-ai/claude-code"], &[&["mcp", "serve"]]),
    (&["codex", "@openai/codex"], &[&["mcp-server"], &["mcp", "serve"], &["app-server"], &["exec-server"]]),
    (&["gemini", "@google/gemini-cli", "qwen", "@qwen-code/qwen-code"], &[&["--acp"], &["--experimental-acp"]]),
    (&["opencode", "opencode.exe"], &[&["acp"], &["serve"], &["web"]]),
    (&["copilot", "@github/copilot"], &[&["--acp"], &["--server"], &["--headless"]]),
    (&["cline"], &[&["--acp"], &["acp"]]),
    (&["goose", "goosed"], &[&["acp"], &["agent"], &["serve"], &["web"]]),
    (&["cursor-agent", "agent", "index.js"], &[&["acp"], &["--acp"]]),
    (&["openclaw", "openclaw.mjs"], &[&["acp"], &["mcp", "serve"]]),
];

/// Agent programs whose `mcp serve` lends tools.
pub const TOOL_LENDERS: &[&str] = &["claude", "claude.exe", "@anthropic-ai/claude-code"];

/// Options of agent programs that take a value, so that it is not taken for the first word.
pub const AGENT_OPTIONS_WITH_VALUE: &[&str] = &[
    "--add-dir",
    "--allowedTools",
    "--approval-mode",
    "--cd",
    "--config",
    "--cwd",
    "--disable",
    "--disallowedTools",
    "--enable",
    "--log-level",
    "--mcp-config",
    "--model",
    "--permission-mode",
    "--profile",
    "--session-id",
    "--settings",
    "--setting-sources",
    "-C",
    "-c",
    "-m",
];

/// Daemons of agents that are meant to outlive the agent that started them: name or package, and the leading words.
pub const AGENT_DAEMONS: &[(&[&str], &[&[&str]])] = &[
    (&["claude", "claude.exe", "@anthropic-ai/claude-code"], &[&["daemon", "run"]]),
    (&["codex"], &[&["app-server", "daemon"]]),
    (&["cline"], &[&["--cline-hub-daemon"]]),
    (
        &["claude-flow", "claude-flow.js", "@claude-flow/cli", "ruflo", "ruflo.js"],
        &[&["daemon", "start"], &["daemon", "run"]],
    ),
    (&["worker-service.cjs"], &[&["--daemon"]]),
    (&["openclaw", "openclaw.mjs"], &[&["gateway"]]),
    (&["openclaw-gateway"], &[&[]]),
];

/// A switch that makes any codex app-server the managed daemon, wherever it stands among the options.
pub const CODEX_MANAGED_DAEMON: &str = "--managed-daemon";
