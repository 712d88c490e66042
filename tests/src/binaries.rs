//! Paths of the programs under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub struct Binaries {
    pub watchdogd: PathBuf,
    pub watchdogctl: PathBuf,
    /// Runs as agents and helpers.
    pub fixture: PathBuf,
}

/// The programs in `WATCHDOG_BIN_DIR`; without it cargo builds them on the first call.
///
/// `cargo test` does not build programs of other packages. While tests run, cargo holds no lock and finds most of the work
/// done.
///
/// # Panics
/// When they cannot be built or found.
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
    let mut messages = cargo("build", &["--bins", "--package", "watchdog-tests"]);
    for program in ["watchdogd", "watchdogctl"] {
        // Static, as `cargo xtask build` makes it.
        let only = ["--package", program, "--bin", program, "--", "-C", "target-feature=+crt-static"];
        messages += &cargo("rustc", &only);
    }
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

/// Runs cargo in the profile of this test, and returns its messages.
fn cargo(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([command, "--quiet", "--message-format", "json-render-diagnostics", "--profile", profile()])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo, which runs this test, runs once more to build the programs");
    assert!(output.status.success(), "the programs under test do not build");
    String::from_utf8(output.stdout).expect("cargo's messages")
}

/// The cargo profile of the running test, whose path is `…/PROFILE/deps/NAME-HASH`.
fn profile() -> &'static str {
    let test = std::env::current_exe().expect("a test has a path");
    match test.ancestors().nth(2).and_then(Path::file_name).and_then(|name| name.to_str()) {
        Some("release") => "release",
        _ => "dev",
    }
}
