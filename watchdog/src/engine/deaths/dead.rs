//! What is remembered of a process that died.

use std::sync::Arc;
use std::time::Duration;

use super::signals::Note;
use super::trail::Growth;
use crate::api::{HostThen, ProcessKind};
use crate::engine::classify;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Ticks, Uid};
use crate::engine::input::{ExitStatus, HostMemory, Image, Limits};
use crate::engine::process::Process;
use crate::signals::{SIGKILL, SIGPIPE};

/// A tool that ran this long, and failed, is worth remembering.
const LONG: Duration = Duration::from_secs(60);
/// A reader that goes before its writer is everyday: `… | head`.
const LONG_FOR_A_PIPE: Duration = Duration::from_secs(10);
/// A peak that is worth remembering, however its process ended.
const BIG: Bytes = Bytes::from_mib(512);

/// A process that died, with what was known of it at that moment.
#[derive(Clone, Debug)]
pub(super) struct Dead {
    pub(super) id: ProcessId,
    pub(super) at: BootTime,
    /// When the engine heard of it.
    pub(super) heard: BootTime,
    /// `None` of a victim of the OOM killer that belongs to no session.
    pub(super) session: Option<SessionId>,
    /// That session's, which may be forgotten earlier.
    pub(super) profile: Option<String>,
    pub(super) kind: Option<ProcessKind>,
    pub(super) uid: Option<Uid>,
    pub(super) parent: Option<ProcessId>,
    pub(super) parent_pid: Option<Pid>,
    pub(super) comm: String,
    pub(super) image: Arc<Image>,
    pub(super) status: Option<ExitStatus>,
    pub(super) peak: Bytes,
    pub(super) last: Bytes,
    pub(super) growth: Option<Growth>,
    pub(super) limits: Option<Box<Limits>>,
    pub(super) signals: Vec<Note>,
    pub(super) host: HostMemory,
    /// Its exit was recorded by the kernel programs and read by a later daemon.
    pub(super) while_no_daemon_ran: bool,
    /// The number of the OOM killer's choice of it.
    pub(super) oom: Option<u64>,
}

impl Dead {
    /// A process of the table that has just been buried, and still has its memory.
    pub(super) fn of(
        process: &mut Process,
        profile: Option<String>,
        at: BootTime,
        heard: BootTime,
        host: HostMemory,
    ) -> Self {
        let last = process.cost();
        Self {
            id: process.id,
            at,
            heard,
            session: Some(process.session),
            profile,
            kind: Some(process.kind),
            uid: Some(process.uid),
            parent: process.forked_by,
            parent_pid: Some(process.forked_by.map_or(process.first_ppid, |parent| parent.pid)),
            comm: process.comm.clone(),
            image: Arc::clone(&process.image),
            status: process.died().and_then(|(_, status)| status),
            peak: process.peak,
            last,
            growth: process.trail.growth(at, last),
            limits: process.limits.take(),
            signals: process.signals.clone(),
            host,
            while_no_daemon_ran: false,
            oom: None,
        }
    }

    /// A victim of the OOM killer that belongs to no session: the kernel says little more than its name.
    pub(super) fn stranger(
        id: ProcessId,
        uid: Option<Uid>,
        comm: String,
        at: BootTime,
        heard: BootTime,
        host: HostMemory,
    ) -> Self {
        Self {
            id,
            at,
            heard,
            session: None,
            profile: None,
            kind: None,
            uid,
            parent: None,
            parent_pid: None,
            comm,
            image: Arc::default(),
            status: Some(ExitStatus::Signal(SIGKILL)),
            peak: Bytes(0),
            last: Bytes(0),
            growth: None,
            limits: None,
            signals: Vec::new(),
            host,
            while_no_daemon_ran: false,
            oom: None,
        }
    }

    /// How long it lived; `None` where the kernel told only its pid.
    pub(super) fn age(&self) -> Option<Duration> {
        (self.id.start_time > Ticks(0)).then(|| self.at.since(BootTime::from(self.id.start_time)))
    }

    fn is_agent(&self) -> bool {
        matches!(self.kind, Some(ProcessKind::Agent | ProcessKind::Subagent))
    }

    /// Whether it did not end as everyday processes do. An agent starts thousands of short tools in an hour; of those
    /// only what ended badly is worth a place in a history.
    pub(super) fn is_worth_knowing(&self) -> bool {
        let lived = self.age().unwrap_or_default();
        let badly = match self.status {
            Some(ExitStatus::Signal(SIGPIPE)) => lived >= LONG_FOR_A_PIPE,
            Some(ExitStatus::Signal(_) | ExitStatus::Code(128..)) => true,
            Some(ExitStatus::Code(0)) => false,
            Some(ExitStatus::Code(_)) | None => lived >= LONG,
        };
        badly || self.is_agent() || self.oom.is_some() || self.peak >= BIG
    }

    /// The program or script, without arguments.
    pub(super) fn name(&self) -> String {
        classify::label(&self.image, &self.comm)
    }
}

/// The memory of the host as it is told.
pub(super) fn host_then(host: &HostMemory) -> HostThen {
    HostThen {
        total_bytes: host.total.0,
        available_bytes: host.available.0,
        swap_total_bytes: host.swap_total.0,
        swap_free_bytes: host.swap_free.0,
        pressure_some_avg10: host.pressure_some_avg10,
        pressure_full_avg10: host.pressure_full_avg10,
    }
}
