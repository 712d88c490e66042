//! Programs whose kind is that of what they wrap: package runners, shells with -c, container clients, `timeout` and the like.

use super::env_command::is_assignment;
use super::names::without_version;
use super::program::Program;
use super::{options, table};

/// The command that a wrapper runs.
pub(super) struct Wrapped<'a> {
    pub(super) program: Program<'a>,
    /// A package runner runs it: its path is a package's name.
    pub(super) from_package: bool,
}

/// Where a wrapper's command line says what it runs.
pub(super) enum Inner<'w, 'a> {
    /// The words of the command after a shell's -c.
    Command(Vec<&'a str>),
    /// One of the arguments is a shell's command: `npx -c "x"`.
    Call {
        /// Which of the arguments.
        at: usize,
        /// The words of that command.
        words: Vec<&'a str>,
    },
    /// The last of the arguments, from the program's name on.
    Rest {
        /// They.
        words: &'w [&'a str],
        /// A package runner runs it.
        from_package: bool,
    },
    /// One of the arguments: a container's image, or a container without a program.
    Image {
        /// Which of the arguments.
        at: usize,
        /// Its stdin is kept open.
        server: bool,
    },
}

/// The command that this program runs, if it is a wrapper with a command.
pub(super) fn command_of<'a>(program: &'a Program<'_>) -> Option<Wrapped<'a>> {
    Some(match inner_of(program)? {
        Inner::Command(words) | Inner::Call { words, at: _ } => {
            Wrapped { program: Program::of_words(words), from_package: false }
        }
        Inner::Rest { words, from_package } => {
            let interpreter = interpreter_of(words).into_iter();
            Wrapped { program: Program::of_words(interpreter.chain(words.iter().copied()).collect()), from_package }
        }
        Inner::Image { at, server } => {
            Wrapped { program: Program::of_words(vec![program.arg(at)]), from_package: server }
        }
    })
}

/// Where this program's command line says what it runs, if it is a wrapper.
pub(super) fn inner_of<'w, 'a>(program: &'w Program<'a>) -> Option<Inner<'w, 'a>> {
    if let Some(command) = program.command {
        let words = first_command(command);
        return (!words.is_empty()).then_some(Inner::Command(words));
    }
    let name = runner_name(program);
    let arguments = program.args.as_slice();
    let package = |from: &'w [&'a str], from_package| {
        package(name, from, from_package).map(|inner| match inner {
            Inner::Call { at, words } => Inner::Call { at: at + arguments.len() - from.len(), words },
            inner => inner,
        })
    };
    if table::PACKAGE_RUNNERS.contains(&name) {
        return package(arguments, true);
    }
    if let Some((_, verbs)) = table::PACKAGE_RUNNER_VERBS.iter().find(|(runner, _)| *runner == name) {
        let (verb, rest) = after_options(name, arguments).split_first()?;
        if !verbs.contains(verb) {
            return None;
        }
        return match (*verb, rest.first()) {
            // `uv tool run x`, and `uv tool uvx x` as uvx calls it.
            ("tool", Some(&"run" | &"uvx")) => package(&rest[1..], true),
            ("tool", _) => None,
            // Inside a project `run` runs the project's own commands; from elsewhere it is the way to start a server.
            // These run what is installed, and no package.
            ("exec", _) if table::INSTALLED_RUNNERS.contains(&name) => package(rest, false),
            ("run", _) if name != "pipx" => package(rest, arguments.iter().any(|argument| is_from_elsewhere(argument))),
            _ => package(rest, true),
        };
    }
    if table::PREFIX_COMMANDS.contains(&name) {
        return prefixed(name, arguments);
    }
    if runs_container(program) {
        return container(name, arguments);
    }
    None
}

/// Whether this program runs packages: `npx x`, `uv tool run x`.
pub(super) fn is_runner(program: &Program<'_>) -> bool {
    let name = runner_name(program);
    table::PACKAGE_RUNNERS.contains(&name) || table::PACKAGE_RUNNER_VERBS.iter().any(|(runner, _)| *runner == name)
}

