//! Exact memory of one process: /proc/PID/status sums the kernel's per-CPU counters, which the sampling iterator does
//! not.

use std::time::Duration;

use super::clock;
use super::error::HostError;
use super::process::ProcessDir;
use super::stat::Fields;
use watchdog_types::{Memory, ProcessId, Share};

/// All zero for a zombie; `None` when the process has exited. 25 µs.
pub fn memory(process: ProcessId) -> Result<Option<Memory>, HostError> {
    let mut buffer = Vec::new();
    let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(None) };
    Ok(dir.read_up_to("status", 8192, &mut buffer)?.map(|()| of_status(&Fields(&buffer))))
}

/// All zero where the lines are missing, as for a zombie.
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

/// Memory with each shared page divided by the number of processes that map it, from /proc/PID/smaps_rollup (Pss_Anon +
/// Pss_Shmem + SwapPss). Also the part that no other process maps, and the CPU time of the reading. The kernel walks the
/// page tables, about 25 ms per resident GiB, and holds the process's mmap lock for reading meanwhile.
///
/// `None` when the process has exited, or the kernel has no smaps_rollup.
///
/// # Errors
/// When the kernel refuses: reading the file needs the right to ptrace the process.
pub fn share(process: ProcessId) -> Result<Option<(Share, Duration)>, HostError> {
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
    let proportional = part("Pss_Anon")? + part("Pss_Shmem")? + part("SwapPss")?;
    let private = part("Private_Dirty")?.min(proportional);
    if dir.read_up_to("status", 8192, &mut buffer)?.is_none() {
        return Ok(None);
    }
    Ok(Some((Share { process, memory: of_status(&Fields(&buffer)), proportional, private }, cost)))
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
