//! A command line as program and script. Other arguments are hidden: they may be prompts or secrets.

use std::borrow::Cow;

use watchdog_api::Process;
use watchdog_classify::options::{runner_takes_value, takes_value};
use watchdog_classify::{Program, Runtime};

/// Bytes of a subcommand.
const MAX_WORD: usize = 80;

/// Programs whose first non-option argument identifies what runs.
const RUNNERS: [&str; 25] = [
    "node", "nodejs", "bun", "bunx", "deno", "python", "ruby", "perl", "php", "java", "sh", "bash", "zsh", "dash",
    "npm", "npx", "pnpm", "yarn", "uv", "uvx", "pipx", "docker", "podman", "cargo", "go",
];

/// Scripts of node that launch packages: `/usr/bin/npx`, `npx-cli.js`.
const LAUNCHER_SCRIPTS: [&str; 2] = ["npx", "npm"];

const SHELLS: [&str; 4] = ["sh", "bash", "zsh", "dash"];

/// Subcommands whose first argument identifies what runs.
const LAUNCHES: [&str; 6] = ["exec", "x", "dlx", "run", "tool", "run-script"];

/// File names that identify nothing without their directory.
const GENERIC_FILES: [&str; 7] = ["index", "main", "cli", "server", "start", "__main__", "run"];

const GENERIC_DIRECTORIES: [&str; 7] = ["dist", "build", "lib", "src", "bin", "out", "esm"];

/// `node server-memory/…/index.js`, `npm exec @org/server`, `sh -c npx @org/server`; `[comm]` without arguments.
pub fn short(argv: &[String], comm: &str) -> String {
    match argv {
        [title] if title.contains(' ') && !title.starts_with('/') => of_title(title),
        [program, ..] if !program.is_empty() => {
            let words: Vec<&str> = argv.iter().map(String::as_str).collect();
            of_words(&words)
        }
        _ => format!("[{comm}]"),
    }
}

/// The command of a process, with the name that findings use where a process chose another argv[0]: `worker (miner)`.
pub fn of_process(process: &Process) -> String {
    let shown = short(&process.argv, &process.comm);
    let name = process.name.as_str();
    let first = shown.split(' ').next().unwrap_or_default();
    let is_alias = Runtime::of(name).is_some_and(|runtime| Runtime::of(first) == Some(runtime));
    let is_named = name.is_empty() || shown.contains(name) || first.len() > 2 && name.contains(first) || is_alias;
    if is_named { shown } else { format!("{shown} ({name})") }
}

/// What a program wrote over its arguments: `npm exec @org/server`, `tmux: server`.
fn of_title(title: &str) -> String {
    let words: Vec<&str> = title.split_ascii_whitespace().collect();
    match words.as_slice() {
        [program, ..] if is_runner(base(program)) => of_words(&words),
        [program, role, ..] if program.ends_with(':') && is_subcommand(role) => format!("{program} {role}"),
        [program, ..] => base(program).to_owned(),
        [] => title.to_owned(),
    }
}

fn of_words(words: &[&str]) -> String {
    let [program, arguments @ ..] = words else { return String::new() };
    let program = base(program);
    // `node /usr/bin/npx @org/server` is `npx @org/server`.
    if program == "node"
        && let [script, arguments @ ..] = arguments
        && let Some(launcher) =
            LAUNCHER_SCRIPTS.iter().find(|launcher| base(script).trim_end_matches("-cli.js") == **launcher)
    {
        return joined(launcher, script_words(launcher, arguments));
    }
    // `bun run x` says more than `bun x`.
    if let Some(runtime) = Runtime::of(program).filter(|runtime| *runtime != Runtime::Bun) {
        if let Some(path) = Program::of_words(words.to_vec()).script {
            let shown = if path.starts_with("-m ") { path.as_ref().into() } else { script(&path) };
            return format!("{program} {shown}");
        }
        if runtime != Runtime::Shell {
            // Program text is behind an option; else the first word is a command of the interpreter.
            let code = arguments.iter().take_while(|word| word.starts_with('-')).find(|word| precedes_code(word));
            let shown = code.or(arguments.first().filter(|word| is_subcommand(word)));
            return joined(program, shown.map(|word| (*word).into()).into_iter().collect());
        }
    }
    if is_runner(program) {
        return joined(program, script_words(program, arguments));
    }
    joined(
        program,
        arguments.first().filter(|word| is_subcommand(word)).map(|word| (*word).into()).into_iter().collect(),
    )
}

