//! Run counts and times of the programs, and runs that the kernel skipped.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Counts of one program since it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    pub name: String,
    /// Runs while `kernel.bpf_stats_enabled` was 1.
    pub run_count: u64,
    /// Nanoseconds of those runs.
    pub run_time_ns: u64,
    /// Runs that the kernel skipped because one was active on the same CPU. Always counted (Linux 5.12).
    pub missed: u64,
    /// Instructions that the verifier visited, of at most a million (Linux 5.16).
    pub verified_instructions: u64,
}

impl ProgramStats {
    /// Reads /proc/self/fdinfo; `None` when that fails.
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

/// Counts events for which the kernel skipped the programs.
pub(super) struct Misses {
    /// Files in /proc/self/fdinfo, grouped by programs that stand in for each other.
    groups: Vec<Vec<File>>,
}

impl Misses {
    /// The programs' descriptors must stay open. A kernel without the counter is assumed to skip none.
    pub(super) fn of<'a>(groups: impl Iterator<Item = Vec<BorrowedFd<'a>>>) -> Self {
        let open = |program: BorrowedFd<'_>| File::open(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok();
        Self { groups: groups.map(|programs| programs.into_iter().filter_map(open).collect()).collect() }
    }

    /// An upper bound of the events missed since the programs were loaded; it never decreases. An event is missed when all
    /// programs of a group were skipped for it, so each group adds its least number. Cost: one system call, some 20 µs, for each
    /// group, and for each further program of a group whose first one was skipped.
    pub(super) fn count(&self) -> io::Result<u64> {
        self.groups.iter().try_fold(0, |sum, programs| {
            let mut least = None;
            for program in programs {
                let skipped = skipped(program)?;
                least = Some(least.map_or(skipped, |least: u64| least.min(skipped)));
                if least == Some(0) {
                    break;
                }
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
    fn each_group_adds_least() {
        let program = |misses: u64| {
            let mut file = tempfile::tempfile().unwrap();
            write!(file, "run_cnt:\t9\nrecursion_misses:\t{misses}\n").unwrap();
            file
        };
        let groups = vec![
            vec![program(58), program(2)],
            vec![program(3), program(839)],
            vec![program(0), program(9)],
            vec![program(7)],
            vec![],
        ];
        assert_eq!(Misses { groups }.count().unwrap(), 2 + 3 + 7);
    }
}
