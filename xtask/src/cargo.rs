//! Calls cargo, and reads what it built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The directory that cargo builds into.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// The cargo that started this program, to be run in the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// A program that cargo built.
pub(crate) struct Executable {
    /// The directory of its package, relative to the workspace: "watchdog", "tests".
    pub(crate) package: String,
    /// The name of the target: of the library, of the binary, or of the file in `tests/`.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: Kind,
    /// Where it is.
    pub(crate) path: PathBuf,
}

/// What an executable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A program to run.
    Program,
    /// The unit tests of a library.
    LibraryTests,
    /// The unit tests of a program.
    ProgramTests,
    /// An integration test.
    IntegrationTests,
}

/// Runs cargo with `--message-format` set, and returns the executables that it built or found fresh.
///
/// # Errors
/// When cargo cannot be run or fails; it has said why on stderr.
pub(crate) fn executables(command: &mut Command) -> Result<Vec<Executable>> {
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output().context("running cargo")?;
    ensure!(output.status.success(), "cargo {}", output.status);
    let messages = String::from_utf8(output.stdout).context("cargo's messages are not UTF-8")?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    Ok(messages.filter_map(Message::executable).collect())
}

/// The part of cargo's messages that is of interest here. Other messages lack some of it.
#[derive(Deserialize)]
struct Message {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Message {
    fn executable(self) -> Option<Executable> {
        let Self { manifest_path, target, profile, executable } = self;
        let package = manifest_path.parent()?.strip_prefix(workspace()).ok()?.to_str()?.to_owned();
        let kind = match (target.kind.first()?.as_str(), profile.test) {
            ("bin", false) => Kind::Program,
            ("bin", true) => Kind::ProgramTests,
            ("lib", true) => Kind::LibraryTests,
            ("test", true) => Kind::IntegrationTests,
            _ => return None,
        };
        Some(Executable { package, name: target.name, kind, path: executable? })
    }
}
