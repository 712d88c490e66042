//! Many processes in a short time. Prints `storm FORKS EXECS EXITS SECONDS` at the end. Most children execute /bin/true and
//! are reaped; some keep sleeping, so that the daemon's table is not empty.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::processes::{end_below_parent, end_with_stdin, fork, say, sleep_below_parent, wait};

/// One of this many children keeps sleeping.
const LEFT_EVERY: u32 = 500;
/// Concurrent children: one CPU may be too slow for the rate.
const AT_ONCE: usize = 4;
/// Children that a flood leaves sleeping.
const LEFT_BY_FLOOD: u32 = 20;
/// Children of a flood per CPU between two checks of the clock.
const BURST: u32 = 20;

const TRUE: &CStr = c"/bin/true";
const SLEEP: &CStr = c"/bin/sleep";

/// Starts `per_second` processes a second, and catches up when late. With `helpers`, these start first, and no other child
/// keeps running.
pub(super) fn paced(per_second: u32, seconds: u32, helpers: u32) -> Result<()> {
    leave_group()?;
    let began = Instant::now();
    let (mut executed, mut left) = (0, helpers);
    for _ in 0..helpers {
        fork(become_helper)?;
    }
    let mut running = VecDeque::new();
    for number in 1..=per_second * seconds {
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(per_second));
        thread::sleep(due.saturating_sub(began.elapsed()));
        if helpers == 0 && number % LEFT_EVERY == 0 {
            fork(sleep_below_parent)?;
            left += 1;
        } else {
            running.push_back(fork(execute)?);
            executed += 1;
        }
        if running.len() > AT_ONCE {
            running.pop_front().map_or(Ok(()), wait)?;
        }
    }
    running.into_iter().try_for_each(wait)?;
    report(executed + left, executed + helpers, executed, began)?;
    end_with_stdin()
}

/// Forks as often as two processes can in this time.
pub(super) fn flood(seconds: u32) -> Result<()> {
    leave_group()?;
    let began = Instant::now();
    let end = began + Duration::from_secs(u64::from(seconds));
    // Two threads of one process would wait for each other in fork.
    let (mut reader, mut writer) = std::io::pipe()?;
    let other = fork(move || {
        let done = until(end).unwrap_or(0);
        // If the write fails, the reader misses the number and fails.
        let _ = std::io::Write::write_all(&mut writer, &done.to_ne_bytes());
    })?;
    let own = until(end)?;
    let mut others = [0; 4];
    std::io::Read::read_exact(&mut reader, &mut others)?;
    wait(other)?;
    for _ in 0..LEFT_BY_FLOOD {
        fork(sleep_below_parent)?;
    }
    let executed = own + u32::from_ne_bytes(others);
    // The other process was forked too, and has exited.
    report(executed + LEFT_BY_FLOOD + 1, executed, executed + 1, began)?;
    end_with_stdin()
}

fn until(end: Instant) -> Result<u32> {
    let mut executed = 0;
    while Instant::now() < end {
        for _ in 0..BURST {
            wait(fork(execute)?)?;
        }
        executed += BURST;
    }
    Ok(executed)
}

fn execute() {
    execute_with(&[TRUE.as_ptr(), std::ptr::null()]);
}

/// Executes sleep(1), which ends with its parent.
fn become_helper() {
    end_below_parent();
    execute_with(&[SLEEP.as_ptr(), c"infinity".as_ptr(), std::ptr::null()]);
}

/// The first argument is the program.
fn execute_with(argv: &[*const c_char]) {
    // SAFETY: a program and a null-terminated list of arguments. It returns only on failure; then the child exits without
    // an exec, which the bench counts as lost.
    unsafe { libc::execv(argv[0], argv.as_ptr()) };
}

/// Starts a unix session, by which /proc shows its descendants.
fn leave_group() -> Result<()> {
    // SAFETY: no memory is involved.
    let session = unsafe { libc::setsid() };
    ensure!(session >= 0, "setsid: {}", std::io::Error::last_os_error());
    Ok(())
}

fn report(forks: u32, execs: u32, exits: u32, began: Instant) -> Result<()> {
    say(&format!("storm {forks} {execs} {exits} {}", began.elapsed().as_secs_f64()))
}
