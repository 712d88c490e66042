//! What the programs cost, as the kernel counts it while `kernel.bpf_stats_enabled` is 1.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Counts of one program since it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    /// The program's name.
    pub name: String,
    /// Times that it ran while counting was on.
    pub run_count: u64,
    /// Nanoseconds that those runs took.
    pub run_time_ns: u64,
    /// Times that the kernel skipped it, because a run of it was under way on the same CPU. Counted always (Linux 5.12).
    pub missed: u64,
    /// Instructions that the verifier went through (Linux 5.16).
    pub verified_instructions: u64,
}

impl ProgramStats {
    /// Reads a program's counts from /proc/self/fdinfo; `None` when they are not to be had.
    pub(super) fn of(name: &str, program: BorrowedFd<'_>) -> Option<Self> {
        let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
        let text = std::fs::read_to_string(path).ok()?;
        Some(Self {
            name: name.to_owned(),
            run_count: field(&text, "run_cnt")?,
            run_time_ns: field(&text, "run_time_ns")?,
            missed: field(&text, "recursion_misses").unwrap_or(0),
            verified_instructions: field(&text, "verified_insns").unwrap_or(0),
        })
    }
}

/// Reads how often the kernel skipped programs.
pub(super) struct Misses {
    /// Of each program its file in /proc/self/fdinfo.
    programs: Vec<File>,
}

impl Misses {
    /// Of these programs, whose descriptors must stay open. A kernel that does not say is taken to skip none.
    pub(super) fn of<'a>(programs: impl Iterator<Item = BorrowedFd<'a>>) -> Self {
        let open = |program: BorrowedFd<'_>| File::open(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok();
        Self { programs: programs.filter_map(open).collect() }
    }

    /// Runs that were skipped since the programs were loaded. One system call for each program, some 3 µs.
    pub(super) fn count(&self) -> io::Result<u64> {
        self.programs.iter().try_fold(0, |sum, program| {
            let mut text = [0; 1_024];
            let len = program.read_at(&mut text, 0)?;
            let text = String::from_utf8_lossy(&text[..len]);
            Ok(sum + field(&text, "recursion_misses").unwrap_or(0))
        })
    }
}

fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok())
}
