//! The launched command: prints its start time.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::processes::{end_below_parent, end_with_stdin, say, sleep_below_parent};

/// The time of CLOCK_MONOTONIC, which all processes share.
pub(crate) fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is written to a local of the right type; the clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Prints `began PID NANOSECONDS`.
pub(super) fn moment(stay: bool) -> Result<()> {
    let now = monotonic();
    say(&format!("began {} {}", std::process::id(), now.as_nanos()))?;
    if stay {
        sleep_below_parent();
    }
    Ok(())
}

/// Executes the command when stdin ends. The command dies with its parent.
pub(super) fn released(command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no command")?;
    end_below_parent();
    say("ready")?;
    end_with_stdin()?;
    Err(Command::new(program).args(arguments).stdin(Stdio::null()).exec()).context("becoming the command")
}
