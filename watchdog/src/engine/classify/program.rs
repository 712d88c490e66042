//! What program an image is, seen through interpreters, `env` and rewritten titles.
//!
//! `node /x/cli.js serve` is the program `cli.js` with the argument `serve`; `npm exec server-x` in one string is what a
//! node program wrote over its arguments. Everything else in this project that asks "what is this?" asks here first.

use std::borrow::Cow;

use crate::engine::input::Image;

/// The family of an interpreter: it decides which options take a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// node.
    Node,
    /// bun.
    Bun,
    /// deno.
    Deno,
    /// CPython and PyPy.
    Python,
    /// Ruby.
    Ruby,
    /// Perl.
    Perl,
    /// A POSIX shell.
    Shell,
    /// A Java virtual machine: its script is the main class, or the archive after -jar.
    Java,
    /// The .NET host.
    DotNet,
}

/// Interpreters by the name of their file, in the families in which agents are written: the kernel looks out for these
/// names when a profile has a `script`.
pub(crate) const AGENT_RUNTIMES: &[(&str, Runtime)] = &[
    ("node", Runtime::Node),
    ("nodejs", Runtime::Node),
    ("bun", Runtime::Bun),
    ("deno", Runtime::Deno),
    ("python", Runtime::Python),
    ("python3", Runtime::Python),
    ("python3.8", Runtime::Python),
    ("python3.9", Runtime::Python),
    ("python3.10", Runtime::Python),
    ("python3.11", Runtime::Python),
    ("python3.12", Runtime::Python),
    ("python3.13", Runtime::Python),
    ("python3.14", Runtime::Python),
    ("python3.15", Runtime::Python),
    ("python3.16", Runtime::Python),
];

/// Interpreters that run too much else to be looked out for: a script of theirs is recognised where it was executed itself.
const OTHER_RUNTIMES: &[(&str, Runtime)] = &[
    ("sh", Runtime::Shell),
    ("bash", Runtime::Shell),
    ("dash", Runtime::Shell),
    ("ash", Runtime::Shell),
    ("zsh", Runtime::Shell),
    ("ksh", Runtime::Shell),
    ("fish", Runtime::Shell),
    ("ruby", Runtime::Ruby),
    ("perl", Runtime::Perl),
    ("pypy3", Runtime::Python),
    ("java", Runtime::Java),
    ("dotnet", Runtime::DotNet),
];

impl Runtime {
    /// The interpreter whose file has this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        AGENT_RUNTIMES.iter().chain(OTHER_RUNTIMES).find(|(known, _)| *known == name).map(|&(_, runtime)| runtime)
    }

    /// Whether an exec of this interpreter is looked at for its script.
    pub(crate) fn runs_agents(self) -> bool {
        matches!(self, Self::Node | Self::Bun | Self::Deno | Self::Python)
    }

    /// Whether an option takes the next argument as its value.
    fn takes_value(self, option: &str) -> bool {
        let options: &[&str] = match self {
            Self::Node => &[
                "-r",
                "--require",
                "--import",
                "--loader",
                "--experimental-loader",
                "-C",
                "--conditions",
                "--env-file",
                "--env-file-if-exists",
                "--title",
                "--input-type",
                "--inspect-port",
                "--icu-data-dir",
                "--openssl-config",
                "--redirect-warnings",
                "--diagnostic-dir",
                "--watch-path",
                "--unhandled-rejections",
                "--dns-result-order",
                "--heapsnapshot-signal",
                "--experimental-config-file",
            ],
            Self::Bun => &["-r", "--preload", "--require", "--import", "--cwd", "--env-file", "-c", "--config", "-d"],
            Self::Deno => {
                &["-c", "--config", "--import-map", "--lock", "--cert", "-L", "--log-level", "--env-file", "--location"]
            }
            Self::Python => &["-W", "-X", "--check-hash-based-pycs"],
            Self::Ruby => &["-I", "-r", "-C", "-E"],
            Self::Perl => &["-I"],
            Self::Shell => &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"],
            Self::Java => &[
                "-cp",
                "-classpath",
                "--class-path",
                "-p",
                "--module-path",
                "--add-opens",
                "--add-exports",
                "--add-modules",
                "--add-reads",
                "--enable-native-access",
            ],
            Self::DotNet => {
                &["--depsfile", "--runtimeconfig", "--additionalprobingpath", "--fx-version", "--roll-forward"]
            }
        };
        options.contains(&option)
    }

    /// `bun run x`, `dotnet exec x`: the script stands after this word.
    fn is_prefix(self, word: &str) -> bool {
        match self {
            Self::Bun | Self::Deno => word == "run",
            Self::DotNet => word == "exec",
            _ => false,
        }
    }

    /// A command of the interpreter itself, and no script.
    pub(super) fn is_command(self, word: &str) -> bool {
        let commands: &[&str] = match self {
            Self::Bun => &["add", "build", "create", "init", "install", "link", "pm", "test", "update", "upgrade", "x"],
            Self::Deno => {
                &["add", "bench", "check", "compile", "fmt", "install", "lint", "lsp", "task", "test", "upgrade"]
            }
            Self::DotNet => &["build", "msbuild", "new", "publish", "restore", "test", "tool", "watch"],
            _ => &[],
        };
        commands.contains(&word)
    }

    /// Whether an option means that the program is given on the command line (or nowhere): there is no script.
    fn has_no_script(self, option: &str) -> bool {
        match self {
            Self::Node | Self::Bun => matches!(option, "-e" | "--eval" | "-p" | "--print" | "-pe" | "--run"),
            Self::Python => option == "-",
            Self::Ruby => option == "-e",
            Self::Perl => matches!(option, "-e" | "-E" | "-pe" | "-ne" | "-le"),
            Self::Shell | Self::Java | Self::DotNet | Self::Deno => false,
        }
    }
}