fn joined(program: &str, words: Vec<Cow<'_, str>>) -> String {
    [vec![Cow::Borrowed(program)], words].concat().join(" ")
}

fn is_runner(program: &str) -> bool {
    // python3.12, ruby3.2, node22
    let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    RUNNERS.contains(&stem)
}

/// A word such as `mcp` of `claude mcp serve`: no free text and no assignment.
fn is_subcommand(word: &str) -> bool {
    word.len() <= MAX_WORD
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.' | '/'))
}

/// `-e`, `--print`, `-ne`: the next argument is program text.
fn precedes_code(option: &str) -> bool {
    let letters = option.strip_prefix('-').unwrap_or_default();
    let is_short = (1..=3).contains(&letters.len()) && letters.chars().all(|c| c.is_ascii_lowercase());
    matches!(option, "--eval" | "--print") || is_short && letters.ends_with(['c', 'e', 'p', 'r'])
}

/// `TOKEN=secret`, but not `/x/a=b.sh`.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)))
}

fn script_words<'a>(program: &str, arguments: &[&'a str]) -> Vec<Cow<'a, str>> {
    let mut words = Vec::new();
    let mut arguments = arguments.iter().copied();
    let runtime = Runtime::of(program);
    while let Some(argument) = arguments.next() {
        // Options of bun itself precede its verb, those of its runner follow.
        let of_runner = runtime.is_none() || !words.is_empty();
        let is_valued = runtime.is_some_and(|runtime| takes_value(runtime, argument))
            || of_runner && runner_takes_value(program, argument);
        match argument {
            _ if is_valued => {
                arguments.next();
            }
            // A script from stdin: the others are its arguments.
            "-s" if runtime == Some(Runtime::Shell) => {
                words.push(argument.into());
                break;
            }
            "-c" | "-lc" | "-ic" if SHELLS.contains(&program) => {
                words.push(argument.into());
                words.extend(arguments.next().and_then(shell_command).map(Cow::Owned));
                break;
            }
            code if precedes_code(code) => {
                words.push(argument.into());
                break;
            }
            "-m" => {
                words.push(argument.into());
                words.extend(arguments.next().map(script));
                break;
            }
            option if option.starts_with('-') => {}
            // The value of an option that is not known.
            word if is_assignment(word) => {}
            launch if words.is_empty() && LAUNCHES.contains(&launch) => words.push(launch.into()),
            path => {
                words.push(script(path));
                break;
            }
        }
    }
    words
}

/// The program of a shell command, and what identifies the program behind a launcher. Other words can be secrets.
fn shell_command(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace().peekable();
    if words.peek() == Some(&"cd") {
        words.by_ref().find(|word| *word == "&&")?;
    }
    let plain = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_:./@".contains(c));
    let words: Vec<&str> = words.skip_while(|word| *word == "exec").take_while(|word| plain(word)).collect();
    let program = base(words.first()?);
    if !is_subcommand(program) {
        return None;
    }
    Some(if is_runner(program) { of_words(&words) } else { script(program).into_owned() })
}

/// The npm package of a script, with its scope. The name of an installed command says enough.
fn package(path: &str) -> Option<&str> {
    let (_, inside) = path.rsplit_once("/node_modules/")?;
    let slash = if inside.starts_with('@') { 1 } else { 0 };
    let (end, _) = inside.match_indices('/').nth(slash)?;
    Some(&inside[..end]).filter(|package| *package != ".bin")
}

