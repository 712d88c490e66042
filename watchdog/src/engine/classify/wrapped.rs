//! Programs whose kind is that of what they wrap: package runners, shells with -c, container clients, `timeout` and the like.

use super::program::{Program, is_assignment};
use super::{roles, table};

/// What a wrapper runs.
pub(super) struct Wrapped<'a> {
    pub(super) program: Program<'a>,
    /// A package runner runs it: its path is a package's name.
    pub(super) from_package: bool,
}

/// Where a wrapper's command line says what it runs.
pub(super) enum Inner<'w, 'a> {
    /// The words of the command after a shell's -c.
    Command(Vec<&'a str>),
    /// The last of the arguments, from the program's name on.
    Rest {
        /// They.
        words: &'w [&'a str],
        /// A package runner runs it.
        from_package: bool,
    },
    /// One of the arguments: a container's image.
    Image {
        /// Which of the arguments.
        at: usize,
        /// Its stdin is kept open.
        server: bool,
    },
}

/// What this program runs, if it is a wrapper and its command line says so.
pub(super) fn command_of<'a>(program: &'a Program<'_>) -> Option<Wrapped<'a>> {
    Some(match inner_of(program)? {
        Inner::Command(words) => Wrapped { program: Program::of_words(words), from_package: false },
        Inner::Rest { words, from_package } => Wrapped { program: Program::of_words(words.to_vec()), from_package },
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
    let name = program.name().trim_end_matches("-cli.js");
    let arguments = program.args.as_slice();
    if table::PACKAGE_RUNNERS.contains(&name) {
        return package(arguments, true);
    }
    if let Some((_, verbs)) = table::PACKAGE_RUNNER_VERBS.iter().find(|(runner, _)| *runner == name) {
        let (verb, rest) = after_options(arguments).split_first()?;
        if !verbs.contains(verb) {
            return None;
        }
        return match (*verb, rest.first()) {
            // `uv tool run x`, and `uv tool uvx x` as uvx calls it.
            ("tool", Some(&"run" | &"uvx")) => package(&rest[1..], true),
            ("tool", _) => None,
            // Inside a project `run` runs the project's own commands; from elsewhere it is the way to start a server.
            ("run", _) if name != "pipx" => package(rest, arguments.iter().any(|argument| is_from_elsewhere(argument))),
            _ => package(rest, true),
        };
    }
    if table::PREFIX_COMMANDS.contains(&name) {
        return prefixed(arguments);
    }
    if roles::runs_container(program) {
        return container(arguments);
    }
    None
}

/// Whether this program runs packages: `npx x`, `uv tool run x`.
pub(super) fn is_runner(program: &Program<'_>) -> bool {
    let name = program.name().trim_end_matches("-cli.js");
    table::PACKAGE_RUNNERS.contains(&name) || table::PACKAGE_RUNNER_VERBS.iter().any(|(runner, _)| *runner == name)
}

/// A project or packages other than those of the working directory.
fn is_from_elsewhere(argument: &str) -> bool {
    let option = argument.split('=').next().unwrap_or_default();
    matches!(option, "--directory" | "--project" | "--with" | "--with-editable" | "--from")
}

/// The arguments from the first that is neither an option nor an option's value.
fn after_options<'w, 'a>(arguments: &'w [&'a str]) -> &'w [&'a str] {
    let mut at = 0;
    while let Some(argument) = arguments.get(at).filter(|argument| argument.starts_with('-')) {
        at += if table::RUNNER_OPTIONS_WITH_VALUE.contains(argument) { 2 } else { 1 };
    }
    arguments.get(at..).unwrap_or_default()
}

/// `--yes --from git+… mcp-x ARGS`: options of a package runner, then the package or its command.
fn package<'w, 'a>(arguments: &'w [&'a str], from_package: bool) -> Option<Inner<'w, 'a>> {
    let words = after_options(arguments);
    (!words.is_empty()).then_some(Inner::Rest { words, from_package })
}

/// `timeout 30 cmd`, `nice -n 5 cmd`: the first word that is no option, number or assignment.
fn prefixed<'w, 'a>(arguments: &'w [&'a str]) -> Option<Inner<'w, 'a>> {
    let is_command = |word: &&str| {
        !word.starts_with('-') && !is_assignment(word) && !word.starts_with(|first: char| first.is_ascii_digit())
    };
    let at = arguments.iter().position(is_command)?;
    Some(Inner::Rest { words: &arguments[at..], from_package: false })
}

/// `run -i --rm -e X image`: with stdin kept open it is a server of whoever holds the other end.
fn container<'w, 'a>(arguments: &'w [&'a str]) -> Option<Inner<'w, 'a>> {
    let at = arguments.iter().position(|argument| matches!(*argument, "run" | "exec"))? + 1;
    let options = &arguments[at..];
    let image = options.iter().position(|argument| {
        argument.contains('/') && !argument.contains(['=', ',']) && !argument.starts_with(['-', '/', '.'])
    });
    let shown = image.or_else(|| options.len().checked_sub(1))?;
    let server = options.iter().any(|option| keeps_stdin(option)) && !options.contains(&"--tty");
    Some(Inner::Image { at: at + shown, server })
}

/// `-i`, `-di`, but not `-it`, by which a person asks for a terminal.
pub(super) fn keeps_stdin(option: &str) -> bool {
    let cluster = option.starts_with('-') && !option.starts_with("--");
    option == "--interactive" || (cluster && option.contains('i') && !option.contains('t'))
}

/// A package's name without its version: `@playwright/mcp@latest` is `@playwright/mcp`, `ruff==1` is `ruff`.
pub(super) fn without_version(package: &str) -> &str {
    let end = package.char_indices().skip(1).find(|(_, c)| matches!(c, '@' | '=' | '[' | '>' | '<' | '~'));
    end.map_or(package, |(at, _)| &package[..at])
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
    fn the_first_command_is_found(#[case] line: &str, #[case] words: &[&str]) {
        assert_eq!(first_command(line), words);
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
