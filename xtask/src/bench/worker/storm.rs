//! Many processes in a short time. What happened is printed as `storm FORKS EXECS EXITS SECONDS`. Most children
//! execute /bin/true and are waited for; some are left sleeping, so that there is something for a table to hold.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::processes::{end_below_parent, end_with_stdin, fork, say, sleep_below_parent, wait};

/// Of so many children, one is left sleeping.
const LEFT_EVERY: u32 = 500;
/// So many run at once, since one CPU alone may be too slow for the pace.
const AT_ONCE: usize = 4;
/// A flood leaves so many at its end.
const LEFT_BY_FLOOD: u32 = 20;
/// Children of a flood on each of two CPUs before it looks at the clock again.
const BURST: u32 = 20;

const TRUE: &CStr = c"/bin/true";
const SLEEP: &CStr = c"/bin/sleep";

/// Starts so many processes a second, and makes up for those that are late. With helpers, these start first and stay, and no
/// other child does.
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
    tell(executed + left, executed + helpers, executed, began)?;
    end_with_stdin()
}

/// As many as two processes can, for so long.
pub(super) fn flood(seconds: u32) -> Result<()> {
    leave_group()?;
    let began = Instant::now();
    let end = began + Duration::from_secs(u64::from(seconds));
    // Two threads of one process would wait for each other in fork.
    let (mut reader, mut writer) = std::io::pipe()?;
    let other = fork(move || {
        let done = until(end).unwrap_or(0);
        // A number that cannot be written is missed by the reader, who then fails.
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
    tell(executed + LEFT_BY_FLOOD + 1, executed, executed + 1, began)?;
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
    // SAFETY: a program and a list of arguments that ends with null. It returns only when it fails, and then the child
    // ends without an exec, which the bench notices as a loss.
    unsafe { libc::execv(argv[0], argv.as_ptr()) };
}

/// Makes this a session of its own, by which /proc tells its descendants from everybody else's.
fn leave_group() -> Result<()> {
    // SAFETY: no memory is involved.
    let session = unsafe { libc::setsid() };
    ensure!(session >= 0, "setsid: {}", std::io::Error::last_os_error());
    Ok(())
}

fn tell(forks: u32, execs: u32, exits: u32, began: Instant) -> Result<()> {
    say(&format!("storm {forks} {execs} {exits} {}", began.elapsed().as_secs_f64()))
}