/// A script's file name, with its package, or with its directory if the name is generic.
fn script(path: &str) -> Cow<'_, str> {
    // @org/package is a name, not a path.
    if !path.starts_with(['/', '.', '~']) && path.matches('/').count() <= 1 {
        return path.into();
    }
    let name = base(path);
    if let Some(package) = package(path) {
        let inside = path.rsplit_once(package).map_or(0, |(_, inside)| inside.matches('/').count());
        return if inside > 1 { format!("{package}/…/{name}").into() } else { format!("{package}/{name}").into() };
    }
    let stem = name.split('.').next().unwrap_or(name);
    if !GENERIC_FILES.contains(&stem) {
        return name.into();
    }
    let mut directories = path.rsplit('/').skip(1).filter(|directory| !directory.is_empty());
    match directories.next() {
        None => name.into(),
        Some(near) if !GENERIC_DIRECTORIES.contains(&near) => format!("{near}/{name}").into(),
        Some(_) => match directories.find(|directory| !GENERIC_DIRECTORIES.contains(directory)) {
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
    use super::{of_process, short};
    use crate::testing::process;
    use rstest::rstest;
    use watchdog_api::ProcessKind;

    #[rstest]
    #[case::other_argv0(&["worker", "serve"], "miner", "worker serve (miner)")]
    #[case::kernel_thread_like(&["[kworker/0:1]"], "miner", "0:1] (miner)")]
    #[case::applet(&["ls", "-l"], "busybox", "ls (busybox)")]
    #[case::interpreter(&["worker", "/x/bot.py"], "bot.py", "worker (bot.py)")]
    #[case::link(&["awk", "-f"], "mawk", "awk")]
    #[case::shell(&["sh", "-c", "cargo test"], "dash", "sh -c cargo test")]
    #[case::script(&["node", "/x/server-memory/dist/index.js"], "index.js", "node server-memory/…/index.js")]
    #[case::title(&["npm exec @x/server"], "npm", "npm exec @x/server")]
    #[case::earlier_daemon(&["worker"], "", "worker")]
    fn name_of_findings_is_shown(#[case] argv: &[&str], #[case] name: &str, #[case] shown: &str) {
        let named = super::Process { name: name.into(), ..process(1, 0, ProcessKind::Tool, argv, 1) };
        assert_eq!(of_process(&named), shown);
    }

    #[rstest]
    #[case(&["/usr/local/bin/claude"], "claude")]
    #[case(&["claude", "mcp", "serve"], "claude mcp")]
    #[case(&["claude", "--resume", "id"], "claude")]
    #[case(&["/usr/bin/node", "--max-old-space-size=4096", "/x/node_modules/server-memory/dist/index.js", "--token=t"],
           "node server-memory/…/index.js")]
    #[case(&["node", "/x/node_modules/@scope/server/dist/index.js"], "node @scope/server/…/index.js")]
    #[case(&["node", "/x/node_modules/@scope/server/stdio.js"], "node @scope/server/stdio.js")]
    #[case(&["node", "--require", "/y/hook.js", "--import", "z", "/x/agent.mjs"], "node agent.mjs")]
    #[case(&["node", "/x/node_modules/.bin/mcp-server"], "node mcp-server")]
    #[case(&["python3", "-X", "dev", "/opt/my-agent/main.py"], "python3 my-agent/main.py")]
    #[case(&["npm exec @scope/server --key=k"], "npm exec @scope/server")]
    #[case(&["tmux: server"], "tmux: server")]
    #[case(&["sh", "-c", "npx -y @scope/server --key=k"], "sh -c npx @scope/server")]
    #[case(&["bash", "-c", "cd /x && exec node /x/app/server.js"], "bash -c node app/server.js")]
    #[case(&["sh", "/opt/agent/run.sh", "secret"], "sh agent/run.sh")]
    #[case(&["node", "/x/claude-code/cli.js"], "node claude-code/cli.js")]
    #[case(&["node", "/x/.bin/flow-nexus"], "node flow-nexus")]
    #[case(&["npm", "exec", "-y", "@modelcontextprotocol/server-memory"], "npm exec @modelcontextprotocol/server-memory")]
    #[case(&["npx", "-y", "flow-nexus@latest", "mcp", "start"], "npx flow-nexus@latest")]
    #[case(&["python3.12", "-m", "mcp_server_git"], "python3.12 -m mcp_server_git")]
    #[case(&["sh", "-c", "curl -H 'Authorization: secret'"], "sh -c curl")]
    #[case(&["sh", "-c", "TOKEN=secret curl"], "sh -c")]
    #[case(&["bash", "-lc", "/opt/x/mcp-server-memory --key=k"], "bash -lc mcp-server-memory")]
    #[case(&["node", "/usr/bin/npx", "-y", "@scope/server"], "npx @scope/server")]
    #[case(&["node", "/x/npm/bin/npx-cli.js", "server", "--key=k"], "npx server")]
    #[case(&["uv", "run", "--with", "mcp", "server.py"], "uv run server.py")]
    #[case(&["uvx", "--from", "git+https://x/y", "mcp-y", "k"], "uvx mcp-y")]
    #[case(&["git", "status", "--short"], "git status")]
    #[case(&["docker", "run", "-i", "--rm", "-v", "notes:/data", "-e", "KEY", "mcp/memory", "x"], "docker run mcp/memory")]
    #[case(&["docker", "-c", "far", "run", "-m", "1g", "acme/tool"], "docker run acme/tool")]
    #[case(&["podman", "exec", "-u", "root", "db", "psql"], "podman exec db")]
    #[case(&["npx", "-p", "@scope/a", "-p", "b", "server"], "npx server")]
    #[case(&["go", "run", "-ldflags", "-s", "./cmd/server"], "go run cmd/server")]
    #[case(&["bash", "-euo", "pipefail", "/x/deploy.sh"], "bash deploy.sh")]
    #[case(&["perl", "-I", "lib", "/x/tool.pl"], "perl tool.pl")]
    #[case(&["bun", "--preload", "/x/hook.ts", "run", "dev"], "bun run dev")]
    fn command_shows_program_and_script(#[case] argv: &[&str], #[case] shown: &str) {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        assert_eq!(short(&argv, "comm"), shown);
    }

    #[rstest]
    #[case(&["claude", "fix the login bug"], "claude")]
    #[case(&["agent", "API_KEY=abc"], "agent")]
    #[case(&["claude", "-p", "secret"], "claude")]
    #[case(&["node", "-e", "process.env.SECRET"], "node -e")]
    #[case(&["claude fix the login bug"], "claude")]
    #[case(&["docker", "run", "--env", "TOKEN=secret", "mcp/x"], "docker run mcp/x")]
    #[case(&["podman", "run", "--new-option", "TOKEN=secret", "mcp/x"], "podman run mcp/x")]
    #[case(&["bun", "--define", "KEY=secret", "/x/app.ts"], "bun app.ts")]
    #[case(&["sh", "-c", "node -e process.env.SECRET"], "sh -c node -e")]
    #[case(&["perl", "-ne", "print secret"], "perl -ne")]
    #[case(&["php", "-r", "secret"], "php -r")]
    #[case(&["python3", "-Sc", "secret", "more"], "python3")]
    #[case(&["node", "--eval=1", "secret"], "node")]
    #[case(&["bash", "-s", "--", "--token", "secret"], "bash -s")]
    #[case(&["sh", "-c", "npx -y server secret"], "sh -c npx server")]
    #[case(&["sh", "-c", "K='a b' npx server"], "sh -c")]
    #[case(&["sh", "-c", "cd 'my secret' ; npx server"], "sh -c")]
    #[case(&["bash", "-c", "printf $SECRET"], "bash -c printf")]
    fn prompts_and_secrets_are_hidden(#[case] argv: &[&str], #[case] shown: &str) {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        assert_eq!(short(&argv, "comm"), shown);
    }

    #[test]
    fn comm_replaces_missing_arguments() {
        assert_eq!(short(&[], "kworker"), "[kworker]");
        assert_eq!(short(&[String::new()], "node"), "[node]");
    }
}
