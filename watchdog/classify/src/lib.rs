//! Classifies programs by what was executed: pure, and blind to later arguments.
//!
//! [`helper_kind`] gives the kind of a helper; the functions of `roles.rs` say what should stay, and what ends by
//! itself; `identity.rs` says which programs are the same; `redact.rs` removes from an image the arguments that no rule asks for.
//! `table/` has the names of programs that rules know, and `runtime.rs` those of interpreters.

mod env_command;
mod genuine;
mod heap_options;
mod identity;
mod names;
pub mod options;
mod program;
mod redact;
mod roles;
mod runtime;
mod ssh;
pub mod table;
pub mod v8;
mod words;
mod wrapped;

pub use genuine::{bears_name, can_be_agent_daemon, can_be_build_server, can_be_editor_server, can_be_user_daemon};
pub use heap_options::{go_memory_limit, java_heap};
pub use identity::{Identity, identity, shell_command};
pub use names::base_name;
pub use program::Program;
pub use redact::ArgumentRedactor;
pub use roles::{
    agent_daemon, browser_daemon, build_server, compiles, container_client, editor_server, ends_by_itself,
    forks_multiplexer, holds_containers, lends_tools, multiplexer, not_half_done, opens_for_desktop, persons_browser,
    serves, sets_apart, starts_container, user_daemon,
};
pub use runtime::{AGENT_RUNTIMES, EXTENSIONS, Runtime};
pub use ssh::stays_connected;

use watchdog_api::ProcessKind;
use watchdog_types::Image;

/// The facts about a parent that bear on the kind of its child.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// The parent's kind.
    pub kind: ProcessKind,
    /// The image that the parent executed.
    pub image: &'a Image,
}

/// The kind of a helper; never [`ProcessKind::Agent`] or [`ProcessKind::Subagent`], which are a matter of profiles.
///
/// A process that has not executed a program since its fork still shows its parent's image: it has its parent's kind.
#[must_use]
pub fn helper_kind(image: &Image, comm: &str, parent: Option<Parent<'_>>) -> ProcessKind {
    let program = Program::of(image);
    let of_its_own = kind_of(&program, 0);
    let parent = parent.map(|parent| parent.kind);
    match (parent, of_its_own) {
        // Everything that a browser or a language server starts is part of it.
        (Some(ProcessKind::Browser), _) => ProcessKind::Browser,
        (Some(ProcessKind::LanguageServer), _) => ProcessKind::LanguageServer,
        (_, Some(Own::Kind(kind))) => kind,
        _ if multiplexer(image, comm).is_some() || user_daemon(image).is_some() || editor_server(image) => {
            ProcessKind::Other
        }
        (Some(ProcessKind::McpServer), _) => ProcessKind::McpServer,
        (Some(ProcessKind::Tool), _) => ProcessKind::Tool,
        (_, Some(Own::Likely(kind))) => kind,
        (Some(ProcessKind::Agent | ProcessKind::Subagent), _) => ProcessKind::Tool,
        (None | Some(ProcessKind::Other), _) => {
            let tool = program.runtime == Some(Runtime::Shell)
                || table::TOOLS.contains(&program.name())
                || build_server(image, comm).is_some();
            if tool { ProcessKind::Tool } else { ProcessKind::Other }
        }
    }
}

/// The kind of a program without regard to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Its name says so.
    Kind(ProcessKind),
    /// It looks so when an agent starts it directly; below a shell it is a tool.
    Likely(ProcessKind),
}

/// Wrappers inside wrappers are followed this deep: `sh -c "npx x"` in a `timeout` in an `env` is four.
const DEEPEST_WRAPPER: u32 = 6;

fn kind_of(program: &Program<'_>, depth: u32) -> Option<Own> {
    if depth > DEEPEST_WRAPPER {
        return None;
    }
    if is_browser(program) {
        return Some(Own::Kind(ProcessKind::Browser));
    }
    if is_language_server(program) {
        return Some(Own::Kind(ProcessKind::LanguageServer));
    }
    if let Some(inner) = wrapped::command_of(program) {
        return match kind_of(&inner.program, depth + 1) {
            // Below a shell, only a name makes a server: `sh -c "node server.js"` equals a typed command.
            Some(Own::Likely(_)) if program.command.is_some() => None,
            Some(own) => Some(own),
            None if inner.from_package && !is_tool_package(names::without_version(inner.program.path)) => {
                // A package that an agent runs without a shell is a server, unless it is known for something else.
                Some(Own::Likely(ProcessKind::McpServer))
            }
            None => None,
        };
    }
    if is_named_mcp_server(program) {
        return Some(Own::Kind(ProcessKind::McpServer));
    }
    is_likely_mcp_server(program).then_some(Own::Likely(ProcessKind::McpServer))
}