/// A program's name, for a package manager that is a script of node too: `npx-cli.js`, `pnpm.cjs`, `yarn-4.1.0.cjs`.
fn runner_name<'w>(program: &'w Program<'_>) -> &'w str {
    let name = program.name();
    let stem = [".js", ".cjs", ".mjs"].iter().find_map(|extension| name.strip_suffix(extension)).unwrap_or(name);
    let stem = without_version(stem.strip_suffix("-cli").unwrap_or(stem));
    let release = stem.strip_prefix("yarn-").is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()));
    if release { "yarn" } else { stem }
}

/// The interpreter of `-m server`, as `uv run` takes it, and of `server.ts`, as `tsx` does.
fn interpreter_of(words: &[&str]) -> Option<&'static str> {
    let typescript = words.first().is_some_and(|first| [".ts", ".mts", ".cts"].iter().any(|end| first.ends_with(end)));
    if is_module(words) { Some("python") } else { typescript.then_some("node") }
}

fn is_module(words: &[&str]) -> bool {
    matches!(words, ["-m" | "--module", ..])
}

/// A script by its path, and no package.
pub(super) fn is_file(path: &str) -> bool {
    [".py", ".js", ".mjs", ".cjs", ".ts"].iter().any(|extension| path.ends_with(extension))
}

/// A project or packages other than those of the working directory.
pub(super) fn is_from_elsewhere(argument: &str) -> bool {
    let option = argument.split('=').next().unwrap_or_default();
    matches!(option, "--directory" | "--project" | "--with" | "--with-editable" | "--from")
}

/// The arguments from the first that is neither an option nor an option's value.
fn after_options<'w, 'a>(runner: &str, arguments: &'w [&'a str]) -> &'w [&'a str] {
    let mut at = 0;
    while let Some(argument) = arguments.get(at).filter(|argument| argument.starts_with('-')) {
        let is_last = (runner == "uv" && is_module(&[argument])) || is_call(runner, argument);
        if is_last {
            break;
        }
        at += if options::runner_takes_value(runner, argument) { 2 } else { 1 };
    }
    arguments.get(at..).unwrap_or_default()
}

/// The option behind which npm takes a command for a shell.
fn is_call(runner: &str, option: &str) -> bool {
    matches!(runner, "npm" | "npx") && matches!(option, "-c" | "--call")
}

/// `--yes --from git+… mcp-x ARGS`: options of a package runner, then the package or its command.
fn package<'w, 'a>(runner: &str, arguments: &'w [&'a str], from_package: bool) -> Option<Inner<'w, 'a>> {
    // The tools that mise provides, or options, stand before the command.
    let before =
        arguments.iter().position(|argument| *argument == "--").filter(|_| table::RUNNERS_TO_DASHES.contains(&runner));
    let words = after_options(runner, arguments.get(before.unwrap_or(0)..).unwrap_or_default());
    match words {
        [] => None,
        [option, command, ..] if is_call(runner, option) => {
            let at = arguments.len() - words.len() + 1;
            let words = first_command(command);
            (!words.is_empty()).then_some(Inner::Call { at, words })
        }
        words => Some(Inner::Rest { words, from_package }),
    }
}

/// `timeout 30 cmd`, `nice -n 5 cmd`: the first word that is no option, number or assignment.
fn prefixed<'w, 'a>(prefix: &str, arguments: &'w [&'a str]) -> Option<Inner<'w, 'a>> {
    let mut values = 0;
    let at = arguments.iter().position(|word| {
        if values > 0 {
            values -= 1;
            return false;
        }
        values = options::prefix_values(prefix, word);
        !word.starts_with('-') && !is_assignment(word) && !word.starts_with(|first: char| first.is_ascii_digit())
    })?;
    Some(Inner::Rest { words: &arguments[at..], from_package: false })
}

