//! The identity of a helper: its program, seen through package runners and containers, and its arguments. Arguments may
//! hold secrets: only their digest leaves this module, and it is never shown.

use watchdog_common::{FNV_OFFSET, name_hash_step};

use super::names::{base_name, without_version};
use super::program::Program;
use super::runtime::Runtime;
use super::wrapped::{self, Inner};
use super::{DEEPEST_WRAPPER, Image};

/// A program, however it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `context7-mcp` for `npx -y @upstash/context7-mcp@latest`, for `node …/.bin/context7-mcp` and for the script itself.
    pub name: String,
    /// A digest of the arguments that the program was given; `None` when they are not known in full, or when the program's
    /// place is not: such a process is like no other.
    pub arguments: Option<u64>,
}

/// Scripts that are called so in every other project: only their path tells them apart.
const COMMON_NAMES: &[&str] = &[
    "__main__",
    "app",
    "artisan",
    "cli",
    "index",
    "main",
    "mcp",
    "mcp-server",
    "mod",
    "run",
    "server",
    "start",
    "stdio",
];

/// Ends of file names that say in what language a program is written, and no more.
const EXTENSIONS: &[&str] = &[".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".exe", ".jar", ".dll"];

/// Words on a package runner's command line that do not change what is run.
const IDLE_WORDS: &[&str] =
    &["--", "--quiet", "--silent", "--yes", "-q", "-s", "-y", "dlx", "exec", "run", "tool", "uvx", "x"];

/// The identity of what was executed. 2 µs.
#[must_use]
pub fn identity(image: &Image) -> Identity {
    let identity = of_program(&Program::of(image), 0);
    Identity { arguments: identity.arguments.filter(|_| !image.truncated), ..identity }
}

fn of_program(program: &Program<'_>, depth: u32) -> Identity {
    let own = || Identity { name: own_name(program), arguments: own_arguments(program) };
    let Some(inner) = wrapped::command_of(program).filter(|_| depth < DEEPEST_WRAPPER) else { return own() };
    if wrapped::runs_container(program) {
        // Mounts and variables are options of the client: all of its command line counts.
        let image = inner.program.path;
        let end = image.rfind(':').filter(|at| !image[*at..].contains('/')).unwrap_or(image.len());
        let is_image = matches!(wrapped::inner_of(program), Some(Inner::Image { .. }));
        let name = if is_image { image[..end].to_owned() } else { own_name(&inner.program) };
        return Identity { name, arguments: Some(digest(program.args.iter().copied())) };
    }
    if wrapped::is_runner(program) {
        let package = without_version(inner.program.path);
        let is_package = |word: &&str| without_version(word) == package;
        let at = program.args.iter().position(is_package).unwrap_or(program.args.len());
        let (before, after) = program.args.split_at(at);
        let options = before.iter().filter(|word| !IDLE_WORDS.contains(word));
        let words = options.chain(after.iter().skip(1)).copied();
        let name = own_name(&inner.program);
        // A script in a directory that is not known.
        let somewhere = wrapped::is_file(inner.program.path)
            && !inner.program.path.starts_with('/')
            && !before.iter().any(|word| wrapped::is_from_elsewhere(word));
        let nowhere = somewhere && COMMON_NAMES.contains(&name.as_str());
        return Identity { name, arguments: (!nowhere).then(|| digest(words)) };
    }
    of_program(&inner.program, depth + 1)
}

fn own_name(program: &Program<'_>) -> String {
    if let Some(package) = program.package() {
        return normal(package);
    }
    let is_package = program.script.is_none() && program.path.starts_with('@');
    let name = normal(if is_package { program.path } else { program.name() });
    match &program.script {
        Some(script) if COMMON_NAMES.contains(&name.as_str()) => script.clone().into_owned(),
        _ => name,
    }
}

fn own_arguments(program: &Program<'_>) -> Option<u64> {
    let nowhere = match &program.script {
        // A script in a directory that is not known.
        Some(script) => {
            !script.starts_with('/')
                && !script.starts_with("-m ")
                && COMMON_NAMES.contains(&normal(base_name(script)).as_str())
        }
        // Code on the command line, which is not kept.
        None => program.runtime.is_some() && program.title.is_none() && program.command.is_none(),
    };
    let (command, args) = (program.command.into_iter(), program.args.iter().copied());
    (!nowhere).then(|| digest(command.chain(args)))
}

/// One spelling for a package, its command, its module and its script.
fn normal(name: &str) -> String {
    let name = without_version(name).to_ascii_lowercase().replace('_', "-");
    let stem = EXTENSIONS.iter().find_map(|extension| name.strip_suffix(extension)).unwrap_or(&name);
    let Some((scope, package)) = stem.strip_prefix('@').and_then(|scoped| scoped.split_once('/')) else {
        return stem.to_owned();
    };
    match (scope, package) {
        // Packages and the commands that they install: @modelcontextprotocol/server-git is mcp-server-git.
        ("modelcontextprotocol", _) => format!("mcp-{package}"),
        // @playwright/mcp is playwright-mcp.
        (_, package) if COMMON_NAMES.contains(&package) => format!("{scope}-{package}"),
        _ => package.to_owned(),
    }
}

fn digest<'a>(words: impl Iterator<Item = &'a str>) -> u64 {
    words.fold(FNV_OFFSET, |hash, word| word.bytes().chain([0]).fold(hash, name_hash_step))
}

