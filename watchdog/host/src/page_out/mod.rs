//! Pages out idle processes: anonymous memory moves to swap, and clean pages of files are dropped. Both return when the
//! process uses them.
//!
//! - [`ranges`]: resident memory; [`exclusion`]: processes that are never paged out
//! - [`advice`] calls process_madvise(2)
//! - [`pace`]: rate, budget, and swap reserve
//!
//! memory.reclaim of a session's cgroup is not used. It includes processes that must not be paged out, and its writer counts as
//! stalled by memory pressure (`user_proactive_reclaim` of mm/vmscan.c), which cancels page-outs.

mod advice;
mod exclusion;
mod outcome;
mod pace;
mod ranges;
mod target;

use std::time::Instant;

use rustix::io::Errno;
use rustix::process::setpriority_process;

use super::clock;
use super::error::HostError;
pub(crate) use advice::try_advice;
use outcome::{of_errno, of_error};
use pace::Pace;
use target::PageOutTarget;
use watchdog_types::{Memory, PageOut, PageOutOutcome, PageOutProcess, PageOutStop, PagedOut, PagedOutProcess};

/// Nice value of the worker. Not SCHED_IDLE: the kernel holds memory locks of the target during a call, so a worker without
/// CPU time would block the target.
const NICE: i32 = 19;
/// `IOPRIO_WHO_PROCESS`, and the value of `IOPRIO_CLASS_IDLE` (include/uapi/linux/ioprio.h).
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const IOPRIO_IDLE: libc::c_int = 3 << 13;

/// Pages out the processes of an order. Blocks, for minutes at a low rate. `proceed` is called between two system calls of at
/// most 16 MiB each; `false` cancels the rest.
///
/// Each process is identified right before its first call, and referred to by a pidfd from then on.
#[must_use]
pub fn page_out(order: &PageOut, proceed: &dyn Fn() -> bool) -> PagedOut {
    let (began, cpu) = (Instant::now(), clock::thread_cpu());
    let mut pace = Pace::new(order.rate, order.reserve, proceed);
    let supported = try_advice();
    let each = order.processes.iter().map(|process| match supported {
        Ok(()) => one(*process, &mut pace),
        Err(errno) => unread(*process, of_errno(errno)),
    });
    let processes = each.collect();
    let (number, session) = (order.number, order.session);
    let cpu = clock::thread_cpu().saturating_sub(cpu);
    PagedOut { number, session, processes, took: began.elapsed(), cpu }
}

/// Permanently gives the calling thread the lowest CPU and I/O priority.
///
/// # Errors
/// When a system call fails; the kernel always permits lowering a priority.
pub fn lower_priority() -> Result<(), HostError> {
    let failed = |errno: Errno| HostError::io("lower the priority of", "/proc/thread-self", errno);
    setpriority_process(None, NICE).map_err(failed)?;
    // SAFETY: the call takes three numbers, and 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE) };
    match set {
        0 => Ok(()),
        _ => Err(failed(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))),
    }
}

fn one(process: PageOutProcess, pace: &mut Pace<'_>) -> PagedOutProcess {
    if !pace.may_proceed() {
        return unread(process, PageOutOutcome::Stopped(PageOutStop::Cancelled));
    }
    let target = match PageOutTarget::find(process) {
        Ok(Ok(target)) => target,
        Ok(Err(outcome)) => return unread(process, outcome),
        Err(error) => return unread(process, of_error(&error)),
    };
    let before = target.memory;
    let (after, outcome) = target.page_out(process.budget, pace);
    PagedOutProcess { id: process.id, before, after, outcome }
}

fn unread(process: PageOutProcess, outcome: PageOutOutcome) -> PagedOutProcess {
    PagedOutProcess { id: process.id, before: Memory::default(), after: Memory::default(), outcome }
}

#[cfg(test)]
mod tests;
