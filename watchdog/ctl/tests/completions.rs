//! Shells complete command lines with the sessions of a running daemon.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

mod fake_daemon;

use std::path::Path;
use std::process::Command;

use fake_daemon::{FakeDaemon, http};
use rstest::rstest;

const TREE: &str = r#"{"sessions":[{"id":31,"profile":"claude-code","state":"running","gated":true,"user":"u","uid":1000,
    "started_at":"2026-01-01T00:00:00Z","memory_bytes":1048576,"parent_session":null,"zombies":0,"processes":[]}]}"#;

/// What the shell offers; `None` if it is not installed.
fn candidates(shell: &str, script: &str, socket: &Path) -> Option<Vec<String>> {
    let program = Path::new(env!("CARGO_BIN_EXE_watchdogctl"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let mut command = Command::new(shell);
    command.args(["-c", script]).env_clear().env("PATH", path).env("HOME", "/nowhere").env("WATCHDOG_SOCKET", socket);
    let Ok(output) = command.output() else {
        eprintln!("skipped: {shell} is not installed");
        return None;
    };
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{lines}{}", String::from_utf8_lossy(&output.stderr));
    Some(lines.lines().map(|line| line.trim_end().to_owned()).collect())
}

const BASH: &str = "source <(WATCHDOGCTL_COMPLETE=bash watchdogctl)
words=$(complete -p watchdogctl) && words=(${words#*-F })
complete_line() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
    ${words[0]} watchdogctl \"${!#}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"; }
";
const FISH: &str = "WATCHDOGCTL_COMPLETE=fish watchdogctl | source\n";

#[rstest]
#[case::bash("bash", &format!("{BASH}complete_line watchdogctl tree ''"), "31")]
#[case::bash_command("bash", &format!("{BASH}complete_line watchdogctl find"), "findings")]
#[case::fish("fish", &format!("{FISH}complete -C 'watchdogctl tree '"), "31\tclaude-code, running, 1.0 MiB")]
#[case::fish_command("fish", &format!("{FISH}complete -C 'watchdogctl find'"), "findings")]
fn shell_offers_what_exists(#[case] shell: &str, #[case] script: &str, #[case] expected: &str) {
    let daemon = FakeDaemon::raw(http("200 OK", TREE));
    let Some(offered) = candidates(shell, script, &daemon.socket()) else { return };
    assert!(offered.iter().any(|line| line.starts_with(expected)), "{offered:?}");
}

#[rstest]
#[case("bash", &format!("{BASH}complete_line watchdogctl tree ''"))]
#[case("fish", &format!("{FISH}complete -C 'watchdogctl tree '"))]
fn absent_daemon_offers_nothing(#[case] shell: &str, #[case] script: &str) {
    let Some(offered) = candidates(shell, script, Path::new("/nowhere/control.sock")) else { return };
    assert!(!offered.iter().any(|line| line.starts_with(|first: char| first.is_ascii_digit())), "{offered:?}");
}