/// A package that is run as a tool: a project's, or one that makes a project.
fn is_tool_package(package: &str) -> bool {
    let name = base_name(package);
    table::TOOL_PACKAGES.contains(&package) || table::TOOLS.contains(&package) || name.starts_with("create-")
}

fn is_browser(program: &Program<'_>) -> bool {
    let name = program.name();
    let file = base_name(program.path);
    let known = |name| table::PERSONS_BROWSERS.contains(&name) || table::DRIVEN_BROWSERS.contains(&name);
    known(name)
        || table::BROWSER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || table::BROWSER_SCRIPTS.contains(&name)
        || (known(file) && program.runtime.is_none())
        || table::BROWSER_DIRECTORIES.iter().any(|directory| program.path.contains(directory))
        // Playwright drives its browsers from a server of its own.
        || (program.arg(0) == "run-driver" && program.location().contains("playwright"))
}

fn is_language_server(program: &Program<'_>) -> bool {
    let name = program.name();
    table::LANGUAGE_SERVERS.contains(&name)
        || table::LANGUAGE_SERVER_ENDS.iter().any(|end| name.ends_with(end))
        || table::LANGUAGE_SERVER_COMMANDS.contains(&(name, program.arg(0)))
        || program.arg(0) == "--lsp"
        || (name.starts_with("org.eclipse.equinox.launcher") && program.runtime == Some(Runtime::Java))
}

/// The file's, script's or package's own name says "MCP", or the first words do.
fn is_named_mcp_server(program: &Program<'_>) -> bool {
    // A shell's name is its script's, but `sh mcp-setup.sh` sets up rather than serves: only a script that was executed.
    let counts = program.runtime != Some(Runtime::Shell) || program.script_executed || program.script.is_none();
    let named = counts
        && (says_mcp(program.name())
            || program.package().is_some_and(|package| says_mcp(package) || is_known_mcp_server(package)));
    named
        || is_known_mcp_server(program.name())
        || (takes_commands(program) && is_mcp_command(program.arg(0), program.arg(1)))
}

/// Something higher up in the path says "MCP" or "server", as in `node /x/my-mcp/build/index.js` or `python server.py`.
fn is_likely_mcp_server(program: &Program<'_>) -> bool {
    // For its first moments npm's title hides what it runs; an agent that starts npm without a shell starts a server.
    let is_command = takes_commands(program) && matches!(program.arg(0), "mcp" | "--mcp");
    if is_command || (program.title == Some("npm") && program.args.is_empty()) {
        return true;
    }
    let script = program.location();
    let is_script = program.script.is_some() && program.runtime != Some(Runtime::Shell);
    if !is_script && !script.ends_with(".py") {
        return false;
    }
    let stem = program.name().split('.').next().unwrap_or_default();
    // Commands that are installed into an environment say nothing about it: `my-mcp/.venv/bin/pytest`.
    let installed = script.contains("/node_modules/") || script.rsplit('/').nth(1) == Some("bin");
    (!installed && script.rsplit('/').skip(1).take(4).any(says_mcp))
        || stem.split(['-', '_']).any(|word| word.eq_ignore_ascii_case("server"))
        || ["/build/index.js", "/dist/index.js"].iter().any(|end| script.ends_with(end))
}

/// Whether the first argument may be a command, and not a file or a word to look for.
fn takes_commands(program: &Program<'_>) -> bool {
    !table::TOOLS.contains(&program.name())
}

/// `mcp start`, `mcp-server`, `run-test-mcp-server`, `boost:mcp`.
fn is_mcp_command(first: &str, second: &str) -> bool {
    (first == "mcp" && table::MCP_VERBS.contains(&second))
        || first.ends_with("mcp-server")
        || first == "mcp-serve"
        || first.ends_with(":mcp")
        || first.starts_with("mcp:")
}

fn is_known_mcp_server(name: &str) -> bool {
    table::MCP_SERVERS.contains(&names::without_version(name)) || name.starts_with("@modelcontextprotocol/")
}

/// "mcp" stands in the name as a word: `mcp-server-git`, `context7-mcp`, `mcp_server_fetch`, `@playwright/mcp@latest`.
fn says_mcp(name: &str) -> bool {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word.eq_ignore_ascii_case("mcp") || word.eq_ignore_ascii_case("fastmcp"))
}

/// A short name for a person: the script or program, never the arguments.
#[must_use]
pub fn label(image: &Image, comm: &str) -> String {
    let program = Program::of(image);
    let name = program.name();
    if name.is_empty() { comm.to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests;