/// A program and its own arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program<'a> {
    /// The path that was executed.
    pub(crate) path: &'a str,
    /// argv[0].
    pub(crate) argv0: &'a str,
    /// The interpreter that runs `script`, or the title's program.
    pub(crate) runtime: Option<Runtime>,
    /// The interpreter's script; `-m MODULE` for a Python module.
    pub(crate) script: Option<Cow<'a, str>>,
    /// The script itself was executed, or looks so: the kernel put its interpreter, with a path, before it.
    pub(crate) script_executed: bool,
    /// The command after a shell's -c.
    pub(crate) command: Option<&'a str>,
    /// The first word of what an interpreted program wrote over its arguments.
    pub(crate) title: Option<&'a str>,
    /// The arguments after the program, the script, or the title's first word.
    pub(crate) args: Vec<&'a str>,
}

/// The last component of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl<'a> Program<'a> {
    /// What an image shows.
    pub(crate) fn of(image: &'a Image) -> Self {
        let mut argv: Vec<&str> = image.argv.iter().map(String::as_str).collect();
        // Padding that a rewritten title leaves is no argument.
        while argv.len() > 1 && argv.last().is_some_and(|last| last.is_empty()) {
            argv.pop();
        }
        Self::of_argv(&image.path, argv)
    }

    /// What a command line of these words would run; the path is as unknown as PATH is.
    pub(crate) fn of_words(words: Vec<&'a str>) -> Self {
        let path = words.first().copied().unwrap_or_default();
        Self::of_argv(path, words)
    }

    pub(super) fn of_argv(path: &'a str, argv: Vec<&'a str>) -> Self {
        let argv0 = argv.first().copied().unwrap_or(path);
        let known_path = if path.is_empty() { argv0 } else { path };
        let plain = |args: Vec<&'a str>| Self {
            path: known_path,
            argv0,
            runtime: None,
            script: None,
            script_executed: false,
            command: None,
            title: None,
            args,
        };
        let rest = argv.get(1..).unwrap_or_default();

        if base_name(known_path) == "env" {
            let inner = Self::of_words(after_env(rest));
            return Self { path: known_path, argv0, ..inner };
        }
        if let Some(runtime) = Runtime::of(base_name(known_path)) {
            let program = base_name(argv0.trim_start_matches('-'));
            let is_title = argv.len() == 1 && Runtime::of(program).is_none() && !argv0.is_empty();
            if is_title {
                let mut words = argv0.split_ascii_whitespace();
                let title = words.next();
                return Self { runtime: Some(runtime), title, ..plain(words.collect()) };
            }
            return Self { path: known_path, argv0, ..interpreted(runtime, argv0, rest) };
        }
        // A `#!` script: the kernel put the interpreter, with the one option it may have, before the script's path.
        if let Some(at) = rest.iter().take(3).position(|argument| *argument == known_path) {
            let before = base_name(argv0) == "env";
            let interpreter = if before { after_env(rest).first().copied().unwrap_or_default() } else { argv0 };
            if before || Runtime::of(base_name(interpreter)).is_some() {
                return Self {
                    runtime: Runtime::of(base_name(interpreter)),
                    script: Some(Cow::Borrowed(known_path)),
                    script_executed: true,
                    ..plain(rest[at + 1..].to_vec())
                };
            }
        }
        plain(rest.to_vec())
    }

    /// What the program is called: its title's first word, its script's name, or its file's name.
    pub(crate) fn name(&self) -> &str {
        match (&self.title, &self.script) {
            (Some(title), _) => base_name(title),
            (None, Some(script)) => base_name(script.strip_prefix("-m ").unwrap_or(script)),
            (None, None) => command_name(self.path),
        }
    }

    /// Where the program lies: the script's path, else the executed path.
    pub(crate) fn location(&self) -> &str {
        self.script.as_deref().unwrap_or(self.path)
    }

    /// The npm package that the program belongs to, with its scope.
    pub(crate) fn package(&self) -> Option<&str> {
        let (_, inside) = self.location().rsplit_once("/node_modules/")?;
        let parts = if inside.starts_with('@') { 2 } else { 1 };
        let end = inside.match_indices('/').nth(parts - 1)?.0;
        Some(&inside[..end]).filter(|package| *package != ".bin")
    }

    /// node runs it, and with node V8; behind `env` it does not yet.
    pub(crate) fn runs_on_node(&self) -> bool {
        self.runtime == Some(Runtime::Node) && base_name(self.path) != "env"
    }

    /// The n-th argument, or nothing.
    pub(crate) fn arg(&self, n: usize) -> &str {
        self.args.get(n).copied().unwrap_or_default()
    }
}