/// `run -i --rm -e X image`, `exec -i container program`: with stdin kept open it serves the process at the other end.
fn container<'w, 'a>(client: &str, arguments: &'w [&'a str]) -> Option<Inner<'w, 'a>> {
    let verb = arguments.iter().position(|argument| matches!(*argument, "run" | "exec"))?;
    let words = after_options(client, &arguments[verb + 1..]);
    let at = arguments.len() - words.len();
    let options = &arguments[verb + 1..at];
    let has_terminal = options.iter().any(|option| matches!(*option, "-t" | "--tty"));
    let server = options.iter().any(|option| keeps_stdin(option)) && !has_terminal;
    match words {
        [] => None,
        [_container, program @ ..] if arguments[verb] == "exec" && !program.is_empty() => {
            Some(Inner::Rest { words: program, from_package: server })
        }
        _ => Some(Inner::Image { at, server }),
    }
}

/// `-i`, `-di`, but not `-it`, by which a person asks for a terminal.
pub(super) fn keeps_stdin(option: &str) -> bool {
    let cluster = option.starts_with('-') && !option.starts_with("--");
    option == "--interactive" || (cluster && option.contains('i') && !option.contains('t'))
}

/// The words of the first command in a shell's command line that does more than prepare for it.
fn first_command(line: &str) -> Vec<&str> {
    for command in line.split(['\n', ';', '&', '|']) {
        let words = command.split_ascii_whitespace().map(|word| word.trim_matches(['\'', '"', '(', ')', '{', '}']));
        let mut words =
            words.skip_while(|word| word.is_empty() || is_assignment(word) || matches!(*word, "exec" | "command"));
        let Some(first) = words.next() else { continue };
        if !matches!(first, "cd" | "export" | "set" | "source" | "." | "umask" | "ulimit" | "unset" | "true" | ":") {
            return std::iter::once(first).chain(words).collect();
        }
    }
    Vec::new()
}

