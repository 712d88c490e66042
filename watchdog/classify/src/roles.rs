//! Roles that decide whether a process should stay, from what was executed.

use super::names::base_name;
use super::program::Program;
use super::wrapped::{self, Inner};
use super::{Image, table};

/// The agent program is used as a server of another program: `claude mcp serve`, `codex app-server`, `gemini --acp`.
/// Examines only the leading options and the first words.
#[must_use]
pub fn serves(image: &Image) -> bool {
    let program = Program::of(image);
    table::AGENT_SERVERS.iter().any(|(names, forms)| is_one_of(&program, names) && leads_with_any(&program, forms))
}

/// The agent program only lends its tools to another program, and runs no agent: `claude mcp serve`. Behind `codex
/// mcp-server` or `gemini --acp` stands a whole agent.
#[must_use]
pub fn lends_tools(image: &Image) -> bool {
    let program = Program::of(image);
    is_one_of(&program, table::TOOL_LENDERS) && leads_with(&program, &["mcp", "serve"])
}

/// A daemon of an agent that is meant to outlive the agent which started it.
#[must_use]
pub fn agent_daemon(image: &Image) -> bool {
    let program = Program::of(image);
    let managed = program.name() == "codex"
        && leads_with(&program, &["app-server"])
        && program.args.contains(&table::CODEX_MANAGED_DAEMON);
    managed
        || table::AGENT_DAEMONS
            .iter()
            .any(|(names, forms)| is_one_of(&program, names) && leads_with_any(&program, forms))
}

/// A server that a build leaves running for the next one, by its name.
#[must_use]
pub fn build_server(image: &Image, comm: &str) -> Option<&'static str> {
    let program = Program::of(image);
    let (name, first) = (program.name(), program.arg(0));
    let titled = title(&program, comm)
        .filter(|(.., programs)| {
            let runs = |known: &&str| base_name(program.path).starts_with(known);
            image.path.is_empty() || programs.iter().any(runs)
        })
        .map(|(_, what, _)| *what);
    let named = table::BUILD_SERVERS.iter().find(|(known, _)| *known == name);
    let script = table::BUILD_SERVER_SCRIPTS.iter().find(|(end, _)| program.location().ends_with(end));
    let by_argument =
        table::BUILD_SERVERS_BY_ARGUMENT.iter().find(|(known, argument, _)| *known == name && *argument == first);
    let by_name = named.or(script).map(|&(_, what)| what).or(by_argument.map(|&(_, _, what)| what));
    titled.or(by_name).or_else(|| match name {
        // The server is the program itself, without the compiler that a client is given.
        "sccache" if program.args.is_empty() => Some("sccache"),
        "watchman" if program.args.iter().any(|argument| argument.starts_with("--statefile")) => Some("Watchman"),
        "adb" if program.args.contains(&"fork-server") => Some("the Android debug bridge"),
        "MSBuild.dll" | "MSBuild" => {
            program.args.iter().any(|argument| is_node_of_msbuild(argument)).then_some("MSBuild")
        }
        _ => None,
    })
}

/// The programs that write the title of a build server which this process bears.
pub(super) fn title_of_build_server(program: &Program<'_>, comm: &str) -> Option<&'static [&'static str]> {
    title(program, comm).map(|(.., programs)| *programs)
}

fn title(program: &Program<'_>, comm: &str) -> Option<&'static (&'static str, &'static str, &'static [&'static str])> {
    let mut titles = table::BUILD_SERVER_TITLES.iter();
    titles.find(|(title, ..)| comm.starts_with(title) || program.argv0.starts_with(title))
}

/// `/nodemode:1`, `/nodeReuse:true`, in either case and with either dash.
pub(super) fn is_node_of_msbuild(argument: &str) -> bool {
    let switch = argument.trim_start_matches(['/', '-']).to_ascii_lowercase();
    switch.starts_with("nodemode:") || switch == "nodereuse:true"
}

/// The server of a terminal multiplexer: sessions of people live below it.
#[must_use]
pub fn multiplexer(image: &Image, comm: &str) -> Option<&'static str> {
    // tmux's server is a fork of the first client: its arguments are that client's, and only comm tells.
    let program = Program::of(image);
    let is = |name: &str| image.path.is_empty() || base_name(&image.path).contains(name);
    if let Some(name) =
        ["tmux", "tmate"].into_iter().find(|name| comm.strip_suffix(": server") == Some(name) && is(name))
    {
        return Some(name);
    }
    let by_name = |name: &str| table::MULTIPLEXERS.iter().find(|(known, _)| *known == name).map(|&(_, what)| what);
    let titled = by_name(base_name(program.argv0)).filter(|what| is(what));
    titled.or_else(|| by_name(program.name())).or_else(|| match program.name() {
        "zellij" if program.arg(0) == "--server" => Some("zellij"),
        "shpool" if program.args.contains(&"daemon") => Some("shpool"),
        _ => None,
    })
}

