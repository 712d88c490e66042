//! Which agents must not start past the gate.

use std::collections::BTreeSet;

use watchdog_common::FileId;

use super::error::KernelError;
use super::lsm;
use super::tracer::Tracer;

impl Tracer {
    /// Denies processes outside [limited](Self::limit_session) sessions to execute a file with one of these names, or one of the
    /// [files](Self::set_denied_files), when `on`. Where LSM programs work, the exec fails with EPERM. Elsewhere the process
    /// is killed at its exec, before the first instruction of the new program.
    ///
    /// A name is the last component of the path as it was passed to exec, or the file's own, behind links and
    /// descriptors. A file that was executed while its only name was denied is denied from then on under each name. Where
    /// LSM programs do not work, a script is matched by its path alone: its interpreter has replaced it when it can be killed.
    ///
    /// # Errors
    /// When the kernel cannot count, so that gated sessions are not known: then nothing is denied. When a map cannot
    /// be written, or the kernel refuses to attach or detach the program.
    pub fn set_denied(&mut self, names: &[Vec<u8>], on: bool) -> Result<(), KernelError> {
        if on {
            self.features.counting.clone().map_err(KernelError::Off)?;
            self.save_heartbeat()?;
        }
        self.denied.set_names(if on { names } else { &[] })?;
        let lsm = self.features.lsm.is_ok();
        self.denied.set_kill(on && !lsm)?;
        let link = self.denied.exec_link.take();
        self.denied.exec_link = lsm::toggle(&mut self.ebpf, lsm::EXEC_DENIAL, link, on && lsm)?;
        Ok(())
    }

    /// Replaces the files that are denied under any name; writes differences only.
    pub fn set_denied_files(&mut self, files: &BTreeSet<FileId>) -> Result<(), KernelError> {
        self.denied.set_files(files)
    }

    /// Whether the LSM programs that refuse forks, and execs, are attached.
    #[must_use]
    pub fn attached_refusals(&self) -> (bool, bool) {
        (self.sessions.fork_link.is_some(), self.denied.exec_link.is_some())
    }
}