pub(super) fn runs_container(program: &Program<'_>) -> bool {
    if !table::CONTAINER_CLIENTS.contains(&program.name()) {
        return false;
    }
    let mut words = program.args.iter().filter(|argument| !argument.starts_with('-'));
    matches!(words.next(), Some(&"run" | &"exec"))
        || matches!((program.arg(0), program.arg(1)), ("container" | "compose", "run" | "exec"))
        || program.args.iter().take(4).any(|argument| *argument == "run")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("'mcp-server-x' /a b", &["mcp-server-x", "/a", "b"])]
    #[case("cd /x && A=1 exec node s.js ; true", &["node", "s.js"])]
    #[case("\"/usr/bin/npm\" install x", &["/usr/bin/npm", "install", "x"])]
    #[case("source /s.sh 2>/dev/null || true && eval 'mcp-x'", &["eval", "mcp-x"])]
    #[case("  ", &[])]
    fn first_command_of_line_is_found(#[case] line: &str, #[case] words: &[&str]) {
        assert_eq!(first_command(line), words);
    }

    #[rstest]
    #[case::uvx(&["uvx", "--python", "3.12", "-i", "https://i", "--from", "git+x", "mcp-x", "a"], "mcp-x")]
    #[case::uv_module(&["uv", "run", "--with", "mcp", "-m", "mcp_server_x", "a"], "mcp_server_x")]
    #[case::uv_script(&["uv", "--directory", "/x", "run", "--no-project", "server.py"], "server.py")]
    #[case::npx_packages(&["npx", "-y", "-p", "a", "--package", "b", "mcp-x"], "mcp-x")]
    #[case::npx_call(&["npx", "-y", "--package=a", "-c", "mcp-x --port 1"], "mcp-x")]
    #[case::npm_exec(&["npm", "exec", "--yes", "--", "mcp-x", "--key"], "mcp-x")]
    #[case::pnpm(&["pnpm", "--package=a", "-C", "/x", "dlx", "--allow-build", "y", "mcp-x"], "mcp-x")]
    #[case::pnpm_script(&["node", "/x/corepack/dist/pnpm.js", "dlx", "mcp-x"], "mcp-x")]
    #[case::corepack(&["corepack", "pnpm@9", "dlx", "mcp-x"], "pnpm@9")]
    #[case::pnpm_version(&["pnpm@9", "dlx", "mcp-x"], "mcp-x")]
    #[case::yarn_release(&["node", ".yarn/releases/yarn-4.1.0.cjs", "dlx", "-q", "-p", "a", "mcp-x"], "mcp-x")]
    #[case::bunx(&["bunx", "--bun", "-p", "a", "mcp-x"], "mcp-x")]
    #[case::bun_x(&["bun", "x", "--bun", "mcp-x"], "mcp-x")]
    #[case::pipx(&["python3", "-m", "pipx", "run", "--spec", "a", "--pip-args", "-q", "mcp-x"], "mcp-x")]
    #[case::sudo(&["sudo", "-u", "www", "mcp-x"], "mcp-x")]
    #[case::conda(&["python3", "/opt/conda/bin/conda", "run", "--no-capture-output", "-n", "env", "mcp-x"], "mcp-x")]
    #[case::bundle(&["ruby", "/usr/bin/bundle", "exec", "mcp-x"], "mcp-x")]
    #[case::pdm(&["pdm", "run", "-p", "/x", "mcp-x"], "mcp-x")]
    #[case::fnm(&["fnm", "exec", "--using", "20", "mcp-x"], "mcp-x")]
    #[case::doppler(&["doppler", "run", "-p", "a", "-c", "dev", "--", "mcp-x"], "mcp-x")]
    #[case::tsx(&["node", "/x/node_modules/.bin/tsx", "--env-file", ".env", "/x/mcp-x.ts"], "mcp-x.ts")]
    #[case::ts_node(&["ts-node", "-P", "t.json", "/x/mcp-x.ts"], "mcp-x.ts")]
    #[case::prlimit(&["prlimit", "--as=1000000", "mcp-x"], "mcp-x")]
    #[case::container_with_volume(&["docker", "run", "-i", "--rm", "-v", "notes:/data/x", "mcp/memory"], "memory")]
    #[case::container_by_name(&["podman", "run", "--name", "notes", "alpine:3", "ls", "a/b"], "alpine:3")]
    #[case::inside_container(&["docker", "exec", "-i", "-e", "KEY", "box", "node", "/app/mcp-x.js"], "mcp-x.js")]
    #[case::go_run(&["go", "run", "-tags", "x", "./cmd/mcp-x", "a"], "mcp-x")]
    #[case::choom(&["choom", "-n", "-500", "--", "mcp-x"], "mcp-x")]
    #[case::strace(&["strace", "-f", "-o", "log", "npx", "-y", "mcp-x"], "npx")]
    #[case::cgexec(&["cgexec", "-g", "memory:agents", "mcp-x"], "mcp-x")]
    #[case::bwrap(
        &["bwrap", "--new-session", "--ro-bind", "/", "/", "--setenv", "PATH", "/bin", "--dev", "/dev", "--", "mcp-x"],
        "mcp-x"
    )]
    #[case::bwrap_without_dashes(
        &["bwrap", "--overlay", "/a", "/b", "/c", "--symlink", "usr/bin", "/bin", "--unshare-pid", "/opt/mcp-x", "a"],
        "mcp-x"
    )]
    #[case::secrets(&["aws-vault", "exec", "work", "--", "mcp-x"], "mcp-x")]
    #[case::variables(&["node", "/x/node_modules/.bin/cross-env", "KEY=1", "mcp-x"], "mcp-x")]
    #[case::variables_of_file(&["dotenv", "-e", ".env", "--", "mcp-x"], "mcp-x")]
    #[case::mise(&["mise", "exec", "node@22", "--", "mcp-x"], "mcp-x")]
    fn wrapped_program_is_found(#[case] words: &[&str], #[case] name: &str) {
        let program = Program::of_words(words.to_vec());
        assert_eq!(command_of(&program).unwrap().program.name(), name);
    }

    #[rstest]
    #[case("@playwright/mcp@latest", "@playwright/mcp")]
    #[case("@playwright/mcp", "@playwright/mcp")]
    #[case("mcp-server-git==1.2", "mcp-server-git")]
    #[case("x", "x")]
    fn versions_are_cut(#[case] package: &str, #[case] name: &str) {
        assert_eq!(without_version(package), name);
    }
}