/// A fork of this program that executes nothing is a multiplexer's server: screen says so only in a title, which it
/// writes over its arguments.
#[must_use]
pub fn forks_multiplexer(image: &Image) -> bool {
    Program::of(image).name() == "screen"
}

/// A daemon of the user's session or editor that an agent's commands happened to start.
#[must_use]
pub fn user_daemon(image: &Image) -> Option<&'static str> {
    let program = Program::of(image);
    let name = program.name();
    if let Some(&(_, what)) = table::USER_DAEMONS.iter().find(|(known, _)| *known == name) {
        return Some(what);
    }
    match name {
        // The master of a shared connection writes what it is over its arguments.
        "ssh" if program.argv0.starts_with("ssh: ") && program.argv0.contains("[mux]") => {
            Some("an ssh connection's master")
        }
        "git" if program.arg(0) == "credential-cache--daemon" => Some("git's credential cache"),
        "git-credential-cache" if program.arg(0) == "--daemon" => Some("git's credential cache"),
        _ => None,
    }
}

/// An editor's server, which lies in the user's home.
#[must_use]
pub fn editor_server(image: &Image) -> bool {
    let program = Program::of(image);
    let name = program.name();
    table::EDITOR_SERVER_SCRIPTS.contains(&name) || (name.starts_with("code-") && program.arg(0) == "command-shell")
}

/// A helper that ends by itself soon after what it serves: only after a grace is it left behind.
#[must_use]
pub fn ends_by_itself(image: &Image) -> bool {
    let program = Program::of(image);
    let has = |prefix: &str| program.args.iter().any(|argument| argument.starts_with(prefix));
    match program.name() {
        "esbuild" => has("--service") && has("--ping"),
        "main.js" => program.location().ends_with("/telemetry/watchdog/main.js") && has("--parent-pid="),
        name => table::CRASH_HANDLERS.contains(&name),
    }
}

/// A browser daemon that detaches itself on purpose, so that later commands find it: reported at most.
#[must_use]
pub fn browser_daemon(image: &Image) -> bool {
    Program::of(image).name() == "cliDaemon.js"
}

/// The client of a container engine that runs a container: the container itself is no child of it.
#[must_use]
pub fn container_client(image: &Image) -> bool {
    wrapped::runs_container(&Program::of(image))
}

/// A container client that starts a container, and does not only run something in one that is there.
#[must_use]
pub fn starts_container(image: &Image) -> bool {
    let program = Program::of(image);
    wrapped::runs_container(&program)
        && program.args.iter().find(|argument| matches!(**argument, "run" | "exec")).is_some_and(|verb| *verb == "run")
}

/// A container client that stays in the foreground of what it started, and stops it on SIGTERM: `docker compose
/// up`, `docker run` without `-i`. With `-i` it is a server's wire, and the container is of no use without it.
#[must_use]
pub fn holds_containers(image: &Image) -> bool {
    let program = Program::of(image);
    let composes = table::COMPOSE_CLIENTS.contains(&program.name())
        || (table::CONTAINER_CLIENTS.contains(&program.name()) && program.args.contains(&"compose"));
    let wire = matches!(wrapped::inner_of(&program), Some(Inner::Image { server: true, .. }) | None);
    (composes && program.args.contains(&"up")) || (starts_container(image) && !wire)
}