/// The command that an executed file stands for, where its installer gave the file another name:
/// `claude/versions/2.1.224`, `codex-x86_64-unknown-linux-musl`, `.claude-wrapped`.
pub(super) fn command_name(path: &str) -> &str {
    let file = base_name(path);
    let is_version = file.contains('.') && file.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_version && let Some(of) = path.strip_suffix(file).and_then(|above| above.strip_suffix("/versions/")) {
        return base_name(of);
    }
    let wrapped = file.strip_prefix('.').and_then(|file| file.strip_suffix("-wrapped"));
    // To prepare a search costs more than all else here, and most names are too short for it to find anything.
    let platforms = ["-x86_64-unknown-linux-", "-aarch64-unknown-linux-"].into_iter();
    let platform =
        platforms.filter(|platform| file.len() > platform.len()).find_map(|platform| file.split_once(platform));
    wrapped.or(platform.map(|(name, _)| name)).unwrap_or(file)
}

/// What an interpreter with these arguments runs; path and argv0 are the caller's.
fn interpreted<'a>(runtime: Runtime, argv0: &'a str, arguments: &[&'a str]) -> Program<'a> {
    let mut program = Program {
        path: argv0,
        argv0,
        runtime: Some(runtime),
        script: None,
        script_executed: false,
        command: None,
        title: None,
        args: Vec::new(),
    };
    let mut arguments = arguments.iter().copied().peekable();
    let mut wants_command = false;
    while let Some(argument) = arguments.next() {
        let is_option = argument.starts_with('-') || (runtime == Runtime::Shell && argument.starts_with('+'));
        if !is_option {
            if wants_command {
                program.command = Some(argument);
            } else if runtime.is_prefix(argument) {
                continue;
            } else if runtime.is_command(argument) {
                program.args.push(argument);
            } else {
                program.script = Some(Cow::Borrowed(argument));
                program.script_executed = argv0.contains('/');
            }
            break;
        }
        if argument == "--" {
            continue;
        }
        if runtime.has_no_script(argument) {
            if argument != "-" {
                arguments.next();
            }
            break;
        }
        match runtime {
            Runtime::Python => {
                // Short options stand in one word: `-Im aider` is `-I -m aider`.
                if let Some(at) = argument.find(['m', 'c', 'W', 'X']).filter(|_| !argument.starts_with("--")) {
                    let attached = Some(&argument[at + 1..]).filter(|value| !value.is_empty());
                    match argument.as_bytes()[at] {
                        b'm' => {
                            program.script =
                                attached.or_else(|| arguments.next()).map(|m| Cow::Owned(format!("-m {m}")));
                            break;
                        }
                        b'c' => {
                            let _code = attached.or_else(|| arguments.next());
                            break;
                        }
                        _ if attached.is_none() => {
                            arguments.next();
                        }
                        _ => {}
                    }
                    continue;
                }
            }
            Runtime::Shell if !argument.starts_with("--") && argument.contains('c') && argument.starts_with('-') => {
                wants_command = true;
                continue;
            }
            Runtime::Java if matches!(argument, "-jar" | "-m" | "--module") => {
                program.script = arguments.next().map(Cow::Borrowed);
                break;
            }
            _ => {}
        }
        if runtime.takes_value(argument) {
            arguments.next();
        }
    }
    program.args.extend(arguments);
    program
}

/// The command that `env` with these arguments runs.
pub(super) fn after_env<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut words = Vec::new();
    let mut arguments = arguments.iter().copied();
    while let Some(argument) = arguments.next() {
        if let Some(split) = argument.strip_prefix("-S").or_else(|| argument.strip_prefix("--split-string=")) {
            let split = if split.is_empty() { arguments.next().unwrap_or_default() } else { split };
            words.extend(split.split_ascii_whitespace().skip_while(|word| is_assignment(word)));
            break;
        }
        if matches!(argument, "-u" | "--unset" | "-C" | "--chdir") {
            arguments.next();
        } else if !argument.starts_with('-') && !is_assignment(argument) {
            words.push(argument);
            break;
        }
    }
    words.extend(arguments);
    words
}

