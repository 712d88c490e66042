//! The memory of one process, exactly: /proc/PID/status sums the kernel's per-CPU counters, which the sampling iterator
//! does not.

use std::time::Duration;

use super::clock;
use super::error::HostError;
use super::process::ProcessDir;
use super::stat::Fields;
use crate::engine::id::{Bytes, ProcessId};
use crate::engine::input::Memory;

/// What the process holds; all zero for a zombie; `None` when it is gone. 25 µs.
///
/// # Errors
/// When the kernel refuses to open or read the process's files.
pub fn memory(process: ProcessId) -> Result<Option<Memory>, HostError> {
    let mut buffer = Vec::new();
    let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(None) };
    Ok(dir.read_up_to("status", 8192, &mut buffer)?.map(|()| of_status(&Fields(&buffer))))
}

/// The memory that a status file tells. A zombie's has no such lines: it holds nothing.
pub(crate) fn of_status(status: &Fields<'_>) -> Memory {
    let amount = |name| status.kib(name).unwrap_or_default();
    Memory {
        anon: amount("RssAnon"),
        file: amount("RssFile"),
        shmem: amount("RssShmem"),
        swap: amount("VmSwap"),
        peak: amount("VmHWM"),
        proportional: None,
    }
}

/// What the process costs when each shared page is divided by the number of its users (Pss_Anon + Pss_Shmem + SwapPss of
/// /proc/PID/smaps_rollup), and how long the kernel took to find out: it walks the page tables, about 25 ms for each GiB
/// that is resident, and holds the process's mmap lock for reading meanwhile.
///
/// `None` when the process is gone or a zombie, or the kernel has no smaps_rollup.
///
/// # Errors
/// When the kernel refuses to open or read the process's files: it asks for the right to ptrace.
pub fn proportional(process: ProcessId) -> Result<Option<(Bytes, Duration)>, HostError> {
    let mut buffer = Vec::new();
    let Some((dir, stat)) = ProcessDir::of(process, &mut buffer)? else { return Ok(None) };
    if stat.is_zombie() {
        return Ok(None);
    }
    let began = clock::thread_cpu();
    if dir.read_up_to("smaps_rollup", 8192, &mut buffer)?.is_none() {
        return Ok(None);
    }
    let cost = clock::thread_cpu().saturating_sub(began);
    let rollup = Fields(&buffer);
    let part = |name| rollup.kib(name).ok_or_else(|| HostError::malformed(dir.path("smaps_rollup"), name));
    Ok(Some((part("Pss_Anon")? + part("Pss_Shmem")? + part("SwapPss")?, cost)))
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
