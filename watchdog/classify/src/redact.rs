//! Images without the prompts, paths and secrets that people write into arguments.
//!
//! Classification needs the executed path, argv\[0\], an interpreter's script, and the words that the rules name; these
//! stay. The same holds for a command that is wrapped in another (`npx x`, `sh -c "x"`, `timeout 5 x`). Every other
//! argument becomes a mark, `<0f3a…>`. Equal arguments have equal marks throughout a recording, so equal command lines
//! stay equal. A mark keeps the shape of an option, a number or an assignment. The redacted image is classified as the
//! original was.

use std::hash::{BuildHasher, RandomState};

use super::env_command::{after_env, is_assignment};
use super::names::{base_name, without_version};
use super::program::Program;
use super::runtime::Runtime;
use super::ssh::ssh_options;
use super::wrapped::{self, Inner};
use super::{is_tool_package, kind_of, roles, v8, words};
use watchdog_types::Image;

/// Wrappers are followed a little deeper than classification does.
const DEEPEST: u32 = 8;
/// Options of interpreters that bound a heap, besides those that the engine asks for (see [`v8::option`]): numbers, which
/// tell how far a leak can go.
const HEAP_OPTIONS: &[&str] = &["--max-heap-size=", "-Xmx"];
/// Beginnings of options that rules ask for.
const PREFIXES: &[&str] = &["--statefile", "--service", "--parent-pid="];
/// Words in what a program writes over its argv\[0\] that rules ask for.
const TITLE_WORDS: &[&str] = &["[mux]", "server"];

/// Redacts the arguments of images.
#[derive(Debug, Default)]
pub struct ArgumentRedactor {
    /// Its key is random and stored nowhere, so a mark cannot confirm a guess.
    marks: RandomState,
}

impl ArgumentRedactor {
    /// Redacts one image. `keeps_first` says, of the first argument and its mark, whether the argument must stay.
    pub fn image(&self, image: &mut Image, keeps_first: impl Fn(&str, &str) -> bool) {
        let Image { path, argv, truncated: _, script: _ } = image;
        let mut words: Vec<&str> = argv.iter().map(String::as_str).collect();
        // Padding that a rewritten title leaves is no argument.
        while words.len() > 1 && words.last().is_some_and(|last| last.is_empty()) {
            words.pop();
        }
        let first = Program::of_argv(path, words.clone()).args.first().copied();
        let mut redacted = self.argv(path, &words, 0);
        if let Some(first) = first
            && let Some(at) = first_argument(path, &redacted)
            && keeps_first(first, &redacted[at])
        {
            first.clone_into(&mut redacted[at]);
        }
        *argv = redacted;
    }

