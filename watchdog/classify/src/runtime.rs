//! Interpreters: their file names, the extensions of their scripts, and what their own words mean.

use super::names::base_name;

/// The family of an interpreter: it decides which options take a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Node,
    Bun,
    Deno,
    /// CPython and PyPy.
    Python,
    Ruby,
    Perl,
    Php,
    /// A POSIX shell.
    Shell,
    /// A Java virtual machine: its script is the main class, or the archive after -jar.
    Java,
    /// The .NET host.
    DotNet,
}

/// Interpreters by the name of their file, in the families in which agents are written: the kernel looks out for these
/// names when a profile has a `script`.
pub const AGENT_RUNTIMES: &[(&str, Runtime)] = &[
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

/// Interpreters that run too much else to be looked out for, unless a profile names a script with their extension.
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
    ("php", Runtime::Php),
    ("php8.1", Runtime::Php),
    ("php8.2", Runtime::Php),
    ("php8.3", Runtime::Php),
    ("php8.4", Runtime::Php),
    ("php8.5", Runtime::Php),
    ("pypy", Runtime::Python),
    ("pypy3", Runtime::Python),
    ("java", Runtime::Java),
    ("dotnet", Runtime::DotNet),
];

/// Extensions of scripts of those.
pub const EXTENSIONS: &[(&str, Runtime)] = &[
    ("sh", Runtime::Shell),
    ("bash", Runtime::Shell),
    ("dash", Runtime::Shell),
    ("zsh", Runtime::Shell),
    ("ksh", Runtime::Shell),
    ("fish", Runtime::Shell),
    ("rb", Runtime::Ruby),
    ("pl", Runtime::Perl),
    ("php", Runtime::Php),
    ("jar", Runtime::Java),
];

impl Runtime {
    /// The interpreter whose file has this name, or this name without a version: `ruby3.2`, `python3.14t`.
    pub fn of(name: &str) -> Option<Self> {
        let known = |name: &str| {
            let mut all = AGENT_RUNTIMES.iter().chain(OTHER_RUNTIMES);
            all.find(|(known, _)| *known == name).map(|&(_, runtime)| runtime)
        };
        known(name).or_else(|| {
            let versioned = name.strip_suffix('t').unwrap_or(name);
            let stem = versioned.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            if stem.len() < versioned.len() { known(stem) } else { None }
        })
    }

    /// The interpreter that the extension of a script names, among those that are not always looked out for.
    pub fn of_extension(script: &str) -> Option<Self> {
        let (stem, extension) = base_name(script).rsplit_once('.')?;
        let known = EXTENSIONS.iter().find(|(known, _)| *known == extension && !stem.is_empty());
        known.map(|&(_, runtime)| runtime)
    }

    /// The file names of these interpreters.
    pub fn file_names(self) -> impl Iterator<Item = &'static str> {
        let all = AGENT_RUNTIMES.iter().chain(OTHER_RUNTIMES);
        all.filter(move |(_, runtime)| *runtime == self).map(|&(name, _)| name)
    }

    /// Whether the script of an exec of this interpreter is examined.
    pub fn runs_agents(self) -> bool {
        matches!(self, Self::Node | Self::Bun | Self::Deno | Self::Python)
    }

    /// `bun run x`, `dotnet exec x`: the script stands after this word.
    pub(super) fn is_prefix(self, word: &str) -> bool {
        match self {
            Self::Bun => word == "run",
            Self::Deno => matches!(word, "run" | "serve"),
            Self::DotNet => word == "exec",
            _ => false,
        }
    }

    /// A command of the interpreter itself, and no script.
    pub(super) fn is_command(self, word: &str) -> bool {
        let commands: &[&str] = match self {
            Self::Bun => &["add", "build", "create", "init", "install", "link", "pm", "test", "update", "upgrade", "x"],
            Self::Deno => &[
                "add",
                "bench",
                "bundle",
                "check",
                "compile",
                "doc",
                "eval",
                "fmt",
                "info",
                "install",
                "jupyter",
                "lint",
                "lsp",
                "publish",
                "repl",
                "task",
                "test",
                "types",
                "uninstall",
                "upgrade",
                "x",
            ],
            Self::DotNet => &["build", "msbuild", "new", "publish", "restore", "run", "test", "tool", "watch"],
            _ => &[],
        };
        commands.contains(&word)
    }

    /// Whether an option means that the program is given on the command line (or nowhere): there is no script.
    pub(super) fn has_no_script(self, option: &str) -> bool {
        match self {
            Self::Node | Self::Bun => {
                let name = option.split('=').next().unwrap_or(option);
                matches!(name, "-e" | "--eval" | "-p" | "--print" | "-pe" | "--run")
            }
            Self::Python => option == "-",
            Self::Ruby => holds_code(option, "e", "CEFIKTWrx0"),
            Self::Perl => holds_code(option, "eE", "CDFIMVilmx0"),
            Self::Php => matches!(option, "-r" | "-B" | "-E" | "-R" | "-S"),
            // The script comes through stdin.
            Self::Shell => option == "-s",
            Self::Java | Self::DotNet | Self::Deno => false,
        }
    }
}

/// Whether short options in one word hold one for code, as `-ne` does. The rest of the word behind an option of `valued` is a
/// value.
fn holds_code(option: &str, code: &str, valued: &str) -> bool {
    let letters = option.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
    letters.chars().take_while(|letter| !valued.contains(*letter)).any(|letter| code.contains(letter))
}
