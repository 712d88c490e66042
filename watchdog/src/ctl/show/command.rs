//! A command line in a few words: the program, and what it was told to run. Later arguments are prompts and secrets.

use std::borrow::Cow;

/// Longer words than this are no subcommand.
const LONGEST_WORD: usize = 80;

/// Programs whose first argument that is no option says what they really are.
const RUNNERS: [&str; 25] = [
    "node", "nodejs", "bun", "bunx", "deno", "python", "ruby", "perl", "php", "java", "sh", "bash", "zsh", "dash",
    "npm", "npx", "pnpm", "yarn", "uv", "uvx", "pipx", "docker", "podman", "cargo", "go",
];

/// Subcommands whose own first argument says what is run.
const LAUNCHES: [&str; 6] = ["exec", "x", "dlx", "run", "tool", "run-script"];

/// File names that say nothing without the directory they are in.
const NAMELESS: [&str; 7] = ["index", "main", "cli", "server", "start", "__main__", "run"];

/// Directories that say nothing about what is in them.
const NAMELESS_DIRECTORIES: [&str; 7] = ["dist", "build", "lib", "src", "bin", "out", "esm"];

/// `node server-memory/…/index.js`, `npm exec @org/server`, `sh -c`; `[comm]` when the arguments are not known.
#[must_use]
pub(crate) fn short(argv: &[String], comm: &str) -> String {
    let Some(program) = argv.first().filter(|program| !program.is_empty()) else {
        return format!("[{comm}]");
    };
    let program = base(program);
    let mut words = vec![Cow::Borrowed(program)];
    if is_runner(program) {
        words.extend(what_is_run(&argv[1..]));
    } else if let Some(word) = argv.get(1).filter(|word| is_subcommand(word)) {
        words.push(word.as_str().into());
    }
    words.join(" ")
}

fn is_runner(program: &str) -> bool {
    // python3.12, ruby3.2, node22
    let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    RUNNERS.contains(&stem)
}

/// A first argument that names a part of the program, like `serve` of `claude mcp serve`: never text, never an assignment.
fn is_subcommand(word: &str) -> bool {
    word.len() <= LONGEST_WORD
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.' | '/'))
}

fn what_is_run(arguments: &[String]) -> Vec<Cow<'_, str>> {
    let mut words = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            // What follows is the program's text.
            "-c" | "-e" | "-p" | "--eval" | "--print" | "-lc" | "-ic" => {
                words.push(argument.into());
                break;
            }
            "-m" | "-jar" => {
                words.push(argument.into());
                words.extend(arguments.next().map(script));
                break;
            }
            option if option.starts_with('-') => {}
            launch if words.is_empty() && LAUNCHES.contains(&launch) => words.push(launch.into()),
            what => {
                words.push(script(what));
                break;
            }
        }
    }
    words
}

/// A script's file name, with the package that it is the entry of where the name alone says nothing.
fn script(path: &str) -> Cow<'_, str> {
    // @org/package is a name, not a path.
    if !path.starts_with(['/', '.', '~']) && path.matches('/').count() <= 1 {
        return path.into();
    }
    let name = base(path);
    let stem = name.split('.').next().unwrap_or(name);
    if !NAMELESS.contains(&stem) {
        return name.into();
    }
    let mut directories = path.rsplit('/').skip(1).filter(|directory| !directory.is_empty());
    match directories.next() {
        None => name.into(),
        Some(near) if !NAMELESS_DIRECTORIES.contains(&near) => format!("{near}/{name}").into(),
        Some(_) => match directories.find(|directory| !NAMELESS_DIRECTORIES.contains(directory)) {
            Some(far) => format!("{far}/…/{name}").into(),
            None => name.into(),
        },
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::short;
    use rstest::rstest;

    #[rstest]
    #[case(&["/usr/local/bin/claude"], "claude")]
    #[case(&["claude", "mcp", "serve"], "claude mcp")]
    #[case(&["claude", "--resume", "id"], "claude")]
    #[case(&["/usr/bin/node", "--max-old-space-size=4096", "/x/node_modules/server-memory/dist/index.js", "--token=t"],
           "node server-memory/…/index.js")]
    #[case(&["node", "/x/claude-code/cli.js"], "node claude-code/cli.js")]
    #[case(&["node", "/x/.bin/flow-nexus"], "node flow-nexus")]
    #[case(&["npm", "exec", "-y", "@modelcontextprotocol/server-memory"], "npm exec @modelcontextprotocol/server-memory")]
    #[case(&["npx", "-y", "flow-nexus@latest", "mcp", "start"], "npx flow-nexus@latest")]
    #[case(&["python3.12", "-m", "mcp_server_git"], "python3.12 -m mcp_server_git")]
    #[case(&["sh", "-c", "curl -H 'Authorization: secret'"], "sh -c")]
    #[case(&["uv", "run", "--with", "mcp", "server.py"], "uv run mcp")]
    #[case(&["git", "status", "--short"], "git status")]
    fn a_command_is_its_program_and_what_that_runs(#[case] argv: &[&str], #[case] shown: &str) {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        assert_eq!(short(&argv, "comm"), shown);
    }

    #[rstest]
    #[case(&["claude", "fix the login bug"], "claude")]
    #[case(&["agent", "API_KEY=abc"], "agent")]
    #[case(&["claude", "-p", "secret"], "claude")]
    #[case(&["node", "-e", "process.env.SECRET"], "node -e")]
    fn prompts_and_secrets_are_left_out(#[case] argv: &[&str], #[case] shown: &str) {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        assert_eq!(short(&argv, "comm"), shown);
    }

    #[test]
    fn a_process_whose_arguments_are_not_known_is_named_by_its_comm() {
        assert_eq!(short(&[], "kworker"), "[kworker]");
        assert_eq!(short(&[String::new()], "node"), "[node]");
    }
}
