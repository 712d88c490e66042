//! Removes user-written arguments from recorded inputs, see [`ArgumentRedactor`].

use watchdog_classify::ArgumentRedactor;
use watchdog_config::Profile;
use watchdog_engine::gate::{GateRecord, Launch};
use watchdog_engine::input::Input;
use watchdog_types::{Exec, Image, KernelEvent, Scan, ScannedProcess};

/// Redacts every image in an input, except a first argument that a profile needs.
#[derive(Debug)]
pub struct Redactor {
    profiles: Vec<Profile>,
    arguments: ArgumentRedactor,
}

impl Redactor {
    /// `profiles` decide which first arguments stay.
    #[must_use]
    pub fn new(profiles: &[Profile]) -> Self {
        Self { profiles: profiles.to_vec(), arguments: ArgumentRedactor::default() }
    }

    /// Equal arguments keep their marks.
    pub fn set_profiles(&mut self, profiles: &[Profile]) {
        self.profiles = profiles.to_vec();
    }

    /// Redacts every image in an input.
    pub fn input(&self, input: &mut Input) {
        match input {
            // All fields by name, so that a new one cannot be forgotten.
            Input::Kernel(KernelEvent::Exec(Exec {
                image,
                at: _,
                process: _,
                lineage: _,
                uid: _,
                ppid: _,
                comm: _,
            })) => self.image(image),
            Input::Scan(Scan { began: _, processes }) => {
                for ScannedProcess { image, process: _, ppid: _, uid: _, comm: _, titled: _, zombie: _, lineage: _, memory: _ } in
                    processes
                {
                    self.image(image);
                }
            }
            Input::Launch(launch) => self.launch(launch),
            Input::Restore(restored) => {
                for record in &mut restored.records {
                    if let GateRecord::Queued { at: _, launch } = record {
                        self.launch(launch);
                    }
                }
            }
            Input::Kernel(
                KernelEvent::Fork(_)
                | KernelEvent::Exit(_)
                | KernelEvent::Oom(_)
                | KernelEvent::Signal(_)
                | KernelEvent::MemoryStep(_)
                | KernelEvent::Reclaim(_)
                | KernelEvent::Denied(_),
            )
            | Input::Lost(_)
            | Input::Samples(_)
            | Input::Zombies(_)
            | Input::Containers(..)
            | Input::Inspected(..)
            | Input::Limits(..)
            | Input::Shares(_)
            | Input::KillSeen(..)
            | Input::OomSeen(_)
            | Input::OwnProcess(_)
            | Input::Host(_)
            | Input::Activity(_)
            | Input::Tmpfs(_)
            | Input::Surroundings(_)
            | Input::Tasks(_)
            | Input::Adopt(_)
            | Input::CgroupLimits(..)
            | Input::LaunchTasks(..)
            | Input::CancelLaunch(..)
            | Input::Absence(_)
            | Input::Subagent(_)
            | Input::Confined(..)
            | Input::CgroupMembers(..)
            | Input::Permissions(_)
            // Targets have a program name, never an argument.
            | Input::ResumeActions(_)
            | Input::RequestAction(_)
            | Input::UserIds(_)
            | Input::BatchResult(_)
            | Input::Unadopt(_)
            | Input::PagedOut { .. }
            | Input::RequestReclaim(_)
            | Input::FleetAnswer(_)
            | Input::FleetWake
            | Input::Tick => {}
        }
    }

    fn launch(&self, launch: &mut Launch) {
        let Launch {
            image,
            process: _,
            ppid: _,
            uid: _,
            comm: _,
            profile: _,
            priority: _,
            timeout: _,
            waits: _,
            memory: _,
            cgroups: _,
            tasks: _,
            ticket,
        } = launch;
        // It is a secret for as long as it is valid.
        *ticket = None;
        self.image(image);
    }

    pub fn image(&self, image: &mut Image) {
        // Keep the first argument where a profile would decide differently about its mark.
        self.arguments
            .image(image, |first, mark| self.profiles.iter().any(|profile| profile.distinguishes(first, mark)));
    }
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
