//! Forks, and processes that sleep.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Forks. The child does `work` and exits with 0.
pub(super) fn fork(work: impl FnOnce()) -> Result<libc::pid_t> {
    // SAFETY: the child has only the calling thread; callers hold no lock that `work` takes.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        work();
        // SAFETY: exits without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    Ok(child)
}

pub(super) fn wait(child: libc::pid_t) -> Result<()> {
    // SAFETY: no status is asked for.
    let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    ensure!(waited == child, "waitpid: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Makes this process die with its parent, also after an exec.
pub(super) fn end_below_parent() {
    // SAFETY: no memory is involved. If the parent has already exited, no signal comes, so exit here.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() == 1 {
            libc::_exit(0);
        }
    }
}

/// Sleeps until the parent ends.
pub(super) fn sleep_below_parent() {
    end_below_parent();
    loop {
        // SAFETY: no memory is involved.
        unsafe { libc::pause() };
    }
}

/// Forks `count` processes that sleep.
pub(super) fn sleepers(count: u32) -> Result<()> {
    for _ in 0..count {
        fork(sleep_below_parent)?;
    }
    say("ready")?;
    end_with_stdin()
}

/// Starts three helpers and sleeps until it is killed. The helpers inherit its stdin and exit when it ends.
pub(super) fn agent(helper: &Path) -> Result<()> {
    for _ in 0..3 {
        Command::new(helper).args(["worker", "helper"]).spawn().context("starting a helper")?;
    }
    loop {
        std::thread::park();
    }
}

/// Prints its pid and closes stdout.
pub(super) fn helper() -> Result<()> {
    say(&std::process::id().to_string())?;
    end_with_stdin()
}

pub(super) fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("writing to stdout")
}

/// Waits for the end of stdin.
pub(super) fn end_with_stdin() -> Result<()> {
    std::io::stdin().read_to_end(&mut Vec::new()).context("reading stdin")?;
    Ok(())
}
