//! The program of an image, seen through interpreters, `env` and rewritten titles.
//!
//! `node /x/cli.js serve` is the program `cli.js` with the argument `serve`; `npm exec server-x` in one string is what a
//! node program wrote over its arguments. Everything else in this project that asks "what is this?" asks here first.

use std::borrow::Cow;

use super::env_command::after_env;
use super::names::{base_name, command_name, without_version};
use super::options;
use super::runtime::Runtime;
use watchdog_types::Image;

/// A program and its own arguments.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// The path that was executed.
    pub path: &'a str,
    pub argv0: &'a str,
    /// The interpreter that runs `script`, or the title's program.
    pub runtime: Option<Runtime>,
    /// The interpreter's script; `-m MODULE` for a Python module.
    pub script: Option<Cow<'a, str>>,
    /// The script itself was executed, or looks so: the kernel put its interpreter, with a path, before it.
    pub script_executed: bool,
    /// The command after a shell's -c.
    pub command: Option<&'a str>,
    /// The first word of what an interpreted program wrote over its arguments.
    pub title: Option<&'a str>,
    /// The arguments after the program, the script, or the title's first word.
    pub args: Vec<&'a str>,
}

impl<'a> Program<'a> {
    pub fn of(image: &'a Image) -> Self {
        let mut argv: Vec<&str> = image.argv.iter().map(String::as_str).collect();
        // Padding that a rewritten title leaves is no argument.
        while argv.len() > 1 && argv.last().is_some_and(|last| last.is_empty()) {
            argv.pop();
        }
        let mut program = Self::of_argv(&image.path, argv);
        if let Some(absolute) = &image.script
            && program.relative_script().is_some()
        {
            program.script = Some(Cow::Borrowed(absolute));
        }
        program
    }

    /// The script, where it is a path relative to the working directory: no module, class or address of a package.
    pub fn relative_script(&self) -> Option<&str> {
        let script = self.script.as_deref().filter(|script| !script.starts_with(['/', '-']))?;
        let is_class = self.runtime == Some(Runtime::Java) && !script.ends_with(".jar") && !script.ends_with(".java");
        (!is_class && !script.contains(':')).then_some(script)
    }

    /// The program that a command line of these words would run. Its path is unknown, because PATH is.
    pub fn of_words(words: Vec<&'a str>) -> Self {
        let path = words.first().copied().unwrap_or_default();
        Self::of_argv(path, words)
    }

    pub(super) fn of_argv(path: &'a str, argv: Vec<&'a str>) -> Self {
        let argv0 = argv.first().copied().unwrap_or(path);
        // bunx is a link to bun.
        let known_path = if path.is_empty() || base_name(argv0) == "bunx" { argv0 } else { path };
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

    /// The first word of its title, the name of its script, or the name of its file.
    pub fn name(&self) -> &str {
        match (&self.title, &self.script) {
            (Some(title), _) => base_name(title),
            (None, Some(script)) if is_descriptor(script) => command_name(self.path),
            (None, Some(script)) => match registry_package(script) {
                Some(package) => base_name(package),
                None => base_name(script.strip_prefix("-m ").unwrap_or(script)),
            },
            (None, None) => command_name(self.path),
        }
    }

    /// Where the program lies: the script's path, else the executed path.
    pub fn location(&self) -> &str {
        self.script.as_deref().unwrap_or(self.path)
    }

    /// The npm package that the program belongs to, with its scope.
    pub fn package(&self) -> Option<&str> {
        if let Some(package) = registry_package(self.location()) {
            return Some(package);
        }
        let (_, inside) = self.location().rsplit_once("/node_modules/")?;
        let parts = if inside.starts_with('@') { 2 } else { 1 };
        let end = inside.match_indices('/').nth(parts - 1)?.0;
        Some(&inside[..end]).filter(|package| *package != ".bin")
    }

    /// node runs it, and with node V8; behind `env` it does not yet.
    pub fn runs_on_node(&self) -> bool {
        self.runtime == Some(Runtime::Node) && base_name(self.path) != "env"
    }

    /// V8 runs it: in node or in deno.
    pub fn runs_on_v8(&self) -> bool {
        matches!(self.runtime, Some(Runtime::Node | Runtime::Deno)) && base_name(self.path) != "env"
    }

    /// The n-th argument, or nothing.
    pub fn arg(&self, n: usize) -> &str {
        self.args.get(n).copied().unwrap_or_default()
    }
}

/// A script without a name: a pipe, or a file that was opened before.
fn is_descriptor(script: &str) -> bool {
    script == "/dev/stdin" || script.starts_with("/dev/fd/") || script.starts_with("/proc/self/fd/")
}

/// The package of a script that a runtime fetches: `npm:@playwright/mcp@1/cli` is of `@playwright/mcp`.
fn registry_package(script: &str) -> Option<&str> {
    let package = script.strip_prefix("npm:").or_else(|| script.strip_prefix("jsr:"))?.trim_start_matches('/');
    let parts = if package.starts_with('@') { 2 } else { 1 };
    let end = package.match_indices('/').nth(parts - 1).map_or(package.len(), |(end, _)| end);
    Some(without_version(&package[..end]))
}

/// The program that an interpreter with these arguments runs. The caller sets path and argv0.
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
        let is_option = argument.starts_with('-')
            || (runtime == Runtime::Shell && argument.starts_with('+'))
            // A file of options.
            || (runtime == Runtime::Java && argument.starts_with('@'));
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
            if !matches!(argument, "-" | "-s") && !argument.contains('=') {
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
            Runtime::Php if argument == "-f" => {
                program.script = arguments.next().map(Cow::Borrowed);
                break;
            }
            Runtime::Java if matches!(argument, "-jar" | "-m" | "--module") => {
                program.script = arguments.next().map(Cow::Borrowed);
                break;
            }
            _ => {}
        }
        if options::takes_value(runtime, argument) {
            arguments.next();
        }
    }
    program.args.extend(arguments);
    program
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
