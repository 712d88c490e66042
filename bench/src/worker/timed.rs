//! Timed work. Prints wall-clock time and CPU time per turn, with its children, in nanoseconds.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::processes::{fork, wait};

const AREA: usize = 16 << 20;
const PAGE: usize = 4096;

/// Page faults on anonymous memory.
pub(super) fn faults(rounds: u32) -> Result<()> {
    // SAFETY: a fresh private mapping, which nothing else refers to.
    let area = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), AREA, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    ensure!(area != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    // SAFETY: the whole mapping, page-aligned. Faults of 4 KiB are what is measured, whatever the host's setting is.
    unsafe { libc::madvise(area, AREA, libc::MADV_NOHUGEPAGE) };
    #[expect(clippy::cast_possible_truncation, reason = "4,096 pages")]
    let pages = (AREA / PAGE) as u32;
    timed(rounds, pages, || {
        for page in (0..AREA).step_by(PAGE) {
            // SAFETY: within the mapping.
            unsafe { area.cast::<u8>().add(page).write_volatile(1) };
        }
        // SAFETY: the whole mapping; its content is not needed again.
        let given_back = unsafe { libc::madvise(area, AREA, libc::MADV_DONTNEED) };
        ensure!(given_back == 0, "madvise: {}", std::io::Error::last_os_error());
        Ok(())
    })
}

/// Forks of a child that exits at once.
pub(super) fn forks(count: u32) -> Result<()> {
    timed(count, 1, || wait(fork(|| {})?))
}

/// Forks of a child that executes a program.
pub(super) fn spawns(count: u32, command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    timed(count, 1, || {
        let status = command.status().with_context(|| format!("running {}", program.display()))?;
        ensure!(status.success(), "{}: {status}", program.display());
        Ok(())
    })
}

/// Runs `turns` turns of `things` iterations each, after one warm-up turn.
fn timed(turns: u32, things: u32, mut turn: impl FnMut() -> Result<()>) -> Result<()> {
    turn()?;
    let (cpu, wall) = (cpu(), Instant::now());
    for _ in 0..turns {
        turn()?;
    }
    let (wall, cpu) = (wall.elapsed(), self::cpu().saturating_sub(cpu));
    let of_one = |all: Duration| all.as_secs_f64() * 1e9 / f64::from(turns) / f64::from(things);
    println!("{} {}", of_one(wall), of_one(cpu));
    Ok(())
}

/// CPU time of this process and the children that it has waited for.
fn cpu() -> Duration {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(usage).iter().sum()
}

fn usage(whose: libc::c_int) -> Duration {
    // SAFETY: plain numbers, for which zero is a value; getrusage fills them in, and knows both arguments.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &raw mut usage);
        usage
    };
    let micros = |time: libc::timeval| u64::try_from(time.tv_sec * 1_000_000 + time.tv_usec).unwrap_or(0);
    Duration::from_micros(micros(usage.ru_utime) + micros(usage.ru_stime))
}
