//! Compares the daemon's table with /proc.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use watchdog_api::ProcessState;

use super::daemon::BenchDaemon;

/// Pid and start time in clock ticks.
type ProcIdentity = (u32, u64);

/// Waits until table and /proc agree on the processes of a unix session. Returns the time that took; `None` when they still
/// differ after `timeout`.
pub(super) fn agree(daemon: &BenchDaemon, session: u32, timeout: Duration) -> Result<Option<Duration>> {
    let began = Instant::now();
    loop {
        let before = living(session)?;
        let table = table(daemon, session)?;
        // Processes that start or exit during the request do not count.
        if before == living(session)? && table == before {
            return Ok(Some(began.elapsed()));
        }
        if began.elapsed() > timeout {
            let (missing, extra) = (before.difference(&table).count(), table.difference(&before).count());
            eprintln!("  table and /proc differ: {missing} missing, {extra} too many, of {}", before.len());
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The living processes of the agent that leads the unix session.
fn table(daemon: &BenchDaemon, leader: u32) -> Result<BTreeSet<ProcIdentity>> {
    let sessions = daemon.tree()?.sessions.into_iter();
    let led = sessions.filter(|session| session.processes.iter().any(|process| process.pid == leader));
    let processes = led.flat_map(|session| session.processes);
    let alive = processes.filter(|process| process.state != ProcessState::Zombie);
    Ok(alive.map(|process| (process.pid, process.start_time)).collect())
}

/// The living processes of a unix session.
fn living(session: u32) -> Result<BTreeSet<ProcIdentity>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let name = entry.context("listing /proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // Exited meanwhile.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        found.extend(member(&stat, session).map(|start| (pid, start)));
    }
    Ok(found)
}

/// The start of a living process of the session, from its /proc/PID/stat.
fn member(stat: &str, session: u32) -> Option<u64> {
    // comm may contain spaces and parentheses, so split after the last parenthesis. `state` is field 3.
    let (_, rest) = stat.rsplit_once(") ")?;
    let field = |number: usize| rest.split(' ').nth(number - 3);
    let alive = !matches!(field(3), Some("Z" | "X"));
    let in_session = field(6)?.parse() == Ok(session);
    (alive && in_session).then(|| field(22)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_comm_cannot_shift_fields() {
        let stat = "7 (a) Z (b) S 1 7 42 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 1";
        assert_eq!(member(stat, 42), Some(12345));
        assert_eq!(member(stat, 43), None);
        assert_eq!(member(&stat.replace(") S ", ") Z "), 42), None);
    }
}
