//! How many processes of a gated session may live.
//!
//! The programs on fork and exit count at no measurable cost. Forks are refused by an LSM program, which is attached only while
//! a session has a limit.

use std::io::Read;

use procfs::ProcResult;
use procfs::process::Task;

use super::error::KernelError;
use super::gated_sessions::{CountedSession, SessionCount};
use super::lsm;
use super::programs::read_iterator;
use super::tracer::Tracer;
use watchdog_types::{Lineage, ProcessId};

/// Most reads of `recount` for one session. Each finds only what was being forked during the one before.
const RECOUNTS: usize = 16;

impl Tracer {
    /// Counts the session of this root from now on, and exempts it from the denial of execs. Where LSM programs work, refuses its
    /// forks with EAGAIN while `max_processes` of it live (the root included; `None` for no limit). Its present processes are
    /// counted too, and so are those of inner sessions without a limit of their own. A second call for the same root
    /// replaces the limit.
    ///
    /// The root must be [tracked](Self::track). Cost: one read of all threads of the host for a root without children, as one
    /// that was just launched; else two, and one more for each level of inner sessions.
    ///
    /// # Errors
    /// When the kernel cannot count, or the map is full. When it refuses to attach the program that refuses forks, the session
    /// is counted without its limit.
    pub fn limit_session(&mut self, root: ProcessId, max_processes: Option<u32>) -> Result<(), KernelError> {
        self.features.counting.clone().map_err(KernelError::Off)?;
        let before = self.sessions.of_root(root);
        if before.is_none_or(|session| session.max_processes != max_processes) {
            self.count_anew(root, max_processes, before)?;
        }
        self.attach_fork_limit()
    }

    /// Counts a session from 0, under a new number.
    fn count_anew(
        &mut self,
        root: ProcessId,
        max_processes: Option<u32>,
        before: Option<CountedSession>,
    ) -> Result<(), KernelError> {
        let number = self.sessions.allocate(root, max_processes)?;
        if let Err(error) = self.recount(root, number, before.map_or(0, |before| before.number)) {
            self.sessions.release(number)?;
            return Err(error);
        }
        self.sessions.insert(root, CountedSession { number, max_processes });
        before.map_or(Ok(()), |before| self.sessions.release(before.number))
    }

    /// Corrects the count of the session with this number after the programs missed an exit.
    pub(super) fn correct_count(&mut self, number: u32) -> Result<(), KernelError> {
        match self.sessions.with_number(number) {
            Some((root, session)) => self.count_anew(root, session.max_processes, Some(session)),
            None => Ok(()),
        }
    }

    /// Removes the limit and the count of this root's session. A session without them is left alone.
    ///
    /// # Errors
    /// When the map cannot be written, or a program not be detached.
    pub fn unlimit_session(&mut self, root: ProcessId) -> Result<(), KernelError> {
        if let Some(session) = self.sessions.remove(root) {
            // Its processes keep the number, which no other session ever gets.
            self.sessions.release(session.number)?;
        }
        self.attach_fork_limit()
    }

    /// The count of this root's session; `None` unless it is [limited](Self::limit_session).
    pub fn session_count(&self, root: ProcessId) -> Result<Option<SessionCount>, KernelError> {
        self.sessions.of_root(root).map(|session| self.sessions.count(session.number)).transpose()
    }

    /// Counts a process whose entry was made or changed, and which was counted under `counted`, in the session it belongs to. If
    /// that has no limit: where it was counted before, else where its root is counted, or the process that started the
    /// session.
    pub(super) fn count_in_session(
        &mut self,
        process: ProcessId,
        counted: u32,
        lineage: &Lineage,
    ) -> Result<(), KernelError> {
        if lineage.witness || self.features.counting.is_err() {
            return Ok(());
        }
        let number = match (self.sessions.number(lineage.root), counted) {
            (0, 0) if process != lineage.root => self.counted_under(lineage.root)?,
            (0, 0) => lineage.parent.map_or(Ok(0), |parent| self.counted_under(parent))?,
            (0, counted) => counted,
            (number, _) => number,
        };
        if number == counted { Ok(()) } else { self.recount(lineage.root, number, 0) }
    }

    /// Removes the session of this root from every count.
    pub(super) fn count_nowhere(&mut self, root: ProcessId) -> Result<(), KernelError> {
        self.recount(root, 0, 0)
    }

    /// Counts under `number` (nowhere, if it is 0) the living processes of this root's session and of inner sessions without
    /// a limit of their own. If `before` is not 0, also those counted there.
    fn recount(&mut self, root: ProcessId, number: u32, before: u32) -> Result<(), KernelError> {
        self.sessions.request_recount(root, number, before)?;
        for _ in 0..RECOUNTS {
            let mut found = Vec::new();
            read_iterator(&mut self.ebpf, "recount")?
                .read_to_end(&mut found)
                .map_err(|error| KernelError::Iterator("recount", error))?;
            // A child being forked is in its parent's list of children before it is counted under the old number.
            if found.is_empty() || found.len() == 1 && is_childless(root) {
                break;
            }
        }
        Ok(())
    }

    fn attach_fork_limit(&mut self) -> Result<(), KernelError> {
        let on = self.sessions.has_limit() && self.features.lsm.is_ok();
        let link = self.sessions.fork_link.take();
        self.sessions.fork_link = lsm::toggle(&mut self.ebpf, lsm::FORK_LIMIT, link, on)?;
        Ok(())
    }
}

/// Whether no thread of a process has a child; `false` also when that is not known.
fn is_childless(process: ProcessId) -> bool {
    let threads = procfs::process::Process::new(process.pid.0.cast_signed()).and_then(|found| found.tasks());
    let has_none =
        |thread: ProcResult<Task>| thread.and_then(|thread| thread.children()).is_ok_and(|all| all.is_empty());
    threads.is_ok_and(|mut threads| threads.all(has_none))
}