/// A browser as a person uses it: nothing in what was executed says that a program drives it.
#[must_use]
pub fn persons_browser(image: &Image) -> bool {
    let program = Program::of(image);
    let drives = |option: &&str| option.split('=').next().is_some_and(|name| table::AUTOMATION_OPTIONS.contains(&name));
    table::PERSONS_BROWSERS.contains(&program.name())
        && !image.truncated
        && !table::BROWSER_DIRECTORIES.iter().any(|directory| program.path.contains(directory))
        && !program.args.iter().any(drives)
}

/// A program that starts another one apart from its own session, and exits.
#[must_use]
pub fn sets_apart(image: &Image) -> bool {
    matches!(Program::of(image).name(), "setsid" | "daemonize" | "start-stop-daemon")
}

/// A command of this name opens a file or an address in a desktop's program for it.
#[must_use]
pub fn opens_for_desktop(name: &str) -> bool {
    table::DESKTOP_OPENERS.contains(&name)
}

/// The name of a program that changes something in steps of which half are worse than none.
#[must_use]
pub fn not_half_done(image: &Image) -> Option<&'static str> {
    let program = Program::of(image);
    table::NOT_HALF_DONE.iter().find(|known| **known == program.name()).copied()
}

/// The program's name or package is one of these.
fn is_one_of(program: &Program<'_>, names: &[&str]) -> bool {
    let is = |name: &str| names.contains(&name);
    is(program.name()) || (program.script.is_some() && program.package().is_some_and(is))
}

fn leads_with_any(program: &Program<'_>, forms: &[&[&str]]) -> bool {
    forms.iter().any(|form| leads_with(program, form))
}

/// The first words of the program are these. An option among them is looked for among the leading options only, and what
/// follows a prompt is never looked at.
fn leads_with(program: &Program<'_>, form: &[&str]) -> bool {
    let mut wanted = form.iter();
    let Some(mut next) = wanted.next() else { return true };
    let mut arguments = program.args.iter().copied();
    while let Some(argument) = arguments.next() {
        if argument == *next {
            match wanted.next() {
                Some(more) => next = more,
                None => return true,
            }
        } else if !argument.starts_with('-') || matches!(argument, "--" | "-p" | "--print" | "--prompt" | "-i") {
            return false;
        } else if table::AGENT_OPTIONS_WITH_VALUE.contains(&argument) {
            arguments.next();
        }
    }
    false
}