/// `NAME=VALUE`, as it may stand before a command.
pub(crate) fn is_assignment(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    word.contains('=') && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("/usr/bin/rg", &["rg", "claude"], "rg", None, &["claude"])]
    #[case::script("/usr/bin/node", &["node", "/x/.bin/gemini", "-p", "hi"], "gemini", Some("/x/.bin/gemini"), &["-p", "hi"])]
    #[case::option_with_value("/usr/bin/node", &["node", "--require", "/x/claude", "/y/a.js"], "a.js", Some("/y/a.js"), &[])]
    #[case::option_without_value("/usr/bin/node", &["node", "--max-old-space-size=9", "/y/a.js"], "a.js", Some("/y/a.js"), &[])]
    #[case::eval("/usr/bin/node", &["node", "-e", "x", "/x/claude"], "node", None, &["/x/claude"])]
    #[case::module("/v/python3", &["python3", "-m", "aider", "--model", "m"], "aider", Some("-m aider"), &["--model", "m"])]
    #[case::module_in_a_cluster("/v/python3", &["python3", "-Im", "aider"], "aider", Some("-m aider"), &[])]
    #[case::python_value("/v/python3", &["python3", "-X", "dev", "-Wignore", "s.py"], "s.py", Some("s.py"), &[])]
    #[case::python_code("/v/python3", &["python3", "-c", "x", "aider"], "python3", None, &["aider"])]
    #[case::executed("/x/.bin/claude", &["/usr/bin/env", "node", "/x/.bin/claude", "mcp"], "claude", Some("/x/.bin/claude"), &["mcp"])]
    #[case::executed_with_option("/x/run", &["/bin/sh", "-e", "/x/run", "a"], "run", Some("/x/run"), &["a"])]
    #[case::env("/usr/bin/env", &["env", "-i", "-u", "X", "A=1", "node", "/x/cli.js", "b"], "cli.js", Some("/x/cli.js"), &["b"])]
    #[case::env_split("/usr/bin/env", &["env", "-S", "node --no-warnings", "/x/cli.js"], "cli.js", Some("/x/cli.js"), &[])]
    #[case::title("/usr/bin/node", &["npm exec @a/b c"], "npm", None, &["exec", "@a/b", "c"])]
    #[case::title_with_padding("/usr/bin/node", &["claude", "", ""], "claude", None, &[])]
    #[case::no_title("/usr/bin/node", &["node"], "node", None, &[])]
    #[case::login_shell("/bin/bash", &["-bash"], "bash", None, &[])]
    #[case::main_class("/j/java", &["java", "-Xmx1g", "-cp", "/a.jar", "org.x.Main", "1"], "org.x.Main", Some("org.x.Main"), &["1"])]
    #[case::bun_run("/b/bun", &["bun", "run", "/x/w.cjs", "--daemon"], "w.cjs", Some("/x/w.cjs"), &["--daemon"])]
    #[case::bun_x("/b/bun", &["bun", "x", "some-mcp"], "bun", None, &["x", "some-mcp"])]
    #[case::no_exe_link("", &["node", "/x/cli.js"], "cli.js", Some("/x/cli.js"), &[])]
    fn sees_the_program(
        #[case] path: &str,
        #[case] argv: &[&str],
        #[case] name: &str,
        #[case] script: Option<&str>,
        #[case] args: &[&str],
    ) {
        let image = Image { path: path.into(), argv: argv.iter().map(|s| (*s).into()).collect(), truncated: false };
        let program = Program::of(&image);
        assert_eq!(program.name(), name);
        assert_eq!(program.script.as_deref(), script);
        assert_eq!(program.args, args);
    }

    #[rstest]
    #[case(&["bash", "-c", "-l", "ls"], "ls")]
    #[case(&["bash", "-lc", "ls"], "ls")]
    #[case(&["bash", "-l", "-o", "pipefail", "-c", "ls", "name"], "ls")]
    fn a_shell_has_a_command(#[case] argv: &[&str], #[case] command: &str) {
        assert_eq!(Program::of_words(argv.to_vec()).command, Some(command));
    }

    #[rstest]
    #[case("/x/node_modules/@playwright/mcp/cli.js", Some("@playwright/mcp"))]
    #[case("/x/node_modules/a/node_modules/nx/src/s.js", Some("nx"))]
    #[case("/x/node_modules/.bin/vite", None)]
    #[case("/x/cli.js", None)]
    fn knows_the_package(#[case] script: &str, #[case] package: Option<&str>) {
        assert_eq!(Program::of_words(vec!["node", script]).package(), package);
    }
}
