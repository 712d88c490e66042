//! Whether a process runs, exits or is a zombie, by /proc.

use procfs::process::{Stat, StatFlags, Task};
use procfs::{ProcError, ProcResult};
use watchdog_common::NANOS_PER_TICK;

use super::error::KernelError;
use watchdog_types::{ProcessId, Ticks};

pub(super) enum Liveness {
    /// Its exit is yet to be reported: an entry made before this check is there by then.
    Alive,
    Exiting,
    /// Its exit was reported, or was missed.
    Zombie,
}

/// `None` when there is no such process.
///
/// Before the tracepoint on the last thread's exit, the kernel marks every thread as exiting (kernel/exit.c, `do_exit`). So while
/// one is not marked, no exit was reported. To look for a zombie would be too late: since Linux 6.16 the tracepoint precedes
/// the release of the address space, which may take seconds.
pub(super) fn state_of(process: ProcessId) -> Result<Option<Liveness>, KernelError> {
    let state = || -> ProcResult<Liveness> {
        let found = procfs::process::Process::new(process.pid.0.cast_signed())?;
        let stat = || -> ProcResult<Stat> {
            let stat = found.stat()?;
            if Ticks(stat.starttime) == process.start_time { Ok(stat) } else { Err(ProcError::NotFound(None)) }
        };
        let lives = || stat().map(|stat| stat.flags & StatFlags::PF_EXITING.bits() == 0);
        // The leader may exit long before the others. A thread that calls exec takes the leader's place, and is in neither place
        // for a moment: so the leader is read again.
        let other = |task: ProcResult<Task>| {
            task.and_then(|task| task.stat()).is_ok_and(|stat| stat.flags & StatFlags::PF_EXITING.bits() == 0)
        };
        let lives = lives()? || found.tasks()?.any(other) || lives()?;
        if lives {
            return Ok(Liveness::Alive);
        }
        // It becomes a zombie after the tracepoint.
        let Stat { state, num_threads, .. } = stat()?;
        Ok(if state == 'Z' && num_threads <= 1 { Liveness::Zombie } else { Liveness::Exiting })
    };
    match state() {
        Ok(state) => Ok(Some(state)),
        Err(ProcError::NotFound(_)) => Ok(None),
        Err(source) => Err(KernelError::State(process, source)),
    }
}

/// The kernel's start in nanoseconds, rounded down to the tick.
pub(super) fn start_of(process: ProcessId) -> u64 {
    process.start_time.0.saturating_mul(NANOS_PER_TICK)
}
