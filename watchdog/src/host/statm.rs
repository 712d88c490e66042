//! Glances without the kernel's task iterator: /proc/PID/statm of each tracked process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, pread};

use super::error::{HostError, is_gone};
use super::process::ProcessDir;
use super::sampler::Glance;
use super::stat::number;
use crate::engine::id::ProcessId;

/// Most descriptors that are kept open; the statm of further processes is opened each time.
const KEPT_MAX: usize = 4096;

/// Reads statm of tracked processes, on descriptors that it keeps: 1.4 µs a process, against 15 µs when it has to be
/// opened and its start to be checked. A descriptor belongs to its process for certain: it gives ESRCH when that is gone,
/// and follows an exec.
#[derive(Default)]
pub struct StatmReader {
    kept: HashMap<ProcessId, Kept>,
    round: u32,
}

struct Kept {
    statm: OwnedFd,
    round: u32,
}

impl StatmReader {
    /// Appends a glance at each of these processes that still exists.
    ///
    /// statm does not tell shared memory from file pages: both come as `shmem`, lest a leak of shared memory go unnoticed.
    /// Nor does it tell swap, parent, terminal or comm.
    ///
    /// # Errors
    /// When the kernel refuses to open or read a statm, which everybody may read: out of descriptors, say.
    pub fn glance(
        &mut self,
        tracked: impl IntoIterator<Item = ProcessId>,
        glances: &mut Vec<Glance>,
    ) -> Result<(), HostError> {
        self.round = self.round.wrapping_add(1);
        let mut buffer = Vec::new();
        for process in tracked {
            if let Some((resident, shared)) = self.statm(process, &mut buffer)? {
                // Nothing resident: a zombie, or a process in the middle of an exec or exit.
                let zombie =
                    resident == 0 && ProcessDir::of(process, &mut buffer)?.is_some_and(|(_, stat)| stat.is_zombie());
                glances.push(Glance {
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

    /// Pages resident, and those of them that are shared.
    fn statm(&mut self, process: ProcessId, buffer: &mut Vec<u8>) -> Result<Option<(u32, u32)>, HostError> {
        let path = || format!("/proc/{}/statm", process.pid);
        let failed = |errno| HostError::io("read", path(), errno);
        let mut line = [0; 128];
        let read = if let Some(kept) = self.kept.get_mut(&process) {
            kept.round = self.round;
            pread(&kept.statm, &mut line, 0)
        } else {
            let Some((dir, _)) = ProcessDir::of(process, buffer)? else { return Ok(None) };
            let Some(statm) = dir.file("statm")? else { return Ok(None) };
            let read = pread(&statm, &mut line, 0);
            if self.kept.len() < KEPT_MAX {
                self.kept.insert(process, Kept { statm, round: self.round });
            }
            read
        };
        let length = match read {
            Ok(length) => length,
            Err(errno) if is_gone(errno) => {
                self.kept.remove(&process);
                return Ok(None);
            }
            Err(errno) => return Err(failed(errno)),
        };
        parse(line.get(..length).unwrap_or_default()).map(Some).ok_or_else(|| failed(Errno::BADMSG))
    }
}

/// The second and third of statm's numbers, in pages.
fn parse(line: &[u8]) -> Option<(u32, u32)> {
    let mut words = line.split(u8::is_ascii_whitespace).skip(1);
    Some((number(words.next()?)?, number(words.next()?)?))
}