/// A compiler, a linker or a stage of one, by its file name: `x86_64-linux-gnu-gcc-13` is gcc.
#[must_use]
pub fn compiles(name: &str) -> bool {
    let without_version = name.trim_end_matches(|end: char| end.is_ascii_digit() || matches!(end, '.' | '-'));
    let last = without_version.rsplit('-').next().unwrap_or(without_version);
    [name, without_version, last].iter().any(|name| table::COMPILERS.contains(name))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::tests::image;
    use super::*;

    #[rstest]
    #[case::claude("/x/claude.exe", &["/x/.bin/claude", "mcp", "serve"], true)]
    #[case::claude_by_version("/h/.local/share/claude/versions/2.1.224", &["claude", "mcp", "serve"], true)]
    #[case::claude_lists("/x/claude.exe", &["claude", "mcp", "list"], false)]
    #[case::claude_script("/usr/bin/node", &["node", "/x/.bin/claude", "mcp", "serve"], true)]
    #[case::codex("/x/codex", &["/x/codex", "app-server"], true)]
    #[case::codex_with_options("/x/codex", &["codex", "-c", "model=\"o\"", "mcp-server"], true)]
    #[case::codex_prompt("/x/codex", &["codex", "exec", "mcp-server"], false)]
    #[case::gemini("/usr/bin/node", &["/usr/bin/node", "--max-old-space-size=1", "/x/.bin/gemini", "--acp"], true)]
    #[case::gemini_options("/usr/bin/node", &["node", "/x/.bin/gemini", "--model", "m", "--experimental-acp"], true)]
    #[case::gemini_prompt("/usr/bin/node", &["node", "/x/.bin/gemini", "-p", "--acp"], false)]
    #[case::opencode("/x/opencode.exe", &["/x/.bin/opencode", "acp"], true)]
    #[case::opencode_run("/x/opencode.exe", &["/x/.bin/opencode", "run", "acp"], false)]
    #[case::copilot("/x/copilot", &["/x/copilot", "--acp"], true)]
    #[case::cline("/x/cline", &["/x/.bin/cline", "--acp"], true)]
    #[case::goose("/x/goose", &["goose", "acp"], true)]
    #[case::not_an_agent("/x/vim", &["vim", "acp"], false)]
    fn agent_server_recognised_by_subcommand(#[case] path: &str, #[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(serves(&image(path, argv)), expected);
    }

    #[rstest]
    #[case::codex("/h/codex", &["/h/codex", "app-server", "--listen", "unix://", "--managed-daemon"], true)]
    #[case::codex_by_platform("/h/codex-x86_64-unknown-linux-musl", &["codex", "app-server", "--managed-daemon"], true)]
    #[case::claude_by_version("/h/.local/share/claude/versions/2.1.224", &["claude", "daemon", "run"], true)]
    #[case::claude_in_a_wrapper("/nix/store/x/bin/.claude-wrapped", &["claude", "daemon", "run"], true)]
    #[case::python_by_version("/h/.pyenv/versions/3.11.7/bin/python3.11", &["python3", "daemon", "run"], false)]
    #[case::codex_updater("/h/codex", &["/h/codex", "app-server", "daemon", "pid-update-loop"], true)]
    #[case::codex_server("/h/codex", &["/h/codex", "app-server"], false)]
    #[case::codex_listening("/h/codex", &["/h/codex", "app-server", "--listen", "unix://x"], false)]
    #[case::cline("/h/cline", &["/h/cline", "--cline-hub-daemon", "--cwd", "/"], true)]
    #[case::claude_flow("/usr/bin/node", &["/usr/bin/node", "/x/node_modules/claude-flow/v3/@claude-flow/cli/bin/cli.js", "daemon", "start"], true)]
    #[case::claude_flow_mcp("/usr/bin/node", &["node", "/x/.bin/claude-flow", "mcp", "start"], false)]
    #[case::claude("/v/claude", &["claude", "daemon", "run", "--origin", "transient"], true)]
    #[case::claude_pty_host("/v/claude", &["claude", "--bg-pty-host", "/tmp/s"], false)]
    #[case::claude_mem("/b/bun", &["bun", "/p/worker-service.cjs", "--daemon"], true)]
    fn agent_daemon_recognised_by_subcommand(#[case] path: &str, #[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(agent_daemon(&image(path, argv)), expected);
    }

    #[rstest]
    #[case::gradle("/j/java", &["/j/java", "-Xmx512m", "-cp", "/g.jar", "org.gradle.launcher.daemon.bootstrap.GradleDaemon", "8.9"], "java", Some("the Gradle daemon"))]
    #[case::gradle_client("/j/java", &["java", "-classpath", "/g.jar", "org.gradle.wrapper.GradleWrapperMain", "build"], "java", None)]
    #[case::kotlin("/j/java", &["java", "-Djava.awt.headless=true", "-cp", "/k.jar", "org.jetbrains.kotlin.daemon.KotlinCompileDaemon"], "java", Some("the Kotlin compile daemon"))]
    #[case::bazel("/j/java", &["bazel(proj)", "--add-opens=x", "-jar", "/b/A-server.jar"], "bazel(proj)", Some("the Bazel server"))]
    #[case::bazel_client("/usr/bin/bazel", &["bazel", "build", "//..."], "bazel", None)]
    #[case::msbuild("/d/dotnet", &["/d/dotnet", "/d/sdk/MSBuild.dll", "/nologo", "/nodemode:1", "/nodeReuse:true"], "dotnet", Some("MSBuild"))]
    #[case::msbuild_once("/d/dotnet", &["/d/dotnet", "/d/sdk/MSBuild.dll", "-restore", "/nodeReuse:false"], "dotnet", None)]
    #[case::roslyn("/d/dotnet", &["dotnet", "exec", "/d/VBCSCompiler.dll", "-pipename:x"], "dotnet", Some("the .NET compiler server"))]
    #[case::sccache("/c/sccache", &["/c/sccache"], "sccache", Some("sccache"))]
    #[case::sccache_compiles("/c/sccache", &["sccache", "rustc", "-v"], "sccache", None)]
    #[case::nx("/usr/bin/node", &["/usr/bin/node", "/p/node_modules/nx/src/daemon/server/start.js"], "node", Some("the Nx daemon"))]
    #[case::turbo("/p/turbo", &["/p/turbo", "--skip-infer", "daemon"], "turbo", None)]
    #[case::turbo_daemon("/p/turbo", &["turbo", "daemon"], "turbo", Some("the Turborepo daemon"))]
    #[case::fsmonitor("/usr/bin/git", &["git", "fsmonitor--daemon", "run", "--detach"], "git", Some("git's file system monitor"))]
    #[case::git("/usr/bin/git", &["git", "status"], "git", None)]
    #[case::mentioned("/usr/bin/grep", &["grep", "org.gradle.launcher.daemon.bootstrap.GradleDaemon"], "grep", None)]
    fn build_servers_are_known(
        #[case] path: &str,
        #[case] argv: &[&str],
        #[case] comm: &str,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(build_server(&image(path, argv), comm), expected);
    }

    #[rstest]
    #[case::tmux("/usr/bin/tmux", &["tmux", "new-session", "-d"], "tmux: server", Some("tmux"))]
    #[case::tmux_client("/usr/bin/tmux", &["tmux", "attach"], "tmux: client", None)]
    #[case::screen("/usr/bin/screen", &["SCREEN", "-dmS", "x"], "screen", Some("screen"))]
    #[case::screen_client("/usr/bin/screen", &["screen", "-r"], "screen", None)]
    #[case::zellij("/usr/bin/zellij", &["zellij", "--server", "/run/z"], "zellij", Some("zellij"))]
    #[case::zellij_client("/usr/bin/zellij", &["zellij", "attach"], "zellij", None)]
    fn servers_of_multiplexers_are_known(
        #[case] path: &str,
        #[case] argv: &[&str],
        #[case] comm: &str,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(multiplexer(&image(path, argv), comm), expected);
    }

    #[rstest]
    #[case::ssh_agent("/usr/bin/ssh-agent", &["ssh-agent", "-s"], true)]
    #[case::ssh_master("/usr/bin/ssh", &["ssh: /home/u/.ssh/cm-abc [mux]"], true)]
    #[case::ssh("/usr/bin/ssh", &["ssh", "host"], false)]
    #[case::credential_cache("/usr/lib/git-core/git-credential-cache--daemon", &["git-credential-cache--daemon", "/s"], true)]
    #[case::credential_cache_by_git("/usr/bin/git", &["git", "credential-cache--daemon", "/s"], true)]
    #[case::own_server("/usr/bin/node", &["node", "server.js"], false)]
    fn daemons_of_the_user_are_known(#[case] path: &str, #[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(user_daemon(&image(path, argv)).is_some(), expected);
    }

    #[rstest]
    #[case::editor("/v/node", &["/v/node", "/v/out/server-main.js", "--port=0"], true)]
    #[case::pty_host("/v/node", &["/v/node", "/v/out/bootstrap-fork", "--type=ptyHost"], true)]
    #[case::own_server("/usr/bin/node", &["node", "server.js"], false)]
    fn editor_servers_are_known(#[case] path: &str, #[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(editor_server(&image(path, argv)), expected);
    }

    #[rstest]
    #[case::esbuild("/p/esbuild", &["/p/esbuild", "--service=0.21.5", "--ping"], true)]
    #[case::esbuild_serves("/p/esbuild", &["esbuild", "--serve"], false)]
    #[case::telemetry("/usr/bin/node", &["node", "/p/build/src/telemetry/watchdog/main.js", "--parent-pid=7"], true)]
    #[case::crashpad("/c/chrome_crashpad_handler", &["/c/chrome_crashpad_handler", "--monitor-self"], true)]
    #[case::other_main("/usr/bin/node", &["node", "/p/main.js", "--parent-pid=7"], false)]
    fn helpers_that_exit_alone_are_recognised(#[case] path: &str, #[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(ends_by_itself(&image(path, argv)), expected);
    }

    #[rstest]
    #[case("/usr/bin/docker", &["docker", "run", "-i", "--rm", "image"], true)]
    #[case("/usr/bin/docker", &["docker", "--context", "x", "run", "-i", "image"], true)]
    #[case("/usr/bin/podman", &["podman", "container", "run", "image"], true)]
    #[case("/usr/bin/docker", &["docker", "ps"], false)]
    #[case("/usr/bin/npm", &["npm", "run", "docker"], false)]
    fn clients_of_container_engines_are_known(#[case] path: &str, #[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(container_client(&image(path, argv)), expected);
    }

    #[rstest]
    #[case::run("docker", &["docker", "run", "-p", "5432:5432", "postgres"], true)]
    #[case::at_a_terminal("docker", &["docker", "run", "-it", "ubuntu"], true)]
    #[case::server("docker", &["docker", "run", "-i", "--rm", "mcp/fetch"], false)]
    #[case::exec("docker", &["docker", "exec", "db", "psql"], false)]
    #[case::compose("docker", &["docker", "compose", "-f", "x.yml", "up", "--build"], true)]
    #[case::compose_run("docker", &["docker", "compose", "logs", "-f"], false)]
    #[case::plugin("docker-compose", &["/usr/libexec/docker/cli-plugins/docker-compose", "compose", "up"], true)]
    #[case::lists("docker", &["docker", "ps"], false)]
    fn clients_that_remove_containers_are_recognised(
        #[case] name: &str,
        #[case] argv: &[&str],
        #[case] expected: bool,
    ) {
        assert_eq!(holds_containers(&image(&format!("/usr/bin/{name}"), argv)), expected);
    }

    #[rstest]
    #[case::opened("/opt/google/chrome/chrome", &["/opt/google/chrome/chrome", "https://x"], true)]
    #[case::renderer("/opt/google/chrome/chrome", &["chrome", "--type=renderer"], true)]
    #[case::firefox("/usr/lib/firefox/firefox", &["firefox", "-new-window", "https://x"], true)]
    #[case::headless("/opt/google/chrome/chrome", &["chrome", "--headless=new"], false)]
    #[case::own_profile("/opt/google/chrome/chrome", &["chrome", "--user-data-dir=/tmp/x"], false)]
    #[case::juggler("/x/firefox", &["firefox", "-no-remote", "-juggler-pipe"], false)]
    #[case::playwrights("/h/.cache/ms-playwright/chromium-1/chrome-linux/chrome", &["chrome"], false)]
    #[case::driver("/usr/bin/chromedriver", &["chromedriver", "--port=9515"], false)]
    fn automated_browser_is_no_persons_browser(#[case] path: &str, #[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(persons_browser(&image(path, argv)), expected);
    }

    #[test]
    fn script_shows_browser_daemon() {
        assert!(browser_daemon(&image("/usr/bin/node", &["/usr/bin/node", "/x/playwright-cli/lib/cliDaemon.js", "s"])));
        assert!(!browser_daemon(&image("/usr/bin/node", &["node", "/x/server.js", "cliDaemon.js"])));
    }

    #[rstest]
    #[case("cc1plus", true)]
    #[case("x86_64-linux-gnu-gcc-13", true)]
    #[case("clang++-18", true)]
    #[case("clippy-driver", true)]
    #[case("f951", true)]
    #[case("pytest", false)]
    #[case("python3.12", false)]
    #[case("", false)]
    fn compilers_are_known_by_name(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(compiles(name), expected);
    }
}
