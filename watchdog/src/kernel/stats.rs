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
    /// Of each group of programs that do the same their files in /proc/self/fdinfo.
    groups: Vec<Vec<File>>,
}

impl Misses {
    /// Of these groups of programs, whose descriptors must stay open. A kernel that does not say is taken to skip none.
    pub(super) fn of<'a>(groups: impl Iterator<Item = Vec<BorrowedFd<'a>>>) -> Self {
        let open = |program: BorrowedFd<'_>| File::open(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok();
        Self { groups: groups.map(|programs| programs.into_iter().filter_map(open).collect()).collect() }
    }

    /// Events that were missed since the programs were loaded, at most: one is missed when all programs of a group were skipped
    /// for it, so of a group the least number counts. It never falls. One system call for each program, some 3 µs.
    pub(super) fn count(&self) -> io::Result<u64> {
        self.groups.iter().try_fold(0, |sum, programs| {
            let mut least = None;
            for program in programs {
                let skipped = skipped(program)?;
                least = Some(least.map_or(skipped, |least: u64| least.min(skipped)));
            }
            Ok(sum + least.unwrap_or(0))
        })
    }
}

fn skipped(program: &File) -> io::Result<u64> {
    let mut text = [0; 1_024];
    let len = program.read_at(&mut text, 0)?;
    Ok(field(&String::from_utf8_lossy(&text[..len]), "recursion_misses").unwrap_or(0))
}

fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn least_of_each_group_counts() {
        let program = |misses: u64| {
            let mut file = tempfile::tempfile().unwrap();
            write!(file, "run_cnt:\t9\nrecursion_misses:\t{misses}\n").unwrap();
            file
        };
        let groups = vec![vec![program(58), program(2)], vec![program(3), program(839)], vec![program(7)], vec![]];
        assert_eq!(Misses { groups }.count().unwrap(), 2 + 3 + 7);
    }
}
