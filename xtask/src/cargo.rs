//! Runs cargo and parses the list of built executables.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

pub fn workspace() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// The cargo that started this program, in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

pub struct BuiltBinary {
    /// The directory of its package, relative to the workspace.
    pub directory: PathBuf,
    /// The name of the target: of the library, of the binary, or of the file in `tests/`.
    pub name: String,
    pub kind: Kind,
    pub path: PathBuf,
}

impl BuiltBinary {
    /// The directory of its package with hyphens: "watchdog-kernel", "tests".
    pub fn package(&self) -> String {
        self.directory.display().to_string().replace('/', "-")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Program,
    LibraryTests,
    ProgramTests,
    IntegrationTests,
}

/// Runs cargo with `--message-format` set, and returns the executables that it built or found fresh.
///
/// # Errors
/// When cargo cannot be run or fails, after it has printed the reason.
pub fn executables(command: &mut Command) -> Result<Vec<BuiltBinary>> {
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output().context("running cargo")?;
    ensure!(output.status.success(), "cargo {}", output.status);
    let messages = String::from_utf8(output.stdout).context("cargo's messages are not UTF-8")?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<CargoMessage>(line).ok());
    Ok(messages.filter_map(CargoMessage::executable).collect())
}

/// The used fields of cargo's messages; other messages lack some of them.
#[derive(Deserialize)]
struct CargoMessage {
    manifest_path: PathBuf,
    target: CargoTarget,
    profile: CargoProfile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct CargoProfile {
    test: bool,
}

impl CargoMessage {
    fn executable(self) -> Option<BuiltBinary> {
        let Self { manifest_path, target, profile, executable } = self;
        let directory = manifest_path.parent()?.strip_prefix(workspace()).ok()?.to_owned();
        let kind = match (target.kind.first()?.as_str(), profile.test) {
            ("bin", false) => Kind::Program,
            ("bin", true) => Kind::ProgramTests,
            ("lib", true) => Kind::LibraryTests,
            ("test", true) => Kind::IntegrationTests,
            _ => return None,
        };
        Some(BuiltBinary { directory, name: target.name, kind, path: executable? })
    }
}
