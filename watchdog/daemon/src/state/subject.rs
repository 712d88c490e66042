//! Which process an input is about.

use watchdog_engine::input::Input;
use watchdog_types::{KernelEvent, ProcessId};

/// The process that an input is about, if it is about one.
pub(super) fn subject(input: &Input) -> Option<ProcessId> {
    match input {
        Input::Kernel(event) => match event {
            KernelEvent::Fork(fork) => Some(fork.process),
            KernelEvent::Exec(exec) => Some(exec.process),
            KernelEvent::Exit(exit) => Some(exit.process),
            KernelEvent::Oom(oom) => oom.process,
            KernelEvent::Signal(signal) => Some(signal.process),
            KernelEvent::MemoryStep(sample) => Some(sample.process),
            KernelEvent::Reclaim(reclaim) => Some(reclaim.process),
            KernelEvent::Denied(denied) => Some(denied.process),
        },
        Input::KillSeen(kill, _) => Some(kill.target),
        Input::Inspected(process, _)
        | Input::Containers(process, _)
        | Input::Limits(process, _)
        | Input::Adopt(process)
        | Input::Unadopt(process) => Some(*process),
        Input::FleetAnswer(_)
        | Input::FleetWake
        | Input::Lost(_)
        | Input::Scan(_)
        | Input::Samples(_)
        | Input::Zombies(_)
        | Input::Shares(_)
        | Input::OomSeen(_)
        | Input::OwnProcess(_)
        | Input::Host(_)
        | Input::Activity(_)
        | Input::Tmpfs(_)
        | Input::Surroundings(_)
        | Input::Tasks(_)
        | Input::Launch(_)
        | Input::CgroupLimits(..)
        | Input::LaunchTasks(..)
        | Input::CancelLaunch(..)
        | Input::Restore(_)
        | Input::Absence(_)
        | Input::Subagent(_)
        | Input::Confined(..)
        | Input::CgroupMembers(..)
        | Input::Permissions(_)
        | Input::ResumeActions(_)
        | Input::RequestAction(_)
        | Input::BatchResult(_)
        | Input::UserIds(_)
        | Input::PagedOut { .. }
        | Input::RequestReclaim(_)
        | Input::Tick => None,
    }
}