/// A command line that a shell was given: the same command once more is the same helper once more.
#[must_use]
pub fn shell_command(image: &Image) -> Option<u64> {
    let program = Program::of(image);
    let command = program.command.filter(|_| program.runtime == Some(Runtime::Shell))?;
    Some(digest(std::iter::once(command)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::tests::image;
    use super::*;

    fn of(argv: &[&str]) -> Identity {
        let path = match argv[0] {
            "node" | "python3" | "bash" | "sh" | "docker" | "npx" | "uvx" | "uv" => format!("/usr/bin/{}", argv[0]),
            other => other.to_owned(),
        };
        identity(&image(&path, argv))
    }

    #[rstest]
    #[case::npx(&["node", "/usr/bin/npx", "-y", "@upstash/context7-mcp@latest"], "context7-mcp")]
    #[case::npm_title(&["node", "/usr/bin/npm", "exec", "@upstash/context7-mcp"], "context7-mcp")]
    #[case::command(&["node", "/home/u/.npm/_npx/1/node_modules/.bin/context7-mcp"], "context7-mcp")]
    #[case::inside(&["node", "/x/node_modules/@upstash/context7-mcp/dist/index.js"], "context7-mcp")]
    #[case::generic(&["node", "/usr/bin/npx", "@playwright/mcp@latest"], "playwright-mcp")]
    #[case::official(&["node", "/usr/bin/npx", "-y", "@modelcontextprotocol/server-memory"], "mcp-server-memory")]
    #[case::official_command(&["sh", "-c", "'mcp-server-memory'"], "mcp-server-memory")]
    #[case::uvx(&["/home/u/.local/bin/uv", "tool", "uvx", "mcp-server-git==1.2"], "mcp-server-git")]
    #[case::module(&["python3", "-m", "mcp_server_git"], "mcp-server-git")]
    #[case::script(&["/opt/py/bin/python3", "/opt/py/bin/mcp-server-git"], "mcp-server-git")]
    #[case::container(&["docker", "run", "-i", "--rm", "ghcr.io/github/github-mcp-server:1"], "ghcr.io/github/github-mcp-server")]
    #[case::container_with_volume(&["docker", "run", "-i", "-v", "notes:/data", "mcp/memory"], "mcp/memory")]
    #[case::inside_container(&["docker", "exec", "-i", "db", "psql", "-c", "a secret"], "psql")]
    #[case::common(&["node", "/a/build/index.js"], "/a/build/index.js")]
    #[case::native(&["/home/u/.local/share/claude/versions/2.1.224", "-p"], "claude")]
    fn program_name_ignores_way_of_start(#[case] argv: &[&str], #[case] name: &str) {
        assert_eq!(of(argv).name, name);
    }

    #[rstest]
    #[case::runner(&["node", "/usr/bin/npx", "-y", "@x/context7-mcp"], &["node", "/x/.bin/context7-mcp"])]
    #[case::with_arguments(&["node", "/usr/bin/npx", "mcp-server-filesystem@1", "/a"], &["node", "/x/.bin/mcp-server-filesystem", "/a"])]
    #[case::version(&["node", "/usr/bin/npx", "a-mcp@1"], &["node", "/usr/bin/npx", "-y", "a-mcp@2"])]
    #[case::shell(&["sh", "-c", "'a-mcp' /a"], &["node", "/x/.bin/a-mcp", "/a"])]
    fn wrappers_do_not_change_identity(#[case] one: &[&str], #[case] other: &[&str]) {
        assert_eq!(of(one), of(other));
        assert!(of(one).arguments.is_some());
    }

    #[rstest]
    #[case::roots(&["node", "/x/.bin/mcp-server-filesystem", "/a"], &["node", "/x/.bin/mcp-server-filesystem", "/b"])]
    #[case::urls(&["node", "/usr/bin/npx", "pg-mcp", "postgres://u:p@a/x"], &["node", "/usr/bin/npx", "pg-mcp", "postgres://u:p@a/y"])]
    #[case::mounts(&["docker", "run", "-i", "-v", "/a:/d", "x/mcp"], &["docker", "run", "-i", "-v", "/b:/d", "x/mcp"])]
    #[case::project(&["uv", "--directory", "/a", "run", "mcp-x"], &["uv", "--directory", "/b", "run", "mcp-x"])]
    #[case::place(&["node", "/a/dist/index.js"], &["node", "/b/dist/index.js"])]
    #[case::boundaries(&["/x/a-mcp", "ab", "c"], &["/x/a-mcp", "a", "bc"])]
    fn significant_arguments_distinguish_servers(#[case] one: &[&str], #[case] other: &[&str]) {
        assert_ne!(of(one), of(other));
    }

    #[test]
    fn truncated_command_equals_no_other() {
        assert_eq!(of(&["python3", "server.py"]).arguments, None, "in some directory");
        assert_eq!(of(&["uv", "run", "server.py"]).arguments, None, "in some directory, too");
        assert!(of(&["uv", "--directory", "/a", "run", "server.py"]).arguments.is_some());
        assert_eq!(of(&["node", "-e", "x"]).arguments, None, "code");
        let cut = Image { truncated: true, ..image("/x/a-mcp", &["/x/a-mcp", "--root"]) };
        assert_eq!(identity(&cut).arguments, None);
    }

    #[test]
    fn shell_commands_are_compared() {
        let command = |command: &str| shell_command(&image("/bin/bash", &["bash", "-c", command]));
        assert_eq!(command("npm test"), command("npm test"));
        assert_ne!(command("npm test"), command("npm run dev"));
        assert_eq!(shell_command(&image("/bin/bash", &["bash", "x.sh"])), None);
    }
}
