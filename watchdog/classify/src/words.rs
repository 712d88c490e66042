//! The arguments that classification asks for by name. Besides the options of ssh, no other argument decides anything as
//! it stands, so that these are the only ones that a recording has to hold.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::{options, table};

/// Words that the rules name where they stand, rather than in a table.
const NAMED: &[&str] = &[
    "--",
    "-",
    "-c",
    "-i",
    "-m",
    "-p",
    "-t",
    "--acp",
    "--call",
    "--daemon",
    "--interactive",
    "--lsp",
    "--mcp",
    "--module",
    "--parent-pid",
    "--ping",
    "--print",
    "--prompt",
    "--server",
    "--service",
    "--statefile",
    "--tty",
    "command-shell",
    "compose",
    "container",
    "credential-cache--daemon",
    "daemon",
    "exec",
    "fork-server",
    "mcp",
    "mcp-serve",
    "run",
    "run-driver",
    "up",
    "uvx",
    "x",
];

static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let mut words: HashSet<&str> = NAMED.iter().copied().collect();
    words.extend(table::MCP_VERBS);
    words.extend(options::of_wrappers());
    words.extend(table::AGENT_OPTIONS_WITH_VALUE);
    words.extend(table::LANGUAGE_SERVER_COMMANDS.iter().map(|(_, argument)| argument));
    words.extend(table::BUILD_SERVERS_BY_ARGUMENT.iter().map(|(_, argument, _)| argument));
    words.extend(table::PACKAGE_RUNNER_VERBS.iter().flat_map(|(_, verbs)| *verbs));
    let forms = table::AGENT_SERVERS.iter().chain(table::AGENT_DAEMONS).flat_map(|(_, forms)| *forms);
    words.extend(forms.copied().flatten());
    words.extend(table::AUTOMATION_OPTIONS);
    words.insert(table::CODEX_MANAGED_DAEMON);
    words
});

/// Whether a rule asks for this argument by name.
pub(super) fn asked_for(argument: &str) -> bool {
    WORDS.contains(argument)
}
