//! The record of an exited process.

use std::sync::Arc;
use std::time::Duration;

use super::memory_trail::MemoryGrowth;
use super::signal_note::SignalNote;
use crate::process::TrackedProcess;
use watchdog_api::{DeathSeries, HostThen, ProcessKind};
use watchdog_classify as classify;
use watchdog_types::signals::{SIGKILL, SIGPIPE};
use watchdog_types::{BootTime, Bytes, ExitStatus, HostMemory, Image, Limits, Pid, ProcessId, SessionId, Ticks, Uid};

/// A failed tool is notable from this age.
const NOTABLE_AGE: Duration = Duration::from_secs(60);
/// A writer whose reader exits first is ordinary: `… | head`.
const NOTABLE_PIPE_AGE: Duration = Duration::from_secs(10);
/// Any exit is notable from this peak.
const NOTABLE_PEAK: Bytes = Bytes::from_mib(512);

#[derive(Clone, Debug)]
pub(super) struct ExitedProcess {
    pub(super) id: ProcessId,
    pub(super) at: BootTime,
    /// When the engine received the event.
    pub(super) heard: BootTime,
    /// `None` for an OOM victim outside all sessions.
    pub(super) session: Option<SessionId>,
    /// Copied: the session may be forgotten earlier.
    pub(super) profile: Option<String>,
    pub(super) kind: Option<ProcessKind>,
    pub(super) uid: Option<Uid>,
    pub(super) parent: Option<ProcessId>,
    pub(super) parent_pid: Option<Pid>,
    /// The processes of its session above it, the nearest first.
    pub(super) ancestors: Box<[ProcessId]>,
    /// Of an agent without a terminal: the processes further above, the nearest first.
    pub(super) above: Vec<Pid>,
    pub(super) comm: String,
    pub(super) image: Arc<Image>,
    pub(super) status: Option<ExitStatus>,
    pub(super) peak: Bytes,
    pub(super) last: Bytes,
    pub(super) growth: Option<MemoryGrowth>,
    pub(super) limits: Option<Box<Limits>>,
    pub(super) signals: Vec<SignalNote>,
    pub(super) host: HostMemory,
    /// Recorded by the kernel programs, read by a later daemon.
    pub(super) while_no_daemon_ran: bool,
    /// The OOM kill that it is the victim of.
    pub(super) oom: Option<u64>,
    /// Known once the exit is explained.
    pub(super) series: Option<DeathSeries>,
}

impl ExitedProcess {
    /// From a process that was just marked dead and still has its memory.
    pub(super) fn of(
        process: &mut TrackedProcess,
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
            ancestors: Box::default(),
            above: Vec::new(),
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
            series: None,
            oom: None,
        }
    }

    /// An OOM victim outside all sessions: little more than its name is known.
    pub(super) fn outside_sessions(
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
            ancestors: Box::default(),
            above: Vec::new(),
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
            series: None,
            oom: None,
        }
    }

    /// `None` where the kernel reported only a pid.
    pub(super) fn age(&self) -> Option<Duration> {
        (self.id.start_time > Ticks(0)).then(|| self.at.since(BootTime::from(self.id.start_time)))
    }

    pub(super) fn is_agent(&self) -> bool {
        matches!(self.kind, Some(ProcessKind::Agent | ProcessKind::Subagent))
    }

    /// Whether the exit belongs in the history. An agent starts thousands of short tools in an hour; of those only abnormal
    /// exits do.
    pub(super) fn is_notable(&self) -> bool {
        let lived = self.age().unwrap_or_default();
        let badly = match self.status {
            Some(ExitStatus::Signal(SIGPIPE)) => lived >= NOTABLE_PIPE_AGE,
            Some(ExitStatus::Signal(_) | ExitStatus::Code(128..)) => true,
            Some(ExitStatus::Code(0)) => false,
            Some(ExitStatus::Code(_)) | None => lived >= NOTABLE_AGE,
        };
        badly || self.is_agent() || self.oom.is_some() || self.peak >= NOTABLE_PEAK
    }

    /// The program or script, without arguments.
    pub(super) fn name(&self) -> String {
        classify::label(&self.image, &self.comm)
    }
}

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
