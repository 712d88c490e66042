//! Memory samples without the kernel's task iterator: /proc/PID/statm of each tracked process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, pread};

use super::error::{HostError, is_missing};
use super::process::ProcessDir;
use super::sampler::MemorySample;
use super::stat::number;
use watchdog_types::ProcessId;

/// Descriptors that are kept open; the statm of further processes is opened for each sample.
const KEPT_MAX: usize = 4096;

/// Reads statm of tracked processes through descriptors that it keeps open: 1.4 µs a process, against 15 µs to open it and
/// check the start time. A descriptor stays bound to its process: it survives an exec and fails with ESRCH after the exit.
#[derive(Default)]
pub struct StatmReader {
    kept: HashMap<ProcessId, OpenStatm>,
    round: u32,
}

struct OpenStatm {
    statm: OwnedFd,
    round: u32,
}

impl StatmReader {
    /// Appends a sample of each of these processes that has not exited.
    ///
    /// statm counts shared memory and file pages together: both become `shmem`, so that a leak of shared memory shows.
    /// It has no swap, parent, terminal or comm.
    ///
    /// # Errors
    /// When a statm cannot be opened or read, for example without a free descriptor: every user may read it.
    pub fn sample(
        &mut self,
        tracked: impl IntoIterator<Item = ProcessId>,
        samples: &mut Vec<MemorySample>,
    ) -> Result<(), HostError> {
        self.round = self.round.wrapping_add(1);
        let mut buffer = Vec::new();
        for process in tracked {
            if let Some((resident, shared, zombie)) = self.statm(process, &mut buffer)? {
                samples.push(MemorySample {
                    process,
                    anon: resident.saturating_sub(shared),
                    file: 0,
                    shmem: shared,
                    swap: 0,
                    hiwater: 0,
                    ppid: None,
                    zombie,
                    tty: None,
                    comm: None,
                });
            }
        }
        self.kept.retain(|_, kept| kept.round == self.round);
        Ok(())
    }

    /// Resident pages, shared ones among them, and whether it is a zombie.
    fn statm(&mut self, process: ProcessId, buffer: &mut Vec<u8>) -> Result<Option<(u32, u32, bool)>, HostError> {
        if let Some(kept) = self.kept.get_mut(&process) {
            kept.round = self.round;
            match read(process, &kept.statm)? {
                Some((resident, shared)) if resident > 0 => return Ok(Some((resident, shared, false))),
                // The thread of this descriptor has exited, or the process is in the middle of an exec.
                Some(_) | None => drop(self.kept.remove(&process)),
            }
        }
        let Some((dir, stat)) = ProcessDir::of(process, buffer)? else { return Ok(None) };
        let Some(statm) = dir.file("statm")? else { return Ok(None) };
        let Some((resident, shared)) = read(process, &statm)? else { return Ok(None) };
        if self.kept.len() < KEPT_MAX {
            self.kept.insert(process, OpenStatm { statm, round: self.round });
        }
        Ok(Some((resident, shared, resident == 0 && stat.is_zombie())))
    }
}

/// Resident pages and shared ones among them; `None` when the thread has exited.
fn read(process: ProcessId, statm: &OwnedFd) -> Result<Option<(u32, u32)>, HostError> {
    let failed = |errno| HostError::io("read", format!("/proc/{}/statm", process.pid), errno);
    let mut line = [0; 128];
    match pread(statm, &mut line, 0) {
        Ok(length) => parse(line.get(..length).unwrap_or_default()).map(Some).ok_or_else(|| failed(Errno::BADMSG)),
        Err(errno) if is_missing(errno) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}

fn parse(line: &[u8]) -> Option<(u32, u32)> {
    let mut words = line.split(u8::is_ascii_whitespace).skip(1);
    Some((number(words.next()?)?, number(words.next()?)?))
}
