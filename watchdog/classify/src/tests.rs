//! Kinds of helpers, one by one; whole trees are walked in `captured_trees.rs`.

use rstest::rstest;

use super::*;
use watchdog_api::ProcessKind::{Agent, Browser, LanguageServer, McpServer, Other, Tool};

pub(super) fn image(path: &str, argv: &[&str]) -> Image {
    Image::new(path, argv.iter().copied())
}

fn kind(path: &str, argv: &[&str], parent: Option<ProcessKind>) -> ProcessKind {
    let parent_image = Image::default();
    helper_kind(&image(path, argv), "", parent.map(|kind| Parent { kind, image: &parent_image }))
}

#[rstest]
#[case::npm_package("/usr/bin/node", &["node", "/x/.bin/mcp-server-memory"], McpServer)]
#[case::npx("/usr/bin/node", &["node", "/usr/bin/npx", "-y", "@modelcontextprotocol/server-filesystem", "/p"], McpServer)]
#[case::npx_script("/usr/bin/npx", &["/usr/bin/env", "node", "/usr/bin/npx", "-y", "@playwright/mcp@latest"], McpServer)]
#[case::npx_titled("/usr/bin/node", &["npm exec @upstash/context7-mcp"], McpServer)]
#[case::npx_in_shell("/bin/sh", &["sh", "-c", "'mcp-server-filesystem' /p"], McpServer)]
#[case::npx_unknown("/usr/bin/node", &["node", "/usr/bin/npx", "-y", "something-else"], McpServer)]
#[case::npx_cli_script("/usr/bin/node", &["node", "/usr/lib/node_modules/npm/bin/npx-cli.js", "-y", "x-mcp"], McpServer)]
#[case::npx_tool("/usr/bin/node", &["npm exec vitest run"], Tool)]
#[case::npm_run("/usr/bin/node", &["npm run dev"], Tool)]
#[case::npm_install("/usr/bin/node", &["npm install left-pad"], Tool)]
#[case::uvx("/p/uv", &["/p/uv", "tool", "uvx", "mcp-server-git"], McpServer)]
#[case::uvx_from("/p/uvx", &["uvx", "--from", "git+https://x/serena", "serena", "start-mcp-server"], McpServer)]
#[case::uvx_options("/p/uv", &["uv", "tool", "uvx", "--python", "3.13", "chroma-mcp", "--data-dir", "d"], McpServer)]
#[case::uv_run_script("/p/uv", &["uv", "--directory", "/x", "run", "server.py"], McpServer)]
#[case::uv_pip("/p/uv", &["uv", "pip", "install", "mcp"], Tool)]
#[case::python_script("/usr/bin/python3.11", &["/v/bin/python3", "/v/bin/mcp-server-time"], McpServer)]
#[case::artisan("/usr/bin/php", &["php", "artisan", "boost:mcp"], McpServer)]
#[case::artisan_tests("/usr/bin/php", &["php", "artisan", "test"], Tool)]
#[case::tsx_server("/usr/bin/node", &["node", "/x/node_modules/.bin/tsx", "/x/notes-mcp/src/index.ts"], McpServer)]
#[case::conda_module("/usr/bin/python3", &["python3", "/c/bin/conda", "run", "-n", "e", "python", "-m", "mcp_server_x"], McpServer)]
#[case::bundle_tests("/usr/bin/ruby", &["ruby", "/usr/bin/bundle", "exec", "rspec"], Tool)]
#[case::python_module("/usr/bin/python3", &["python3", "-m", "mcp_server_fetch"], McpServer)]
#[case::python_file("/usr/bin/python", &["python", "mcp-server.py"], McpServer)]
#[case::node_build("/usr/bin/node", &["node", "/home/u/weather/build/index.js"], McpServer)]
#[case::native("/h/codebase-memory-mcp", &["/h/codebase-memory-mcp"], McpServer)]
#[case::subcommand("/usr/bin/node", &["node", "/x/.bin/claude-flow", "mcp", "start"], McpServer)]
#[case::titled("/usr/bin/node", &["chrome-devtools-mcp"], McpServer)]
#[case::docker("/usr/bin/docker", &["docker", "run", "-i", "--rm", "ghcr.io/github/github-mcp-server"], McpServer)]
#[case::docker_unnamed("/usr/bin/docker", &["docker", "run", "-i", "--rm", "-e", "TOKEN", "acme/tool"], McpServer)]
#[case::docker_tool("/usr/bin/docker", &["docker", "run", "--rm", "alpine", "true"], Tool)]
#[case::docker_edits("/usr/bin/docker", &["docker", "run", "--rm", "alpine", "sed", "-i", "s/a/b/", "f"], Tool)]
#[case::docker_server_inside("/usr/bin/docker", &["docker", "exec", "-i", "box", "python3", "-m", "mcp_server_fetch"], McpServer)]
#[case::docker_terminal("/usr/bin/docker", &["docker", "run", "-i", "-t", "acme/tool"], Tool)]
#[case::docker_ps("/usr/bin/docker", &["docker", "ps"], Tool)]
#[case::language_server("/usr/bin/node", &["node", "/x/.bin/typescript-language-server", "--stdio"], LanguageServer)]
#[case::tsc_lsp("/x/lib/tsc", &["/x/lib/tsc", "--lsp", "--stdio"], LanguageServer)]
#[case::tsc("/usr/bin/node", &["node", "/x/.bin/tsc", "--noEmit"], Tool)]
#[case::rust_analyzer("/h/rust-analyzer", &["rust-analyzer"], LanguageServer)]
#[case::proc_macros("/h/rust-analyzer-proc-macro-srv", &["/h/rust-analyzer-proc-macro-srv"], LanguageServer)]
#[case::pyright("/usr/bin/node", &["node", "/x/.bin/pyright-langserver", "--stdio"], LanguageServer)]
#[case::pyright_cli("/usr/bin/node", &["node", "/x/.bin/pyright", "."], Tool)]
#[case::pylsp("/v/python3", &["python3", "-m", "pylsp"], LanguageServer)]
#[case::jdtls("/j/java", &["java", "-Declipse.application=x", "-jar", "/j/org.eclipse.equinox.launcher_1.6.jar"], LanguageServer)]
#[case::ruff_server("/v/ruff", &["ruff", "server"], LanguageServer)]
#[case::ruff("/v/ruff", &["ruff", "check"], Tool)]
#[case::chrome("/opt/google/chrome/chrome", &["/opt/google/chrome/chrome", "--headless"], Browser)]
#[case::playwright_chrome("/h/.cache/ms-playwright/chromium-1/chrome-linux/chrome", &["chrome"], Browser)]
#[case::cli_daemon("/usr/bin/node", &["node", "/x/cliDaemon.js", "--session=x"], Browser)]
#[case::agent_browser("/x/agent-browser-linux-x64", &["/x/agent-browser-linux-x64"], Browser)]
#[case::shell_tool("/bin/bash", &["/bin/bash", "-c", "source /h/shell-snapshots/s.sh && eval 'npx mcp-x' < /dev/null"], Tool)]
#[case::grep_mentions("/usr/bin/grep", &["grep", "mcp_server", "some.log"], Tool)]
#[case::vim_mentions("/usr/bin/vim", &["vim", "mcp-server.py"], Tool)]
#[case::looks_for_words("/usr/bin/grep", &["grep", "mcp", "run"], Tool)]
#[case::looks_for_lsp("/usr/bin/rg", &["rg", "lsp"], Tool)]
#[case::lists_a_directory("/usr/bin/ls", &["ls", "mcp-server"], Tool)]
#[case::makes_a_target("/usr/bin/make", &["make", "lsp"], Tool)]
#[case::searches_in_a_shell("/bin/bash", &["bash", "-lc", "rg mcp src | head"], Tool)]
#[case::serves_in_a_shell("/bin/bash", &["bash", "-lc", "python server.py"], Tool)]
#[case::package_in_a_shell("/bin/bash", &["bash", "-lc", "npx -y some-mcp"], McpServer)]
#[case::test_of_an_mcp_project("/usr/bin/node", &["node", "/h/my-mcp/node_modules/.bin/vitest"], Tool)]
#[case::test_in_an_environment("/h/my-mcp/.venv/bin/python", &["/h/my-mcp/.venv/bin/python", "/h/my-mcp/.venv/bin/pytest"], Tool)]
#[case::test_server("/usr/bin/node", &["npm exec playwright run-test-mcp-server"], McpServer)]
#[case::new_project("/usr/bin/node", &["npm exec create-vite@latest app"], Tool)]
#[case::deno_lsp("/usr/bin/deno", &["deno", "lsp"], LanguageServer)]
#[case::editor_server("/v/node", &["/v/node", "/v/out/server-main.js"], Other)]
#[case::sleep("/usr/bin/sleep", &["sleep", "300"], Tool)]
#[case::pytest("/v/python", &["python", "-m", "pytest", "/tmp/claude-1000/mcp-server"], Tool)]
#[case::multiplexer("/usr/bin/screen", &["SCREEN", "-dm"], Other)]
#[case::ssh_agent("/usr/bin/ssh-agent", &["ssh-agent"], Other)]
fn kind_of_agents_child(#[case] path: &str, #[case] argv: &[&str], #[case] expected: ProcessKind) {
    assert_eq!(kind(path, argv, Some(Agent)), expected);
}

