//! Root, for the few programs that need it. Cargo itself never runs as root on behalf of a user who is not root.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

/// Variables that tests may read. `sudo` drops all of them, and its `-E` is not allowed everywhere.
const KEPT: &[&str] = &["PATH", "CI", "TERM", "NO_COLOR"];

/// Variables with these prefixes are kept too.
const KEPT_PREFIXES: &[&str] = &["CARGO", "RUST", "WATCHDOG_", "INSTA_", "PROPTEST_"];

/// Whether this process is root.
///
/// # Errors
/// When /proc is not mounted.
pub fn is_root() -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

/// Replaces this process with `program`, through `sudo` if it is not root.
///
/// # Errors
/// When the program or `sudo` cannot be executed. Otherwise it does not return.
pub fn become_root(program: &OsStr, arguments: &[OsString]) -> Result<ExitCode> {
    if is_root()? {
        let error = Command::new(program).args(arguments).exec();
        bail!("cannot execute {}: {error}", program.display());
    }
    let kept = std::env::vars_os().filter(|(name, _)| is_kept(name)).map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        variable
    });
    let error = Command::new("sudo").arg("env").args(kept).arg(program).args(arguments).exec();
    bail!("cannot execute sudo to run {} as root: {error}. Run this command as root instead", program.display());
}

fn is_kept(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    KEPT.contains(&name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_secrets_are_not_passed() {
        assert!(is_kept("WATCHDOG_BIN_DIR".as_ref()));
        assert!(is_kept("RUST_BACKTRACE".as_ref()));
        assert!(!is_kept("ANTHROPIC_API_KEY".as_ref()));
        assert!(!is_kept("SSH_AUTH_SOCK".as_ref()));
    }
}
