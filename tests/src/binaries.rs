//! Where the programs are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The programs under test, and the one that is watched.
pub struct Binaries {
    /// The daemon.
    pub watchdogd: PathBuf,
    /// Its client.
    pub watchdogctl: PathBuf,
    /// What plays agents and helpers.
    pub fixture: PathBuf,
}

/// The programs, built by cargo on the first call, unless `WATCHDOG_BIN_DIR` says where they are.
///
/// Cargo builds the programs of other packages only when asked, and `cargo test` does not ask. By the time a test runs
/// cargo has let go of its lock, and finds most of the work done.
///
/// # Panics
/// When they cannot be built, or are not where they should be.
pub fn binaries() -> &'static Binaries {
    static BINARIES: OnceLock<Binaries> = OnceLock::new();
    BINARIES.get_or_init(|| {
        let found = match std::env::var_os("WATCHDOG_BIN_DIR") {
            Some(directory) => in_directory(Path::new(&directory)),
            None => build(),
        };
        for program in [&found.watchdogd, &found.watchdogctl, &found.fixture] {
            assert!(program.is_file(), "{} is not there", program.display());
        }
        found
    })
}

fn in_directory(directory: &Path) -> Binaries {
    Binaries {
        watchdogd: directory.join("watchdogd"),
        watchdogctl: directory.join("watchdogctl"),
        fixture: directory.join("fixture"),
    }
}

fn build() -> Binaries {
    let profile = profile();
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--bins", "--message-format", "json-render-diagnostics", "--profile", profile])
        .args(["--package", "watchdog", "--package", "watchdog-tests"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo, which runs this test, runs once more to build the programs");
    assert!(output.status.success(), "the programs under test do not build");
    let messages = String::from_utf8(output.stdout).expect("cargo's messages");
    let executable = |name: &str| {
        messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["target"]["name"] == name)
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .unwrap_or_else(|| panic!("cargo built no {name}"))
    };
    Binaries {
        watchdogd: executable("watchdogd"),
        watchdogctl: executable("watchdogctl"),
        fixture: executable("fixture"),
    }
}

/// The cargo profile of the running test, whose path is `…/PROFILE/deps/NAME-HASH`.
fn profile() -> &'static str {
    let test = std::env::current_exe().expect("a test has a path");
    match test.ancestors().nth(2).and_then(Path::file_name).and_then(|name| name.to_str()) {
        Some("release") => "release",
        _ => "dev",
    }
}