#[rstest]
#[case::server_below_its_shell("/usr/bin/node", &["node", "/x/dist/index.js"], McpServer, McpServer)]
#[case::shell_below_npx("/bin/sh", &["sh", "-c", "something"], McpServer, McpServer)]
#[case::browser_of_a_server("/opt/chrome", &["/opt/chrome", "--headless"], McpServer, Browser)]
#[case::language_server_of_a_server("/h/gopls", &["gopls"], McpServer, LanguageServer)]
#[case::renderer("/proc/self/exe", &["/opt/x", "--type=renderer"], Browser, Browser)]
#[case::npm_of_a_language_server("/usr/bin/node", &["npm install types-registry@latest"], LanguageServer, LanguageServer)]
#[case::cargo_of_a_language_server("/h/cargo", &["cargo", "check"], LanguageServer, LanguageServer)]
#[case::script_of_a_tool("/usr/bin/node", &["node", "/p/dist/index.js"], Tool, Tool)]
#[case::package_of_a_tool("/usr/bin/node", &["npm exec create-something"], Tool, Tool)]
#[case::server_behind_a_launcher("/h/codebase-memory-mcp", &["/h/codebase-memory-mcp"], Tool, McpServer)]
#[case::browser_of_a_test("/h/.cache/ms-playwright/x/headless_shell", &["headless_shell"], Tool, Browser)]
#[case::multiplexer_of_a_tool("/usr/bin/screen", &["SCREEN", "-dm"], Tool, Other)]
#[case::searches_below_a_tool("/usr/bin/rg", &["rg", "mcp", "start"], Tool, Tool)]
#[case::unknown_below_other("/opt/thing", &["thing"], Other, Other)]
#[case::shell_below_other("/bin/bash", &["-bash"], Other, Tool)]
fn child_inherits_kind(
    #[case] path: &str,
    #[case] argv: &[&str],
    #[case] parent: ProcessKind,
    #[case] expected: ProcessKind,
) {
    assert_eq!(kind(path, argv, Some(parent)), expected);
}

#[rstest]
#[case("/usr/bin/rg", &["rg", "x"], Tool)]
#[case("/usr/bin/node", &["node", "/x/.bin/mcp-server-git"], McpServer)]
#[case("/opt/thing", &["thing"], Other)]
fn without_a_parent_only_names_tell(#[case] path: &str, #[case] argv: &[&str], #[case] expected: ProcessKind) {
    assert_eq!(kind(path, argv, None), expected);
}

#[rstest]
#[case("/dev/fd/3")]
#[case("/proc/self/fd/11")]
#[case("/dev/stdin")]
fn descriptor_is_named_by_its_shell(#[case] script: &str) {
    assert_eq!(Program::of(&image("/usr/bin/bash", &["bash", script])).name(), "bash");
}