    /// Redacts the words of a command line that executes `path`.
    fn argv(&self, path: &str, argv: &[&str], depth: u32) -> Vec<String> {
        let Some((&argv0, rest)) = argv.split_first() else { return Vec::new() };
        let path = if path.is_empty() { argv0 } else { path };
        let name = base_name(path);
        if name == "env" {
            return self.behind_env(argv0, rest, depth);
        }
        let program = Program::of_argv(path, argv.to_vec());
        if let Some(title) = program.title {
            let arguments = self.arguments(&program, depth);
            return vec![std::iter::once(title.to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")];
        }
        let mut redacted = vec![self.argv0(path, argv0, rest)];
        match (program.runtime, &program.script) {
            // The kernel put the interpreter before the script that was executed.
            (_, Some(script)) if Runtime::of(name).is_none() => {
                let behind_env = after_env(rest).first().copied().filter(|_| base_name(argv0) == "env");
                if let Some(interpreter) = behind_env.filter(|interpreter| interpreter != script) {
                    redacted.extend(interpreter.starts_with('-').then(|| "-S".to_owned()));
                    redacted.push(interpreter.to_owned());
                }
                redacted.extend(self.heap_options(&rest[..rest.len().saturating_sub(program.args.len() + 1)]));
                redacted.push(script.clone().into_owned());
            }
            (Some(runtime), script) => {
                redacted.extend(self.heap_options(&rest[..rest.len().saturating_sub(program.args.len())]));
                if let Some(command) = program.command {
                    let command = match wrapped::inner_of(&program) {
                        Some(Inner::Command(words)) => self.command(&words, depth),
                        _ => format!(": {}", self.mark(command)),
                    };
                    redacted.extend(["-c".to_owned(), command]);
                } else if let Some(script) = script {
                    redacted.extend(run_script(runtime, script));
                } else if program.args.first().is_some_and(|first| !runtime.is_command(first)) {
                    // The program stood on the command line, or came through stdin.
                    redacted.push(eval_option(runtime).to_owned());
                    let code = || self.mark(rest.first().copied().unwrap_or_default());
                    redacted.extend((runtime != Runtime::Shell).then(code));
                } else if redacted.len() == 1 && program.args.is_empty() && !rest.is_empty() {
                    // Alone, argv[0] would be taken for a title.
                    redacted.push("--".to_owned());
                }
            }
            (None, _) => {}
        }
        if program.command.is_some() {
            redacted.extend(program.args.iter().map(|argument| self.argument(argument)));
        } else {
            let mut arguments = self.arguments(&program, depth);
            // `deno fmt`: any other word would be a script.
            if let (Some(runtime), None, Some(first)) = (program.runtime, &program.script, program.args.first())
                && runtime.is_command(first)
            {
                (*first).clone_into(&mut arguments[0]);
            }
            redacted.extend(arguments);
        }
        redacted
    }

    /// The options of an interpreter that limit its heap, and the end of its options.
    fn heap_options<'a>(&'a self, options: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        let is_end = |option: &str| (option == "--").then(|| option.to_owned());
        options.iter().filter_map(move |option| is_end(option).or_else(|| self.heap_option(option)))
    }

    /// An option that bounds a heap, as it is; where its value is no number, which takes back an earlier one, without that.
    fn heap_option(&self, option: &str) -> Option<String> {
        let flags = if option.starts_with(v8::DENO_FLAGS) { v8::DENO_FLAGS } else { "" };
        match v8::option(option) {
            Some((name, value)) if value.parse::<f64>().is_err() => Some(format!("{flags}{name}={}", self.mark(value))),
            Some((name, value)) if !flags.is_empty() => Some(format!("{flags}{name}={value}")),
            Some(_) => Some(option.to_owned()),
            None => bounds_heap(option).then(|| option.to_owned()),
        }
    }

    /// `env -i A=1 cmd`: the command only.
    fn behind_env(&self, argv0: &str, rest: &[&str], depth: u32) -> Vec<String> {
        let inner = after_env(rest);
        let mut redacted = vec![argv0.to_owned()];
        redacted.extend(inner.first().filter(|first| first.starts_with('-')).map(|_| "-S".to_owned()));
        redacted.extend(self.words(&inner, depth + 1));
        redacted
    }

    /// Redacts words of which the first is a program.
    fn words(&self, words: &[&str], depth: u32) -> Vec<String> {
        match words.first() {
            Some(path) if depth < DEEPEST => self.argv(path, words, depth),
            _ => words.iter().map(|word| self.argument(word)).collect(),
        }
    }

    /// A shell's command line. Only its first effective command is examined.
    fn command(&self, words: &[&str], depth: u32) -> String {
        let words = self.words(words, depth + 1);
        let words = words.into_iter().map(|word| if word.is_empty() { self.mark("") } else { word });
        let command = words.collect::<Vec<_>>().join(" ");
        // A shell would take it for an option.
        if command.starts_with(['-', '+']) { format!(" {command}") } else { command }
    }

    /// The arguments of a program: those of a program inside it too, where there is one.
    fn arguments(&self, program: &Program<'_>, depth: u32) -> Vec<String> {
        let mark_all = |arguments: &[&str]| -> Vec<String> { arguments.iter().map(|a| self.argument(a)).collect() };
        match wrapped::inner_of(program) {
            Some(Inner::Rest { words, .. }) => {
                let before = program.args.len() - words.len();
                let mut redacted = mark_all(&program.args[..before]);
                if let [option @ ("-m" | "--module"), module, rest @ ..] = words {
                    redacted.extend([(*option).to_owned(), (*module).to_owned()]);
                    redacted.extend(mark_all(rest));
                } else {
                    redacted.extend(self.words(words, depth + 1));
                }
                redacted
            }
            Some(Inner::Call { at, words }) => {
                let mut redacted = mark_all(&program.args);
                redacted[at] = self.command(&words, depth);
                redacted
            }
            Some(Inner::Image { at, .. }) => {
                let mut redacted = mark_all(&program.args);
                let image = program.arg(at);
                // The last word of a client's arguments, where none of them looks like an image, may be anything.
                let plain = !image.contains('/') && kind_of(&Program::of_words(vec![image]), 0).is_none();
                if !plain || is_tool_package(without_version(image)) {
                    image.clone_into(&mut redacted[at]);
                }
                redacted
            }
            Some(Inner::Command(_)) | None => mark_all(&program.args),
        }
    }

    /// argv\[0\]; of what a program wrote over it, the first word, and what rules ask for.
    fn argv0(&self, path: &str, argv0: &str, rest: &[&str]) -> String {
        let is_title = rest.is_empty() && argv0 != path && base_name(argv0) != base_name(path);
        let Some((first, more)) = argv0.split_once(' ').filter(|_| is_title) else { return argv0.to_owned() };
        let words = more.split(' ').map(|word| match word {
            _ if TITLE_WORDS.contains(&word) => word.to_owned(),
            _ if word.starts_with('[') => format!("[{}", self.mark(word)),
            _ => self.argument(word),
        });
        std::iter::once(first.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// One argument: as it is where a rule asks for it, else a mark of its shape.
    fn argument(&self, argument: &str) -> String {
        if argument.is_empty() || words::asked_for(argument) || ssh_options(argument).is_some() {
            return argument.to_owned();
        }
        // What stands behind a program on the command line is the interpreter's still.
        if v8::option(argument).is_some()
            && let Some(option) = self.heap_option(argument)
        {
            return option;
        }
        let mark = self.mark(argument);
        if roles::is_node_of_msbuild(argument) {
            return "/nodeReuse:true".to_owned();
        }
        if argument.ends_with("mcp-server") {
            return format!("{mark}-mcp-server");
        }
        if argument.ends_with(":mcp") {
            return format!("{mark}:mcp");
        }
        if argument.starts_with("mcp:") {
            return format!("mcp:{mark}");
        }
        if let Some(prefix) = PREFIXES.iter().find(|prefix| argument.starts_with(**prefix)) {
            return format!("{prefix}{mark}");
        }
        if let Some((name, _)) = argument.split_once('=')
            && words::asked_for(name)
        {
            return format!("{name}={mark}");
        }
        if argument.starts_with("--") {
            format!("--{mark}")
        } else if wrapped::keeps_stdin(argument) {
            format!("-{mark}i")
        } else if argument.starts_with('-') {
            format!("-{mark}")
        } else if is_assignment(argument) {
            format!("_={mark}")
        } else if argument.starts_with(|first: char| first.is_ascii_digit()) {
            format!("0{mark}")
        } else {
            mark
        }
    }

    /// The mark of a text. Two texts share one by an accident of one in four thousand million.
    fn mark(&self, text: &str) -> String {
        format!("<{:08x}>", self.marks.hash_one(text) >> 32)
    }
}

/// Where the first argument of the program stands in a redacted command line.
fn first_argument(path: &str, argv: &[String]) -> Option<usize> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let arguments = Program::of_argv(path, words).args.len();
    argv.len().checked_sub(arguments).filter(|at| *at > 0 && *at < argv.len())
}

/// The way in which an interpreter receives its script.
fn run_script(runtime: Runtime, script: &str) -> Vec<String> {
    if let Some(module) = script.strip_prefix("-m ").filter(|_| runtime == Runtime::Python) {
        return vec!["-m".to_owned(), module.to_owned()];
    }
    let option = match runtime {
        Runtime::Java => Some("-jar"),
        Runtime::Php => Some("-f"),
        _ => None,
    };
    let option = option.filter(|_| script.starts_with('-'));
    option.into_iter().chain([script]).map(str::to_owned).collect()
}

/// The option behind which a program stands on the command line.
fn eval_option(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Python => "-c",
        Runtime::Php => "-r",
        Runtime::Shell => "-s",
        _ => "-e",
    }
}

fn bounds_heap(option: &str) -> bool {
    let value = HEAP_OPTIONS.iter().find_map(|name| option.strip_prefix(name));
    value.is_some_and(|value| {
        let digits = value.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}
