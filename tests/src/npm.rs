//! Real agents and servers from npm, at pinned versions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Three MCP servers, and Claude Code, which can be one.
pub const SERVERS: [&str; 4] = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "flow-nexus@0.1.128",
    "@anthropic-ai/claude-code@2.1.197",
];

/// Installs these packages below `directory`, if they are not there yet, and returns where their programs are. Needs node, npm,
/// and npm's registry.
///
/// # Panics
/// When a package cannot be installed.
#[must_use]
pub fn installed(directory: &Path, packages: &[&str]) -> PathBuf {
    let bin = directory.join("node_modules/.bin");
    let complete = directory.join("complete");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&complete).is_ok_and(|installed| installed == wanted) {
        return bin;
    }
    std::fs::create_dir_all(directory).expect("a directory");
    let began = Instant::now();
    let npm = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--loglevel", "error", "--prefix"])
        .arg(directory)
        .arg("--cache")
        .arg(directory.join("cache"))
        .args(packages)
        .stdin(Stdio::null())
        .status();
    assert!(npm.expect("npm is needed: install node, or `--skip real_`").success(), "npm install failed");
    eprintln!("npm install took {:?}", began.elapsed());
    std::fs::write(complete, wanted).expect("a mark");
    bin
}
